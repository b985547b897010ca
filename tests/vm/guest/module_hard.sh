# The kernel module tier_mem under who means it ill: hostile requests, many processes at a time,
# owners, readers and writers that are killed, all on a kernel that looks after its memory.
# modules: vgem
# build: kernel-mod
# kernel: slub_debug=FZPU page_poison=1 kfence.sample_interval=10
# seconds: 600
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

SEQUENCES=${SEQUENCES:-10000}
ROUNDS=${ROUNDS:-500}
KILLS=${KILLS:-200}

. tests/vm/kmod.sh

insmod "$ko" ram_chunks=48
! rmmod tier_mem 2>/dev/null <>/dev/tier_mem || fail 'it can be unloaded while it is in use'
"$BUILD/vm/hostile" 4 "$SEQUENCES" || fail 'hostile requests'
"$BUILD/vm/storm" 4 "$ROUNDS" "$KILLS" || fail 'a storm'
rmmod tier_mem
