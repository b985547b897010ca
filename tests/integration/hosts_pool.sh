#!/usr/bin/env bash
# Two hosts and a CXL pool, here a file that both have mapped (docs/hosts.md): what A put, B reads
# through it, not by the socket; every byte is compared with its generator; owners are etcd's.
# A holder that is killed or stands still costs a miss in time; another one takes its extents when
# all that it granted is over. What is no pool, or a damaged one, is refused.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

for needed in etcd openssl; do
	command -v $needed >/dev/null || { echo "skipped: there is no $needed"; exit 77; }
done
LAB=$TMPDIR/lab
mkdir -p "$LAB"
. bench/hosts/lab.sh
trap lab_end EXIT

read -r a b c d <<<"$(free_ports 4)"
address=([A]=127.0.0.1:$a [B]=127.0.0.1:$b)
url=https://127.0.0.1:$c
pool=$LAB/pool

# ---- what is no pool --------------------------------------------------------------------------
refused() { # PATTERN [OPTION...]
	wants 1 "$1" timeout 20 "$BUILD/tierd-net" --name X --listen 127.0.0.1:0 --no-tls \
		--etcd "$url" --pool "$pool" "${@:2}"
}
refused 'No such file'
: >"$pool"
refused 'neither a device of dax nor a file'
wants 1 'neither' "$BUILD/tierd-net" --pool-format "$pool"
truncate -s 8M "$pool"
wants 1 'smaller than an extent' "$BUILD/tierd-net" --pool-format "$pool"
refused 'not formatted'
truncate -s 81M "$pool" # five extents
wants 0 '5 extents' "$BUILD/tierd-net" --pool-format "$pool"
truncate -s 97M "$pool"
refused 'another size'
truncate -s 81M "$pool"
byte() { printf "$2" | dd of="$pool" bs=1 seek="$1" conv=notrunc status=none; }
cp --sparse=always "$pool" "$LAB/good"
byte 16 '\x55'
refused 'damaged'
byte 8 '\x07'
refused 'another version'
cp --sparse=always "$LAB/good" "$pool"
wants 2 'etcd' "$BUILD/tierd-net" --name X --listen 127.0.0.1:0 --no-tls --pool "$pool"

# ---- two hosts ---------------------------------------------------------------------------------
bench/hosts/certs "$LAB/certs" A B etcd
etcd --data-dir "$LAB/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" \
	--listen-peer-urls "http://127.0.0.1:$d" --logger zap --client-cert-auth \
	--trusted-ca-file "$LAB/certs/ca.pem" --cert-file "$LAB/certs/etcd/cert.pem" \
	--key-file "$LAB/certs/etcd/key.pem" >"$LAB/etcd.log" 2>&1 &
etcd_pid=$!
net() {
	net_up "$1" --tls "$LAB/certs/$1" --etcd "$url" --lease 2s --pool "$pool" --pool-grant 3s
}
of_pool() { # HOST KEY
	ctl "$1" --json hosts | sed -n "/\"pool\"/,/}/s/.*\"$2\": \([0-9]*\).*/\1/p"
}
owns() { # HOST N: it takes seconds
	sleep 0.3
	[ "$(of_pool "$1" ours)" -ge "$2" ]
}
for host in A B; do
	tierd_up $host hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB
	kv $host put kv 0 0
	net $host
	ctl $host context share kv >/dev/null
	[ $host = B ] || eventually 40 owns A 4 || lab_fail 'A owns nothing of the pool'
done
meet B A
meet A B

prompt=0
put() {
	prompt=$((prompt + 1))
	kv A put kv $prompt 50
}
cold() {
	put
	ctl A drain >/dev/null
	ctl A evict kv cxl >/dev/null
}
reads() { # EXPECT PATTERN [VERB]: of the last prompt
	wants 0 "$2" kv B --json --expect "$1" --deadline 3000 "${3:-read}" kv $prompt 50
}
# by_pool PUT [VERB]: all bytes of a prompt come by the pool; where a busy host has let its lease go
# they come by the socket, so there are three tries.
by_pool() {
	local before_in before_out
	for _ in 1 2 3; do
		before_in=$(of_pool B bytes_in) before_out=$(of_pool A bytes_out)
		"$1"
		reads 50 '"status": "ready"' "${2:-read}"
		[ $(($(of_pool B bytes_in) - before_in)) != 1228800 ] ||
			[ $(($(of_pool A bytes_out) - before_out)) != 1228800 ] || return 0
		eventually 40 owns A 1 || lab_fail 'A owns nothing of the pool'
	done
	lab_fail "$*: not by the pool: $(ctl A --json hosts) $(ctl B --json hosts)"
}
by_socket() { # WHY: nothing of the last prompt comes by the pool
	local before
	before=$(of_pool B bytes_in)
	reads 50 '"status": "ready"'
	[ "$(of_pool B bytes_in)" = "$before" ] || lab_fail "by the pool: $1"
}
by_pool put
by_pool cold
by_pool put stream
wants 0 'pool .* extents' ctl A hosts
# What is shared with hosts that are named goes by the socket: the pool is open to all.
found() { kv B --expect 50 --deadline 3000 read kv $prompt 50; }
share() { # [OPTION...]: anew; until both know what etcd has of it
	for host in A B; do
		ctl $host context unshare kv >/dev/null
		ctl $host context share kv "$@" >/dev/null
	done
	put
	eventually 40 found || lab_fail 'it is not shared anew'
}
share --with A,B
put
by_socket 'hosts are named'
share
# A grant that is longer than --pool-grant goes by the socket.
put
before=$(of_pool B bytes_in)
wants 0 '"status": "ready"' kv B --json --expect 50 --deadline 20000 read kv $prompt 50
[ "$(of_pool B bytes_in)" = "$before" ] || lab_fail 'a long grant goes by the pool'
# The places come round: at once, and more in all than one extent has.
readers=()
for n in 10 11 12 13 14 15 16 17; do kv A put kv $n 50; done
came() { kv B --expect 50 --deadline 3000 read kv "$1" 50 >"$LAB/$1.out" 2>&1; }
for n in 10 11 12 13 14 15 16 17; do
	{ came $n || { meet B A && came $n; }; } & # a crowded machine answers late: once more
	readers+=($!)
done
for reader in "${readers[@]}"; do wait "$reader" || lab_fail "$(cat "$LAB"/1?.out)"; done
prompt=20

# ---- faults ------------------------------------------------------------------------------------
# etcd away: nothing goes by the pool when the lease is over, and nothing is lost (R6).
kill -STOP $etcd_pid
unowned() { [ "$(of_pool A ours)" = 0 ]; }
eventually 40 unowned || lab_fail 'A still owns extents without a lease'
put
by_socket 'A has no lease'
kill -CONT $etcd_pid
eventually 40 owns A 1 || lab_fail 'A does not get its extents back'
meet B A
by_pool put
# Killed: a miss in time. Its extents are another host's or its next life's when they have rested.
kill -KILL "${net_pid[A]}"
{ wait "${net_pid[A]}" || true; } 2>/dev/null
put
reads 0 '"status": "missed"'
eventually 60 owns B 4 || lab_fail 'what a dead host owned does not come back to use'
net A
meet B A
if unowned; then # it has claimed, and stores nothing yet
	before=$(of_pool B bytes_in)
	reads 50 '"status": "ready"'
	! unowned || [ "$(of_pool B bytes_in)" = "$before" ] ||
		lab_fail 'an extent is used before it has rested'
fi
eventually 60 owns A 1 || lab_fail 'the next life owns nothing'
by_pool put
