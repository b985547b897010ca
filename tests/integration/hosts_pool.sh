#!/usr/bin/env bash
# Two hosts and a CXL pool, here a file that both have mapped (docs/hosts.md): what A put, B reads
# through it, every byte compared with its generator, and not by the socket; who owns what is etcd's.
# A holder that is killed or stands still costs a miss in time; another one takes its extents when
# all that it granted is over. What is no pool, or a damaged one, is refused.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

command -v etcd >/dev/null || { echo 'skipped: there is no etcd'; exit 77; }
LAB=$TMPDIR/lab
mkdir -p "$LAB"
. bench/hosts/lab.sh
trap lab_end EXIT

read -r a b c d <<<"$(free_ports 4)"
address=([A]=127.0.0.1:$a [B]=127.0.0.1:$b)
url=http://127.0.0.1:$c
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
etcd --data-dir "$LAB/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" \
	--listen-peer-urls "http://127.0.0.1:$d" --logger zap >"$LAB/etcd.log" 2>&1 &
etcd_pid=$!
net() {
	net_up "$1" --no-tls --etcd "$url" --lease 2s --pool "$pool" --pool-grant 1s "${@:2}"
}
for host in A B; do
	tierd_up $host hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB
	net $host
	kv $host put kv 0 0
	ctl $host context share kv >/dev/null
done
meet B A
meet A B
of_pool() { # HOST KEY
	ctl "$1" --json hosts | python3 -c 'import json, sys
print(json.load(sys.stdin)["pool"][sys.argv[1]])' "$2"
}
owns() { [ "$(of_pool "$1" ours)" -ge "$2" ]; }
reads() { # PROMPT EXPECT PATTERN [OPTION...]
	wants 0 "$3" kv B --json --expect "$2" --deadline 1000 "${@:4}" read kv "$1" 50
}
by_pool() { # COMMAND...: all of a prompt's bytes come by the pool
	local before_in before_out
	before_in=$(of_pool B bytes_in) before_out=$(of_pool A bytes_out)
	"$@"
	[ $(($(of_pool B bytes_in) - before_in)) = 1228800 ] &&
		[ $(($(of_pool A bytes_out) - before_out)) = 1228800 ] ||
		lab_fail "$*: not by the pool: $(ctl A --json hosts) $(ctl B --json hosts)"
}
# Not before what an owner before could have granted is over (X2): until then by the socket.
kv A put kv 1 50
reads 1 50 '"status": "ready"'
[ "$(of_pool B bytes_in)" = 0 ] || lab_fail 'an extent is used before it has rested'
eventually 30 owns A 1 || lab_fail 'A owns nothing of the pool'
kv A put kv 2 50
by_pool reads 2 50 '"status": "ready"'
kv A put kv 3 50
ctl A drain >/dev/null
ctl A evict kv cxl >/dev/null
by_pool reads 3 50 '"status": "ready"'
kv A put kv 4 50
by_pool wants 0 '"status": "ready", "compared": 1228800' kv B --json --expect 50 --deadline 1000 \
	stream kv 4 50
# A grant that is longer than --pool-grant goes by the socket.
kv A put kv 5 50
before=$(of_pool B bytes_in)
wants 0 '"status": "ready"' kv B --json --expect 50 --deadline 20000 read kv 5 50
[ "$(of_pool B bytes_in)" = "$before" ] || lab_fail 'a long grant goes by the pool'
# The places come round: more than an extent, at once.
readers=()
for prompt in 10 11 12 13 14 15 16 17; do kv A put kv $prompt 50; done
for prompt in 10 11 12 13 14 15 16 17; do
	kv B --expect 50 --deadline 1000 read kv $prompt 50 >"$LAB/$prompt.out" 2>&1 &
	readers+=($!)
done
for reader in "${readers[@]}"; do wait "$reader" || lab_fail "$(cat "$LAB"/1?.out)"; done
