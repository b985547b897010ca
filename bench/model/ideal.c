/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversations of talk.c as a queue model, with a daemon that cannot be had: leads come to
 * memory in no time and take nothing of the device, all of the tier is theirs, and the distribution
 * of think times is known, but not when anybody returns. Who returns then finds his lead with the
 * odds of its being there, and the most bytes are there on average when at each moment those have
 * leads who are most likely to be back in the next one: the highest hazard rates of the
 * distribution, each by how long he has been away. What is behind a lead streams from the device,
 * in order of return, beside one engine that computes, in the same order.
 *
 * It is the least for the mean of what must be read; another choice might have a little less at the
 * 95th percentile, none that knows no more can be far below.
 */
#include "bench/model/ideal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "bench/sample.h"

struct user {
	uint64_t random, since_ns, return_ns; /* away between these two */
	uint32_t turn;
};

struct ideal {
	const struct talk_spec *spec;
	struct user *user;
	double *response;
	uint32_t turns;
	uint64_t engine_ns, device_ns; /* free from then on */
	uint64_t layer_read_ns;
	uint32_t lead; /* layers */
};

/* How likely the return is in the next moment, who has been away for so long. */
static double hazard(const struct talk_spec *s, double away_s)
{
	double z = (log(away_s) - log(s->think_s)) / s->sigma;

	if (away_s >= s->think_most_s)
		return HUGE_VAL;
	if (s->heavy) /* from the least think time on */
		return away_s < s->think_s / pow(2, 1 / s->sigma) ? 0 : s->sigma / away_s;
	return exp(-z * z / 2) / sqrt(2 * acos(-1)) / (away_s * s->sigma * erfc(z / sqrt(2)) / 2);
}

/* Of room for so many layers: what is left to a user when those before it had theirs. */
static uint64_t part_of(uint64_t room, uint64_t before, uint64_t each)
{
	uint64_t left = room > before * each ? room - before * each : 0;

	return left < each ? left : each;
}

/* Layers of this user's prefix that are there: leads of all by their odds, then what is behind. */
static uint64_t layers_there(const struct ideal *d, const struct user *u)
{
	const struct talk_spec *s = d->spec;
	uint64_t layer_bytes = (uint64_t)s->blocks * s->host.page_bytes, before = 0, away = 1;
	uint64_t room = s->host.cxl_bytes / layer_bytes, leads;
	double own = hazard(s, (double)(u->return_ns - u->since_ns) / 1e9);

	for (uint32_t i = 0; i < s->users; i++) {
		const struct user *other = &d->user[i];

		if (other == u || other->turn == s->turns || other->since_ns >= u->return_ns)
			continue;
		away++;
		before += hazard(s, (double)(u->return_ns - other->since_ns) / 1e9) > own;
	}
	leads = away * d->lead < room ? away * d->lead : room;
	return part_of(room, before, d->lead) +
	       part_of(room - leads, before, s->host.layers - d->lead);
}

/* From the return on: when does the engine come to the last layer? There talk.c ends a turn. */
static uint64_t turn(struct ideal *d, const struct user *u)
{
	const struct talk_spec *s = d->spec;
	uint64_t there = layers_there(d, u);
	uint64_t at = d->engine_ns > u->return_ns ? d->engine_ns : u->return_ns;

	d->device_ns = d->device_ns > u->return_ns ? d->device_ns : u->return_ns;
	for (uint32_t layer = 0; layer < s->host.layers; layer++) {
		if (layer >= there)
			d->device_ns += d->layer_read_ns;
		at += layer ? s->layer_ns : 0;
		if (layer >= there && at < d->device_ns)
			at = d->device_ns;
	}
	d->engine_ns = at;
	return at;
}

/* All turns, with leads of so many layers. */
static double p95_of(struct ideal *d, uint32_t lead)
{
	const struct talk_spec *s = d->spec;

	d->lead = lead;
	d->turns = 0;
	d->engine_ns = d->device_ns = 0;
	for (uint32_t n = 0; n < s->users; n++) {
		d->user[n] = (struct user){ .random = talk_random(s, n) };
		d->user[n].return_ns = talk_think_ns(s, &d->user[n].random);
	}
	while (d->turns < s->users * s->turns) {
		struct user *next = NULL;

		for (uint32_t n = 0; n < s->users; n++)
			if (d->user[n].turn < s->turns &&
			    (!next || d->user[n].return_ns < next->return_ns))
				next = &d->user[n];
		next->since_ns = turn(d, next);
		d->response[d->turns++] = (double)(next->since_ns - next->return_ns);
		next->turn++;
		next->return_ns = next->since_ns + talk_think_ns(s, &next->random);
	}
	return sample_quantile(d->response, d->turns, 0.95);
}

int ideal_run(const struct talk_spec *spec, double *p95_ns)
{
	struct ideal d = { .spec = spec };
	int err = -ENOMEM;

	d.layer_read_ns = (uint64_t)((double)spec->blocks * spec->host.page_bytes /
				     spec->host.read_gbps);
	d.user = calloc(spec->users, sizeof(*d.user));
	d.response = calloc((size_t)spec->users * spec->turns, sizeof(*d.response));
	*p95_ns = HUGE_VAL;
	for (uint32_t lead = 1; d.user && d.response && lead <= spec->host.layers; lead++) {
		double p95 = p95_of(&d, lead);

		*p95_ns = p95 < *p95_ns ? p95 : *p95_ns;
		err = 0;
	}
	free(d.user);
	free(d.response);
	return err;
}
