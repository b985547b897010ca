# Devices that misbehave under the daemon. Memory with poison: under leases, in blocks that were not
# written, also where the kernel tells of it early. An NVMe drive with bad sectors: what lies there
# is a miss, the rest is right, and writing goes on. Nobody dies, and every byte is accounted for.
# modules: nvme dm-mod
# disk: 64M
# seconds: 200
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. tests/vm/store.sh
lives() { kill -0 "$daemon" || fail "the daemon died: $1"; }
begin() { start /dev/mapper/drive --set nvme.segment=1MiB --set nvme.discard=off "$@"; }
# Who meets poison before the daemon does misses the 2 MiB around it: then another client looks.
right() { # AT_LEAST FIRST WHAT
	local said
	for _ in {1..50}; do
		said=$("$BUILD/vm/poison" verify "$2") || fail "$3"
		[ "${said%% *}" -lt "$1" ] || break
		sleep 0.2
	done
	echo "$said"
	[ "${said%% *}" -ge "$1" ] || fail "$3"
}

sectors=$(blockdev --getsz /dev/tier0)
dmsetup create drive --noudevsync --table "0 $sectors linear /dev/tier0 0"
[ -e /dev/mapper/drive ] || dmsetup mknodes
begin --format

for early in 0 1; do
	echo $early >/proc/sys/vm/memory_failure_early_kill
	"$BUILD/vm/poison" clean $((1 + early * 1000)) || fail 'poison under a lease'
	lives 'poison under a lease'
	"$BUILD/vm/poison" dirty $((101 + early * 1000)) || fail 'poison before a write'
	lives 'poison before a write'
	right 20 $((101 + early * 1000)) 'a poisoned block took others with it'
done
! "$BUILD/tierctl" status | grep FAILING || fail 'the drive is blamed'
"$BUILD/tierctl" check || fail 'check after poison'

# A start has again what had poison. Then 4 KiB of each 700 are bad.
stop TERM
begin
right 24 1 'a start does not bring back what had poison'
stop TERM
begin
at=0
for bad in $(seq 8192 1400 $((sectors - 8))); do
	echo "$at $((bad - at)) linear /dev/tier0 $at"
	echo "$bad 8 error"
	at=$((bad + 8))
done >/mnt/table
echo "$at $((sectors - at)) linear /dev/tier0 $at" >>/mnt/table
dmsetup reload drive /mnt/table
dmsetup suspend --noudevsync drive
dmsetup resume --noudevsync drive
right 1 1 'bad sectors'
lives 'bad sectors'
"$BUILD/vm/durable" put 1 100 < <(yes) >/mnt/acks || fail 'puts on a drive with bad sectors'
"$BUILD/vm/durable" verify 100 || fail 'what was put on it'
"$BUILD/tierctl" check || fail 'check after bad sectors'
stop KILL
begin
"$BUILD/vm/durable" verify 100 || fail 'what was promised on bad sectors'
"$BUILD/tierctl" check || fail 'check after a kill'
stop TERM
