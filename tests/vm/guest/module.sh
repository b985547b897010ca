# The kernel module tier_mem: what it promises, first on ordinary memory, then on the region of a
# CXL type-3 device, which its own DAX driver takes; then the daemon keeps its tier there. (Emulated
# device memory is slow, so the amounts are small. Its figures are good for comparison alone.)
# modules: libnvdimm cxl_acpi cxl_pci cxl_mem cxl_port device_dax dax_cxl vgem
# build: kernel-mod
# machine: -object memory-backend-ram,id=cxlm0,size=512M
# machine: -device pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1
# machine: -device cxl-rp,port=0,bus=cxl.1,id=rp13,chassis=0,slot=2
# machine: -device cxl-type3,bus=rp13,volatile-memdev=cxlm0,id=cxl-vmem0,sn=0x1
# machine: -M cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G
# kernel: slub_debug=FZPU page_poison=1
# seconds: 1200
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. tests/vm/kmod.sh

echo 'module: ordinary memory'
insmod "$ko" ram_chunks=48
"$BUILD/vm/module" 32 1000 || fail 'a promise is broken'
"$BUILD/vm/pins" 4 || fail 'a promise is broken'
"$BUILD/tests/unit/test_backend_mem" || fail 'the suite of the memory backends'
rmmod tier_mem

echo 'module: a client over its budget is stopped'
insmod "$ko" ram_chunks=96
daemon 160MiB --set quarantine.percent=25
ctl status | grep -q 'of ordinary memory' || fail 'the module was not found'
"$BUILD/vm/stopped" 64 || fail 'a stopped client'
daemon_ends
whole 96

echo 'module: puts in place'
daemon 160MiB
"$BUILD/vm/place" "${COMMITS:-1000}" || fail 'puts in place'
daemon_ends
whole 96
rmmod tier_mem

. tests/vm/region.sh
region $((512 << 20))
for _ in $(seq 100); do [ ! -e /sys/bus/dax/devices/dax0.0 ] || break; sleep 0.1; done
insmod "$ko"
echo dax0.0 >/sys/bus/dax/drivers/tier_mem/new_id || fail 'the driver does not take dax0.0'
echo 'module: CXL type-3'
"$BUILD/vm/module" 4 10 || fail 'a promise is broken'
"$BUILD/vm/pins" 2 dax0.0 || fail 'a promise is broken'

daemon 64MiB
ctl status
ctl status | grep -q 'tier_mem, 512 MiB in 256 chunks' || fail 'the module was not found'
"$BUILD/vm/durable" put 1 32 < <(yes) >/mnt/acks || fail 'puts'
"$BUILD/vm/durable" verify 32 || fail 'reads'
grep -h 'tier_mem:tier-cxl' "/proc/$daemon/maps" || fail 'no mapping of the tier'
daemon_ends
whole 256
rmmod tier_mem
