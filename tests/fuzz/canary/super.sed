# file: tierd/core/unit/store_codec.c
# The catalog may count more contexts and limits than it has room for.
# SPDX-License-Identifier: Apache-2.0
s/disk_catalog_bytes(h->count, h->limit_count) > bytes/0/
