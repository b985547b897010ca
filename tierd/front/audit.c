/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recount of the front, for `tierctl check`: how many connections are in which state, and what
 * they have in flight, from the connections themselves. It changes nothing.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tierd/front/front_priv.h"

struct recount {
	void (*tell)(void *arg, const char *what);
	void *arg;
	uint64_t wrong;
};

static void compare(struct recount *r, const char *what, uint64_t counted, uint64_t kept)
{
	char text[128];

	if (counted == kept)
		return;
	snprintf(text, sizeof(text),
		 "connections: %s: counted %" PRIu64 ", the counter says %" PRIu64, what, counted,
		 kept);
	r->wrong++;
	r->tell(r->arg, text);
}

uint64_t front_audit(const struct front *f, void (*tell)(void *arg, const char *what), void *arg)
{
	uint64_t greeting = 0, open = 0, dead = 0, full = 0, waiting = 0, revoking = 0;
	uint64_t listings = 0;
	struct recount r = { .tell = tell, .arg = arg };
	struct core_stats core;

	for (uint32_t i = 0; i < f->slots; i++) {
		const struct connection *s = &f->connection[i];

		greeting += s->state == CONNECTION_GREETING;
		open += s->state == CONNECTION_OPEN;
		dead += s->state == CONNECTION_DEAD;
		full += s->full;
		waiting += s->again != NULL;
		listings += s->listing != NULL;
		revoking += s->revoking;
		if (s->state == CONNECTION_OPEN)
			compare(&r, "requests in flight", s->taken - s->posted, s->in_flight);
	}
	core_stats(f->config.core, &core);
	compare(&r, "open ones that the core knows", open, core.clients);
	compare(&r, "connections without a greeting", greeting, f->greeting);
	compare(&r, "ended ones whose memory is still there", dead, f->dead);
	compare(&r, "those with a full completion ring", full, f->full);
	compare(&r, "those whose list goes on", listings, f->listings);
	compare(&r, "those that wait for a context", waiting, f->waiting);
	compare(&r, "ended ones whose memory is pinned", revoking, f->revoking);
	return r.wrong;
}
