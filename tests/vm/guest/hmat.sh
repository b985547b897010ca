# Two NUMA nodes without processors, unlike each other: the firmware's table (HMAT) says that the
# smaller one is quicker, and it is large enough, so the tier lies there.
# machine: -M hmat=on
# machine: -object memory-backend-ram,id=dram,size=1536M
# machine: -numa node,nodeid=0,memdev=dram,cpus=0-1,initiator=0
# machine: -object memory-backend-ram,id=slow,size=1G -numa node,nodeid=1,memdev=slow,initiator=0
# machine: -object memory-backend-ram,id=quick,size=768M
# machine: -numa node,nodeid=2,memdev=quick,initiator=0
# machine: -numa
# machine: hmat-lb,initiator=0,target=0,hierarchy=memory,data-type=access-latency,latency=10
# machine: -numa
# machine: hmat-lb,initiator=0,target=0,hierarchy=memory,data-type=access-bandwidth,bandwidth=100G
# machine: -numa
# machine: hmat-lb,initiator=0,target=1,hierarchy=memory,data-type=access-latency,latency=40
# machine: -numa
# machine: hmat-lb,initiator=0,target=1,hierarchy=memory,data-type=access-bandwidth,bandwidth=10G
# machine: -numa
# machine: hmat-lb,initiator=0,target=2,hierarchy=memory,data-type=access-latency,latency=20
# machine: -numa
# machine: hmat-lb,initiator=0,target=2,hierarchy=memory,data-type=access-bandwidth,bandwidth=30G
# memory: 3328M
# seconds: 180
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. tests/vm/store.sh

head /sys/devices/system/node/node*/access0/initiators/read_*
truncate -s 64M /mnt/store
start /mnt/store --set nvme.buffered=yes --format
ctl() { "$BUILD/tierctl" "$@"; }
status=$(ctl status)
grep 'CPU-less node' <<<"$status"
grep -q 'CPU-less node 2, .* by HMAT' <<<"$status" || fail 'not the quicker node'
"$BUILD/vm/durable" put 1 100 < <(yes) >/mnt/acks || fail 'puts'
"$BUILD/vm/durable" verify 100 || fail 'reads'
maps=$(grep -h 'tier-cxl' /proc/"$daemon"/numa_maps) || fail 'no mapping of the tier'
echo "$maps"
grep -q ' N2=' <<<"$maps" || fail 'nothing lies on node 2'
! grep -q ' N[01]=' <<<"$maps" || fail 'pages of the tier lie elsewhere'
ctl check
stop TERM
