# file: libtier/src/lease.c
# A word is followed wherever it leads.
# SPDX-License-Identifier: Apache-2.0
s/ + bytes <= atomic_load_relaxed_u64(&m->mem_bytes\[level\])/ + bytes > 0 \&\& m->mem_bytes[level] > 0/
