# file: tierd/front/control.c
# The length that a message claims is believed.
# SPDX-License-Identifier: Apache-2.0
s/if (h->length != bytes)/if (h->length < bytes)/
