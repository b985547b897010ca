# Discards on an NVMe drive: what a context that was removed held is told to the drive, the daemon
# says at the start that it will, what is put afterwards is there after a kill, and nothing is told
# with nvme.discard=off.
# modules: nvme
# disk: 96M
# seconds: 600
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

BLOCKS=300

. tests/vm/store.sh
begin() {
	start /dev/tier0 --set nvme.segment=1MiB "$@"
}

disk=$(basename "$(readlink -f /dev/tier0)")
told() { awk '{ print int($14 / 2048) }' "/sys/block/$disk/stat"; } # MiB that were discarded
fill() {
	"$BUILD/vm/durable" put 1 "$BLOCKS" < <(yes) >/mnt/acks || fail 'puts'
}

[ "$(cat "/sys/block/$disk/queue/discard_max_bytes")" -gt 0 ] || fail 'the drive takes no discards'
begin --format --set nvme.discard=off
fill
"$BUILD/tierctl" context remove durable
sleep 2
[ "$(told)" -eq 0 ] || fail 'discarded though it was told not to'
stop TERM
grep -q 'on=0 why="nvme.discard says so"' /mnt/log || fail 'the log does not say that it is off'

begin
grep -q 'on=1 why="its device takes them"' /mnt/log || fail 'the log does not say that it is on'
fill
before=$(told)
"$BUILD/tierctl" context remove durable
for _ in $(seq 600); do [ "$(told)" -le "$before" ] || break; sleep 0.1; done
[ "$(told)" -gt "$before" ] || fail 'nothing was discarded'
fill
"$BUILD/tierctl" check || fail 'check'
stop KILL
begin
"$BUILD/vm/durable" verify "$BLOCKS" || fail 'what was put is not there'
"$BUILD/tierctl" check || fail 'check after a kill'
stop TERM
"$BUILD/tierctl" check --data /dev/tier0 || fail 'the store'
echo "discard: $(told) MiB"
