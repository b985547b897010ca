#!/usr/bin/env bash
# A short replay of the trace through two engine processes, with a restart: the main demonstration
# in small. Its exit status says whether every byte was right; here also that the report is whole.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/lib/direct.sh

direct_tmpdir
dir=$(mktemp -d "$TMPDIR/replay.XXXXXX")
trap 'rm -rf "$dir"' EXIT

# A plain "! command" never ends a script, whatever set -e says.
not() {
	if "$@"; then
		echo "was to fail: $*" >&2
		exit 1
	fi
}

"$BUILD/tierbench" demo --tierd "$BUILD/tierd" --dir "$dir" --requests 150 --steps 2 \
	--trace bench/data/mooncake-conversation.jsonl.gz --nvme 192MiB --cxl 32MiB --hbm 8MiB \
	--template bench/report/template.html --html "$dir/report.html" --json "$dir/report.json" \
	>"$dir/out" 2>"$dir/err" || {
	cat "$dir/out" "$dir/err" "$dir/tierd.log" >&2
	# On a crowded machine puts may run out of their two seconds: that is told, and no fault.
	failed=$(grep 'FAILED: ' "$dir/out" || true)
	[ -n "$failed" ] && ! grep -qv 'was the machine busy' <<<"$failed" || exit 1
}
grep -q 'wrong: 0' "$dir/out"
grep -q '"bad_pages": 0' "$dir/report.json"
grep -q '"requests": 150' "$dir/report.json"
not grep -q '@REPORT_DATA@' "$dir/report.html"

# What it refuses, before anything is started.
for bad in '--requests x' '--cxl lots' '--engines 99' 'more'; do
	status=0
	# shellcheck disable=SC2086 # an option and its value
	"$BUILD/tierbench" demo --tierd "$BUILD/tierd" --dir "$dir" --trace /nonexistent \
		--nvme 64MiB --cxl 32MiB --hbm 8MiB $bad >/dev/null 2>&1 || status=$?
	[ "$status" = 2 ] || { echo "demo $bad: status $status, not 2" >&2; exit 1; }
done
not "$BUILD/tierbench" nonsense 2>/dev/null

# What the core alone makes of a trace is the same in every build: the fastest, if it is there.
bench=$(dirname "$BUILD")/plain/tierbench
[ -x "$bench" ] || bench=$BUILD/tierbench

# Traces of one line and of none: a result, of which nothing is met, and a word.
printf '{"timestamp": 1, "input_length": 9, "output_length": 1, "hash_ids": [5, 5]}\r\n' >"$dir/one"
"$bench" replay --trace "$dir/one" >"$dir/out" 2>&1 || { cat "$dir/out" >&2; exit 1; }
grep -q '1 requests, 2 blocks of 4 tokens, 1 different' "$dir/out"
grep -v 'made-up traces' "$dir/out" >"$dir/judged" # these have no part in it
not grep -w met "$dir/judged"
"$BUILD/tierbench" demo --tierd "$BUILD/tierd" --dir "$dir" --trace "$dir/one" --nvme 64MiB \
	--cxl 32MiB --hbm 8MiB >"$dir/out" 2>&1 || { cat "$dir/out" >&2; exit 1; }
grep -q 'a prefix of 2 blocks' "$dir/out"
: >"$dir/none"
not "$BUILD/tierbench" replay --trace "$dir/none" >"$dir/out" 2>&1
grep -q 'nothing to replay' "$dir/out"

# More requests at once than an engine runs, dates for arrivals, the last first; an endless answer.
seq 600 -1 1 | while read -r i; do
	printf '{"timestamp": 17323000%05d, "input_length": 600, ' $((i / 4))
	printf '"output_length": %d, "hash_ids": [%d, %d]}\n' "$i" "$i" $((i + 1000))
done >"$dir/crowd"
printf '{"timestamp": 1732300900000, "input_length": 9, "output_length": 9, "hash_ids": [1]}\n' \
	>>"$dir/crowd"
"$bench" reserve --quick --trace "$dir/crowd" >"$dir/out" 2>&1 ||
	{ cat "$dir/out" >&2; exit 1; }
grep -q 'honoured without eviction, the trace .* 601 requests' "$dir/out"
printf '{"timestamp": 1, "input_length": 9, "output_length": 4000000000, "hash_ids": [1]}\n' \
	>"$dir/endless"
not "$BUILD/tierbench" reserve --quick --trace "$dir/endless" >"$dir/out" 2>&1
grep -q 'an answer of 4000000000 tokens' "$dir/out"

# A trace that is wrong is not passed over; one of few blocks makes no tenant, but a day.
for workload in quota churn; do
	not "$BUILD/tierbench" "$workload" --quick --trace /nonexistent >"$dir/out" 2>&1
	grep -q '/nonexistent: No such file' "$dir/out"
	not grep -q "^$workload " "$dir/out"
	echo nonsense >"$dir/wrong"
	not "$BUILD/tierbench" "$workload" --quick --trace "$dir/wrong" >"$dir/out" 2>&1
done
"$bench" quota --quick --trace "$dir/one" >"$dir/out" 2>&1 ||
	{ cat "$dir/out" >&2; exit 1; }
grep -q "quota: the trace has 1 different blocks: too few for tenants" "$dir/out"
"$bench" churn --quick --trace "$dir/crowd" >"$dir/out" 2>&1 ||
	{ cat "$dir/out" >&2; exit 1; }
grep -q "^churn .* the trace's prompts (0 refused)" "$dir/out"
