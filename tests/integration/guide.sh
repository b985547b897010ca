#!/usr/bin/env bash
# docs/guide: each alarm has its paragraph, and each metric and label that rules, dashboard and
# pages name is served by a daemon. promtool judges the rules where it is installed.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/lib/daemon.sh

daemon_start metrics.socket="$TMPDIR/metrics.sock"
"$BUILD/tierctl" context create guide --preset tiny >/dev/null
sleep 0.3 # a snapshot each 100 ms
curl -sS --unix-socket "$TMPDIR/metrics.sock" http://localhost/metrics >"$TMPDIR/served"
daemon_stop
python3 - "$TMPDIR/served" <<'PY'
import json
import re
import sys

served = open(sys.argv[1], encoding="utf-8").read()
names = set(re.findall(r"^([a-z_]+)(?:\{| )", served, re.M))
labels = set(re.findall(r'[{,]([a-z_]+)="', served)) | {"instance"}
rules = open("docs/guide/alerts.yml", encoding="utf-8").read()
alarms = open("docs/guide/alarms.md", encoding="utf-8").read()
pages = alarms + "".join(open(f"docs/guide/{p}.md", encoding="utf-8").read()
                         for p in ("running", "sizing"))
dashboard = json.load(open("docs/guide/dashboard.json", encoding="utf-8"))
queries = [t["expr"] for p in dashboard["panels"] for t in p["targets"]]
legends = [t["legendFormat"] for p in dashboard["panels"] for t in p["targets"]]

told = re.findall(r"^\*\*(\w+)\*\*", alarms, re.M)
assert sorted(re.findall(r"alert: (\w+)", rules)) == sorted(told)
used = set(re.findall(r"\btier_[a-z_]+", "\n".join([rules, pages, *queries])))
assert not used - names, f"not served: {sorted(used - names)}"
by = {w for q in [rules, *queries] for g in re.findall(r"by \(([^)]*)\)", q) for w in g.split(", ")}
by |= {w for legend in legends for w in re.findall(r"{{(\w+)}}", legend)}
assert not by - labels, f"no such label: {sorted(by - labels)}"
print(f"{len(used)} metrics, {len(queries)} queries")
PY
if command -v promtool >/dev/null; then
	promtool check rules docs/guide/alerts.yml
else
	echo 'promtool: not installed, not asked'
fi
