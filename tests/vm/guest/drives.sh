# A store on two NVMe controllers, the second of which is taken off the bus while puts go on: each
# is acknowledged and kept, what lies on the other and in memory is served, the drive is shown as
# FAILING. It comes back, a start has all blocks again, it is drained, the store goes on without.
# modules: nvme
# disk: 64M 64M
# seconds: 900
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. tests/vm/store.sh
begin() { start '/dev/tier0, /dev/tier1' --set nvme.segment=1MiB "$@"; }
put() { "$BUILD/vm/durable" put "$1" "$2" < <(yes) >/mnt/acks || fail "puts from $1 on"; }
verify() { "$BUILD/vm/durable" verify "$1" || fail "$1 blocks: $2"; }
is() { "$BUILD/tierctl" status | grep -q "^ *drive .*/dev/tier1, $1"; }

begin --format
put 1 300
is ok || fail 'the second drive is not well'
disk=$(basename "$(readlink -f /dev/tier1)")
echo 1 >"/sys/class/nvme/${disk%n*}/device/remove"
put 301 500
last=500
for _ in $(seq 100); do
	! is FAILING || break
	last=$((last + 1))
	put "$last" "$last"
	sleep 0.2
done
is FAILING || fail 'it is not shown as FAILING'
verify "$last" 'in memory, or on the first drive'
"$BUILD/tierctl" check || fail 'check without the drive'
stop KILL

echo 1 >/sys/bus/pci/rescan
for _ in $(seq 100); do
	for at in /sys/block/nvme*; do
		! grep -q '^tier1' "$at/device/serial" 2>/dev/null ||
			ln -sf "/dev/${at##*/}" /dev/tier1
	done
	[ ! -b /dev/tier1 ] || break
	sleep 0.1
done
begin
is ok || fail 'it did not come back'
verify "$last" 'after its return'
"$BUILD/tierctl" drive drain /dev/tier1 || fail 'drain'
is drained || fail 'it is not shown as drained'
stop TERM
start /dev/tier0
verify "$last" 'after the drain'
"$BUILD/tierctl" check || fail 'check'
stop TERM
echo "drives: $last blocks"
