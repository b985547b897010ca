"""Does a series of a long run grow? Trend tests for the aging gate; needs no library.

- Mann-Kendall with the variance of Hamed and Rao (J. Hydrology 204, 1998): ranks of the detrended
  series, significant autocorrelations only.
- Theil-Sen slope; its interval by ranks (Sen, JASA 63, 1968), widened for AR(1) noise by
  sqrt((1 + r) / (1 - r)).
- Benjamini-Hochberg (J. R. Stat. Soc. B 57, 1995) over the series of a run.

SPDX-License-Identifier: Apache-2.0
"""
import bisect
import math
import random
from statistics import NormalDist

NORMAL = NormalDist()
Z95 = NORMAL.inv_cdf(0.975)
P_SERIES = 0.01     # of Mann-Kendall, of one series
RATE = 0.10         # false discoveries among the flagged
CORRELATED = 0.9    # AR(1): what the noise of so few points can be told to be, at most


def median(values):
    s = sorted(values)
    half = len(s) // 2
    return s[half] if len(s) % 2 else (s[half - 1] + s[half]) / 2


def ranks(values):
    """Of each value, from 1 on; ties share the mean of theirs."""
    s = sorted(values)
    return [(bisect.bisect_left(s, v) + bisect.bisect_right(s, v) + 1) / 2 for v in values]


def slopes(values):
    """Of all pairs, in units a step; sorted."""
    n = len(values)
    return sorted((values[j] - values[i]) / (j - i) for i in range(n) for j in range(i + 1, n))


def autocorrelation(values, lags):
    n = len(values)
    mean = sum(values) / n
    d = [v - mean for v in values]
    whole = sum(x * x for x in d)
    if whole == 0:
        return [0.0] * lags
    return [sum(a * b for a, b in zip(d, d[k:])) / whole for k in range(1, lags + 1)]


def detrended(values, slope):
    return [v - slope * i for i, v in enumerate(values, 1)]


def mann_kendall(values, widened):
    """(p of no trend, variance of S), which is so much wider than of independent values."""
    n = len(values)
    s = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1:])
    ties = {}
    for v in values:
        ties[v] = ties.get(v, 0) + 1
    var = n * (n - 1) * (2 * n + 5)
    var -= sum(t * (t - 1) * (2 * t + 5) for t in ties.values())
    var /= 18
    if var == 0:
        return 1.0, 0.0
    var *= widened
    z = (s - (s > 0) + (s < 0)) / math.sqrt(var)
    return 2 * (1 - NORMAL.cdf(abs(z))), var


def correction(values, slope):
    """By how much more S varies than of independent values (Hamed and Rao's n / n*)."""
    n = len(values)
    limit = Z95 / math.sqrt(n)
    r = autocorrelation(ranks(detrended(values, slope)), n - 1)
    total = sum((n - k) * (n - k - 1) * (n - k - 2) * r[k - 1]
                for k in range(1, n) if abs(r[k - 1]) >= limit)
    return 1 + 2 / (n * (n - 1) * (n - 2)) * total


def interval(all_slopes, deviation):
    """The 95 % interval of the slope; deviation: of S."""
    count, width = len(all_slopes), Z95 * deviation
    low = max(round((count - width) / 2) - 1, 0)
    high = min(round((count + width) / 2), count - 1)
    return all_slopes[low], all_slopes[high]


def trend(values):
    """p, slope and its 95 % interval, a step."""
    all_slopes = slopes(values)
    slope = median(all_slopes)
    p, var = mann_kendall(values, max(correction(values, slope), 1.0))
    r = min(max(autocorrelation(detrended(values, slope), 1)[0], 0.0), CORRELATED)
    low, high = interval(all_slopes, math.sqrt(var * (1 + r) / (1 - r)))
    return {"p": p, "slope": slope, "low": low, "high": high}


def discoveries(p_values, rate=RATE):
    """Benjamini-Hochberg: which of them are rejected."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    last = 0
    for place, i in enumerate(order, 1):
        if p_values[i] <= rate * place / len(p_values):
            last = place
    return [i in order[:last] for i in range(len(p_values))]


def judge(family):
    """family: {name: (values, least slope a step)}. The same with trend and `grows`."""
    told = {name: trend(values) for name, (values, _) in family.items()}
    found = discoveries([t["p"] for t in told.values()])
    for (name, t), rejected in zip(told.items(), found):
        t["least"] = family[name][1]
        t["grows"] = rejected and t["p"] < P_SERIES and t["low"] > t["least"]
    return told


def made_up(random_, n, noise):
    """AR(1) about a level: noise has mean, sd and r (lag 1) of a real series."""
    r, inner = noise["r"], noise["sd"] * math.sqrt(1 - noise["r"] ** 2)
    x, out = random_.gauss(0, noise["sd"]), []
    for _ in range(n):
        out.append(noise["mean"] + x)
        x = r * x + random_.gauss(0, inner)
    return out


def noise_of(values):
    """Of a real series about its trend."""
    rest = detrended(values, median(slopes(values)))
    mean = sum(rest) / len(rest)
    sd = math.sqrt(sum((v - mean) ** 2 for v in rest) / (len(rest) - 1))
    return {"mean": mean, "sd": sd,
            "r": min(max(autocorrelation(rest, 1)[0], 0.0), CORRELATED)}


def flagged_of_made_up(noises, least, families, n, seed, leak=None):
    """
    How many of so many families have a series that is said to grow. They have no trend, but for
    leak: (name, slope a step).
    """
    random_, flagged = random.Random(seed), 0
    for _ in range(families):
        series = {name: made_up(random_, n, noise) for name, noise in noises.items()}
        if leak:
            series[leak[0]] = [v + i * leak[1] for i, v in enumerate(series[leak[0]])]
        told = judge({name: (values, least[name]) for name, values in series.items()})
        flagged += any(t["grows"] for t in told.values())
    return flagged
