/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold after a start, and when everybody has gone; see crash.h. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tests/integration/crash.h"

#define READ_NS (60 * NS_PER_S)
#define IDLE_NS (60 * NS_PER_S)
#define LOOKS 600u /* again, at memory that is soon given back: a minute, on a crowded machine */

static json_t *ask(tier *t, const char *verb)
{
	char *text = NULL;
	json_t *answer;

	if (tier_admin(t, verb, NULL, &text))
		crash_fail("the daemon does not answer %s", verb);
	answer = json_loads(text, 0, NULL);
	free(text);
	if (!answer)
		crash_fail("%s is no JSON", verb);
	return answer;
}

static bool is_foreign(const json_t *answer, const char *where)
{
	const json_t *all = json_object_get(json_object_get(answer, "host"), where);

	return json_integer_value(json_object_get(all, "foreign")) > 0;
}

/* Memory that was touched where nothing lies is given back within 0.1 s; all else is told. */
static void audit(tier *t)
{
	json_t *answer = ask(t, "check");
	char *text;

	for (uint32_t i = 0;
	     i < LOOKS && (is_foreign(answer, "hbm") || is_foreign(answer, "cxl")); i++) {
		json_decref(answer);
		usleep(100000);
		answer = ask(t, "check");
	}

	if (json_integer_value(json_object_get(answer, "errors"))) {
		text = json_dumps(answer, 0);
		crash_fail("the recount disagrees: %s", text ? text : "?");
	}
	json_decref(answer);
}

/* ---- cells --------------------------------------------------------------------------------- */

/* All pages of a block, wherever they are; its version, or why a page was not read. */
static int64_t read_block(struct crash_client *c, uint32_t worker, uint32_t key, tier_block block)
{
	struct tier_lease lease[CRASH_PAGES];
	struct tier_page page[CRASH_PAGES];
	int64_t version = -1;
	int error = 0;

	for (uint32_t i = 0; i < CRASH_PAGES; i++)
		page[i] = (struct tier_page){ block, i };
	if (tier_read_pages(c->r, c->c[worker], page, CRASH_PAGES, time_now_ns() + READ_NS,
			    lease) < 0)
		crash_fail("worker %u key %u: read", worker, key);
	for (uint32_t i = 0; i < CRASH_PAGES; i++) {
		uint64_t v;

		if (!lease[i].data) {
			error = lease[i].error;
			continue;
		}
		v = crash_verify(lease[i].data, worker, key, i);
		if (version >= 0 && (uint64_t)version != v)
			crash_fail("worker %u key %u: a block of two versions", worker, key);
		version = (int64_t)v;
	}
	tier_release_many(c->r, lease, CRASH_PAGES);
	return error ? error : version;
}

/*
 * A cell's promise counts when its writer changed nothing since it was `before`. `version` was
 * read; -ENOENT: the block is not there. Returns the state that was judged, or CRASH_STATES.
 */
static uint32_t judge_cell(struct crash_client *c, uint32_t worker, uint32_t key, uint64_t before,
			   int64_t version)
{
	if (crash_look(c->board, worker, key) != before)
		return CRASH_STATES;
	if (version >= 0 && (uint64_t)version != crash_version_of(before))
		crash_fail("worker %u key %u: version %lld is there, its cell is %016llx", worker,
			   key, (long long)version, (unsigned long long)before);
	if (version < 0 && crash_state_of(before) == CRASH_DURABLE)
		crash_fail("worker %u key %u: %s: acknowledged as durable, its cell is %016llx "
			   "(%s)", worker, key, version == -ENOENT ? "LOST" : "NOT TO BE READ",
			   (unsigned long long)before, tier_strerror((int)version));
	if (version >= 0 && crash_state_of(before) == CRASH_NEVER)
		crash_fail("worker %u key %u: CAME BACK after its deletion, its cell is %016llx",
			   worker, key, (unsigned long long)before);
	return crash_state_of(before);
}

/* One that is not in the prefix, for that ended here or before: it may be there all the same. */
static int64_t read_alone(struct crash_client *c, uint32_t worker, uint32_t key)
{
	tier_key name = crash_key(worker, key);
	struct tier_found found;

	if (tier_match(c->c[worker], &name, 1, &found) != 1)
		return -ENOENT;
	return read_block(c, worker, key, found.block);
}

/*
 * Some keys as the prefix of a prompt: what the match says to be there is, and can be read, and it
 * does not end at a block that was promised.
 */
static void check_prefix(struct crash_client *c, uint32_t worker, uint32_t first, uint32_t count)
{
	struct tier_found found[CRASH_RUN];
	uint64_t before[CRASH_RUN];
	tier_key name[CRASH_RUN];
	int64_t usable;

	for (uint32_t i = 0; i < count; i++) {
		name[i] = crash_key(worker, first + i);
		before[i] = crash_look(c->board, worker, first + i);
	}
	usable = tier_match(c->c[worker], name, count, found);
	if (usable < 0 || usable > count)
		crash_fail("worker %u key %u: a match of %lld", worker, first, (long long)usable);
	if (usable < count)
		judge_cell(c, worker, first + (uint32_t)usable, before[usable], -ENOENT);
	c->board->matched += (uint64_t)usable;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t key = first + i;
		int64_t version;

		if (i < usable) {
			version = read_block(c, worker, key, found[i].block);
		} else {
			before[i] = crash_look(c->board, worker, key);
			version = read_alone(c, worker, key);
		}
		c->board->judged[judge_cell(c, worker, key, before[i], version)]++;
	}
}

void crash_check(struct crash_board *b)
{
	struct crash_client c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	crash_connect(&c, b, CRASH_SCRAP, 1);
	for (uint32_t w = 0; w < CRASH_WORKERS; w++)
		for (uint32_t key = 0; key < CRASH_KEYS; key += CRASH_RUN)
			check_prefix(&c, w, key, CRASH_RUN);
	audit(c.t);
	tier_close(c.t);
	tier_geometry_free(c.g);
}

/* ---- idle ---------------------------------------------------------------------------------- */

static int64_t number(const json_t *object, const char *first, const char *second)
{
	const json_t *at = json_object_get(object, first);

	return json_integer_value(second ? json_object_get(at, second) : at);
}

/* What of other clients is left: connections, pins, requests, quarantined bytes. */
static int64_t left_over(const json_t *status)
{
	const json_t *tiers = json_object_get(status, "tiers");
	int64_t left = number(status, "connections", "open") - 1 +
		       number(status, "connections", "ended") + number(status, "pins", NULL) +
		       number(status, "requests", NULL);

	for (size_t i = 0; i < json_array_size(tiers); i++)
		left += number(json_array_get(tiers, i), "quarantined", NULL);
	return left;
}

static uint64_t metric(const json_t *stat, const char *name)
{
	const json_t *list = json_object_get(stat, "metrics");

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *one = json_array_get(list, i);

		if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0)
			return (uint64_t)json_integer_value(json_object_get(one, "value"));
	}
	crash_fail("the daemon has no counter %s", name);
}

/* What this daemon did; a storm in which nothing was moved or held shows nothing. */
static void tell_counters(tier *t, bool storm)
{
	static const char *const names[] = { "evicted_cxl", "read_pages", "retired", "quarantined",
					     "fences", "evicted_hbm", "pins", "blocks_committed" };
	const size_t needed = 5; /* the first ones: without them it was no storm */
	json_t *stat = ask(t, "stat");

	printf("# the last daemon:");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		uint64_t value = metric(stat, names[i]);

		printf(" %s %llu", names[i], (unsigned long long)value);
		if (storm && i < needed && !value)
			crash_fail("the storm left %s at 0", names[i]);
	}
	printf("\n");
	json_decref(stat);
}

void crash_check_idle(struct crash_board *b, bool storm)
{
	uint64_t give_up = time_now_ns() + IDLE_NS;
	struct crash_client c;
	json_t *status;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	crash_connect(&c, b, CRASH_SCRAP, 1);
	status = ask(c.t, "status");
	while (left_over(status) && time_now_ns() < give_up) {
		usleep(20000);
		json_decref(status);
		status = ask(c.t, "status");
	}
	if (left_over(status))
		crash_fail("clients have gone and %lld things of theirs are left: %s",
			   (long long)left_over(status), json_dumps(status, 0));
	json_decref(status);
	audit(c.t);
	tell_counters(c.t, storm);
	tier_close(c.t);
	tier_geometry_free(c.g);
}
