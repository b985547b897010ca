# The kernel module tier_mem under who means it ill: hostile requests, many processes at a time,
# owners, readers and writers that are killed, all on a kernel that looks after its memory.
# modules: vgem
# build: kernel-mod
# kernel: slub_debug=FZPU page_poison=1 kfence.sample_interval=10
# seconds: 1200
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. tests/vm/kmod.sh

hard "${SEQUENCES:-10000}" "${ROUNDS:-500}" "${KILLS:-200}"
rmmod tier_mem
