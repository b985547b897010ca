#!/usr/bin/env bash
# SIGHUP: what may change is in force, of the rest the log says that it waits, a file with a mistake
# changes nothing, options of the command line stay above the file, and a client sees none of it.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/lib/daemon.sh

conf=$TMPDIR/tierd.conf
log=$TMPDIR/tierd.log

# told PATTERN COUNT: so many lines of the log, within a while.
told() {
	for _ in $(seq 600); do
		[ "$(grep -c -e "$1" "$log")" -ge "$2" ] && break
		sleep 0.05
	done
	[ "$(grep -c -e "$1" "$log")" -eq "$2" ] && return 0
	echo "\"$1\": not $2 times in:"
	cat "$log"
	exit 1
}

reload() {
	printf '%s\n' "$@" >"$conf"
	kill -HUP "$daemon_pid"
}

limit() {
	"$BUILD/tierctl" --json status | grep -q "\"user_connections\": $1," ||
		{ echo "user_connections is not $1"; exit 1; }
}

echo 'user.connections = 11' >"$conf"
daemon_start_options=(--config "$conf")
daemon_start request.deadline=9s
limit 11
"$BUILD/tierctl" context create kept --preset tiny >/dev/null

reload 'user.connections = 12' 'writeback.age = 1s' 'clients.max = 9' 'request.deadline = 3s' \
	'cxl.backend = memfd'
told 'configuration read anew' 1
told 'another value is in force" object="user.connections"' 1
told 'another value is in force" object="writeback.age"' 1
told 'cannot change while the daemon runs" object="clients.max"' 1
told 'cannot change while the daemon runs" object="cxl.backend"' 1
told 'request.deadline' 0
told 'reload: ' 4
limit 12

reload 'user.connections = 13' 'writeback.age = soon'
told 'nothing was changed' 1
limit 12

# Its last warning: from then on errors alone are written.
reload 'user.connections = 14' 'log.level = error'
told 'object="log.level"' 1
limit 14
"$BUILD/tierctl" context list | grep -q kept

reload 'log.level = info'
told 'configuration read anew' 2
daemon_stop
