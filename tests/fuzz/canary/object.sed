# file: tierd/object/record.c
# A record may be longer than what there is of the catalog.
# SPDX-License-Identifier: Apache-2.0
s/d->bytes > left || //
