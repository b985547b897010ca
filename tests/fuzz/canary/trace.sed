# file: bench/trace/trace.c
# Arrays do not grow for what is about to be added.
# SPDX-License-Identifier: Apache-2.0
s/if (count + more <= \*room)/if (count < *room)/
