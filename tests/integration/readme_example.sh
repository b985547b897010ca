#!/usr/bin/env bash
# The C example of README.md, as it stands there: it must compile without a warning, run against a
# live daemon and print what a reader would expect, also when its blocks are on NVMe alone.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/lib/daemon.sh

sed -n '/^```c$/,/^```$/{/^```/!p}' README.md >"$TMPDIR/example.c"
[ -s "$TMPDIR/example.c" ] || { echo "README.md has no C example"; exit 1; }
flags=()
[ "$(basename "$BUILD")" != asan ] || flags=(-fsanitize=address,undefined)
${CC:-gcc} -Wall -Wextra -Werror "${flags[@]}" -Ilibtier/include -o "$TMPDIR/example" \
	"$TMPDIR/example.c" "$BUILD/libtier.a" -lcrypto -lisal -pthread

for _ in first again; do
	daemon_start
	timeout 300 "$TMPDIR/example" >"$TMPDIR/out" 2>&1 || { cat "$TMPDIR/out"; exit 1; }
	diff - "$TMPDIR/out" <<-'OUT'
	stored 2
	matched 2
	leased 4096 bytes, first is 0
	OUT
	daemon_stop
done
