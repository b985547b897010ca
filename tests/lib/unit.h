/*
 * What a cmocka test program includes: cmocka.h wants these four headers before itself. Included by
 * tests/unit and tests/integration.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_UNIT_H
#define TIER_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Number of elements of an array. */
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Option structs of tier.h in place, for programs that include it. */
#define ASK(where, ...) \
	(&(const struct tier_ask){ .size = sizeof(struct tier_ask), .tier = (where), __VA_ARGS__ })
#define INTO(to, apart, errors) \
	(&(const struct tier_into){ .dst = (to), .stride = (apart), .error = (errors) })
#define SALT(from, length) (&(const struct tier_salt){ .bytes = (from), .count = (length) })

#endif
