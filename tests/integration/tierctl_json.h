/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator's tierctl says of a daemon, for tests that have no connection of their own that
 * may ask.
 */
#ifndef TIER_TESTS_TIERCTL_JSON_H
#define TIER_TESTS_TIERCTL_JSON_H

#include "libtier/base/json_at.h"
#include "tests/integration/front_client.h"

/* The document that a verb prints, words behind it included; json_decref it. */
HELPER json_t *tierctl_json(const struct daemon *d, const char *words)
{
	const char *build = getenv("BUILD");
	char command[512];
	json_t *document;
	FILE *f;

	snprintf(command, sizeof(command), "%s/tierctl --socket %s --json %s",
		 build ? build : "build/plain", d->socket, words);
	f = popen(command, "r");
	assert_non_null(f);
	document = json_loadf(f, 0, NULL);
	assert_int_equal(pclose(f), 0);
	assert_non_null(document);
	return document;
}

/* One number of it. */
HELPER uint64_t number_in(const json_t *document, const char *path)
{
	const json_t *at = json_at(document, path);

	assert_true(json_is_integer(at));
	return (uint64_t)json_integer_value(at);
}

HELPER uint64_t tierctl_number(const struct daemon *d, const char *words, const char *path)
{
	json_t *document = tierctl_json(d, words);
	uint64_t n = number_in(document, path);

	json_decref(document);
	return n;
}

#endif
