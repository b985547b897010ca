# file: libtier/abi/net_check.c
# A message that has only begun counts as there.
# SPDX-License-Identifier: Apache-2.0
s/if (have < m.header.length)$/if (have < sizeof(m.header))/
