/* SPDX-License-Identifier: Apache-2.0 */
/* tierctl events: what becomes of a context's blocks, a line each. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/ctl/ctl.h"

#define EVENTS 256u
#define WAIT_NS 1000000000u

struct ask {
	const char *context;
	bool follow;
};

static const char *const kinds[] = { "?", "stored", "moved", "removed", "cleared" };
static const char *const tiers[] = { "hbm", "cxl", "nvme", "remote" };

static const char *kind_of(const struct tier_event *e)
{
	return e->kind < sizeof(kinds) / sizeof(kinds[0]) ? kinds[e->kind] : kinds[0];
}

static char *hex(char out[2 * sizeof(tier_key) + 1], const tier_key *key)
{
	for (size_t i = 0; i < sizeof(key->bytes); i++)
		snprintf(out + 2 * i, 3, "%02x", key->bytes[i]);
	return out;
}

static void show_json(const struct tier_event *e)
{
	char key[2 * sizeof(tier_key) + 1], parent[2 * sizeof(tier_key) + 1];
	json_t *one = json_pack("{sI ss ss sI sI ss ss}", "seq", (json_int_t)e->seq, "event",
				kind_of(e), "tier", tiers[e->tier], "depth", (json_int_t)e->depth,
				"epoch", (json_int_t)e->epoch, "key", hex(key, &e->key), "parent",
				hex(parent, &e->parent));

	json_dumpf(one, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(one);
}

static void show(const struct ctl *ctl, const struct tier_event *e)
{
	char key[2 * sizeof(tier_key) + 1];

	if (ctl->json)
		show_json(e);
	else if (e->kind == TIER_EVENT_CLEARED)
		printf("%-8s epoch %llu\n", kind_of(e), (unsigned long long)e->epoch);
	else
		printf("%-8s %s  depth %-5u %s\n", kind_of(e), hex(key, &e->key), e->depth,
		       e->kind == TIER_EVENT_REMOVED ? "" : tiers[e->tier]);
}

static int64_t show_all(const struct ctl *ctl, tier_events *events, struct tier_event *e)
{
	int64_t n;

	while ((n = tier_events_snapshot(events, e, EVENTS)) > 0)
		for (int64_t i = 0; i < n; i++)
			show(ctl, &e[i]);
	return n;
}

/* Until the context is gone, or nobody reads any more. */
static int64_t follow(const struct ctl *ctl, tier_events *events, struct tier_event *e)
{
	int64_t n = 0;

	while (n >= 0 && !fflush(stdout)) {
		n = tier_events_read(events, e, EVENTS, WAIT_NS);
		for (int64_t i = 0; i < n; i++)
			show(ctl, &e[i]);
		while (n == -EOVERFLOW) { /* the snapshot's, too: the daemon was restarted */
			puts(ctl->json ? "{\"event\":\"lost\"}" :
					 "lost     some; all that are there:");
			n = show_all(ctl, events, e);
		}
		if (n == -ENOTCONN)
			n = 0; /* it comes back, and says -EOVERFLOW */
	}
	return n;
}

static int take_options(struct ctl *ctl, int argc, char **argv, struct ask *ask)
{
	static const struct option table[] = { { "follow", 0, NULL, 'f' }, { 0 } };
	int c;

	optind = 0; /* anew: the words before were read by another table */
	while ((c = getopt_long(argc + 1, argv - 1, ":f", table, NULL)) != -1) {
		if (c != 'f')
			return ctl_option(ctl, c, argv[optind - 2]);
		ask->follow = true;
	}
	if (argc + 1 - optind != 1)
		return ctl_usage(ctl, "name one CONTEXT");
	ask->context = argv[optind - 1];
	return CTL_OK;
}

int ctl_events(struct ctl *ctl, int argc, char **argv)
{
	struct ask ask = { .follow = false };
	struct tier_event *e;
	tier_context *context;
	tier_events *events = NULL;
	int rc = take_options(ctl, argc, argv, &ask);
	int64_t n;

	if (rc != CTL_OK)
		return rc;
	n = tier_context_open(ctl->t, ask.context, NULL, &context);
	if (!n)
		n = tier_events_open(context, &events);
	e = calloc(EVENTS, sizeof(*e));
	if (!n && !e)
		n = -ENOMEM;
	if (!n)
		n = show_all(ctl, events, e);
	if (!n && ask.follow)
		n = follow(ctl, events, e);
	free(e);
	tier_events_close(events);
	return n < 0 ? ctl_failed(ctl, (int)n) : CTL_OK;
}
