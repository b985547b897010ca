/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of the world: the client's half of the lease protocol (abi/hazard.h), with the store
 * buffer that processors have. Publishing and looking again are moves apart; the published word
 * stays in the buffer, invisible to scans, until a move or the daemon's fence drains it. So a
 * place that is freed without the fence is freed under a reader. Readers that are hostile write
 * nonsense into their words: it may cost themselves, nobody else.
 */
#include <string.h>

#include "tests/sim/world_priv.h"

#define TALL 100000u /* ppm: readers whose slots are the highest ones */

static struct abi_reader *reader_of(struct world *w, const struct world_lease *l)
{
	return &w->client[l->client].reader[(l - w->lease) % WORLD_READERS];
}

/* The slot's word leaves the store buffer, after the word that says how far to look (H2). */
static void drain(struct world *w, struct world_lease *l)
{
	struct abi_reader *r = reader_of(w, l);

	if (!l->buffered)
		return;
	l->buffered = false;
	if (l->era) {
		r->era_begin = l->era;
		return;
	}
	if (r->high_water <= l->index)
		r->high_water = l->index + 1;
	r->slot[l->index] = l->place;
}

/* membarrier: all stores of all processes that live. */
void reader_fence(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_LEASES; i++)
		drain(w, &w->lease[i]);
}

static void let_go(struct world *w, struct world_lease *l)
{
	if (l->era) {
		drain(w, l);
		reader_of(w, l)->era_done = l->era;
	} else if (l->place && !l->buffered) {
		reader_of(w, l)->slot[l->index] = 0;
	}
	memset(l, 0, sizeof(*l));
}

/* Whatever they hold: of one client (WORLD_CLIENTS: all), of one context (WORLD_CONTEXTS: all). */
void reader_release(struct world *w, uint32_t client, uint32_t context)
{
	for (uint32_t i = 0; i < WORLD_LEASES; i++) {
		struct world_lease *l = &w->lease[i];

		if (l->place && (client == WORLD_CLIENTS || l->client == client) &&
		    (context == WORLD_CONTEXTS || l->context == context))
			let_go(w, l);
	}
}

/*
 * The client sees that tier's memory no more: what it published stays published. Its kernels fail,
 * and with them those that read elsewhere.
 */
void reader_revoked(struct world *w, uint32_t client, uint32_t tier)
{
	for (uint32_t i = 0; i < WORLD_LEASES; i++) {
		struct world_lease *l = &w->lease[i];

		if (!l->place || l->client != client || l->tier != tier)
			continue;
		drain(w, l);
		if (l->era)
			let_go(w, l);
		memset(l, 0, sizeof(*l));
	}
}

/* Hostile words go as well: on a host at rest nobody is hostile. */
void reader_rest(struct world *w)
{
	reader_release(w, WORLD_CLIENTS, WORLD_CONTEXTS);
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t i = 0; i < WORLD_READERS; i++)
			memset(w->client[c].reader[i].slot, 0, sizeof(w->client[c].reader[i].slot));
}

static void write_nonsense(struct world *w, struct abi_reader *r)
{
	uint64_t word = world_random(w);

	switch (world_below(w, 4)) {
	case 0: /* between the slots that leases use */
		r->slot[WORLD_LEASES + world_below(w, 256)] = word | ABI_HAZARD_VALID;
		break;
	case 1:
		if (world_chance(w, 700000)) /* a slot of any number, of a context that is there */
			word = abi_access(w->context[world_below(w, WORLD_CONTEXTS)].id,
					  (uint32_t)word, (uint32_t)(word >> 48));
		r->access[r->access_tail++ % ABI_ACCESS_LOG] = word;
		break;
	case 2:
		r->access_tail += word;
		break;
	default:
		r->high_water = ABI_HAZARD_SLOTS + (uint32_t)(word >> 40);
	}
}

/*
 * What is about to be published is a kernel's instead, in unusual worlds, if its stream has none
 * under way. Its words are looked at while it runs, with nothing to be published.
 */
static bool launch(struct world *w, struct world_lease *l)
{
	struct abi_reader *r = reader_of(w, l);

	if (!w->faults->wide || !world_chance(w, 300000))
		return false;
	for (uint32_t i = 0; i < WORLD_LEASES; i++)
		if (w->lease[i].era && reader_of(w, &w->lease[i]) == r)
			return false;
	l->era = r->era_begin + 1;
	l->data = w->context[l->context].mem[l->tier] + abi_word_addr(l->word);
	w->result->leases++;
	return true;
}

/* Steps 1 and 2: read the word, publish the place. */
static void publish(struct world *w, struct world_lease *l)
{
	uint32_t slot, tier = world_below(w, ABI_MEM_TIERS), n = world_below(w, WORLD_KEYS);
	uint32_t client = world_below(w, WORLD_CLIENTS), context = world_below(w, WORLD_CONTEXTS);
	uint32_t page, number = (uint32_t)(l - w->lease);
	const struct abi_block *b;
	struct abi_reader *r;
	uint64_t word;

	for (uint32_t i = 0; i < 16 && !model_find(w, context, n, &slot); i++)
		n = world_below(w, WORLD_KEYS);
	b = model_find(w, context, n, &slot);
	if (w->client[client].state != 1 || !b ||
	    (w->client[client].barred && context == WORLD_BARRED))
		return;
	page = world_below(w, w->context[context].geometry.pages_per_block);
	word = model_desc(w, context, slot, page)->word[tier];
	if (abi_word_state(word) != ABI_PAGE_READY)
		return;
	*l = (struct world_lease){
		.client = client, .context = context, .n = n, .page = page, .tier = tier,
		.slot = slot, .generation = b->generation, .word = word, .buffered = true,
		.index = world_chance(w, TALL) ? ABI_HAZARD_SLOTS - 1 - number : number,
		.place = abi_place(w->context[context].id, tier, word),
	};
	if (launch(w, l))
		return;
	r = reader_of(w, l);
	if (world_chance(w, 10000))
		write_nonsense(w, r);
	if (world_chance(w, 300000)) /* the log is lossy: often the policy learns nothing */
		r->access[r->access_tail++ % ABI_ACCESS_LOG] =
			abi_access(w->context[context].id, slot, 1);
}

/* Step 4: look again; the bytes are his from now on, or never were. */
static void confirm(struct world *w, struct world_lease *l)
{
	const struct world_context *x = &w->context[l->context];
	const struct abi_block *b =
		(const struct abi_block *)(x->index + x->header->block_offset) + l->slot;

	if (model_desc(w, l->context, l->slot, l->page)->word[l->tier] != l->word ||
	    b->generation != l->generation) {
		let_go(w, l);
		return;
	}
	l->data = x->mem[l->tier] + abi_word_addr(l->word);
	w->result->leases++;
}

static void check(struct world *w, const struct world_lease *l)
{
	if (!model_page_is(w, l->context, l->n, l->page, l->data))
		world_fail(w, "I2: context %u key %u page %u changed under a lease", l->context,
			   l->n, l->page);
}

void reader_step(struct world *w)
{
	struct world_lease *l = &w->lease[world_below(w, WORLD_LEASES)];

	for (uint32_t i = 0; i < WORLD_LEASES; i++) /* who reads what is to go lets go, mostly */
		if (w->lease[i].place && w->context[w->lease[i].context].removing)
			l = &w->lease[i];
	if (!l->place) {
		publish(w, l);
		return;
	}
	if (!l->data) {
		confirm(w, l);
		return;
	}
	check(w, l);
	if (world_chance(w, 200000))
		drain(w, l);
	if (world_chance(w, w->context[l->context].removing ? 300000 : 30000))
		let_go(w, l);
}

void reader_check(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_LEASES; i++)
		if (w->lease[i].data)
			check(w, &w->lease[i]);
}
