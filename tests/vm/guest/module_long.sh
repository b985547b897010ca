# The kernel module tier_mem for hours, no part of a bare vm-test: what module_hard does, more
# often, and commits under a storing writer.
# modules: vgem
# build: kernel-mod
# kernel: slub_debug=FZPU page_poison=1 kfence.sample_interval=10
# seconds: 86400
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

SEQUENCES=${SEQUENCES:-1000000}
ROUNDS=${ROUNDS:-20000}
KILLS=${KILLS:-10000}

. tests/vm/kmod.sh

insmod "$ko" ram_chunks=48
! rmmod tier_mem 2>/dev/null <>/dev/tier_mem || fail 'it can be unloaded while it is in use'
"$BUILD/vm/hostile" 4 "$SEQUENCES" || fail 'hostile requests'
"$BUILD/vm/storm" 4 "$ROUNDS" "$KILLS" || fail 'a storm'
"$BUILD/vm/module" 4 100000 || fail 'commits'
rmmod tier_mem
