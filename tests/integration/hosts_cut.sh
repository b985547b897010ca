#!/usr/bin/env bash
# What the network between two hosts, and etcd, can do to them: a wire that is cut one way, the
# other way, both; one that loses packets; one of 10 Mbit/s; etcd cut off from one host, stopped,
# compacted. Two network namespaces, a wire for the hosts and one to etcd, spoilt by tc alone.
# Whatever happens, no wrong byte is served (R1), no call ends later than its deadline (R4), and two
# lease times after healing what A has is a hit on B again. All the while B asks for what it has
# itself, and nothing of that may be missed. ROUNDS=n: all of it n times; STOP=seconds: etcd stands
# still for so long (make hosts-test: 60), and for so long before nothing is wrong, to compare with.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

for need in ip tc unshare nsenter etcd openssl; do
	command -v $need >/dev/null || { echo "skipped: there is no $need here"; exit 77; }
done
if [ "${1:-}" != inside ]; then
	unshare -Urn true 2>/dev/null || {
		echo 'skipped: this host does not let users make network namespaces (unshare -Urn)'
		exit 77
	}
	exec unshare -Urn --kill-child --fork "$0" inside
fi

LAB=$TMPDIR/lab
mkdir -p "$LAB/etcd"
. bench/hosts/lab.sh
trap lab_end EXIT
rounds=${ROUNDS:-1}
stop=${STOP:-4}
lease_ms=2000
late_max_ms=${LATE_MAX_MS:-400} # a loaded machine runs late; the figures are printed

# A is in this namespace, and etcd beside it: on a wire of its own.
unshare -n sleep infinity &
space[A]=$$ space[B]=$!
eventually 10 nsenter -n -t "${space[B]}" -- true || lab_fail 'no second namespace'
join() { # WIRE NETWORK
	local host
	eventually 5 ip link add "$1" type veth peer name "$1" netns "${space[B]}" ||
		lab_fail "no $1"
	for host in A B; do
		at $host ip address add "$2.$([ $host = A ] && echo 1 || echo 2)/24" dev "$1"
		at $host ip link set "$1" up gso_max_segs 1
		at $host ip link set lo up
	done
}
join wire 10.77.0
join ops 10.78.0
address=([A]=10.77.0.1:7440 [B]=10.77.0.2:7440)
bench/hosts/certs "$LAB/certs" A B
url=http://10.78.0.1:2379
etcd --name cut --data-dir "$LAB/etcd/data" --listen-client-urls $url \
	--advertise-client-urls $url --listen-peer-urls http://127.0.0.1:2380 \
	--initial-advertise-peer-urls http://127.0.0.1:2380 \
	--initial-cluster cut=http://127.0.0.1:2380 --logger zap >"$LAB/etcd/etcd.log" 2>&1 &
etcd_pid=$!

# What HOST sends over WIRE: nothing gets through; 3 of 100 packets are lost; 10 Mbit/s; all
# is well.
nothing=(tbf rate 8bit burst 10 limit 10)
cut() { at "$1" tc qdisc replace dev "$2" root "${nothing[@]}"; }
heal() { at "$1" tc qdisc del dev "$2" root 2>/dev/null || true; }
lose() {
	at "$1" tc qdisc replace dev "$2" root handle 1: htb default 10
	at "$1" tc class add dev "$2" parent 1: classid 1:10 htb rate 10gbit quantum 60000
	at "$1" tc class add dev "$2" parent 1: classid 1:20 htb rate 8bit quantum 1500
	at "$1" tc qdisc add dev "$2" parent 1:20 "${nothing[@]}"
	# A random word of 0.97 * 2^32 and above: class 1:20.
	at "$1" tc filter add dev "$2" parent 1: prio 1 bpf bytecode \
		'4,32 0 0 4294963256,53 0 1 4166118277,6 0 0 65568,6 0 0 65552'
}
slow() { at "$1" tc qdisc replace dev "$2" root tbf rate 10mbit burst 32k latency 100ms; }

for host in A B; do
	tierd_up $host hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB
	net_up $host --tls "$LAB/certs/$host" --etcd $url --lease ${lease_ms}ms
	kv $host put kv 0 0
	ctl $host context share kv >/dev/null
done
meet A B
meet B A

# What needs nobody else: a context of B's own, whose epoch nobody raises.
kv B put own 0 0
ctl B context share own >/dev/null
kv B --deadline 3600000 own own 1 10 >"$LAB/own" 2>"$LAB/own.log" &
own_pid=$!
spoilt() { echo "${EPOCHREALTIME/./} $1" >>"$LAB/spoilt"; }

now_ms() { echo $(($(date +%s%N) / 1000000)); }
# A new prompt of A's is a hit on B within two lease times; how long it took is kept.
hits_again() {
	local begun took
	begun=$(now_ms)
	new_prompt
	until kv B --json --expect 50 --deadline 400 read kv $prompt 50 >/dev/null 2>&1; do
		[ $(($(now_ms) - begun)) -lt 30000 ] || lab_fail "$mode: no hits again"
	done
	took=$(($(now_ms) - begun))
	echo "$mode $took" >>"$LAB/healed"
}
epoch_of() { ctl "$1" --json context show kv | grep -o '"epoch": [0-9]*'; }
same_epoch() { [ "$(epoch_of A)" = "$(epoch_of B)" ]; }
etcd_says() { # PATH JSON
	python3 - "$url/v3/$1" "$2" <<-'PY'
	import sys, urllib.request
	print(urllib.request.urlopen(sys.argv[1], sys.argv[2].encode(), 10).read().decode())
	PY
}
revision() { etcd_says kv/range '{"key": "AA=="}' | grep -o '"revision": *"[0-9]*"' | tr -dc 0-9; }

# New prompts of A's, all of them hits on B, for SECONDS.
for_so_long() {
	local until_ms=$(($(now_ms) + $1 * 1000))
	while [ "$(now_ms)" -lt $until_ms ]; do
		new_prompt
		reads 50 5000
		sleep 0.2
	done
}

for ((round = 0; round < rounds; round++)); do
	if [ "$stop" -ge 30 ]; then
		mode=nothing-wrong
		spoilt no
		for_so_long "$stop"
	fi
	spoilt yes
	for mode in from-A from-B both-ways; do
		new_prompt
		[ $mode = from-B ] || cut A wire
		[ $mode = from-A ] || cut B wire
		reads 0 400 # finds out
		for _ in 1 2 3; do reads 0 100; done
		heal A wire
		heal B wire
		hits_again
	done
	# In the middle of a transfer.
	mode=amid
	slow A wire
	new_prompt
	(sleep 0.15 && cut A wire) &
	reads '' 600
	wait $! || lab_fail 'no cut'
	heal A wire
	hits_again
	mode=loss
	for host in A B; do lose $host wire; done
	for _ in 1 2 3 4 5; do
		new_prompt
		reads '' 400
	done
	for host in A B; do heal $host wire; done
	hits_again
	mode=10-Mbit
	slow A wire
	new_prompt
	reads '' 200 # too short: LATE, and probation
	meet B A
	reads 50 20000
	heal A wire
	# B alone loses etcd: it goes on. An epoch is acknowledged when B's lease is over; B, which
	# has not heard, has no block of it, and hears when it is back.
	mode=no-etcd-on-B
	cut B ops
	new_prompt
	reads 50 5000
	old=$prompt
	ctl A hosts epoch kv >/dev/null || lab_fail "$mode: no epoch"
	prompt=1000$old
	kv A put kv "$prompt" 50
	reads 0 300
	heal B ops
	eventually 30 same_epoch || lab_fail "$mode: who was away does not apply the epoch"
	prompt=$old
	hits_again
	# All that it said is compacted behind their backs.
	mode=compacted
	etcd_says kv/compaction "{\"revision\": $(revision), \"physical\": true}" >/dev/null
	hits_again
	ctl A hosts epoch kv >/dev/null || lab_fail "$mode: no epoch"
	same_epoch || lab_fail "$mode: the epochs differ"
	kv B delete kv 1 50 || lab_fail "$mode: no deletion"
	hits_again
	mode=etcd-stands-still
	kill -STOP $etcd_pid
	for_so_long "$stop"
	kill -CONT $etcd_pid
	hits_again
done
kill $own_pid 2>/dev/null || lab_fail "what B has itself was missed: $(cat "$LAB/own.log")"
wait $own_pid || true
python3 - "$calls" "$LAB/healed" "$late_max_ms" $lease_ms "$LAB/own" "$LAB/spoilt" <<'PY' |
import bisect
import json
import sys

late = []
for line in open(sys.argv[1], encoding="ascii"):
    mode, text = line.split(" ", 1)
    late.append((json.loads(text)["late_ns"] / 1e6, mode))
late.sort()
healed = sorted((int(ms), mode) for mode, ms in
                (line.split() for line in open(sys.argv[2], encoding="ascii")))
print(f"{len(late)} calls, 0 wrong bytes; past their deadline by {late[len(late) // 2][0]:.1f} ms "
      f"(p50), {late[int(len(late) * 0.999)][0]:.1f} ms (p99.9), {late[-1][0]:.1f} ms "
      f"({late[-1][1]}) at most; hits again after {healed[len(healed) // 2][0]} ms (p50), "
      f"{healed[-1][0]} ms ({healed[-1][1]}) at most, in a lease of {sys.argv[4]} ms")
hits = sum(mode == "etcd-stands-still" for _, mode in late)
print(f"etcd stopped: {hits} prompts asked for, all of them hits")

# What needs nobody else, while something is wrong and while nothing is.
marks = [(int(at), word == "yes") for at, word in map(str.split, open(sys.argv[6]))]
own = {False: [], True: []}
for line in open(sys.argv[5]):
    if line.endswith("\n"):
        at, ns = map(int, line.split())
        mark = bisect.bisect(marks, (at, True)) - 1
        if mark >= 0:
            own[marks[mark][1]].append(ns / 1e3)
quantile = {}
for wrong, us in own.items():
    us.sort()
    for q in (0.5, 0.99):
        quantile[wrong, q] = us[int(len(us) * q)] if us else float("nan")
    print(f"what needs nobody else, {'something' if wrong else 'nothing'} wrong: {len(us)} calls, "
          f"{quantile[wrong, 0.5]:.0f} us (p50), {quantile[wrong, 0.99]:.0f} us (p99)")
if own[False]:
    print(*(f"p{100 * q:.0f} {quantile[True, q] / quantile[False, q]:.2f} times"
            for q in (0.5, 0.99)), sep=", ")
sys.exit(late[-1][0] > float(sys.argv[3]) or healed[-1][0] > 2 * int(sys.argv[4]))
PY
	tee -a "${FIGURES:-/dev/null}"
