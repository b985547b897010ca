/* SPDX-License-Identifier: Apache-2.0 */
/* In a child a failed assertion must not run the parent's cmocka: plain exits, with the place. */
#ifndef TIER_TESTS_CHILD_H
#define TIER_TESTS_CHILD_H

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <tier.h>

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "child: %s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__,   \
				#x, errno, tier_error_text());                                     \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

#endif
