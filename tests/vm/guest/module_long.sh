# The kernel module tier_mem for hours, no part of a bare vm-test: what module_hard does, more
# often, and commits under a storing writer.
# modules: vgem
# build: kernel-mod
# kernel: slub_debug=FZPU page_poison=1 kfence.sample_interval=10
# seconds: 86400
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. tests/vm/kmod.sh

hard "${SEQUENCES:-1000000}" "${ROUNDS:-20000}" "${KILLS:-10000}"
"$BUILD/vm/module" 4 100000 || fail 'commits'
rmmod tier_mem
