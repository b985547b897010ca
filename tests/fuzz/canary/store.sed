# file: tierd/core/unit/store_recover.c
# A record may say that it is longer than what was read.
# SPDX-License-Identifier: Apache-2.0
s/r->bytes <= left \&\&/left > 0 \&\&/
