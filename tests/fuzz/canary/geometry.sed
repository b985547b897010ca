# file: libtier/abi/geometry_check.c
# The number of parts is believed.
# SPDX-License-Identifier: Apache-2.0
s/g->part_count > ABI_PARTS_MAX/g->part_count > 1000 * ABI_PARTS_MAX/
