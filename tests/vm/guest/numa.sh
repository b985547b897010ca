# A NUMA node without processors, as CXL memory that is online looks: the daemon finds it by
# itself, says so, and every byte of the tier lies there; with meta.memory its cold tables, too.
# machine: -object memory-backend-ram,id=dram,size=1G -numa node,nodeid=0,memdev=dram,cpus=0-1
# machine: -object memory-backend-ram,id=far,size=2G -numa node,nodeid=1,memdev=far
# machine: -numa dist,src=0,dst=1,val=30
# memory: 3G
# seconds: 180
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

fail() { echo "numa: $*"; cat /mnt/log; exit 1; }
ctl() { "$BUILD/tierctl" --socket /mnt/sock "$@"; }

"$BUILD/tierd" --foreground --socket /mnt/sock --store /mnt/store --set nvme.size=64MiB \
	--set nvme.buffered=yes --set hbm.size=8MiB \
	--set meta.memory=capacity \
	--set request.deadline=1min --set put.deadline=1min 2>/mnt/log &
for _ in $(seq 300); do [ ! -S /mnt/sock ] || break; sleep 0.1; done

status=$(ctl status)
echo "$status"
grep -q 'CPU-less node 1' <<<"$status" || fail 'the node was not found'
TIER_SOCKET=/mnt/sock "$BUILD/vm/durable" put 1 400 < <(yes) >/mnt/acks || fail 'puts'
TIER_SOCKET=/mnt/sock "$BUILD/vm/durable" verify 400 || fail 'reads'

# Where the kernel says the pages are. The tier's memfd is named after it.
maps=$(grep -h 'tier-cxl' /proc/"$!"/numa_maps) || fail 'no mapping of the tier'
echo "$maps"
grep -q ' N1=' <<<"$maps" || fail 'nothing lies on node 1'
! grep -q ' N0=' <<<"$maps" || fail 'pages of the tier lie in DRAM'

# The cold tables lie there by memkind: no other mapping of ordinary memory does.
ctl status | grep 'cold tables .* by memkind (capacity)' || fail 'the status says no cold tables'
awk '/ anon=/ && / N1=/ { for (i = 1; i <= NF; i++) if (sub("N1=", "", $i)) n += $i }
	END { print "figure: " n * 4 " KiB of the cold tables on the far node"; exit n == 0 }' \
	/proc/"$!"/numa_maps || fail 'no cold table lies on node 1'
ctl check
kill %1
wait %1
