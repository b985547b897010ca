# Devices that misbehave under the daemon: of two CXL type-3 devices one is removed from the bus
# while clients put and read. Nobody dies, what lies on the other device goes on, and once the
# contexts are removed the pool is whole.
# modules: libnvdimm cxl_acpi cxl_pci cxl_mem cxl_port device_dax dax_cxl
# build: kernel-mod
# machine: -object memory-backend-ram,id=cxlm0,size=256M
# machine: -object memory-backend-ram,id=cxlm1,size=256M
# machine: -device pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1
# machine: -device cxl-rp,port=0,bus=cxl.1,id=rp13,chassis=0,slot=2
# machine: -device cxl-rp,port=1,bus=cxl.1,id=rp14,chassis=0,slot=3
# machine: -device cxl-type3,bus=rp13,volatile-memdev=cxlm0,id=cxl-vmem0,sn=0x1
# machine: -device cxl-type3,bus=rp14,volatile-memdev=cxlm1,id=cxl-vmem1,sn=0x2
# machine: -M cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G
# seconds: 400
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. tests/vm/kmod.sh
. tests/vm/region.sh

decoders=$(cd /sys/bus/cxl/devices && for d in decoder*; do
	[ ! -e "$d/dpa_size" ] || [ "${d#*.}" != 0 ] || echo "$d"
done)
echo "endpoint decoders:" $decoders
insmod "$ko"
n=0
for decoder in $decoders; do
	region $((256 << 20)) "$decoder"
	for _ in $(seq 100); do [ ! -e "/sys/bus/dax/devices/dax$n.0" ] || break; sleep 0.1; done
	echo "dax$n.0" >/sys/bus/dax/drivers/tier_mem/new_id || fail "dax$n.0 is not taken"
	n=$((n + 1))
done
daemon 64MiB
ctl status | grep -q 'tier_mem, 512 MiB in 256 chunks' || fail 'not both devices'
"$BUILD/vm/durable" put 1 16 < <(yes) >/mnt/acks || fail 'puts'
"$BUILD/vm/durable" churn 1000 &
churn=$!
sleep 2

lost=$(readlink -f "/sys/bus/cxl/devices/${first:-mem0}")
timeout 60 sh -c "echo 1 >$(dirname "$lost")/remove" || fail 'its removal does not end'
sleep 2
kill -0 "$daemon" || fail 'the daemon died'
ctl status | grep -E 'tier_mem|^cxl|region'
if said=$("$BUILD/vm/durable" verify 16 2>&1); then :; fi # misses where a slot was lost
echo "$said"
! grep -q 'bytes are not those' <<<"$said" || fail 'lost memory read as data'
grep -q 'blocks are there and right' <<<"$said" || fail 'a reader died'
kill -0 "$daemon" || fail 'the daemon died'
status=0
kill "$churn" 2>/dev/null || true
wait "$churn" || status=$?
[ "$status" -le 1 ] || [ "$status" -eq 143 ] || fail "the client died: $status" # an error, or ours
ctl context remove durable || fail 'the context cannot be removed'
"$BUILD/vm/durable" put 1 8 < <(yes) >/mnt/acks || fail 'puts on the other device'
"$BUILD/vm/durable" verify 8 || fail 'reads from the other device'
daemon_ends
whole 128
rmmod tier_mem
