/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late commitment of what users will read at their next turn, against staging it at once; and how
 * small the CXL tier can be. The real core on a modelled host (model.h): figures of policy.
 *
 * The host: 6 GB/s and 80 us from NVMe; a prefix of 32 blocks of 16 MiB (4,096 tokens of an 8B
 * model), 32 layers; a layer's computation takes 1.25 times its transfer. What users wait for is
 * the first token: from the return until the last layer is computed, with the wait for the engine.
 *
 * There a prefix streams in as fast as it is computed, so a small tier costs nothing with them
 * nor without. Hence the same again where the device is the slower one, in ITME's ratios (itme.h: a
 * turn's own work beside the prefix of all turns before, from the device): turn 7, where a layer's
 * computation takes 0.81 of its transfer, so a fifth of a prefix has to be in memory at the return
 * (a quarter of the stored has room for that, an eighth has not), and turn 10, when its memory is
 * full: 0.54, so nearly half has to be. Who may come back at any time needs that room all the time,
 * so then a quarter cannot do for all of them, whoever chooses; where the return is announced (an
 * agent's tool call) it may. How far "cannot" goes stands beside each row: "least unannounced" is
 * what leads that come in no time would have users wait, by the distribution of think times alone
 * (ideal.c).
 */
#include "bench/bench.h"
#include "bench/micro/talks.h"
#include "bench/model/ideal.h"
#include "bench/model/itme.h"
#include "bench/model/talk.h"

#define GIB (1ull << 30)
#define USERS 48u
#define TURNS 8u /* of each user: 384 together, 19 of them beyond the 95th percentile */
#define SEEDS 7u
#define BLOCKS 32u
#define LAYERS 32u
#define PAGE_BYTES (512u << 10)
#define LAYER_COMPUTE 1.25 /* of its transfer, 2.8 ms */
#define READ_GBPS 6
/* A layer's computation beside its transfer in a turn of ITME's. */
#define ITME_COMPUTE(turn) (ITME_WORK / (ITME_DEVICE * ((turn) - 1) * ITME_NEW_BLOCKS))

/* That of the blocks' layer takes 2.8 ms. */
static uint64_t layer_ns(double compute)
{
	return (uint64_t)((double)BLOCKS * PAGE_BYTES / READ_GBPS * compute);
}

static struct talk_spec spec_of(const struct bench *b, bool heavy)
{
	return (struct talk_spec){
		.host = { .cxl_bytes = 40 * GIB,
			  .nvme_bytes = 80 * GIB,
			  .layers = LAYERS,
			  .page_bytes = PAGE_BYTES,
			  .read_gbps = READ_GBPS,
			  .write_gbps = 4,
			  .copy_gbps = 20,
			  .latency_ns = 80000 },
		.users = USERS,
		.blocks = BLOCKS,
		.turns = b->quick ? TURNS / 2 : TURNS,
		.seed = 11,
		.heavy = heavy,
		.think_s = 8,
		.sigma = heavy ? 1.2 : 0.6,
		.think_most_s = 600,
		.layer_ns = layer_ns(LAYER_COMPUTE),
		.leave = true,
	};
}

static const char *think_text(bool heavy)
{
	return heavy ? "Pareto, median 8 s, exponent 1.2, cut at 600 s"
		     : "log-normal, median 8 s, sigma 0.6";
}

static int late_and_at_once(struct bench *b, bool heavy)
{
	struct talk_spec spec = spec_of(b, heavy);
	struct talk_result once, late;
	char figure[BENCH_TEXT], against[BENCH_TEXT];
	struct bench_figure f = { "byteseconds", figure, "GB s", against,
				  { BENCH_RATIO_AT_MOST, 0.3 } };
	struct bench_figure ready = { "byteseconds", figure, "%", "immediate staging",
				      { BENCH_RATIO_AT_LEAST, 0.99 } };
	int err;

	spec.mode = TALK_IMMEDIATE;
	err = talk_run(&spec, &once);
	spec.mode = TALK_CONVERSATIONS;
	if (!err)
		err = talk_run(&spec, &late);
	if (err)
		return err;
	snprintf(figure, sizeof(figure), "model: protected byte-seconds a turn, think times %s",
		 think_text(heavy));
	snprintf(against, sizeof(against),
		 "all staged at the turn's end (READY %.1f %% and %.1f %%)",
		 100.0 * late.ready / late.turns, 100.0 * once.ready / once.turns);
	err = bench_judge_exact(b->results, &f, late.byte_seconds / late.turns / 1e9,
				once.byte_seconds / once.turns / 1e9);
	snprintf(figure, sizeof(figure), "model: turns whose layers were all in time, %s",
		 heavy ? "Pareto" : "log-normal");
	return err ? err
		   : bench_judge_exact(b->results, &ready, 100.0 * late.ready / late.turns,
				       100.0 * once.ready / once.turns);
}

/* One run a seed, each beside its peer's: the same users think as long in both. */
struct by_seed {
	struct sample p95_ms;
	double device_share; /* mean */
};

static int seeds_run(struct talk_spec *spec, struct by_seed *out)
{
	struct talk_result one;
	int err = 0;

	*out = (struct by_seed){ .device_share = 0 };
	for (uint32_t i = 0; i < SEEDS && !err; i++, spec->seed++) {
		err = talk_run(spec, &one);
		sample_add(&out->p95_ms, one.p95_ns / 1e6);
		out->device_share += one.device_share / SEEDS;
	}
	spec->seed -= SEEDS;
	return err;
}

/* Memory for all users: nothing leaves, whatever the policy. */
static int whole_tier(const struct bench *b, bool heavy, double compute, struct by_seed *all)
{
	struct talk_spec spec = spec_of(b, heavy);

	spec.leave = false;
	spec.mode = TALK_DEMAND;
	spec.layer_ns = layer_ns(compute);
	spec.host.cxl_bytes = 30 * GIB; /* 24 GiB are stored */
	return seeds_run(&spec, all);
}

/* What nobody who does not know of returns can better (ideal.h), of the same users. */
static int seeds_ideal(struct talk_spec spec, struct by_seed *out)
{
	double p95_ns;
	int err = 0;

	*out = (struct by_seed){ .device_share = 0 };
	for (uint32_t i = 0; i < SEEDS && !err; i++, spec.seed++) {
		err = ideal_run(&spec, &p95_ns);
		sample_add(&out->p95_ms, p95_ns / 1e6);
	}
	return err;
}

/* Of the seeds' ratios: 0.5 the median, 1 the worst. */
static double ratio_of(const struct by_seed *with, const struct by_seed *all, double quantile)
{
	struct sample ratio = sample_ratio(&with->p95_ms, &all->p95_ms);

	return sample_quantile(ratio.value, ratio.count, quantile);
}

/* With which think times --quick has a row. */
enum quick { NEVER, LOG_NORMAL, BOTH };

/* The same users in a part of the memory. */
struct small {
	uint32_t part; /* one of so many */
	enum talk_mode mode;
	const char *policy;
	double compute; /* of a layer, beside its transfer */
	enum quick quick;
};

/* What rows of the same memory and computing have beside them. */
struct beside {
	struct by_seed all, without, least;
};

static int beside_of(struct bench *b, bool heavy, const struct small *s, const struct small *last,
		     struct beside *out)
{
	struct talk_spec spec = spec_of(b, heavy);
	bool same = last && last->compute >= s->compute && last->compute <= s->compute;
	int err = same ? 0 : whole_tier(b, heavy, s->compute, &out->all);

	if (err || (same && last->part == s->part && last->policy == s->policy))
		return err;
	spec.leave = false;
	spec.layer_ns = layer_ns(s->compute);
	spec.host.policy = s->policy;
	spec.mode = TALK_DEMAND;
	spec.host.cxl_bytes = 24 * GIB / s->part;
	err = seeds_run(&spec, &out->without);
	return err ? err : seeds_ideal(spec, &out->least);
}

static int small_tier(struct bench *b, bool heavy, const struct small *s,
		      const struct beside *beside)
{
	struct talk_spec spec = spec_of(b, heavy);
	const struct by_seed *all = &beside->all;
	struct by_seed with;
	char figure[BENCH_TEXT], against[BENCH_TEXT];
	struct bench_figure f = { "byteseconds", figure, "ms", against,
				  { BENCH_RATIO_AT_MOST, 1.05 } };
	int err;

	spec.leave = false;
	spec.layer_ns = layer_ns(s->compute);
	spec.host.policy = s->policy;
	spec.mode = s->mode;
	spec.host.cxl_bytes = 24 * GIB / s->part;
	err = seeds_run(&spec, &with);
	if (err)
		return err;
	snprintf(figure, sizeof(figure),
		 "model: p95 of first token, compute %.2f of reads, CXL 1/%u of the stored, %s, "
		 "%s%s%s",
		 s->compute, s->part,
		 s->mode == TALK_HINTED ? "returns announced" : "sessions",
		 heavy ? "Pareto" : "log-normal", s->policy ? ", " : "",
		 s->policy ? s->policy : "");
	snprintf(against, sizeof(against),
		 "all in CXL (worst seed %.3f; without sessions x %.2f; least unannounced x %.2f; "
		 "device busy %.0f %%)",
		 ratio_of(&with, all, 1), ratio_of(&beside->without, all, 0.5),
		 ratio_of(&beside->least, all, 0.5), 100 * with.device_share);
	return bench_judge(b->results, &f, &with.p95_ms, &all->p95_ms);
}

static int small_tiers(struct bench *b, bool heavy)
{
	static const struct small row[] = {
		{ 4, TALK_CONVERSATIONS, "lru", LAYER_COMPUTE, NEVER },
		{ 4, TALK_CONVERSATIONS, NULL, LAYER_COMPUTE, LOG_NORMAL },
		{ 8, TALK_CONVERSATIONS, NULL, LAYER_COMPUTE, NEVER },
		{ 4, TALK_CONVERSATIONS, NULL, ITME_COMPUTE(7), BOTH },
		{ 4, TALK_HINTED, NULL, ITME_COMPUTE(7), BOTH },
		{ 8, TALK_HINTED, NULL, ITME_COMPUTE(7), NEVER },
		{ 4, TALK_CONVERSATIONS, NULL, ITME_COMPUTE(10), LOG_NORMAL },
		{ 4, TALK_HINTED, NULL, ITME_COMPUTE(10), NEVER },
		{ 8, TALK_HINTED, NULL, ITME_COMPUTE(10), NEVER },
	};
	const struct small *last = NULL;
	struct beside beside;
	int err = 0;

	for (uint32_t i = 0; i < sizeof(row) / sizeof(row[0]) && !err; i++) {
		if (b->quick && row[i].quick < (heavy ? BOTH : LOG_NORMAL))
			continue;
		err = beside_of(b, heavy, &row[i], last, &beside);
		last = &row[i];
		if (!err)
			err = small_tier(b, heavy, &row[i], &beside);
	}
	return err;
}

int bench_byteseconds(struct bench *b)
{
	int err = 0;

	for (uint32_t heavy = 0; !err && heavy < 2; heavy++) {
		bench_say("byteseconds: %u users, %u turns each, think times %s", USERS,
			  spec_of(b, heavy).turns, think_text(heavy));
		err = late_and_at_once(b, heavy);
		if (!err)
			err = small_tiers(b, heavy);
	}
	return err ? err : talks_real(b);
}
