#!/usr/bin/env bash
# More hosts than there is room for. On the command line the 65th other one is an error that says
# what to do; in etcd a host that is one too many stays outside, says so, and comes in when another
# one goes. And what the 64 may hold of connections keeps nobody out.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

for need in etcd openssl curl; do
	command -v $need >/dev/null || { echo "skipped: there is no $need here"; exit 77; }
done
LAB=$TMPDIR/lab
mkdir -p "$LAB/etcd"
. bench/hosts/lab.sh
holder=
trap '[ -z "$holder" ] || kill $holder 2>/dev/null; lab_end' EXIT

read -r a b c d <<<"$(free_ports 4)"
address=([A]=127.0.0.1:$a [B]=127.0.0.1:$b)
url=http://127.0.0.1:$c
bench/hosts/certs "$LAB/certs" A B

peers=()
for ((i = 0; i < 65; i++)); do peers+=(--peer "h$i=127.0.0.1:1"); done
status=0
text=$("$BUILD/tierd-net" --name A --listen "${address[A]}" --no-tls "${peers[@]}" 2>&1) ||
	status=$?
[ $status = 2 ] || lab_fail "65 peers: status $status: $text"
grep -q 'a fleet is 65 hosts.* h64' <<<"$text" || lab_fail "65 peers: $text"

etcd --data-dir "$LAB/etcd/data" --listen-client-urls "$url" --advertise-client-urls "$url" \
	--listen-peer-urls "http://127.0.0.1:$d" --logger zap >"$LAB/etcd/etcd.log" 2>&1 &
etcd_pid=$!
say() { # PATH JSON
	curl -sf "$url/v3/kv/$1" -d "$2" >/dev/null
}
base64_of() { printf %s "$1" | base64 -w0; }
eventually 60 say range '{"key": "AA=="}' || lab_fail 'no etcd'
key_of() { base64_of "/tier/default/member/$1"; }
enters() {
	say put "{\"key\": \"$(key_of "$1")\", \"value\": \"$(base64_of \
		"{\"name\": \"$1\", \"address\": \"127.0.0.1:1\", \"incarnation\": \"1\"}")\"}"
}
leaves() { say deleterange "{\"key\": \"$(key_of "$1")\"}"; }
up() { # HOST
	[ -n "${tierd_pid[$1]:-}" ] || tierd_up "$1" hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB
	net_up "$1" --tls "$LAB/certs/$1" --etcd "$url" --lease 2s
	kv "$1" put kv 0 0
	ctl "$1" context share kv >/dev/null
}

# 63 others and A: B is the last one for whom there is room.
for ((i = 0; i < 63; i++)); do enters h$i; done
up A
up B
meet A B
meet B A
mode=all
# A busy machine may need more than one try.
hits() {
	eventually 60 kv B --expect 50 read kv $prompt 50 || lab_fail "$mode: no hit on B"
}
new_prompt
hits

# What 64 others may keep open keeps nobody out.
coproc python3 tests/integration/hosts_strangers.py member "${address[A]}" "$LAB/certs/B" B 100
holder=$COPROC_PID
read -r -t 300 held <&"${COPROC[0]}" || lab_fail 'no connections'
[ "$held" = 'held 100' ] || lab_fail "a member's 100 connections: $held"
mode=connections
new_prompt
hits
exec {COPROC[1]}>&-
wait "$holder" || lab_fail 'who held connections'
holder=

# One more while B is away: B stays outside, knows nobody, says why, and comes in when one goes.
mode=full
kill "${net_pid[B]}"
wait "${net_pid[B]}" || lab_fail "tierd-net of B ended with $?"
gone() { ! say_is_there B; }
say_is_there() { curl -sf "$url/v3/kv/range" -d "{\"key\": \"$(key_of "$1")\"}" | grep -q '"kvs"'; }
eventually 60 gone || lab_fail 'B is a member for ever'
enters h63
up B
full() { ctl B hosts | grep -q 'no room for it: tierd-net --fleet'; }
eventually 60 full || lab_fail "B does not say that the fleet is full: $(ctl B hosts)"
grep -q 'the fleet has no room for this host.*others=65' "$LAB/B/net.log" || lab_fail 'no log'
[ "$(ctl B --json hosts | grep -c '"state"')" = 0 ] || lab_fail 'B knows some of a full fleet'
! say_is_there B || lab_fail 'B is in a full fleet'
new_prompt
reads 0 2000
leaves h63
meet B A
meet A B
! full || lab_fail 'B still says that the fleet is full'
hits
