#!/usr/bin/env bash
# docs/guide: each alarm has its paragraph, and each metric and label that rules, dashboard and
# pages name is served by a daemon. Where they are installed promtool judges the rules, and a
# Prometheus that scraped the daemon answers each query of the dashboard. With DEMO=1 that is the
# demo's, while it runs (make demo-scraped).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/lib/daemon.sh

free_port() {
	python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}
port=$(free_port)
daemon_start metrics.socket="$TMPDIR/metrics.sock" metrics.port="$port"
"$BUILD/tierctl" context create guide --preset tiny >/dev/null
sleep 0.3 # a snapshot each 100 ms
curl -sS --unix-socket "$TMPDIR/metrics.sock" http://localhost/metrics >"$TMPDIR/served"
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
command -v prometheus >/dev/null || { echo 'prometheus: not installed, not asked'; exit 0; }
if [ "${DEMO:-}" = 1 ]; then
	port=$(free_port)
	METRICS_PORT=$port OUT=$TMPDIR/demo bench/demo >"$TMPDIR/demo.log" 2>&1 &
	demo=$!
fi
at=127.0.0.1:$(free_port)
printf 'global: { scrape_interval: 1s }
rule_files: [%s]
scrape_configs: [{ job_name: tier, static_configs: [{ targets: ["127.0.0.1:%s"] }] }]
' "$PWD/docs/guide/alerts.yml" "$port" >"$TMPDIR/prometheus.yml"
prometheus --config.file="$TMPDIR/prometheus.yml" --storage.tsdb.path="$TMPDIR/prometheus" \
	--web.listen-address="$at" >"$TMPDIR/prometheus.log" 2>&1 &
prometheus=$!
rc=0
python3 - "http://$at/api/v1" ${demo:+demo} <<'PY' || rc=1
import json
import sys
import time
import urllib.parse
import urllib.request

def ask(path):
    with urllib.request.urlopen(sys.argv[1] + path, timeout=60) as answer:
        return json.load(answer)["data"]

def query(text):
    return ask("/query?" + urllib.parse.urlencode({"query": text}))["result"]

for _ in range(600): # a rate needs two scrapes
    try:
        if query("tier_put_bytes_total > 0 and count_over_time(tier_put_bytes_total[5m]) > 2"
                 if "demo" in sys.argv else "count_over_time(tier_put_bytes_total[5m]) > 2"):
            break
    except OSError:
        pass
    time.sleep(.2)
dashboard = json.load(open("docs/guide/dashboard.json", encoding="utf-8"))
queries = [t["expr"] for p in dashboard["panels"] for t in p["targets"]]
silent = [q for q in queries if not query(q)]
assert not silent, f"no answer: {silent}"
rules = [r for g in ask("/rules")["groups"] for r in g["rules"]]
ill = [r["name"] for r in rules if r["health"] == "err"]
assert rules and not ill, f"cannot be judged: {ill}"
print(f"prometheus: {len(queries)} queries answered, {len(rules)} rules judged")
PY
kill "$prometheus"
wait "$prometheus" || true
if [ "${DEMO:-}" = 1 ]; then
	wait "$demo" || { tail "$TMPDIR/demo.log"; rc=1; }
fi
exit "$rc"
