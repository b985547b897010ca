/* SPDX-License-Identifier: Apache-2.0 */
/* What must be true; see fleet.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hosts/fleet.h"
#include "tests/sim/world.h"

/* Two layers: the first has two pages of a block, the second one. */
static struct shape_page pages[BLOCK_PAGES] = {
	{ .page = 0, .bytes = 24 }, { .page = 1, .bytes = 16 }, { .page = 2, .bytes = 40 },
};
static uint32_t firsts[] = { 0, 2, 3 }, numbers[] = { 0, 1, 2 };
const struct shape fleet_shape = { .layers = 2, .pages = BLOCK_PAGES, .block_bytes = BLOCK_BYTES,
				   .first = firsts, .page = pages, .by_number = numbers };

/* ---- the generators ------------------------------------------------------------------------- */

void fleet_bytes(uint32_t context, uint32_t key, uint64_t epoch, uint8_t bytes[BLOCK_BYTES])
{
	uint64_t state = context * 1000003u + key * 101u + epoch * 7919u;

	for (uint32_t i = 0; i < BLOCK_BYTES; i += 8) {
		uint64_t word = random_next(&state);

		memcpy(bytes + i, &word, 8);
	}
}

void fleet_key(uint32_t context, uint32_t key, uint8_t out[NET_KEY_BYTES])
{
	memset(out, 0, NET_KEY_BYTES);
	out[0] = (uint8_t)(1 + context);
	out[1] = (uint8_t)key;
}

void fleet_digest(uint32_t context, uint8_t out[32])
{
	memset(out, 0x5a, 32);
	out[7] = (uint8_t)context;
}

uint32_t fleet_context(const uint8_t digest[32])
{
	uint8_t own[32];
	uint32_t c = 0;

	for (; c < CONTEXTS; c++) {
		fleet_digest(c, own);
		if (memcmp(own, digest, 32) == 0)
			break;
	}
	return c;
}

/* ---- the host's tierd ----------------------------------------------------------------------- */

void fleet_put(struct fleet *f, struct host *h, uint32_t context, uint32_t key)
{
	struct block *b = &h->store.block[context][key];

	if (b->there && b->epoch == h->store.epoch[context])
		return;
	*b = (struct block){ .there = true, .epoch = h->store.epoch[context], .made = ++f->made,
			     .slot = ++f->slots };
	fleet_bytes(context, key, b->epoch, b->bytes);
}

uint32_t fleet_match(const struct host *h, uint32_t context, uint32_t prefix, uint32_t first)
{
	const struct block *b = &h->store.block[context][prefix * LENGTH];
	uint32_t n = first;

	while (n < LENGTH && b[n].there && b[n].epoch == h->store.epoch[context])
		n++;
	return n - first;
}

/* ---- checks ---------------------------------------------------------------------------------- */

void judge_bytes(struct fleet *f, const struct host *h, uint32_t context, uint32_t key,
		 const struct block *b)
{
	uint8_t right[BLOCK_BYTES];

	fleet_bytes(context, key, b->epoch, right);
	if (memcmp(right, b->bytes, sizeof(right)) != 0)
		FAIL(f, "R1: host %u: block %u of context %u has bytes that are not its own",
		     h->place, key, context);
}

static bool has_deleted(const struct host *h, uint32_t c, const struct deletion *d)
{
	for (uint32_t k = d->from; k < LENGTH; k++) {
		const struct block *b = &h->store.block[c][d->prefix * LENGTH + k];

		if (b->there && b->epoch == h->store.epoch[c] && b->made <= d->made)
			return true;
	}
	return false;
}

static void judge_context(struct fleet *f, const struct host *h, uint32_t c)
{
	const struct agreed *s = &h->agreed[c];
	bool leased = fleet_clock(f, h) < h->agree.until_ns;

	if (leased && h->store.epoch[c] < f->acknowledged[c])
		FAIL(f, "R5: host %u has a lease and epoch %llu of context %u, but %llu is "
		     "acknowledged", h->place, (unsigned long long)h->store.epoch[c], c,
		     (unsigned long long)f->acknowledged[c]);
	for (uint32_t n = 1; n < DELETIONS_MAX && n <= f->etcd.deletions[c]; n++) {
		const struct deletion *d = &f->etcd.deletion[c][n];
		bool owes = (d->acknowledged && leased) || (d->there && n <= s->deleted);

		if (owes && has_deleted(h, c, d))
			FAIL(f, "R5: host %u has what deletion %u of context %u took; it has done "
			     "%llu", h->place, n, c, (unsigned long long)s->deleted);
	}
}

/* Who stands still serves nobody; what it knows then, it looks at when it goes on. */
void judge_all(struct fleet *f)
{
	pool_judge_all(f);
	for (uint32_t i = 0; i < f->hosts; i++) {
		const struct host *h = &f->host[i];

		for (uint32_t c = 0; c < CONTEXTS && h->up; c++)
			if (h->stopped_ns <= f->now_ns && h->agreed[c].shared &&
			    h->agreed[c].known)
				judge_context(f, h, c);
	}
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Once: all is well from now on. Again, leases later: is it? */
void judge_end(struct fleet *f)
{
	struct host *a = &f->host[0], *b = &f->host[1];

	if (f->result->failure[0])
		return;
	if (!f->quiet) {
		moves_heal(f);
		return;
	}
	for (uint32_t i = 0; i < f->hosts; i++) {
		const struct host *h = &f->host[i];

		for (uint32_t c = 0; c < CONTEXTS; c++)
			if (!agreed_stands(&h->agree, &h->agreed[c], fleet_clock(f, h)) ||
			    h->store.epoch[c] != a->store.epoch[c])
				FAIL(f, "at last host %u does not share context %u, or has another "
				     "epoch", i, c);
		for (uint32_t k = 0; k < f->hosts; k++) {
			char name[12];
			const struct peer *p;

			snprintf(name, sizeof(name), "%u", k);
			p = peers_find(&f->host[i].peers, name);
			if (k != i && (!p || !peer_asked(p)))
				FAIL(f, "at last host %u does not ask host %u", i, k);
		}
	}
	homes_judge(f);
	box_judge(f);
	if (!f->acknowledged[0] || f->acknowledged[0] != a->store.epoch[0])
		FAIL(f, "at last a raise is not acknowledged");
	if (fleet_match(b, 0, 0, 0) != LENGTH)
		FAIL(f, "at last host 1 does not find what host 0 has");
}
