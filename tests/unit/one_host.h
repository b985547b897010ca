/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host that all tests of a file share: its memory is reserved once, each test boots a core of
 * its own on it.
 */
#ifndef TIER_TESTS_ONE_HOST_H
#define TIER_TESTS_ONE_HOST_H

#include "tests/fuzz/host.h"
#include "tests/lib/unit.h"

static struct host host;

/* Group setup of cmocka. */
static int one_host(void **state)
{
	(void)state;
	host_init(&host);
	return 0;
}

/* A core with one context as spec says, and so many clients attached to it. */
static inline void one_host_boot(const struct disk_context *spec, uint32_t clients)
{
	host_boot(&host, NULL);
	assert_int_equal(host_context_make(&host, 0, spec), 0);
	for (uint32_t i = 0; i < clients; i++) {
		host_client_open(&host, i);
		host_client_attach(&host, i);
	}
}

/* Teardown of cmocka, of a test or of a group. */
static inline int one_host_off(void **state)
{
	(void)state;
	host_empty(&host);
	host_halt(&host);
	return 0;
}

#endif
