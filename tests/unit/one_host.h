/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host that all tests of a file share: its memory is reserved once, each test boots a core of
 * its own on it.
 */
#ifndef TIER_TESTS_ONE_HOST_H
#define TIER_TESTS_ONE_HOST_H

#include "tests/fuzz/host.h"

static struct host host;

/* Group setup of cmocka. */
static int one_host(void **state)
{
	(void)state;
	host_init(&host);
	return 0;
}

#endif
