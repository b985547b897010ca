/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations on a modelled host: users think, come back, and one engine, in order of arrival,
 * reads their prefix layer by layer, computing each for a fixed time. What the engine tells the
 * daemon between turns differs.
 */
#ifndef TIER_BENCH_MODEL_TALK_H
#define TIER_BENCH_MODEL_TALK_H

#include "bench/model/model.h"

enum talk_mode {
	TALK_DEMAND,        /* says nothing: the prefix is fetched at the return */
	TALK_IMMEDIATE,     /* has everything staged at the end of the turn, until the return */
	TALK_CONVERSATIONS, /* tier_conversation */
	TALK_HINTED,        /* ... with the time of return (an agent's tool call, say) */
};

struct talk_spec {
	struct model_spec host;
	enum talk_mode mode;
	uint32_t users, blocks, turns; /* blocks of a prefix; turns a user */
	uint32_t seed;
	bool heavy;       /* think times: Pareto, else log-normal */
	double think_s;   /* median */
	double sigma;     /* of the log-normal; the Pareto's exponent */
	double think_most_s; /* longer pauses are cut to this */
	uint64_t layer_ns; /* computing one layer */
	bool leave;       /* the prefix leaves memory at each turn's end: others need the room */
};

struct talk_result {
	uint32_t turns;
	uint32_t ready;        /* turns whose layers all were there when the engine came to them */
	double byte_seconds;   /* protected: staged, not yet read */
	double p50_ns, p95_ns; /* from the return to the last layer */
	double device_share;   /* of the time that the device was busy */
};

/* The start of a user's own random sequence, and how long it thinks next. */
uint64_t talk_random(const struct talk_spec *s, uint32_t user);
uint64_t talk_think_ns(const struct talk_spec *s, uint64_t *random);

/* Errors: -ENOMEM, -EIO the model failed. */
int talk_run(const struct talk_spec *spec, struct talk_result *out);

#endif
