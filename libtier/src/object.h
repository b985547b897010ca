/*
 * Objects that are being written, for connection.c; the rest of object.c is public.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_OBJECT_H
#define TIER_SRC_OBJECT_H

#include "libtier/src/connection.h"

/* The connection ends, and with it what it has not committed. */
void object_drop_all(struct tier *t);

#endif
