# Pages by RDMA between hosts, over soft-RoCE: two of each daemon in one guest, on one device, in
# which their queue pairs meet. Prompts put on A are read on B, every byte compared with its
# generator (R1); a peer that tries more than it may is refused; a holder that stops or dies
# costs what it costs by TCP (R4), as does an end that has no device or no room. A tierd-net that
# gives memory back while it is registered is found.
# modules: veth crc32_generic rdma_rxe ib_uverbs
# memory: 2G
# seconds: 900
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

ip link add v0 type veth peer name v1
ip link set v0 mtu 4500
ip link set v1 mtu 4500
ip addr add 10.9.0.1/24 dev v0
ip link set v0 up
ip link set v1 up
rdma link add rxe0 type rxe netdev v0

LAB=$TMPDIR/lab
mkdir -p "$LAB"
. bench/hosts/lab.sh
trap lab_end EXIT
address=([A]=10.9.0.1:7001 [B]=10.9.0.1:7002 [C]=10.9.0.1:7003)
small=(hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB request.deadline=1min put.deadline=1min)
bench/hosts/certs "$LAB/certs" A B C

# asks HOST PYTHON: of what its tierd-net says, d; its peers by name, p
asks() {
	ctl "$1" --json hosts | python3 -c 'import json, sys
d = json.load(sys.stdin)
p = {one["name"]: one for one in d["peers"]}
print(eval(sys.argv[1]))' "$2"
}
net() { # HOST [OPTION...]
	local host=$1 one others=()
	shift
	for one in A B C; do [ $one = "$host" ] || others+=(--peer "$one=${address[$one]}"); done
	net_up "$host" --tls "$LAB/certs/$host" "${others[@]}" "$@"
}
down() {
	kill "${net_pid[$1]}"
	wait "${net_pid[$1]}" || lab_fail "tierd-net of $1 ended with $?"
}
# gets HOW VERB: the last prompt that was put on A comes to B, by READ alone or not at all so. An
# emulated host can be too slow for the word that a request waits for; then it is asked again.
gets() {
	local before after
	before=$(asks B '[p["A"]["read_in"], p["A"]["bytes_in"]]')
	eventually 60 kv B --expect 50 --deadline 60000 "$2" kv $prompt 50 ||
		lab_fail "prompt $prompt does not come: $(kv B --json "$2" kv $prompt 50 2>&1)"
	after=$(asks B '[p["A"]["read_in"], p["A"]["bytes_in"]]')
	python3 -c 'import sys
b, a = eval(sys.argv[1]), eval(sys.argv[2])
read, came = a[0] - b[0], a[1] - b[1]
print(sys.argv[4], read, "bytes by READ of", came)
assert came >= 50 * 6 * 4096 and (read >= came if sys.argv[3] == "rdma" else read == 0)' \
		"$before" "$after" "$1" "$2" || lab_fail "prompt $prompt, $2: not by $1"
}

for host in A B; do
	tierd_up $host "${small[@]}"
	net $host --rdma rxe0
	kv $host put kv 0 0
	ctl $host context share kv >/dev/null
done
meet A B
meet B A

echo '# what is granted, and what is not'
tries() { # NET: as C
	TIER_SOCKET=$LAB/B/tier.sock "$BUILD/vm/rdma" "${address[A]}" A C "$LAB/certs/C" \
		"$(asks A 'd["contexts"][0]["digest"]')" "${net_pid[A]}" \
		"TIER_SOCKET=$LAB/A/tier.sock $BUILD/hosts-kv drop kv 1 50"
}
kv A put kv 1 50
kv A put kv 2 50
tries || lab_fail 'a peer got what it may not'
kv A put kv 1 50
down A
mkdir "$LAB/planted"
ln -s "$BUILD"/* "$LAB/planted/"
ln -sf "$BUILD/vm/unlends/tierd-net" "$LAB/planted/tierd-net"
BUILD=$LAB/planted net A --rdma rxe0
if said=$(tries 2>&1); then lab_fail "memory that was given back under a registration: $said"; fi
grep -q 'what a grant that is over had can be read' <<<"$said" || lab_fail "the plant: $said"
echo "found: $said"
down A
net A --rdma rxe0
meet B A

echo '# from memory, from NVMe alone, and layer by layer'
prompt=10
for verb in read fetch stream; do
	new_prompt
	gets rdma $verb
done
new_prompt
ctl A drain >/dev/null
ctl A evict kv cxl >/dev/null
gets rdma read
wants 0 'tls+rdma' ctl B hosts
[ "$(asks B 'd["rdma"]["pinned"]')" = 0 ] || lab_fail 'memory stays registered without a pull'

echo '# a holder that stands still, and one that dies'
new_prompt
stand_still "${net_pid[A]}"
wants 0 '"status": "missed"' kv B --json --expect 0 --deadline 2000 read kv $prompt 50
wants 0 'A .*probation.*did not answer' ctl B hosts
kill -CONT "${net_pid[A]}"
meet B A
gets rdma read
kv A put kv 90 200
kv B --json --deadline 20000 read kv 90 200 >"$LAB/amid" 2>&1 &
client=$!
amid() { [ "$(asks A 'p["B"]["bytes_out"]')" != "$1" ]; }
eventually 20 amid "$(asks A 'p["B"]["bytes_out"]')" || lab_fail 'nothing is under way'
kill -KILL "${net_pid[A]}"
{ wait "${net_pid[A]}" || true; } 2>/dev/null
wait $client || lab_fail "killed: $(cat "$LAB/amid")"
cat "$LAB/amid"
net A --rdma rxe0
meet B A
new_prompt
gets rdma read

echo '# one end has none, no device, or no room'
down B
net B
meet B A
new_prompt
gets tcp read
down B
net B --rdma nowhere
grep -q 'no RDMA.*no device of this name' "$LAB/B/net.log" || lab_fail 'nobody said that it is off'
meet B A
new_prompt
gets tcp read
down B
net B --rdma rxe0 --rdma-memory 1MiB
meet B A
new_prompt
gets tcp read
down B
net B --rdma rxe0
down A
net A --rdma rxe0 --rdma-memory 4MiB
meet B A
new_prompt
gets tcp read
down A
net A --rdma rxe0
meet B A
new_prompt
gets rdma read
