# file: libtier/connect/llama/state.c
# A count of cells is believed.
# SPDX-License-Identifier: Apache-2.0
s/|| cells > (bytes - HEAD_BYTES - 8) \/ CELL_BYTES//
