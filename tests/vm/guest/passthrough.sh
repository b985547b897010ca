# NVMe past the block layer (nvme.backend = passthrough): the tests of the block path on a drive,
# both ways; the daemon's store, with flushes, discards, a kill, and a start by either way; then the
# controller is taken off the bus under it.
# modules: nvme
# disk: 96M 16M
# seconds: 600
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. tests/vm/store.sh
begin() { start /dev/tier0 --set nvme.segment=1MiB --set nvme.backend="$1" "${@:2}"; }
put() { "$BUILD/vm/durable" put "$1" "$2" < <(yes) >/mnt/acks || fail "puts from $1 on"; }
verify() { "$BUILD/vm/durable" verify "$1" || fail "$2"; }
writes() { awk '{ print $5 }' "/sys/block/$disk/stat"; } # that the block layer has seen

export TIER_TEST_DRIVE=/dev/tier1
for TIER_TEST_BACKEND in file passthrough; do
	export TIER_TEST_BACKEND
	said=$("$BUILD/tests/unit/test_backend_nvme" 2>&1) || fail "the block path's tests: $said"
	grep -c 'OK \]' <<<"$said" | sed "s/^/tests that passed by $TIER_TEST_BACKEND: /"
done
"$BUILD/vm/passthrough" /dev/tier1 || fail 'reads'

disk=$(basename "$(readlink -f /dev/tier0)")
begin passthrough --format
before=$(writes)
put 1 150
[ "$(writes)" -eq "$before" ] || fail 'writes went through the block layer'
"$BUILD/tierctl" status | grep /dev/tier0 || fail 'no drive'
verify 150 'reads'
"$BUILD/tierctl" check || fail 'check'
stop KILL
begin file
verify 150 'after a kill, by the block device'
put 151 200
stop KILL
begin passthrough
verify 200 'after another kill, by commands'
"$BUILD/tierctl" context remove durable
put 1 100
"$BUILD/tierctl" check || fail 'check'
stop TERM
"$BUILD/tierctl" check --data /dev/tier0 || fail 'the store'

begin passthrough
verify 100 'after an end in order'
echo 1 >"/sys/class/nvme/${disk%n*}/device/remove"
"$BUILD/vm/durable" put 101 103 < <(yes) >/mnt/acks 2>&1 || true # memory is all there is
kill -0 "$daemon" || fail 'the daemon died with its drive'
"$BUILD/tierctl" check || fail 'check without the drive'
stop KILL
