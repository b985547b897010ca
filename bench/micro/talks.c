/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations with real bytes: a daemon, a store on this machine's device, users who think and
 * come back, and one engine that serves them in order of return, layer by layer; its computing is
 * waiting, 0.81 of what the device needs for a layer here, measured first (ITME's turn 7, as in the
 * model, bench/model/byteseconds.c). A page that it reads is leased and its first word compared.
 *
 * The ways, each with a daemon of its own that lives through all rounds, take each round one after
 * the other, with the same think times. Memory is a quarter of what is stored:
 *   whole      ... but here all of it: nothing is ever read
 *   lru        plain offload: least recently used, the prefix is fetched at the return
 *   off        the default policy, likewise
 *   sessions   tier_conversation, which learns when users are back
 *   announced  ... and is told
 * What users wait for is the first token: from the return to the last layer.
 */
#include "bench/micro/talks.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "bench/micro/pool.h"
#include "bench/model/itme.h"
#include "bench/model/talk.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"

#define USERS 24u
#define BLOCKS 16u /* of a prefix */
#define LAYERS 16u
#define PAGE_BYTES (64u << 10)
#define LAYER_BYTES ((uint64_t)BLOCKS * PAGE_BYTES)
#define PREFIX_BYTES (LAYERS * LAYER_BYTES)
#define PART 4u
#define TURNS 2u          /* of a user in a round */
#define THINK_READS 45    /* median, in readings of a prefix: the device is busy half the time */
#define THINK_MOST_READS 110 /* longer pauses are cut to this: a round is as long as the longest */
#define THINK_SIGMA 0.6
#define COMPUTE (ITME_WORK / (ITME_DEVICE * (7 - 1) * ITME_NEW_BLOCKS))
#define POLL_NS 50000u
#define AGAIN_NS (20 * NS_PER_MS) /* a layer that does not come is asked for again */
#define DEADLINE_NS (20 * NS_PER_S)
#define PROBES 5u

enum way { WAY_WHOLE, WAY_LRU, WAY_OFF, WAY_CONVERSATIONS, WAY_ANNOUNCED, WAYS };

struct user {
	uint64_t return_ns;
	uint32_t turns;
	bool back; /* waits for the engine, or has it */
};

struct talks {
	struct pool p;
	enum way way;
	uint64_t read_ns; /* a prefix */
	struct user user[USERS];
	uint32_t queue[USERS], queued; /* who is back, in order; the first has the engine */
	uint32_t layer;                /* it is at */
	uint64_t due_ns;               /* ... from then on, */
	uint64_t asked_ns;             /* ... and the rest was asked for then */
	uint32_t done;                 /* users */
	double response[USERS * TURNS];
	uint32_t turns;
};

/* ---- what is told and asked ---------------------------------------------------------------- */

/* -ENOSPC: there was no room beside those before it. It is asked for again when its turn comes. */
static int take_answers(struct talks *t)
{
	struct tier_completion got[32];
	int n;

	while ((n = tier_poll(t->p.t, got, 32)) > 0)
		for (int i = 0; i < n; i++)
			if (got[i].result && got[i].result != -ENOSPC)
				return bench_failed("a request", got[i].result);
	return n < 0 ? bench_failed("tier_poll", n) : 0;
}

static int say(struct talks *t, uint32_t user, uint32_t event)
{
	struct tier_conversation_options o = {
		.size = sizeof(o),
		.tier = TIER_CXL,
		.count = BLOCKS,
		.blocks = &t->p.block[user * BLOCKS],
		.return_ns = t->way == WAY_ANNOUNCED ? t->user[user].return_ns : 0,
		.layer_ns = (uint64_t)((double)t->read_ns / LAYERS * COMPUTE),
	};
	int error;

	if (t->way < WAY_CONVERSATIONS)
		return 0;
	error = tier_conversation(t->p.c, user, event,
				  event == TIER_CONVERSATION_TURN_END ? &o : NULL);
	return error ? bench_failed("tier_conversation", error) : 0;
}

static int ask(struct talks *t, uint32_t user, uint32_t klass)
{
	const struct tier_ask a = { .size = sizeof(a), .tier = TIER_CXL, .klass = klass,
				    .deadline_ns = time_now_ns() + DEADLINE_NS };
	int error = tier_fetch_start(t->p.c, &t->p.block[user * BLOCKS], BLOCKS, &a);

	return error ? bench_failed("tier_fetch_start", error) : 0;
}

/* ---- a turn -------------------------------------------------------------------------------- */

/* Users think as those of the model do. */
static struct talk_spec thinking(const struct talks *t)
{
	double read_s = (double)t->read_ns / 1e9;

	return (struct talk_spec){ .think_s = THINK_READS * read_s,
				   .sigma = THINK_SIGMA,
				   .think_most_s = THINK_MOST_READS * read_s };
}

static int think(struct talks *t, uint32_t user, uint64_t *random)
{
	const struct talk_spec spec = thinking(t);

	t->user[user].return_ns = time_now_ns() + talk_think_ns(&spec, random);
	return say(t, user, TIER_CONVERSATION_TURN_END);
}

/* The user who is to be back next, by now; USERS = none. */
static uint32_t returning(const struct talks *t, uint64_t now_ns)
{
	uint32_t found = USERS;

	for (uint32_t i = 0; i < USERS; i++)
		if (!t->user[i].back && t->user[i].turns < TURNS &&
		    t->user[i].return_ns <= now_ns &&
		    (found == USERS || t->user[i].return_ns < t->user[found].return_ns))
			found = i;
	return found;
}

static int come_back(struct talks *t, uint64_t now_ns)
{
	uint32_t user;
	int error = 0;

	while (!error && (user = returning(t, now_ns)) < USERS) {
		t->user[user].back = true;
		t->queue[t->queued++] = user;
		error = t->way < WAY_CONVERSATIONS ? ask(t, user, TIER_CLASS_DEADLINE)
					      : say(t, user, TIER_CONVERSATION_RETURN);
		if (t->queued == 1) {
			t->layer = 0;
			t->due_ns = now_ns;
			t->asked_ns = 0;
		}
	}
	return error;
}

/* Is the layer there, every page of it? Negative: a page had wrong bytes, or it failed. */
static int read_layer(struct talks *t, uint32_t user, uint32_t layer)
{
	const struct tier_selection all = { .blocks = &t->p.block[user * BLOCKS],
					    .count = BLOCKS, .page = layer };
	struct tier_lease lease[BLOCKS];
	int n = tier_lease_blocks(t->p.r, t->p.c, &all, lease), error = 0;

	if (n < 0)
		return bench_failed("tier_lease_blocks", n);
	for (uint32_t i = 0; i < BLOCKS && n == (int)BLOCKS; i++)
		if (*(const uint64_t *)lease[i].data != pool_word(user * BLOCKS + i, layer))
			error = bench_failed("a page with wrong bytes", -EBADMSG);
	tier_release_many(t->p.r, lease, BLOCKS);
	return error ? error : n == (int)BLOCKS;
}

static int turn_over(struct talks *t, uint32_t user, uint64_t *random)
{
	struct user *u = &t->user[user];
	uint64_t now_ns = time_now_ns();

	t->response[t->turns++] = (double)(now_ns - u->return_ns) / 1e6;
	u->back = false;
	for (uint32_t i = 1; i < t->queued; i++)
		t->queue[i - 1] = t->queue[i];
	t->queued--;
	t->layer = 0;
	t->due_ns = now_ns;
	t->asked_ns = 0;
	if (++u->turns < TURNS)
		return think(t, user, &random[user]);
	t->done++;
	return say(t, user, TIER_CONVERSATION_CLOSE);
}

/* The engine's next layer, if it is time and the layer is there; asks for it, if not. */
static int compute(struct talks *t, uint64_t now_ns, uint64_t *random)
{
	uint32_t user = t->queue[0];
	int there;

	if (!t->queued || now_ns < t->due_ns)
		return 0;
	there = read_layer(t, user, t->layer);
	if (there < 0)
		return there;
	if (!there && now_ns < t->asked_ns + AGAIN_NS)
		return 0;
	if (!there) {
		t->asked_ns = now_ns;
		return ask(t, user, TIER_CLASS_DEMAND);
	}
	if (++t->layer == LAYERS)
		return turn_over(t, user, random);
	t->due_ns = now_ns + (uint64_t)((double)t->read_ns / LAYERS * COMPUTE);
	return 0;
}

/* ---- a round ------------------------------------------------------------------------------- */

/* All users' turns, with think times by the round's number. Returns their p95. */
static int play(struct talks *t, uint32_t round, double *p95_ms)
{
	const struct timespec pause = { 0, POLL_NS };
	struct talk_spec spec = thinking(t);
	uint64_t random[USERS];
	int error = 0;

	spec.seed = round;
	t->done = t->turns = t->queued = 0;
	for (uint32_t i = 0; i < USERS && !error; i++) {
		random[i] = talk_random(&spec, i);
		t->user[i] = (struct user){ .turns = 0 };
		error = think(t, i, &random[i]);
	}
	while (!error && t->done < USERS) {
		uint64_t now_ns = time_now_ns();

		error = come_back(t, now_ns);
		if (!error)
			error = compute(t, now_ns, random);
		if (!error)
			error = take_answers(t);
		nanosleep(&pause, NULL);
	}
	*p95_ms = sample_quantile(t->response, t->turns, 0.95);
	return error;
}

/* How long the device takes for a prefix, as turns read it. */
static int probe(struct talks *t, uint64_t *read_ns)
{
	struct sample took = { .count = 0 };
	int error = 0;

	for (uint32_t i = 0; i < PROBES && !error; i++) {
		char *reply CLEANUP_FREE = NULL;
		uint64_t from;
		int64_t n;

		error = tier_admin(t->p.t, "evict", "{\"context\":\"talks\",\"tier\":\"cxl\"}",
				   &reply);
		from = time_now_ns();
		n = error ? error : tier_fetch(t->p.c, t->p.block, 2 * BLOCKS, NULL);
		if (n != 2 * BLOCKS)
			error = bench_failed("reading from NVMe", n < 0 ? (int)n : -EIO);
		sample_add(&took, (double)(time_now_ns() - from) / 2);
	}
	*read_ns = (uint64_t)sample_quantile(took.value, took.count, 0.5);
	return error;
}

static int open_way(struct bench *b, struct talks *t, enum way way)
{
	static const char *const set[] = { "nvme.segment=64MiB", NULL };
	const struct pool_spec spec = {
		.name = "talks",
		.pages_per_block = LAYERS,
		.layers = LAYERS,
		.page_bytes = PAGE_BYTES,
		.blocks = USERS * BLOCKS,
		.policy = way == WAY_LRU ? "lru" : NULL,
		.cxl_bytes = way == WAY_WHOLE ? 2 * USERS * PREFIX_BYTES
					      : USERS * PREFIX_BYTES / PART,
		.nvme_bytes = 2 * USERS * PREFIX_BYTES,
		.set = set,
		.put_blocks = BLOCKS,
		.fill_pages = true,
	};

	t->way = way;
	return pool_open(&t->p, b, &spec);
}

static int rows(struct bench *b, const struct sample *p95)
{
	static const struct {
		enum way way, peer;
		double most;
		const char *figure, *against;
	} row[] = {
		{ WAY_CONVERSATIONS, WAY_LRU, 1, "sessions",
		  "plain offload: lru, fetched at the return" },
		{ WAY_CONVERSATIONS, WAY_OFF, 1, "sessions", "without sessions" },
		{ WAY_CONVERSATIONS, WAY_WHOLE, 1.05, "sessions", "all in CXL" },
		{ WAY_ANNOUNCED, WAY_WHOLE, 1.05, "returns announced", "all in CXL" },
	};
	char figure[BENCH_TEXT];
	int error = 0;

	for (uint32_t i = 0; i < sizeof(row) / sizeof(row[0]) && !error; i++) {
		const struct bench_figure f = { "byteseconds", figure, "ms", row[i].against,
						{ BENCH_RATIO_AT_MOST, row[i].most } };

		snprintf(figure, sizeof(figure), "real bytes: p95 of first token, compute %.2f of "
			 "reads, CXL 1/%u of the stored, %s, log-normal", COMPUTE, PART,
			 row[i].figure);
		error = bench_judge(b->results, &f, &p95[row[i].way], &p95[row[i].peer]);
	}
	return error;
}

int talks_real(struct bench *b)
{
	struct talks *t CLEANUP_FREE = calloc(WAYS, sizeof(*t));
	struct sample p95[WAYS] = { { .count = 0 } };
	uint64_t read_ns = 0;
	uint32_t open = 0;
	double ms = 0;
	int error = t ? 0 : -ENOMEM;

	prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
	for (; open < WAYS && !error; open += !error)
		error = open_way(b, &t[open], open);
	if (!error)
		error = probe(&t[WAY_WHOLE], &read_ns);
	if (!error) /* all of it is there again */
		error = tier_fetch(t->p.c, t->p.block, USERS * BLOCKS, NULL) < 0 ? -EIO : 0;
	bench_say("talks: the device takes %.1f ms for a prefix of %llu MiB", (double)read_ns / 1e6,
		  (unsigned long long)(PREFIX_BYTES >> 20));
	for (uint32_t i = 0; i < open; i++)
		t[i].read_ns = read_ns;
	for (uint32_t round = 0; round < b->rounds && !error; round++)
		for (uint32_t i = 0; i < WAYS && !error; i++) {
			uint32_t way = (i + round) % WAYS;

			error = play(&t[way], round, &ms);
			sample_add(&p95[way], ms);
		}
	for (uint32_t i = 0; i < open; i++)
		pool_close(&t[i].p);
	return error ? error : rows(b, p95);
}
