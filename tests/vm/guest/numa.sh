# NUMA nodes without processors, as CXL memory that is online looks: the daemon finds one by itself,
# says so, and every byte of the tier lies there; with meta.memory its cold tables, too. With
# cxl.node the tier lies on two of them, in turn, and on the larger one when the other is full.
# machine: -object memory-backend-ram,id=dram,size=1G -numa node,nodeid=0,memdev=dram,cpus=0-1
# machine: -object memory-backend-ram,id=far,size=2G -numa node,nodeid=1,memdev=far
# machine: -object memory-backend-ram,id=small,size=128M -numa node,nodeid=2,memdev=small
# machine: -numa dist,src=0,dst=1,val=30 -numa dist,src=0,dst=2,val=40
# machine: -numa dist,src=1,dst=2,val=50
# memory: 3200M
# seconds: 240
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

fail() { echo "numa: $*"; cat /mnt/log; exit 1; }
ctl() { "$BUILD/tierctl" --socket /mnt/sock "$@"; }
start() { # [OPTION...]
	"$BUILD/tierd" --foreground --socket /mnt/sock --store /mnt/store --set nvme.size=64MiB \
		--set nvme.buffered=yes --set hbm.size=8MiB \
		--set request.deadline=1min --set put.deadline=1min "$@" 2>/mnt/log &
	daemon=$!
	for _ in $(seq 300); do [ ! -S /mnt/sock ] || break; sleep 0.1; done
	status=$(ctl status)
	echo "$status"
}
stop() { kill "$daemon"; wait "$daemon"; rm -f /mnt/sock /mnt/store; }
# Where the kernel says the pages are. The tier's memfd is named after it.
on_node() { # NODE: KiB
	awk -v "node=N$1=" '/tier-cxl/ { size = 4
		for (i = 1; i <= NF; i++) if (sub("kernelpagesize_kB=", "", $i)) size = $i
		for (i = 1; i <= NF; i++) if (sub(node, "", $i)) n += $i * size }
		END { print n + 0 }' "/proc/$daemon/numa_maps"
}
export TIER_SOCKET=/mnt/sock

start --set meta.memory=capacity
grep -q 'CPU-less node 1' <<<"$status" || fail 'the node was not found'
"$BUILD/vm/durable" put 1 400 < <(yes) >/mnt/acks || fail 'puts'
"$BUILD/vm/durable" verify 400 || fail 'reads'
grep 'tier-cxl' "/proc/$daemon/numa_maps" || fail 'no mapping of the tier'
[ "$(on_node 1)" -gt 0 ] || fail 'nothing lies on node 1'
[ "$(on_node 0)" -eq 0 ] || fail 'pages of the tier lie in DRAM'

# The cold tables lie there by memkind: no other mapping of ordinary memory does.
ctl status | grep 'cold tables .* by memkind (capacity)' || fail 'the status says no cold tables'
awk '/ anon=/ && / N1=/ { for (i = 1; i <= NF; i++) if (sub("N1=", "", $i)) n += $i }
	END { print "figure: " n * 4 " KiB of the cold tables on the far node"; exit n == 0 }' \
	"/proc/$daemon/numa_maps" || fail 'no cold table lies on node 1'
ctl check
stop

start --set cxl.node=1,2
grep -q 'CPU-less nodes 1,2, ' <<<"$status" || fail 'not both nodes'
"$BUILD/vm/durable" put 1 400 < <(yes) >/mnt/acks || fail 'puts on two nodes'
"$BUILD/vm/durable" verify 400 || fail 'reads on two nodes'
grep 'tier-cxl' "/proc/$daemon/numa_maps" || fail 'no mapping of the tier on two nodes'
one=$(on_node 1) two=$(on_node 2)
echo "figure: $one KiB of the tier on node 1, $two on node 2"
[ "$one" -gt 0 ] && [ $((one - two)) -le 2048 ] && [ $((two - one)) -le 2048 ] ||
	fail 'the nodes have not had their turns'
[ "$(on_node 0)" -eq 0 ] || fail 'pages of the tier lie in DRAM'
ctl check
stop

# The small node is full of others' pages: in its turn the other node is taken, and not DRAM.
mkdir /mnt/full && mount -t tmpfs -o mpol=prefer:2 full /mnt/full
head -c 130M /dev/zero >/mnt/full/it
start --set cxl.node=1,2 --set cxl.size=256MiB
"$BUILD/vm/durable" put 1 400 < <(yes) >/mnt/acks || fail 'puts beside a full node'
"$BUILD/vm/durable" verify 400 || fail 'reads beside a full node'
grep 'tier-cxl' "/proc/$daemon/numa_maps"
[ "$(on_node 1)" -gt "$((one + two / 2))" ] || fail 'the node was not full'
[ "$(on_node 0)" -eq 0 ] || fail 'pages of the tier lie in DRAM'
ctl check
stop

! "$BUILD/tierd" --foreground --socket /mnt/sock --store /mnt/store --set cxl.node=1,5 2>/mnt/log ||
	fail 'a node that does not exist'
grep 'node 5: there is no such node' /mnt/log || fail 'another reason'
