#!/usr/bin/env bash
# `tier import`: tensors of safetensors and gguf files are objects in the order of layers and of
# experts, byte for byte, in parts as large as they may be; files that lie are refused with a
# reason, and leave nothing.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. "$(dirname "$0")/../lib/objects.sh"

python3 tests/integration/weights.py make "$dir/plain"
start
import() {
	"$BUILD/tier" import --socket "$dir/sock" --context weights "$@"
}
# The model, with every part, as files; prints how many parts there are.
fetch() {
	rm -rf "$dir/got"
	mkdir "$dir/got"
	ctl --json object list weights "$1/" | python3 -c '
import json, sys
print(*(o["name"] for o in json.load(sys.stdin)), sep="\n")' | while read -r name; do
		ctl object get weights "$name" "$dir/got/${name##*/}"
	done
	python3 tests/integration/weights.py check "$dir/got/tensors" "$dir/got" "${@:2}"
}

import "$dir/plain/a.safetensors" | grep -q '^a: 16 tensors, .* in 9 parts$' || fail 'import'
[ "$(fetch a "$dir/plain/a.safetensors")" = 9 ] || fail 'a.safetensors'
import --name both "$dir/plain/a.safetensors" "$dir/plain/b.safetensors" >/dev/null
[ "$(fetch both "$dir/plain/a.safetensors" "$dir/plain/b.safetensors")" = 9 ] || fail 'two files'
import "$dir/plain/c.gguf" >/dev/null
[ "$(fetch c "$dir/plain/c.gguf")" = 9 ] || fail 'c.gguf'
import --name cut --part 1KiB "$dir/plain/a.safetensors" >/dev/null
[ "$(fetch cut "$dir/plain/a.safetensors")" -gt 9 ] || fail 'small parts'
count=$(ctl --json object list weights | grep -c '"name"')
for file in "$dir"/plain/lies/*; do
	! import --name lie "$file" 2>"$dir/err" || fail "$file is taken"
	grep -q "^tier import: $file: " "$dir/err" || fail "$file: $(cat "$dir/err")"
done
[ "$(ctl --json object list weights | grep -c '"name"')" = "$count" ] || fail 'a lie left something'
ctl check | grep -q accounted || fail "check: $(ctl check)"
stop
