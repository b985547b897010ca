# file: tierd/core/op/request.c
# The end of the arguments is not compared with the end of staging.
# SPDX-License-Identifier: Apache-2.0
s/ || need > k->open.staging_bytes - q->arg_offset//
