#!/usr/bin/env bash
# tierbench replay: the core alone and a daemon in lock-step agree on what hits, no byte is wrong,
# and the default policy is not behind LRU, on a piece of the trace and on made-up ones.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/lib/direct.sh

direct_tmpdir
dir=$(mktemp -d "$TMPDIR/policies.XXXXXX")
trap 'rm -rf "$dir"' EXIT

{ zcat bench/data/mooncake-conversation.jsonl.gz || true; } | head -300 >"$dir/trace.jsonl"
"$BUILD/tierbench" replay --real --quick --tierd "$BUILD/tierd" --dir "$dir" \
	--trace "$dir/trace.jsonl" >"$dir/out" 2>"$dir/err" || {
	cat "$dir/out" "$dir/err" >&2
	exit 1
}
# Exact, also in stores of a few puts, which wait for room: the same blocks hit, and as many left.
for policy in reuse lru; do
	grep -Eq "^replay +$policy, a daemon in lock-step: .* met .* 300 requests, four sizes" \
		"$dir/out" || { grep lock-step "$dir/out" >&2; exit 1; }
done
# How far apart clients that run free get hangs on the machine; no byte is wrong all the same.
[ "$(grep -c 'reuse, a daemon, 2 clients, hits at' "$dir/out")" -eq 1 ] ||
	{ cat "$dir/out" >&2; exit 1; }
grep -Eq '^replay +wrong pages read through the daemon .* met .* read$' "$dir/out" ||
	{ grep 'wrong pages' "$dir/out" >&2; exit 1; }
# The smallest stores are larger than what was asked for, and rows say so.
grep -Eq '^replay +reuse, hits at 1 % \([0-9]+ blocks, [0-9.]+ %\)' "$dir/out" ||
	{ cat "$dir/out" >&2; exit 1; }
[ "$(grep -c 'reuse, compute beside itself for hits at .* reuse-hits$' "$dir/out")" -eq 2 ] ||
	{ cat "$dir/out" >&2; exit 1; }

# What hits is the same in every build: the fastest, if it is there, takes a third of the time.
bench=$(dirname "$BUILD")/plain/tierbench
[ -x "$bench" ] || bench=$BUILD/tierbench
for pattern in chat scan loop; do
	"$bench" replay --quick --trace "synth:$pattern" --json "$dir/rows.json" >"$dir/out" 2>&1
	! grep -E '^replay +reuse, hits .* short ' "$dir/out" ||
		{ echo "behind LRU on $pattern" >&2; exit 1; }
done

"$BUILD/tierbench" replay --trace synth:astrology >"$dir/out" 2>&1 && exit 1
grep -q 'zipf' "$dir/out"
"$BUILD/tierbench" replay --trace synth:chat:soon >"$dir/out" 2>&1 && exit 1
grep -q 'the seed is not a number' "$dir/out"
"$BUILD/tierbench" --json "$dir/nowhere/rows.json" replay >"$dir/out" 2>&1 && exit 1
grep -q 'rows.json: No such file' "$dir/out"
