#!/usr/bin/env bash
# bench/page: every figure and note of the recorded results is on the page, with the same verdict,
# each drawn where its ratio lies, and the page is well formed; what it cannot read it says. Rows of
# benchmarks in Python are judged and drawn as tierbench's are.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

point='"workload": "scale", "x_name": "clients", "y_name": "us", "curve":'
cat >"$work/curves.json" <<EOF
[{$point "p50 & <all>", "x": 1, "y": 10}, {$point "p50 & <all>", "x": 100, "y": 1},
 {$point "not there", "x": 1, "y": null}, {${point/clients/blocks} "one", "x": 10, "y": 10}]
EOF
bench/page bench/results/*.json "$work/curves.json" -o "$work/page.html"
# A falling line, from corner to corner of decades; a single point, in the middle of its axes.
grep -q 'points="60.0,12.0 420.0,222.0"' "$work/page.html"
grep -q 'points="240.0,117.0"' "$work/page.html"
grep -q '<title>p50 &amp; &lt;all&gt;: 1: 10, 100: 1</title>' "$work/page.html"
python3 - "$work/page.html" bench/results/*.json <<'PY'
import html.parser
import json
import sys

VOID = {"meta", "link", "br"}
OPTIONAL = {"th"}  # their end may be left out


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.cells, self.rows, self.text = [], [], [], []
        self.middles = 0

    def handle_starttag(self, tag, attrs):
        if tag not in VOID | OPTIONAL:
            self.open.append(tag)
        if tag == "tr":
            self.cells = []
        if tag == "td":
            self.cells.append("")
        self.middles += tag == "circle" and ("r", "4") in attrs

    def handle_startendtag(self, tag, attrs):
        self.middles += tag == "circle" and ("r", "4") in attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"
        if tag == "tr" and self.cells:
            self.rows.append(self.cells)

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


page = Page()
with open(sys.argv[1], encoding="utf-8") as f:
    page.feed(f.read())
assert not page.open, page.open
last, notes = {}, []
for path in sys.argv[2:]:
    with open(path, encoding="utf-8") as f:
        for row in json.load(f):
            if "figure" in row:
                last[(row["workload"], row["figure"], row["unit"])] = row
            else:
                notes.append(row["note"])
assert len(page.rows) == len(last) == page.middles, (len(page.rows), len(last), page.middles)
expected = sorted((r["figure"], r["verdict"], r["against"]) for r in last.values())
assert sorted((c[0], c[5], c[6]) for c in page.rows) == expected
text = "".join(page.text)
assert all(note in text for note in notes)
print(f"{len(page.rows)} figures, {len(notes)} notes")
PY

# A row of each verdict beside those of a file, twice: they are there once.
cp "$work/curves.json" "$work/rows.json"
for _ in 1 2; do
	python3 - "$work/rows.json" <<'PY'
import sys

sys.dont_write_bytecode = True
sys.path.append("bench/engines")
from rows import Rows

rows, peer = Rows("turns-lmcache"), [10.0] * 7
for figure, own in (("at once", [5, 6, 5, 6, 5, 6, 5]), ("later", [20, 21] * 3 + [20]),
                    ("now and then", [5, 20] * 3 + [10]), ("few", [5] * 6)):
    rows.judge(figure, "ms", "a peer", 0.737, own, peer[:len(own)])
rows.curve(("turn", "ms"), "tier", [(1, 2.5), (2, 3.5)])
rows.note("what it was")
rows.add_to(sys.argv[1])
PY
done
bench/page "$work/rows.json" -o "$work/page.html"
python3 - "$work/page.html" <<'PY'
import re
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    text = f.read()
rows = re.findall(r"<tr><td>(.*?)</td>.*?<td class=(?:met|short|tell)>(.*?)</td>", text)
assert rows == [("at once", "met"), ("later", "short"), ("now and then", "cannot tell"),
                ("few", "cannot tell")], rows
assert text.count("<title>tier: 1: 2.5, 2: 3.5</title>") == 1
assert text.count("what it was") == 1 and text.count("p50 &amp; &lt;all&gt;: ") == 1
PY
bench/compare --all "$work/rows.json" "$work/rows.json" >"$work/out"
grep -q "cannot tell.*turns-lmcache: later" "$work/out"

echo '[{"figure": "alone"}]' >"$work/bad.json"
for bad in "$work/bad.json" "$work/none.json"; do
	if bench/page "$bad" >/dev/null 2>"$work/out"; then
		echo "bench_page: $bad must be refused" >&2
		exit 1
	fi
	grep -q "^page: $bad: " "$work/out"
done
