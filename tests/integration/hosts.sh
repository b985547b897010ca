#!/usr/bin/env bash
# Two hosts on one: what A put, in memory and on NVMe alone, B reads, over TLS and over bare TCP;
# every byte is compared with its generator (R1). What is not shared, of another epoch, or held by a
# host that stands still, is a miss in time (R2, R4); who is no member gets nothing. Peers are given
# on the command line; with etcd where it is there. (make hosts-demo has network namespaces.)
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

command -v openssl >/dev/null || { echo 'skipped: there is no openssl'; exit 77; }
LAB=$TMPDIR/lab
mkdir -p "$LAB"
. bench/hosts/lab.sh
trap lab_end EXIT

read -r a b c d <<<"$(free_ports 4)"
address=([A]=127.0.0.1:$a [B]=127.0.0.1:$b [C]=127.0.0.1:$c)
small=(hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB)

# reads HOST PROMPT BLOCKS-THERE-THEN PATTERN [OPTION...]: of a prompt of 50 blocks
reads() {
	local host=$1 prompt=$2 expect=$3 pattern=$4
	shift 4
	wants 0 "$pattern" kv "$host" --json --expect "$expect" "$@" read kv "$prompt" 50
}
net() { # HOST TRANSPORT...
	local host=$1 peer
	shift
	peer=$([ "$host" = A ] && echo B || echo A)
	net_up "$host" "$@" --peer "$peer=${address[$peer]}"
}
# shows HOST STATE: of its only peer
is_shown() { ctl "$1" --json hosts | grep -q "\"state\": \"$2\""; }
shows() { eventually 20 is_shown "$1" "$2" || lab_fail "$1 does not show $2"; }
net_down() {
	kill "${net_pid[$1]}"
	wait "${net_pid[$1]}" || lab_fail "tierd-net of $1 ended with $?"
}

bench/hosts/certs "$LAB/certs" A B
bench/hosts/certs "$LAB/others" C
for host in A B; do
	tierd_up $host "${small[@]}"
	net $host --tls "$LAB/certs/$host"
	kv $host put kv 0 0
done

# Not shared: as if it were not there.
wants 1 'not shared' kv B read kv 1 50
ctl A context share kv >/dev/null
wants 1 'none that these' ctl A context share nope
ctl B context share kv >/dev/null
meet A B
meet B A

# What another host has read is no use here: it leaves memory before what was put after it.
for host in A B; do
	kv $host put order 0 0
	ctl $host context share order >/dev/null
done
ctl A policy set order lru >/dev/null
for prompt in 1 2; do kv A put order $prompt 50; done
ctl A drain >/dev/null
wants 0 '"bytes": 1228800' kv B --json read order 1 50
ctl A evict order cxl 1200KiB >/dev/null
wants 0 '"memory": 50}' kv A --json read order 2 50

# From memory; from NVMe alone; a prefix that ends between two anchors; nothing; again.
kv A put kv 1 50
reads B 1 50 '"located": 50, "asked": [0-9]*, "host": "A".*"status": "ready"'
kv A put kv 2 50
ctl A drain >/dev/null
ctl A evict kv cxl >/dev/null
reads B 2 50 '"status": "ready"'
kv A put kv 3 45
reads B 3 45 '"located": 45.*"status": "missed"'
reads B 4 0 '"located": 0, "asked": [0-9]*, "host": ""'
reads B 1 50 '"local": 50'
# A part of it is here already: the rest comes.
kv B put kv 5 7
kv A put kv 5 50
reads B 5 50 '"local": 7'
# By fetch and by prefetch alone: from the other host's memory and NVMe, a part from our own NVMe;
# what computing does faster is not brought, nor what the deadline is too short for.
bytes_in() {
	ctl B --json hosts | python3 -c 'import json, sys
print(sum(p["bytes_in"] for p in json.load(sys.stdin)["peers"]))'
}
fetches() { # PROMPT BLOCKS-THERE-THEN PATTERN [OPTION...]
	local prompt=$1 expect=$2 pattern=$3
	shift 3
	wants 0 "$pattern" kv B --json --expect "$expect" "$@" fetch kv "$prompt" 50
}
kv A put kv 50 50
fetches 50 50 '"local": 0, "usable": 50, "status": "ready"'
kv B put kv 51 7
ctl B drain >/dev/null
ctl B evict kv cxl >/dev/null
kv A put kv 51 50
ctl A drain >/dev/null
ctl A evict kv cxl >/dev/null
fetches 51 50 '"local": 7, "usable": 50, "status": "ready"'
fetches 51 50 '"local": 50, "usable": 50, "status": "ready", "bytes": 0'
kv A put kv 52 45
fetches 52 45 '"usable": 45, "status": "missed"'
kv A put kv 53 50
fetches 53 0 '"status": "dropped"' --token-ns 1
before=$(bytes_in)
kv B --deadline 20000 prefetch kv 53 50
came() { [ $(($(bytes_in) - before)) = $((50 * 6 * 4096)) ]; }
eventually 20 came || lab_fail 'a prefetch brings nothing'
fetches 53 50 '"status": "ready", "bytes": 0'
# And back.
kv B put kv 6 50
reads A 6 50 '"host": "B"'

# Layer by layer, each compared while the rest is on its way (R7): from memory, from NVMe, behind
# what is here; as far as the other one has it; nothing; what computing does faster.
streams() { # PROMPT BLOCKS-THAT-ARE-GOOD PATTERN [OPTION...]
	local prompt=$1 expect=$2 pattern=$3
	shift 3
	wants 0 "$pattern" kv B --json --expect "$expect" "$@" stream kv "$prompt" 50
}
all='"comes": 50, "blocks": 50, "layers": 2, "usable": 50, "status": "ready", '
all+='"compared": 1228800, "here": 50'
kv A put kv 60 50
streams 60 50 "$all"
streams 60 50 '"local": 50, "comes": 0, .*"status": "ready"'
kv A put kv 61 50
ctl A drain >/dev/null
ctl A evict kv cxl >/dev/null
streams 61 50 "$all"
kv B put kv 62 7
kv A put kv 62 50
streams 62 50 '"local": 7, "comes": 43, "blocks": 43.*"status": "ready"'
kv A put kv 63 45
streams 63 45 '"comes": 45, "blocks": 45.*"usable": 45, "status": "missed"'
streams 64 0 '"comes": 0, .*"status": "missed"'
kv A put kv 65 50
streams 65 0 '"comes": 0, .*"status": "dropped"' --token-ns 1

# Single pages under a standing grant (R8), no block of this host: from memory, from NVMe, behind
# what is here, as far as the other one has it, nothing.
picks() { # PROMPT BLOCKS PATTERN [OPTION...]
	local prompt=$1 expect=$2 pattern=$3
	shift 3
	wants 0 "$pattern" kv B --expect "$expect" "$@" pages kv "$prompt" 50
}
all='"host": "A", "came": 320, "missed": 0, "late": 0, "over": 0, "compared": 1310720'
kv A put kv 70 50
picks 70 50 "\"local\": 0, .*$all"
ctl A drain >/dev/null
ctl A evict kv cxl >/dev/null
picks 70 50 "\"local\": 0, .*$all" --deadline 20000
kv B put kv 71 7
kv A put kv 71 45
picks 71 38 "\"local\": 7, .*$all"
picks 72 0 '"host": "", "came": 0'
# Blocks that leave there amid it are misses, and so is all when it is shared no more; an epoch ends
# it, and of the next one nothing is read.
reading() { grep -q reading "$LAB/picks.out"; }
picking() { # PATTERN COMMAND...: the command is done while pages are read, and after it some are
	local want=$1
	shift
	rm -f "$LAB/enough" "$LAB/picks.out"
	kv B --until "$LAB/enough" --gap 20 pages kv 70 50 >"$LAB/picks.out" 2>&1 &
	reader=$!
	eventually 30 reading || lab_fail "no page is read: $(cat "$LAB/picks.out")"
	"$@" >/dev/null
	touch "$LAB/enough"
	wait $reader || lab_fail "$*: $(cat "$LAB/picks.out")"
	grep -q "$want" "$LAB/picks.out" || lab_fail "$*: no \"$want\" in $(cat "$LAB/picks.out")"
}
# As many as there is room for; the next one is refused, and then there is room again.
readers=()
rm -f "$LAB/enough"
for i in 1 2 3 4 5 6 7 8; do
	kv B --until "$LAB/enough" --gap 20 pages kv 70 50 >"$LAB/picks.$i" 2>&1 &
	readers+=($!)
done
all_read() { [ "$(cat "$LAB"/picks.? | grep -c reading)" = 8 ]; }
eventually 30 all_read || lab_fail "eight do not read: $(cat "$LAB"/picks.?)"
wants 1 'close some' kv B pages kv 70 50
touch "$LAB/enough"
for reader in "${readers[@]}"; do
	wait "$reader" || lab_fail "eight readers of pages: $(cat "$LAB"/picks.?)"
done
one_more() { kv B --expect 50 pages kv 70 50; }
eventually 20 one_more || lab_fail 'there is no room again'
picking '"came": [1-9].*"missed": [1-9].*"late": 0, "over": 0' kv A --from 25 drop kv 70 50
picking '"blocks": 25, .*"came": [1-9].*"missed": [1-9].*"over": 0' ctl A context unshare kv
ctl A context share kv >/dev/null

# What would be slower than computing it is not fetched.
kv A put kv 7 50
reads B 7 0 '"status": "dropped"' --token-ns 1

# Another user, whom tierd would not let open the context: to them it is not there (I4), and not
# theirs to share or to end.
stranger() {
	(cd "$LAB/B" && chmod 711 . && python3 - "$@") <<-'PY'
	import os, socket, struct, sys
	s = socket.socket(socket.AF_UNIX)
	os.setresgid(65534, 65534, 65534)
	os.setresuid(65534, 65534, 65534)
	s.connect("tier.sock.net")
	kind, verb, name = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3].encode()
	if kind == 19:
	    body = struct.pack("32s64s64s", verb, name, b"")
	else:
	    body = struct.pack("64sQQQII16s32s", name, 1 << 62, 0, 0, 0, 1, b"", b"")
	s.sendall(struct.pack("<IHHII", 0x54454E54, 3, kind, 16 + len(body), 0) + body)
	answer = s.recv(65536)
	print("names it" if b'"kv"' in answer else "", "error",
	      struct.unpack_from("<i", answer, 16)[0])
	PY
}
strangers() { python3 tests/integration/hosts_strangers.py "$@"; }
if [ "$(id -u)" = 0 ]; then
	for kind in 16 17; do wants 0 'error -2$' stranger $kind '' kv; done
	wants 0 'error -2$' stranger 19 share kv
	wants 0 'error -2$' stranger 19 unshare kv
	wants 0 'error -2$' stranger 19 epoch kv
	wants 0 'error -1$' stranger 19 forget A
	wants 0 'error -38$' stranger 19 frob kv
	wants 0 '^ error 0$' stranger 19 hosts ''
	# Whatever one user holds, another one gets an answer.
	wants 0 'answered' strangers engines "$LAB/B/tier.sock.net"
fi
# So does a host of the fleet, whatever one without a certificate holds.
wants 0 'answered' strangers hosts "${address[A]}" "$LAB/certs/B" B
# A certificate's name is all of it: this one has a letter more.
long=$(printf 'n%.0s' {1..63})
bench/hosts/certs "$LAB/certs" "${long}x"
wants 0 'turned away' strangers certificate "${address[A]}" "$LAB/certs/${long}x" "$long"
# No epoch that no tierd takes: all hosts would try it for ever.
wants 1 'up to' ctl A hosts epoch kv 4294967296

# Where nothing is shared, a fetch by keys is that of what is here.
kv B put own 1 20
wants 0 '"usable": 20, "status": "missed"' kv B --json --expect 20 fetch own 1 50

# The contexts' epochs differ: nothing of the old one is a hit, nor a page of it read.
picking '"came": [1-9].*"over": 116' ctl B context epoch kv
reads B 7 0 '"located": 0'
ctl A context epoch kv >/dev/null
kv A put kv 8 50
reads B 8 50 '"status": "ready"'

# The holder stands still: one request waits for a quarter of its time; nobody waits again (R4).
kv A put kv 9 50
stand_still "${net_pid[A]}"
reads B 9 0 '"status": "missed"' --deadline 1000
wants 0 'A .*probation.*did not answer' ctl B hosts
reads B 9 0 '"status": "missed"' --deadline 1000
kill -CONT "${net_pid[A]}"
meet B A
reads B 9 50 '"status": "ready"'

# Killed and started again: another life, the same shares.
kill -KILL "${net_pid[A]}"
{ wait "${net_pid[A]}" || true; } 2>/dev/null
kv A put kv 10 50
reads B 10 0 '"status": "missed"' --deadline 1000
net A --tls "$LAB/certs/A"
meet B A
reads B 10 50 '"status": "ready"'

# Another authority's host, and one without TLS, are sent away.
tierd_up C "${small[@]}"
net_up C --tls "$LAB/others/C" --peer "A=${address[A]}"
shows C probation
net_down C
net_up C --no-tls --peer "A=${address[A]}"
shows C probation
net_down C
# Who is no member any more is not served, either.
meet B A
kv A put kv 17 50
ctl A hosts forget B >/dev/null
reads B 17 0 '"status": "missed"' --deadline 1000
ctl B hosts forget A >/dev/null
wants 1 'no such host' ctl B hosts forget A

# The same over bare TCP, and three hosts: who has most is asked, also where it is a block more than
# another one has; four engines at once.
for host in A B; do net_down $host; done
for host in A B C; do
	peers=()
	for peer in A B C; do
		[ $peer = $host ] || peers+=(--peer "$peer=${address[$peer]}")
	done
	[ $host != C ] || kv C put kv 0 0
	net_up $host --no-tls "${peers[@]}"
done
ctl C context share kv >/dev/null
ctl C context epoch kv >/dev/null # as the others
for host in A C; do meet B $host; done
kv A put kv 11 33
kv C put kv 11 34
reads B 11 34 '"located": 34, "asked": [0-9]*, "host": "C"'
kv A put kv 11 50
reads B 11 50 '"located": 50, "asked": [0-9]*, "host": "A", .*"local": 34'
# One host has its beginning and another one the rest: it comes from both.
kv A put kv 13 20
kv C --from 15 put kv 13 50
reads B 13 50 '"local": 0, "usable": 50, "status": "ready"'
for prompt in 20 21 22 23 24 25; do kv C put kv $prompt 50; done
before=$(bytes_in)
readers=()
for prompt in 20 21 22 23 24 25 20 21; do
	kv B --expect 50 read kv $prompt 50 >"$LAB/$prompt.out" 2>&1 &
	readers+=($!)
done
for reader in "${readers[@]}"; do
	wait "$reader" || lab_fail "eight readers at once: $(cat "$LAB"/2?.out)"
done
# Who wants what another one is bringing waits for that.
[ $(($(bytes_in) - before)) = $((6 * 50 * 6 * 4096)) ] || lab_fail 'a prompt came twice'
net_down C
kill "${tierd_pid[C]}"
wait "${tierd_pid[C]}" || lab_fail 'tierd of C'
unset 'tierd_pid[C]' 'net_pid[C]'

# tierd and tierd-net as a user of their own, the engine as another one: its context is not theirs,
# and is shared when its owner says so.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	daemon_uid[C]=4300 engine_uid[C]=4301
	rm -rf "$LAB/C"
	tierd_up C "${small[@]}" socket.mode=0666
	net_up C --no-tls --peer "B=${address[B]}"
	kv C put kv 0 0
	ctl C context share kv >/dev/null
	ctl C context epoch kv >/dev/null # as the others
	daemon_uid[C]='' engine_uid[C]=4302
	wants 1 'none that these' ctl C context share kv
	engine_uid[C]=4301
	kv B put kv 30 50
	meet C B
	reads C 30 50 '"host": "B"'
	net_down C
	kill "${tierd_pid[C]}"
	wait "${tierd_pid[C]}" || lab_fail 'tierd of C'
	unset 'tierd_pid[C]' 'net_pid[C]' 'engine_uid[C]'
fi

# With etcd: members come and go by themselves.
if command -v etcd >/dev/null; then
	for host in A B; do net_down $host; done
	url=http://127.0.0.1:$c
	etcd --data-dir "$LAB/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" \
		--listen-peer-urls "http://127.0.0.1:$d" --logger zap >"$LAB/A/etcd.log" 2>&1 &
	etcd_pid=$!
	for host in A B; do
		net_up $host --tls "$LAB/certs/$host" --etcd "$url" --lease 2s
	done
	meet B A
	meet A B
	kv A put kv 12 50
	reads B 12 50 '"status": "ready"'
	# etcd away: the members known go on.
	kill -STOP $etcd_pid
	kv A put kv 13 50
	reads B 13 50 '"status": "ready"'
	kill -CONT $etcd_pid

	# An epoch is every host's (R5). Who stands still holds that up until its lease is over.
	epoch_of() { ctl "$1" --json context show kv | grep -o '"epoch": [0-9]*'; }
	wants 0 'on every host' ctl A hosts epoch kv
	[ "$(epoch_of A)" = "$(epoch_of B)" ] || lab_fail 'the epochs differ'
	reads B 13 0 '"status": "missed"'
	kv A put kv 14 50
	stand_still "${net_pid[B]}"
	begun=$(date +%s%N)
	wants 0 'on every host' ctl A hosts epoch kv 70
	took_ms=$((($(date +%s%N) - begun) / 1000000))
	[ $took_ms -ge 500 ] || lab_fail "acknowledged after $took_ms ms, before the lease was over"
	[ "$(epoch_of A)" = '"epoch": 70' ] || lab_fail 'the epoch is not raised'
	kill -CONT "${net_pid[B]}"
	applied() { [ "$(epoch_of B)" = '"epoch": 70' ]; }
	eventually 20 applied || lab_fail 'who was away does not apply the epoch'
	wants 1 'larger' ctl A hosts epoch kv 70
	# Who joins with an old store learns of it before it serves.
	kv B put kv 15 50
	meet A B
	reads A 15 50 '"status": "ready"'
	net_down B
	wants 0 'on every host' ctl A hosts epoch kv
	net_up B --tls "$LAB/certs/B" --etcd "$url" --lease 2s
	meet A B
	reads A 15 0 '"located": 0'
	[ "$(epoch_of A)" = "$(epoch_of B)" ] || lab_fail 'the epochs differ after a start'

	# So is a deletion, also of what is read page by page.
	kv A put kv 70 50
	picking '"came": [1-9].*"missed": [1-9].*"over": 0' kv B delete kv 70 50
	# Who stands still holds it up; who joins has to do it before it serves.
	kv A put kv 40 50
	reads B 40 50 '"status": "ready"'
	wants 0 '' kv B delete kv 40 50
	reads A 40 0 '"located": 0.*"local": 0'
	reads B 40 0 '"located": 0.*"local": 0'
	kv A put kv 40 50
	reads B 40 50 '"status": "ready"'
	kv A put kv 41 50
	reads B 41 50 '"status": "ready"'
	stand_still "${net_pid[B]}"
	begun=$(date +%s%N)
	wants 0 '' kv A delete kv 41 50
	took_ms=$((($(date +%s%N) - begun) / 1000000))
	[ $took_ms -ge 500 ] || lab_fail "deleted after $took_ms ms, before the lease was over"
	kill -CONT "${net_pid[B]}"
	meet A B
	gone() { kv B --expect 0 read kv 41 50; }
	eventually 20 gone || lab_fail 'who was away still has what was deleted'
	# It serves and fetches again when it has said so, and when who hung up on it is met.
	kv A put kv 42 50
	back() { kv B --expect 50 read kv 42 50; }
	eventually 20 back || lab_fail 'who was away fetches nothing'
	net_down B
	wants 0 '' kv A delete kv 42 50
	net_up B --tls "$LAB/certs/B" --etcd "$url" --lease 2s
	meet B A
	reads B 42 0 '"located": 0.*"local": 0'

	# Without etcd: no epoch; strict contexts are shared for a lease, others go on (R6).
	for host in A B; do
		kv $host put sure 0 0
		ctl $host context share sure strict >/dev/null
	done
	kv A put sure 1 50
	kv A put kv 16 50
	strict() { kv B --json --expect 50 read sure 1 50; }
	eventually 20 strict || lab_fail 'a strict context is not shared'
	kill -STOP $etcd_pid
	sleep 4
	kv A put sure 2 50
	wants 0 '"usable": 0' kv B --json --expect 0 read sure 2 50
	reads B 16 50 '"status": "ready"'
	wants 1 'etcd does not answer' ctl A hosts epoch kv
	wants 1 'etcd does not answer' kv A --deadline 3000 delete kv 16 50
	kill -CONT $etcd_pid
	again() { kv B --json --expect 50 read sure 2 50; }
	eventually 20 again || lab_fail 'a strict context is not shared again'
	net_down A
	gone() { ! ctl B --json hosts | grep -q '"name": "A", *"address"'; }
	eventually 20 gone || lab_fail 'who has left is still a member'

	# What is no answer of etcd's tells nothing: the members known go on.
	net_up A --tls "$LAB/certs/A" --etcd "$url" --lease 2s
	meet B A
	kill -KILL $etcd_pid
	{ wait $etcd_pid || true; } 2>/dev/null
	python3 tests/integration/hosts_strangers.py etcd "$c" &
	etcd_pid=$!
	sleep 2
	sees B A || lab_fail 'an empty answer of etcd made B forget A'
else
	echo 'hosts: no etcd here; only peers that are given'
fi
