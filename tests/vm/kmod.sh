# The kernel module and a daemon on it, for scripts of guests; sourced.
# SPDX-License-Identifier: Apache-2.0

export TIER_SOCKET=/mnt/sock
ko=$BUILD/../kernel-mod/kernel-mod/tier_mem.ko

fail() {
	echo "module: $*"
	cat /mnt/log 2>/dev/null
	dmesg | grep -i 'cxl\|dax\|tier' | tail
	exit 1
}

ctl() { "$BUILD/tierctl" "$@"; }

daemon() { # BYTES [OPTION...]; which backend it takes is its own choice
	rm -f "$TIER_SOCKET"
	"$BUILD/tierd" --foreground --socket "$TIER_SOCKET" --store /mnt/store --format \
		--set nvme.size=64MiB --set nvme.buffered=yes --set hbm.size=0 --set cxl.size="$1" \
		--set request.deadline=1min --set put.deadline=1min "${@:2}" 2>/mnt/log &
	daemon=$!
	for _ in $(seq 600); do
		[ ! -S "$TIER_SOCKET" ] || return 0
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.1
	done
	fail 'no daemon'
}

daemon_ends() { # every byte is accounted for, and it ends in order
	ctl check || fail 'check'
	kill "$daemon"
	wait "$daemon" || fail 'the daemon ends badly'
}

whole() { # CHUNKS: so many there are, and all are free
	"$BUILD/vm/module" 4 1 | tail -n 1 | grep "pool $1 chunks, $1 free" ||
		fail 'the pool is not whole'
}

# Who means the module ill, and who foretells it; it stays loaded.
hard() { # SEQUENCES ROUNDS KILLS [SEED]
	insmod "$ko" ram_chunks=48
	! rmmod tier_mem 2>/dev/null <>/dev/tier_mem || fail 'it can be unloaded while it is in use'
	"$BUILD/vm/model" 4 $(($1 / 20)) ${4:+"$4"} || fail 'not as foretold'
	"$BUILD/vm/hostile" 4 "$1" ${4:+"$4"} || fail 'hostile requests'
	"$BUILD/vm/storm" 4 "$2" "$3" || fail 'a storm'
}
