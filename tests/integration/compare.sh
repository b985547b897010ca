#!/usr/bin/env bash
# bench/compare: p-values as the tables of Mann and Whitney have them; of runs of one distribution
# few are told apart, a shift of six per cent in noise of two is; what it cannot read it says.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 - "$work" <<'PY'
import importlib.machinery
import importlib.util
import json
import random
import sys

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("compare", "bench/compare")
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
loader.exec_module(compare)


def row(figure, value, peer, goal="ratio <= 1"):
    return {"workload": "made", "figure": figure, "unit": "us", "value": value[0], "goal": goal,
            "rounds": value, "peer_rounds": peer}


def noisy(median, n=9):
    return [random.gauss(median, median * 0.02) for _ in range(n)]


# Tables of U: nothing overlaps; 3 and 3 leave 2 of 20 orders, 7 and 7 two of 3,432. With ties, by
# hand: of the 6 choices of two of 1 1 1 2 all three without the 2 are as far as 1 1.
assert abs(compare.mann_whitney([1, 2, 3], [4, 5, 6]) - 0.1) < 1e-12
assert abs(compare.mann_whitney(list(range(7)), list(range(7, 14))) - 2 / 3432) < 1e-12
assert compare.mann_whitney([1, 4, 5, 8], [2, 3, 6, 7]) == 1.0
assert compare.mann_whitney([1, 2], [1, 1]) == 1.0

random.seed(20261124)
wrong = missed = turned = 0
for _ in range(200):
    old, new = {}, {}
    for i in range(5):
        hour = random.uniform(0.6, 1.6)  # slows value and peer alike
        old[i] = row(str(i), noisy(100), noisy(100))
        shift = 1.06 if i == 0 else 1
        new[i] = row(str(i), noisy(100 * hour * shift), noisy(100 * hour))
    verdicts = [r[1] for r in compare.judge(old, new, 0.05)]
    missed += verdicts[0] != compare.SLOWER
    turned += verdicts[0] == compare.FASTER
    wrong += sum(v in (compare.FASTER, compare.SLOWER) for v in verdicts[1:])
print(f"told wrongly {wrong} of 800, missed {missed} of 200")
assert wrong <= 25 and missed <= 40 and turned == 0

for name, shift in ("before", 1), ("after", 1.2):
    rows = [row("slower", noisy(100 * shift), noisy(100)),
            row("more", noisy(100 * shift), noisy(100), "ratio >= 1")]
    with open(f"{sys.argv[1]}/{name}.json", "w", encoding="utf-8") as f:
        json.dump(rows, f)
PY

if bench/compare "$work/before.json" "$work/after.json" >"$work/out"; then
	echo "compare: what is slower must end with 1" >&2
	exit 1
fi
grep -q '^slower .*made: slower$' "$work/out"
grep -q '^faster .*made: more$' "$work/out"
bench/compare "$work/before.json" "$work/before.json" >"$work/out"
grep -q '^2 figures: 0 faster, 0 slower, 2 cannot tell' "$work/out"

echo '[{"figure": 1}]' >"$work/odd.json"
for bad in "$work/odd.json" "$work/missing.json" /dev/null; do
	status=0
	bench/compare "$work/before.json" "$bad" 2>"$work/err" || status=$?
	[ "$status" = 2 ] && grep -q "^compare: $bad: " "$work/err"
done
