# file: tierd/core/place/reclaim.c
# What a reader says of its slots is believed.
# SPDX-License-Identifier: Apache-2.0
s/if (high > ABI_HAZARD_SLOTS)/if (high == UINT32_MAX)/
