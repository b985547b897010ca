# file: libtier/shim/weights.c
# A length in the header may go beyond the file.
# SPDX-License-Identifier: Apache-2.0
s/r->bad || bytes > r->left/r->bad/
