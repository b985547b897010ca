# Power cuts: tierd's store on a device that records every write and flush. For many moments after
# an acknowledgement the disk is built as a cut could have left it (flushed writes there, the rest
# kept, lost or torn at random); a daemon that opens it must have every acknowledged block.
# modules: nvme dm-log-writes
# disk: 96M
# disk: 2G
# disk: 96M
# seconds: 900
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

BLOCKS=${BLOCKS:-80}
CUTS=${CUTS:-12}

. tests/vm/store.sh
sectors=$(blockdev --getsz /dev/tier0)
dmsetup create rec --noudevsync \
	--table "0 $sectors log-writes /dev/tier0 /dev/tier1"
node=/dev/mapper/rec
[ -e "$node" ] || { dmsetup mknodes; }
start "$node" --set nvme.segment=4MiB --format

"$BUILD/vm/durable" churn 1000000 & # others' writes, between the flushes
coproc CLIENT { "$BUILD/vm/durable" put 1 "$BLOCKS"; }
last=0
while [ "$last" -lt "$BLOCKS" ] && read -r n <&"${CLIENT[0]}"; do
	dmsetup message rec 0 mark "acked-$n"
	last=$n
	[ "$n" -eq "$BLOCKS" ] || echo go >&"${CLIENT[1]}"
done
[ "$last" -eq "$BLOCKS" ] || fail "puts ended after $last of $BLOCKS"
stop KILL
for _ in $(seq 50); do # io_uring closes the device some time after the daemon
	dmsetup remove --noudevsync rec 2>/dev/null && break
	sleep 0.2
done

# cut MARK SEED [LIES]: does a daemon find all that was acknowledged before the cut?
cut() {
	dd if=/dev/zero of=/dev/tier2 bs=1M status=none oflag=direct 2>/dev/null || true
	"$BUILD/vm/replay" /dev/tier1 /dev/tier2 "acked-$1" "${@:2}" ||
		fail "no mark acked-$1"
	start /dev/tier2 --set nvme.segment=4MiB
	local status=0
	"$BUILD/vm/durable" verify "$1" || status=$?
	stop TERM
	return $status
}

for i in $(seq "$CUTS"); do
	n=$((RANDOM % BLOCKS + 1))
	cut "$n" $((i * 7919 + RANDOM)) || fail "after a cut behind acked-$n"
done

# On a disk whose flushes do nothing blocks must be missing: else all this shows nothing.
! cut "$BLOCKS" 1 20 || fail 'a disk that lies went unnoticed'
