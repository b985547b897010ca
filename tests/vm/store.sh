# A daemon on a device of the guest, for scripts that start and stop it more than once; sourced.
# SPDX-License-Identifier: Apache-2.0

export TIER_SOCKET=/mnt/sock

fail() { echo "$(basename "$0" .sh): $*"; tail -n 30 /mnt/log; exit 1; }

start() { # DEVICE [OPTION...]; an emulated processor takes its time
	"$BUILD/tierd" --foreground --socket "$TIER_SOCKET" --set store.path="$1" \
		--set hbm.size=0 --set cxl.size=32MiB --set request.deadline=1min \
		--set put.deadline=1min "${@:2}" 2>>/mnt/log &
	daemon=$!
	for _ in $(seq 600); do
		[ ! -S "$TIER_SOCKET" ] || return 0
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.1
	done
	fail "no daemon on $1"
}

stop() { # SIGNAL
	kill "-$1" "$daemon"
	wait "$daemon" || true
	rm -f "$TIER_SOCKET"
}
