# A CXL type-3 device: its region is created as an operator would, comes online as a NUMA node
# without processors, and the daemon keeps its tier there. (The emulator serves such memory through
# MMIO: right, and slow, so the amounts are small.)
# modules: libnvdimm cxl_acpi cxl_pci cxl_mem cxl_port device_dax dax_cxl kmem
# machine: -object memory-backend-ram,id=cxlm0,size=512M
# machine: -device pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1
# machine: -device cxl-rp,port=0,bus=cxl.1,id=rp13,chassis=0,slot=2
# machine: -device cxl-type3,bus=rp13,volatile-memdev=cxlm0,id=cxl-vmem0,sn=0x1
# machine: -M cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G
# seconds: 400
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

fail() { echo "cxl: $*"; cat /mnt/log 2>/dev/null; dmesg | grep -i cxl | tail; exit 1; }
ctl() { "$BUILD/tierctl" --socket /mnt/sock "$@"; }

. tests/vm/region.sh
region $((512 << 20))
for _ in $(seq 100); do [ ! -d /sys/devices/system/node/node1 ] || break; sleep 0.1; done
[ -d /sys/devices/system/node/node1 ] || fail 'the region did not become a node'
for memory in /sys/devices/system/node/node1/memory[0-9]*; do
	grep -q online "$memory/state" || echo online_movable >"$memory/state"
done
grep MemTotal /sys/devices/system/node/node1/meminfo

"$BUILD/tierd" --foreground --socket /mnt/sock --store /mnt/store --set nvme.size=64MiB \
	--set nvme.buffered=yes --set hbm.size=0 --set cxl.size=64MiB \
	--set request.deadline=1min --set put.deadline=1min 2>/mnt/log &
for _ in $(seq 600); do [ ! -S /mnt/sock ] || break; sleep 0.1; done
ctl status
ctl status | grep -q 'CPU-less node 1' || fail 'the node was not found'
export TIER_SOCKET=/mnt/sock
"$BUILD/vm/durable" put 1 32 < <(yes) >/mnt/acks || fail 'puts'
"$BUILD/vm/durable" verify 32 || fail 'reads'
maps=$(grep -h 'tier-cxl' /proc/"$!"/numa_maps) || fail 'no mapping of the tier'
echo "$maps"
grep -q ' N1=' <<<"$maps" || fail 'nothing lies on node 1'
! grep -q ' N0=' <<<"$maps" || fail 'pages of the tier lie in DRAM'
ctl check
kill %1
wait %1
