# The kernel module tier_mem for hours, no part of a bare vm-test: what module_hard does, more
# often, and commits under a storing writer. Runs add up where each has seeds of its own:
#
#   make vm-test VM=module_long WITH='SEED=200000 SEQUENCES=100000 COMMITS=10000'
#
# What one processor waits for of the other, it gets at once where one thread emulates both; on a
# busy host two of them spin for each other. Who allocated an object is not recorded (slub_debug=U),
# whether it is sound is looked at.
# modules: vgem
# build: kernel-mod
# accel: tcg,thread=single
# kernel: slub_debug=FZP page_poison=1 kfence.sample_interval=10 preempt=full
# seconds: 86400
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. tests/vm/kmod.sh

hard "${SEQUENCES:-1000000}" "${ROUNDS:-20000}" "${KILLS:-10000}" "${SEED:-1}"
"$BUILD/vm/module" 4 "${COMMITS:-100000}" || fail 'commits'
rmmod tier_mem
