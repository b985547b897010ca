# file: tierd/core/store_recover.c
# A record may say that it is longer than what was read.
# SPDX-License-Identifier: Apache-2.0
s/return r->bytes <= left \&\&/return left > 0 \&\&/
