/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of sparse decode; see decode.h. */
#include "bench/sparse/decode.h"

#include <errno.h>
#include <string.h>

#include "libtier/base/time.h"

#define WAIT_NS (20 * NS_PER_S)

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

static void name_pages(const struct decode *d, const uint16_t *block, uint32_t layer,
		       uint32_t group, struct tier_page *out)
{
	for (uint32_t i = 0; i < SELECT_TOP; i++)
		out[i] = (struct tier_page){ .block = d->pool->block[block[i]],
					     .page = layer * DECODE_GROUPS + group };
}

/* The pages of the list that are not in memory: which, and how many. Touches the others. */
static int not_there(struct decode *d, uint32_t count, bool keep, uint32_t *missing)
{
	int n = tier_lease_pages(d->pool->r, d->pool->c, d->page, count, TIER_LEASE_CXL, d->lease);

	*missing = 0;
	if (n < 0)
		return n;
	for (uint32_t i = 0; i < count; i++)
		if (!d->lease[i].data)
			d->missing[(*missing)++] = d->page[i];
	if (!keep)
		tier_release_many(d->pool->r, d->lease, count);
	return 0;
}

/* Ask for the first n of d->page, as far as they are not there. */
static int ask_for(struct decode *d, uint32_t n, uint64_t deadline_ns)
{
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL,
				      .klass = TIER_CLASS_DEADLINE, .deadline_ns = deadline_ns };
	uint32_t missing;
	int error = not_there(d, n, false, &missing);

	if (!error && missing)
		error = tier_fetch_pages_start(d->pool->c, d->missing, missing, &ask);
	return error == -EAGAIN ? 0 : error; /* a full ring: these pages come on demand */
}

/* What the next step will need is asked for while this one computes. */
static int ask_for_step(struct decode *d, uint32_t step, uint64_t deadline_ns)
{
	uint16_t block[SELECT_TOP];
	uint32_t n = 0;

	if (step >= d->trace->spec.steps)
		return 0;
	for (uint32_t layer = 0; layer < DECODE_LAYERS; layer++)
		for (uint32_t group = 0; group < DECODE_GROUPS; group++, n += SELECT_TOP) {
			select_draft(d->trace, step, d->reader, layer, group, block);
			name_pages(d, block, layer, group, &d->page[n]);
		}
	return ask_for(d, n, deadline_ns);
}

/* The first layer has chosen for the others: their pages are asked for while it computes. */
static int ask_for_followers(struct decode *d, uint32_t step, uint64_t deadline_ns)
{
	uint32_t n = 0;

	for (uint32_t layer = 1; layer < DECODE_LAYERS; layer++)
		for (uint32_t group = 0; group < DECODE_GROUPS; group++, n += SELECT_TOP)
			name_pages(d, select_at(d->trace, step, d->reader, layer, group), layer,
				   group, &d->page[n]);
	return ask_for(d, n, deadline_ns);
}

/* Read what is not there, and wait: it puts the lease into its place in the list. */
static int surprise(struct decode *d, uint32_t missing)
{
	int n = tier_read_pages(d->pool->r, d->pool->c, d->missing, missing,
				time_now_ns() + WAIT_NS, d->late);

	d->surprises += missing;
	if (n != (int)missing)
		return n < 0 ? n : -ENODATA;
	for (uint32_t i = 0, k = 0; i < DECODE_LAYER_PAGES; i++)
		if (!d->lease[i].data)
			d->lease[i] = d->late[k++];
	return 0;
}

static int decode_layer(struct decode *d, uint32_t step, uint32_t layer)
{
	uint64_t until_ns = time_now_ns() + d->layer_ns;
	uint32_t missing;
	int error;

	for (uint32_t group = 0; group < DECODE_GROUPS; group++)
		name_pages(d, select_at(d->trace, step, d->reader, layer, group), layer, group,
			   &d->page[group * SELECT_TOP]);
	error = not_there(d, DECODE_LAYER_PAGES, true, &missing);
	if (!error && missing) {
		uint64_t from = time_now_ns();

		error = surprise(d, missing);
		until_ns += time_now_ns() - from;
	}
	if (error)
		return error;
	d->looks += DECODE_LAYER_PAGES;
	for (uint32_t group = 0; d->compute && group < DECODE_GROUPS; group++)
		compare_group(d, step, layer, group);
	while (time_now_ns() < until_ns)
		;
	tier_release_many(d->pool->r, d->lease, DECODE_LAYER_PAGES);
	return 0;
}

static int decode_step(struct decode *d, uint32_t step)
{
	uint64_t step_ns = d->layer_ns ? DECODE_LAYERS * d->layer_ns : NS_PER_S;
	struct tier_completion done[64];
	int error = 0;

	while (tier_poll(d->pool->t, done, 64) == 64)
		; /* of what was asked for: a page that did not come is read when it is needed */
	if (d->look == DECODE_DRAFT)
		error = ask_for_step(d, step + 1, time_now_ns() + step_ns);
	if (d->look == DECODE_FOLLOW)
		error = ask_for_followers(d, step, time_now_ns() + step_ns / DECODE_LAYERS);
	for (uint32_t layer = 0; layer < DECODE_LAYERS && !error; layer++)
		error = decode_layer(d, step, layer);
	return error;
}

int decode_steps(struct decode *d, uint32_t from, uint32_t to)
{
	uint64_t begin = time_now_ns();
	int error = 0;

	d->looks = d->surprises = d->outputs = d->wrong = 0;
	for (uint32_t step = from; step < to && !error; step++)
		error = decode_step(d, step);
	d->ns = time_now_ns() - begin;
	return error ? bench_failed("sparse decode", error) : 0;
}
