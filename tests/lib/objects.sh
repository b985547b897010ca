# For shell tests of objects: a daemon that keeps some, a program that reads by all ways.
#   dir       scratch, with plain/ (files) and there/ (what is mapped to the context weights)
#   start (below $preload), stop, ctl, under COMMAND... (tier run), fail
# SPDX-License-Identifier: Apache-2.0

dir=$(mktemp -d "${TMPDIR:-/tmp}/objects.XXXXXX")
BUILD=$(realpath "$BUILD")
daemon=
cleanup() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap cleanup EXIT

fail() {
	echo "objects: $*" >&2
	sed 's/^/  log: /' "$dir/log" >&2
	exit 1
}

ctl() {
	"$BUILD/tierctl" --socket "$dir/sock" "$@"
}

under() {
	"$BUILD/tier" run --socket "$dir/sock" --map "$dir/there=weights" -- "$@"
}

start() {
	LD_PRELOAD=${preload:-} "$BUILD/tierd" --foreground --socket "$dir/sock" \
		--store "$dir/store" \
		--set nvme.size=64MiB --set cxl.size=64MiB --set hbm.size=0 \
		--set object.cxl=32MiB --set object.nvme=256MiB \
		--set nvme.buffered=yes "$@" >>"$dir/out" 2>>"$dir/log" &
	daemon=$!
	for _ in $(seq 6000); do
		ctl status >/dev/null 2>&1 && return 0
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.05
	done
	fail 'the daemon does not come up'
}

stop() {
	kill "$daemon"
	wait "$daemon" || fail "the daemon ended with status $?"
	daemon=
}

mkdir "$dir/plain" "$dir/there"
"${CC:-gcc}" -D_GNU_SOURCE -O1 -o "$dir/reads" tests/integration/object_reads.c -luring
