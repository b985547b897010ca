# file: tierd/obs/verbs.c
# A context's name is not asked for before it is looked up.
# SPDX-License-Identifier: Apache-2.0
s/if (!name)$/if (!given)/
