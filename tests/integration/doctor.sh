#!/usr/bin/env bash
# tierctl doctor on this host: what it needs is there, or said to be missing; what a limit or a
# store's place takes away is told with what to do, and no text is cut.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# verdict CHECK [COMMAND...]: what doctor says of one thing, run by COMMAND.
verdict() {
	local check=$1
	shift
	"$@" --json doctor "$store" >"$work/json" || [ $? = 1 ]
	python3 - "$work/json" "$check" <<'PY'
import json
import sys

checks = {c["check"]: c for c in json.load(open(sys.argv[1]))["checks"]}
assert len(checks) >= 11
for c in checks.values():
    assert c["seen"] and len(c["seen"]) < 127 and len(c["advice"]) < 127, c
    assert bool(c["advice"]) == (c["verdict"] != "ok"), c
print(checks[sys.argv[2]]["verdict"])
PY
}

same() {
	[ "$2" = "$3" ] || { echo "doctor: $1: $2, not $3" >&2; cat "$work/json" >&2; exit 1; }
}

doctor="$BUILD/tierctl"
store=$work/none/yet/store
# The daemon runs here, in other tests: so what it needs is there.
for check in kernel membarrier io_uring memory; do
	same "$check" "$(verdict $check "$doctor")" ok
done
same 'few files' "$(verdict 'open files' prlimit --nofile=64 "$doctor")" advice
if [ "$(id -u)" = 0 ]; then
	same 'many files' "$(verdict 'open files' prlimit --nofile=20000 "$doctor")" ok
	same 'locked, root' "$(verdict 'locked memory' prlimit --memlock=65536 "$doctor")" ok
	if [ "$(stat -f -c %T "$work")" != tmpfs ]; then
		same 'a drive' "$(verdict store "$doctor")" ok
	fi
fi
store=/dev/shm/none
if [ "$(stat -f -c %T /dev/shm)" = tmpfs ]; then
	same 'in memory' "$(verdict store "$doctor")" problem
	status=0
	"$doctor" doctor "$store" >"$work/out" || status=$?
	same 'status of a problem' "$status" 1
	grep -q 'store  *problem  */dev/shm' "$work/out"
	[ -z "$(awk 'length > 80' "$work/out")" ]
fi
[ ! -e "$work/none" ]
same 'too many words' "$("$doctor" doctor a b >/dev/null 2>&1 || echo $?)" 2
