# What the kernel offers without a module: the table of docs/kernel-mod.md, measured anew on a node
# without processors and on a CXL region that is not onlined. A row that does not hold any more
# fails here.
# modules: libnvdimm cxl_acpi cxl_pci cxl_mem cxl_port device_dax dax_cxl
# machine: -object memory-backend-ram,id=dram,size=2G -numa node,nodeid=0,memdev=dram,cpus=0-1
# machine: -object memory-backend-ram,id=far,size=512M -numa node,nodeid=1,memdev=far
# machine: -object memory-backend-ram,id=cxlm0,size=512M
# machine: -device pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1
# machine: -device cxl-rp,port=0,bus=cxl.1,id=rp13,chassis=0,slot=2
# machine: -device cxl-type3,bus=rp13,volatile-memdev=cxlm0,id=cxl-vmem0,sn=0x1
# machine: -M cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G
# memory: 2560M
# seconds: 200
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

fail() { echo "stock: $*"; dmesg | tail -n 5; exit 1; }

. tests/vm/region.sh
region $((512 << 20))
for _ in $(seq 100); do [ ! -e /sys/bus/dax/devices/dax0.0 ] || break; sleep 0.1; done
cd /sys/bus/dax
echo dax0.0 >drivers/device_dax/new_id || true
[ -e devices/dax0.0/driver ] || echo dax0.0 >drivers/device_dax/bind || fail 'no device_dax'

# Parts of a region: a device is made smaller, another one takes the rest.
echo dax0.0 >drivers/device_dax/unbind
begun=$(date +%s%N)
echo $((256 << 20)) >devices/dax0.0/size
whole=$(readlink -f devices/dax0.0/..)
echo 1 >"$(dirname "$(find "$whole" -name create -path '*dax_region*' | head -n 1)")/create"
for device in devices/dax0.1; do [ -e "$device" ] || fail 'no second DAX device'; done
echo $((128 << 20)) >devices/dax0.1/size
echo "holds: a part of a region becomes a DAX device in $((($(date +%s%N) - begun) / 1000000)) ms"
echo dax0.0 >drivers/device_dax/bind
cd - >/dev/null
chmod 0444 /dev/dax0.0
"$BUILD/vm/stock" 1 dax0.0 || fail 'the table is wrong'
if [ -d /sys/kernel/mm/damon/admin ]; then
	echo 'holds: DAMON is there (what it sees of a memfd is not measured here)'
fi
