"""Rows, notes and curves of a benchmark in Python, judged and written as tierbench does
(bench/result.c), for bench/page and bench/compare.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import random
import statistics

ROUNDS_MIN, RESAMPLES = 7, 2000


def interval(values):
    """The 95 % bootstrap interval of the median."""
    draw = random.Random(1)  # the same every time
    medians = sorted(statistics.median(draw.choices(values, k=len(values)))
                     for _ in range(RESAMPLES))
    return medians[RESAMPLES // 40], medians[-1 - RESAMPLES // 40]


class Rows:
    def __init__(self, workload):
        self.workload, self.rows, self.notes = workload, [], []

    def note(self, text):
        self.notes.append({"workload": self.workload, "note": text})

    def curve(self, axes, name, points):
        self.notes += [{"workload": self.workload, "curve": name, "x_name": axes[0],
                        "y_name": axes[1], "x": x, "y": y} for x, y in points]

    def judge(self, figure, unit, against, most, rounds, peer_rounds):
        """rounds beside those of the peer: their ratio is to be `most`, or less."""
        ratios = [own / peer for own, peer in zip(rounds, peer_rounds)]
        low, high = interval(ratios)
        verdict = ("cannot tell" if len(ratios) < ROUNDS_MIN or low <= most < high
                   else "met" if high <= most else "short")
        row = {"workload": self.workload, "figure": figure, "unit": unit, "against": against,
               "value": statistics.median(rounds), "against_value": statistics.median(peer_rounds),
               "ratio": statistics.median(ratios), "goal": f"ratio <= {most:.3g}",
               "verdict": verdict, "spread": [low, high], "rounds": rounds,
               "peer_rounds": peer_rounds}
        self.rows.append(row)
        return row

    def add_to(self, path):
        """In place of what the file has of this workload; it is there as a whole or not at all."""
        before = []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                before = [row for row in json.load(file) if row["workload"] != self.workload]
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(before + self.notes + self.rows, file, indent=1)
        os.replace(f"{path}.new", path)
