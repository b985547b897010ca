# Pages by RDMA between two hosts, over soft-RoCE: two of each daemon in one guest, on one device,
# whose queue pairs meet in it. Prompts put on A, in memory and on NVMe alone, are read on B by READ,
# every byte compared with its generator (R1).
# modules: veth crc32_generic rdma_rxe ib_uverbs
# memory: 2G
# seconds: 600
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
address=([A]=10.9.0.1:7001 [B]=10.9.0.1:7002)
small=(hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB)
bench/hosts/certs "$LAB/certs" A B

# count HOST WHAT: of its only peer
count() {
	ctl "$1" --json hosts | python3 -c 'import json, sys
print(sum(p[sys.argv[1]] for p in json.load(sys.stdin)["peers"]))' "$2"
}
for host in A B; do
	peer=$([ $host = A ] && echo B || echo A)
	tierd_up $host "${small[@]}"
	net_up $host --tls "$LAB/certs/$host" --peer "$peer=${address[$peer]}" --rdma rxe0
	kv $host put kv 0 0
	ctl $host context share kv >/dev/null
done
meet A B
meet B A
kv A put kv 1 50
wants 0 '"status": "ready"' kv B --json --expect 50 --deadline 60000 read kv 1 50
ctl B hosts
ctl A hosts
echo "read $(count B read_in) of $(count B bytes_in)"
cat $LAB/*/net.log
