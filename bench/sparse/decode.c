/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of sparse decode; see decode.h. */
#include "bench/sparse/decode.h"

#include <errno.h>
#include <string.h>

#include "libtier/base/time.h"

#define WAIT_NS (20 * NS_PER_S)

const char *const decode_look_name[DECODE_LOOKS] = { "on demand", "draft tokens",
						     "layers follow" };

/* ---- bytes --------------------------------------------------------------------------------- */

void decode_fill_page(void *to, uint32_t block, uint32_t page)
{
	uint32_t seed = (block + 1) * 2654435761u ^ (page + 1) * 40503u;

	msa_fill(to, 2 * MSA_TOKENS, MSA_EXACT, &seed);
}

/* ---- the golden model over what was read ---------------------------------------------------- */

static void query_of(uint16_t q[MSA_DIM], uint32_t step, uint32_t layer, uint32_t group)
{
	uint32_t seed = (step * DECODE_LAYERS + layer) * DECODE_GROUPS + group + 1;

	msa_fill(q, 1, MSA_EXACT_Q, &seed);
}

/* kv NULL: the page is not there. */
static void attend(struct msa_state *into, const uint16_t q[MSA_DIM], const uint16_t *kv)
{
	struct msa_state part;

	msa_init(&part);
	if (kv)
		msa_attend(&part, q, kv, MSA_TOKENS, 1);
	else
		msa_attend_missing(&part);
	msa_merge(into, &part);
}

/* Each page is merged as it comes, in the order of the choice, from both sources. */
static void compare_group(struct decode *d, uint32_t step, uint32_t layer, uint32_t group)
{
	const struct tier_lease *lease = &d->lease[group * SELECT_TOP];
	const struct tier_page *page = &d->page[group * SELECT_TOP];
	const uint16_t *block = select_at(d->trace, step, d->reader, layer, group);
	float out[MSA_DIM], expected[MSA_DIM];
	struct msa_state ours, theirs;
	uint16_t q[MSA_DIM];

	query_of(q, step, layer, group);
	msa_init(&ours);
	msa_init(&theirs);
	for (uint32_t i = 0; i < SELECT_TOP; i++) {
		decode_fill_page(d->expected, block[i], page[i].page);
		attend(&theirs, q, d->expected);
		attend(&ours, q, lease[i].data);
	}
	msa_normalise(&ours, out);
	msa_normalise(&theirs, expected);
	d->outputs++;
	d->wrong += memcmp(out, expected, sizeof(out)) != 0;
}

/* ---- one step ------------------------------------------------------------------------------ */

/* Layers in one block lie behind each other; the next ones are blocks of their own. */
static void name_pages(struct decode *d, const uint16_t *block, uint32_t layer, uint32_t group)
{
	uint32_t parts = (d->trace->spec.layers + d->block_layers - 1) / d->block_layers;
	uint32_t part = layer / d->block_layers;

	for (uint32_t i = 0; i < SELECT_TOP; i++)
		d->page[group * SELECT_TOP + i] = (struct tier_page){
			.block = d->pool->block[block[i] * parts + part],
			.page = layer % d->block_layers * DECODE_GROUPS + group,
		};
}

/* The pages of a layer that are not in memory: which, and how many. Touches the others. */
static int not_there(struct decode *d, bool keep, uint32_t *missing)
{
	int n = tier_lease_pages(d->pool->r, d->pool->c, d->page, DECODE_LAYER_PAGES,
				 d->hbm ? 0 : TIER_LEASE_CXL, d->lease);

	*missing = 0;
	if (n < 0)
		return n;
	for (uint32_t i = 0; i < DECODE_LAYER_PAGES; i++)
		if (!d->lease[i].data)
			d->missing[(*missing)++] = d->page[i];
	if (!keep)
		tier_release_many(d->pool->r, d->lease, DECODE_LAYER_PAGES);
	return 0;
}

/* Ask for d->page, as far as they are not there. */
static int ask_for(struct decode *d, uint64_t deadline_ns)
{
	const struct tier_ask ask = { .size = sizeof(ask), .tier = d->hbm ? TIER_HBM : TIER_CXL,
				      .klass = TIER_CLASS_DEADLINE, .deadline_ns = deadline_ns };
	uint32_t missing;
	int error = not_there(d, false, &missing);

	if (!error && missing) {
		error = tier_fetch_pages_start(d->pool->c, d->missing, missing, &ask);
		d->asked += !error;
	}
	return error == -EAGAIN ? 0 : error; /* a full ring: these pages come on demand */
}

/* What the next step will need is asked for while this one computes. */
static int ask_for_step(struct decode *d, uint32_t step, uint64_t deadline_ns)
{
	uint16_t block[SELECT_TOP];
	int error = 0;

	if (step >= d->trace->spec.steps)
		return 0;
	for (uint32_t layer = 0; layer < d->trace->spec.layers && !error; layer++) {
		for (uint32_t group = 0; group < DECODE_GROUPS; group++) {
			select_draft(d->trace, step, d->reader, layer, group, block);
			name_pages(d, block, layer, group);
		}
		error = ask_for(d, deadline_ns);
	}
	return error;
}

/* The first layer has chosen for the others: their pages are asked for while it computes. */
static int ask_for_followers(struct decode *d, uint32_t step, uint64_t deadline_ns)
{
	int error = 0;

	for (uint32_t layer = 1; layer < d->trace->spec.layers && !error; layer++) {
		for (uint32_t group = 0; group < DECODE_GROUPS; group++)
			name_pages(d, select_at(d->trace, step, d->reader, layer, group), layer,
				   group);
		error = ask_for(d, deadline_ns);
	}
	return error;
}

/*
 * Read what is not there, and wait: it puts the lease into its place in the list. What came and had
 * to leave before it was leased is read again.
 */
static int surprise(struct decode *d, uint32_t missing)
{
	uint64_t until_ns = time_now_ns() + WAIT_NS;

	d->surprises += missing;
	while (missing) {
		uint32_t asked = missing, k = 0;
		int n = tier_read_pages(d->pool->r, d->pool->c, d->missing, asked, until_ns,
					d->late);

		if (n < 0)
			return n;
		missing = 0;
		for (uint32_t i = 0; i < DECODE_LAYER_PAGES && k < asked; i++) {
			if (d->lease[i].data)
				continue;
			d->lease[i] = d->late[k++];
			if (!d->lease[i].data)
				d->missing[missing++] = d->page[i];
		}
		if (missing && time_now_ns() >= until_ns)
			return -ENODATA;
	}
	return 0;
}

static void name_chosen(struct decode *d, uint32_t step, uint32_t layer)
{
	for (uint32_t group = 0; group < DECODE_GROUPS; group++)
		name_pages(d, select_at(d->trace, step, d->reader, layer, group), layer, group);
}

void decode_compare(struct decode *d, uint32_t step, uint32_t layer)
{
	name_chosen(d, step, layer);
	for (uint32_t group = 0; group < DECODE_GROUPS; group++)
		compare_group(d, step, layer, group);
}

static int decode_layer(struct decode *d, uint32_t step, uint32_t layer)
{
	uint64_t until_ns = time_now_ns() + d->layer_ns;
	uint32_t missing;
	int error;

	name_chosen(d, step, layer);
	error = not_there(d, true, &missing);
	if (!error && missing) {
		uint64_t from = time_now_ns();

		error = surprise(d, missing);
		until_ns += time_now_ns() - from;
	}
	if (error)
		return error;
	d->looks += DECODE_LAYER_PAGES;
	for (uint32_t i = 0; i < DECODE_LAYER_PAGES; i++)
		d->from_hbm += d->lease[i].tier == TIER_HBM;
	for (uint32_t group = 0; d->compute && group < DECODE_GROUPS; group++)
		compare_group(d, step, layer, group);
	while (time_now_ns() < until_ns)
		;
	tier_release_many(d->pool->r, d->lease, DECODE_LAYER_PAGES);
	return 0;
}

/* Of what was asked for; a page that did not come is read when it is needed. */
static int take_asked(struct decode *d)
{
	struct tier_completion done[64];
	int n = 64;

	while (d->asked && (n == 64 || d->settle)) {
		n = d->settle ? tier_wait(d->pool->t, done, 1, 64, WAIT_NS)
			      : tier_poll(d->pool->t, done, 64);
		if (n < 0 || (d->settle && !n))
			return n ? n : -ETIMEDOUT;
		d->asked -= (uint32_t)n;
	}
	return 0;
}

static int decode_step(struct decode *d, uint32_t step)
{
	uint32_t layers = d->trace->spec.layers;
	uint64_t step_ns = d->layer_ns ? layers * d->layer_ns : NS_PER_S;
	int error = take_asked(d);

	if (error)
		return error;
	if (d->look == DECODE_DRAFT)
		error = ask_for_step(d, step + 1, time_now_ns() + step_ns);
	if (d->look == DECODE_FOLLOW)
		error = ask_for_followers(d, step, time_now_ns() + step_ns / layers);
	for (uint32_t layer = 0; layer < layers && !error; layer++)
		error = decode_layer(d, step, layer);
	return error;
}

int decode_steps(struct decode *d, uint32_t from, uint32_t to)
{
	uint64_t begin = time_now_ns();
	int error = 0;

	d->looks = d->surprises = d->from_hbm = d->outputs = d->wrong = 0;
	for (uint32_t step = from; step < to && !error; step++)
		error = decode_step(d, step);
	d->ns = time_now_ns() - begin;
	return error ? bench_failed("sparse decode", error) : 0;
}
