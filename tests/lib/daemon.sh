# Starts and stops a daemon for a shell test; sourced, never run. The one place in the shell tests
# that knows how tierd is started. After daemon_start, TIER_SOCKET leads clients to it; it is
# stopped when the test's shell exits, on whichever way.
# SPDX-License-Identifier: Apache-2.0

DAEMON_WAIT_S=300 # it ends as soon as the daemon is there, or has ended

# daemon_start [KEY=VALUE...]: settings beside the small ones of a test. Further options, if any,
# are in the array daemon_start_options.
daemon_start() {
	local setting settings=()
	export TIER_SOCKET=$TMPDIR/tier.sock
	for setting in socket="$TIER_SOCKET" store.path="$TMPDIR/store" nvme.buffered=yes \
		hbm.size=16MiB cxl.size=64MiB nvme.size=128MiB "$@"; do
		settings+=(--set "$setting")
	done
	"$BUILD/tierd" --foreground ${daemon_start_options[@]+"${daemon_start_options[@]}"} \
		"${settings[@]}" >"$TMPDIR/tierd.log" 2>&1 &
	daemon_pid=$!
	trap daemon_stop EXIT
	for _ in $(seq $((DAEMON_WAIT_S * 20))); do
		[ -S "$TIER_SOCKET" ] && return 0
		kill -0 "$daemon_pid" 2>/dev/null || break
		sleep 0.05
	done
	echo "tierd did not come up:"
	cat "$TMPDIR/tierd.log"
	return 1
}

# Ends the daemon; one that ends badly, or whose accounts do not agree, fails the test, and shows
# its log.
daemon_stop() {
	local status=0
	trap - EXIT
	if kill -0 "$daemon_pid" 2>/dev/null && ! "$BUILD/tierctl" check; then
		kill -TERM "$daemon_pid"
		cat "$TMPDIR/tierd.log"
		exit 1
	fi
	kill -TERM "$daemon_pid" 2>/dev/null
	wait "$daemon_pid" || status=$?
	if [ "$status" -ne 0 ]; then
		echo "tierd ended with status $status:"
		cat "$TMPDIR/tierd.log"
		exit 1
	fi
}
