/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fairness: what tenants with a steady working set lose when another one scans beside them, and
 * what a share lends while others are idle. The core alone in simulated time, memory only; what is
 * counted are hits. Tenants are salts, contexts or clients. Two of them with what they are given
 * unasked, beside the same load without tenants (all use the public salt): what sharing costs when
 * nobody keeps accounts. And three with soft shares, each beside itself in a tier as large as its
 * share. A steady tenant draws its blocks at random from a set of its own, or is a trace's prompts,
 * in a tier for a tenth of their blocks.
 */
#include <errno.h>

#include "bench/bench.h"
#include "bench/space/corehost.h"
#include "bench/space/prompt.h"
#include "bench/trace/trace.h"

#define CXL (256ull << 20)
#define SLAB (2u << 20)
#define PAGES 3u /* of 64 KiB, and one of 16: 208 KiB a block */
#define BLOCK_BYTES (PAGES * 65536u + 16384u)
#define BLOCKS ((uint32_t)(CXL / BLOCK_BYTES))
#define SCAN_FIRST (1ull << 32)
#define SCANS 4u /* blocks scanned for each reference of a steady tenant */
#define TRACE_PERCENT 10u /* of a trace's blocks, in a tier of its own size */
#define TRACE_CXL_LEAST (64ull << 20)
#define TRACE_QUICK 2000u /* requests */
#define STEADY_MAX 2u /* tenants before the one that scans */
#define TENANTS (STEADY_MAX + 1)

enum account { NOBODY, SALT, CONTEXT, CLIENT };

struct load {
	enum account account;
	uint32_t room;		    /* percent of the tier that there is */
	uint32_t set[STEADY_MAX];   /* steady blocks of each, percent of the tier; 0 = not there */
	uint32_t share[TENANTS];    /* soft, percent of the tier; 0 = what is given unasked */
	bool scan;
	const struct trace *trace; /* the first steady tenant's, instead of a set */
};

/* One run: the host, each steady tenant's own random references, and what became of them. */
struct run {
	const struct load *load;
	struct corehost h;
	uint64_t again_every; /* blocks scanned */
	uint64_t random[STEADY_MAX], hits[STEADY_MAX], asked[STEADY_MAX], scanned;
};

static struct corehost_block block_of(const struct load *l, uint32_t tenant, uint64_t key)
{
	return (struct corehost_block){
		.key = (uint64_t)tenant << 48 | key,
		.context = l->account == CONTEXT ? tenant : 0,
		.client = l->account == CLIENT ? tenant : 0,
		.salt = l->account == SALT ? tenant + 1 : 0,
	};
}

/* Bytes of the tier when all of it is there. */
static uint64_t tier_bytes(const struct load *l)
{
	return l->trace ? l->trace->distinct * TRACE_PERCENT / 100 * BLOCK_BYTES : CXL;
}

static bool is_there(const struct load *l, uint32_t tenant)
{
	if (tenant == STEADY_MAX)
		return l->scan;
	return l->set[tenant] || (!tenant && l->trace);
}

static int set_up(struct run *r)
{
	static const enum core_holder who[] = {
		[SALT] = CORE_HOLDER_SALT,
		[CONTEXT] = CORE_HOLDER_CONTEXT,
		[CLIENT] = CORE_HOLDER_CLIENT,
	};
	const struct load *l = r->load;
	uint64_t bytes = tier_bytes(l);
	int error = corehost_open(&r->h, bytes * l->room / 100, SLAB);

	r->again_every = bytes / BLOCK_BYTES / 4;
	for (uint32_t i = 1; i < TENANTS && l->account == CLIENT && !error; i++)
		error = corehost_client(&r->h, i);
	for (uint32_t i = 0; i < (l->account == CONTEXT ? TENANTS : 1) && !error; i++)
		if (!i || is_there(l, i))
			error = corehost_context(&r->h, i, PAGES, 16384);
	for (uint32_t i = 0; i < TENANTS && !error; i++) {
		const struct corehost_block b = block_of(l, i, 0);

		if (l->share[i])
			error = corehost_share(&r->h, who[l->account], &b,
					       bytes * l->share[i] / 100);
	}
	return error;
}

static int use_steady(struct run *r, uint32_t tenant, bool warm)
{
	uint32_t working = BLOCKS * r->load->set[tenant] / 100;
	struct corehost_block b = block_of(
		r->load, tenant, bench_random_below(&r->random[tenant], working));
	bool hit = corehost_get(&r->h, &b);
	int64_t rc = corehost_put(&r->h, &b);

	r->hits[tenant] += warm && hit;
	r->asked[tenant] += warm;
	return rc < 0 ? (int)rc : 0;
}

/* The scan comes back once to what it put lately, so that no policy can tell it by its uses. */
static void use_again(struct run *r)
{
	for (uint64_t i = 1; i <= r->again_every; i++) {
		struct corehost_block past =
			block_of(r->load, STEADY_MAX, SCAN_FIRST + r->scanned - i);

		corehost_get(&r->h, &past);
	}
}

static int use_scan(struct run *r)
{
	int64_t rc = 1;

	for (uint32_t k = 0; k < SCANS && rc >= 0; k++) {
		struct corehost_block b =
			block_of(r->load, STEADY_MAX, SCAN_FIRST + r->scanned++);

		rc = corehost_put(&r->h, &b);
		if (r->scanned % r->again_every == 0)
			use_again(r);
	}
	return rc < 0 ? (int)rc : 0;
}

static int use_prompt(struct run *r, const struct trace_request *q, bool warm)
{
	const struct corehost_block as = block_of(r->load, 0, 0);
	struct prompt_served served;
	int error = prompt_serve(&r->h, &as, r->load->trace, q, &served);

	r->hits[0] += warm ? served.hit : 0;
	r->asked[0] += warm ? q->id_count : 0;
	return error;
}

/* A prompt, and as much of the scan as its references make. */
static int turn_traced(struct run *r, uint64_t n, bool warm)
{
	const struct trace_request *q = &r->load->trace->request[n];
	int error = use_prompt(r, q, warm);

	for (uint32_t k = 0; k < q->id_count && !error; k++) {
		error = r->load->scan ? use_scan(r) : 0;
		corehost_advance(&r->h, COREHOST_MS);
	}
	return error;
}

static int turn(struct run *r, bool warm)
{
	int error = 0;

	for (uint32_t i = 0; i < STEADY_MAX && !error; i++)
		error = r->load->set[i] ? use_steady(r, i, warm) : 0;
	if (!error && r->load->scan)
		error = use_scan(r);
	corehost_advance(&r->h, COREHOST_MS);
	return error;
}

static uint64_t turns_of(const struct bench *b, const struct load *l)
{
	if (l->trace)
		return l->trace->request_count;
	return (uint64_t)BLOCKS * l->set[0] / 100 * (b->quick ? 12 : 40);
}

/* The steady tenants' hit ratios in percent, of the second half. */
static int run(const struct bench *b, const struct load *l, double ratio[STEADY_MAX])
{
	struct run r = { .load = l, .random = { 88172645463325252ull, 0x2545f4914f6cdd1dull } };
	uint64_t turns = turns_of(b, l);
	int error = set_up(&r);

	for (uint64_t n = 0; n < turns && !error; n++)
		error = l->trace ? turn_traced(&r, n, n > turns / 2) : turn(&r, n > turns / 2);
	if (!error && corehost_audit(&r.h))
		error = -EBADMSG;
	corehost_close(&r.h);
	for (uint32_t i = 0; i < STEADY_MAX; i++)
		ratio[i] = r.asked[i] ? 100.0 * (double)r.hits[i] / (double)r.asked[i] : 0;
	return error;
}

/* `lost` is what is missing from `before`, both in percent. */
static int judge(struct bench *b, const char *name, const char *against, double lost, double before)
{
	const struct bench_figure figure = { "quota", name, "points", against,
					     { BENCH_VALUE_AT_MOST, 2 } };

	return bench_judge_exact(b->results, &figure, lost > 0 ? lost : 0, before);
}

/* ---- a tenant beside a scan, with nothing set ---------------------------------------------- */

static const char *const one_of[] = { NULL, "a salt", "a context", "a client" };

/* How it fares alone, beside a scan, and beside it when nobody keeps accounts. `what`: it does. */
static int beside_scan(struct bench *b, const struct load *alone, const char *what)
{
	/* Only clients have no share unless one is set. */
	uint32_t half = alone->account == CLIENT ? 50 : 0;
	struct load beside = *alone, without = *alone;
	double a[STEADY_MAX], with[STEADY_MAX], none[STEADY_MAX];
	char name[BENCH_TEXT], against[BENCH_TEXT];
	int error = run(b, alone, a);

	beside.room = without.room = 100;
	beside.scan = without.scan = true;
	beside.share[0] = beside.share[STEADY_MAX] = half;
	without.account = NOBODY;
	if (!error)
		error = run(b, &beside, with);
	if (!error)
		error = run(b, &without, none);
	if (error)
		return bench_failed("quota", error);
	snprintf(name, sizeof(name), "hit ratio lost: %s beside a scan, %s%s (alone %.1f %%)",
		 one_of[alone->account], what, alone->room < 100 ? ", from its half" : "", a[0]);
	snprintf(against, sizeof(against), "lost without accounts: %.1f %% left", none[0]);
	return judge(b, name, against, a[0] - with[0], a[0] - none[0]);
}

/* A set of so many percent of the tier, in so many of which it is alone. */
static int set_beside_scan(struct bench *b, enum account account, uint32_t set, uint32_t room)
{
	const struct load alone = { .account = account, .room = room, .set = { set } };
	char what[32];

	snprintf(what, sizeof(what), "set %u %% of CXL", set);
	return beside_scan(b, &alone, what);
}

/* What a trace reads again is more than its half takes: compared with itself in such a half. */
static int trace_beside_scan(struct bench *b, const struct trace *t)
{
	struct load alone = { .room = 50, .trace = t };
	int error = 0;

	if (tier_bytes(&alone) < TRACE_CXL_LEAST) {
		bench_say("quota: the trace has %llu different blocks: too few for tenants",
			  (unsigned long long)t->distinct);
		return 0;
	}
	for (alone.account = SALT; alone.account <= CLIENT && !error; alone.account++)
		error = beside_scan(b, &alone, "the trace");
	return error;
}

/* ---- three tenants with soft shares -------------------------------------------------------- */

/* Percent of the tier. The first set fits its share, the second is half as large again. */
static const uint32_t shares[TENANTS] = { 40, 40, 20 };
static const uint32_t sets[STEADY_MAX] = { 36, 60 };

static struct load shared(enum account account, bool scan)
{
	return (struct load){ .account = account,
			      .room = 100,
			      .set = { sets[0], sets[1] },
			      .share = { shares[0], shares[1], scan ? shares[2] : 0 },
			      .scan = scan };
}

/* Each alone in a tier as large as its share. */
static int alone(const struct bench *b, double ratio[STEADY_MAX])
{
	int error = 0;

	for (uint32_t i = 0; i < STEADY_MAX && !error; i++) {
		const struct load l = { .room = shares[i], .set = { sets[i] } };
		double one[STEADY_MAX];

		error = run(b, &l, one);
		ratio[i] = one[0];
	}
	return error;
}

static int fair(struct bench *b, enum account account, const char *whose, const double *own)
{
	char name[BENCH_TEXT], against[BENCH_TEXT];
	double ratio[STEADY_MAX];
	int error = 0;

	for (uint32_t scan = 0; scan < 2 && !error; scan++) {
		const struct load l = shared(account, scan);

		error = run(b, &l, ratio);
		for (uint32_t i = 0; i < STEADY_MAX && !error; i++) {
			snprintf(name, sizeof(name),
				 "hit ratio lost: %s of 40, 40, 20 %%, set %u %%, %s", whose,
				 sets[i], scan ? "the third scans" : "the third is idle");
			snprintf(against, sizeof(against), "%% alone in %u %% of CXL; here %.1f",
				 shares[i], ratio[i]);
			error = judge(b, name, against, own[i] - ratio[i], own[i]);
		}
	}
	return error;
}

/* With nobody beside it a share is no limit: it loses nothing to itself without one. */
static int borrowing(struct bench *b, enum account account, const char *whose, double own)
{
	const struct load free = { .account = account, .room = 100, .set = { sets[1] } };
	struct load lent = free;
	char name[BENCH_TEXT], against[BENCH_TEXT];
	double with[STEADY_MAX], without[STEADY_MAX];
	int error;

	lent.share[0] = shares[1];
	error = run(b, &lent, with);
	if (!error)
		error = run(b, &free, without);
	if (error)
		return error;
	snprintf(name, sizeof(name),
		 "hit ratio lost: %s of 40 %% alone, set %u %%: it borrows (%.1f %% without)",
		 whose, sets[1], own);
	snprintf(against, sizeof(against), "%% with no share set; here %.1f", with[0]);
	return judge(b, name, against, without[0] - with[0], without[0]);
}

static int three(struct bench *b)
{
	static const char *const whose[] = { NULL, "salts", "contexts", "clients" };
	double own[STEADY_MAX];
	int error = alone(b, own);

	for (enum account a = SALT; a <= CLIENT && !error; a++) {
		error = fair(b, a, whose[a], own);
		if (!error)
			error = borrowing(b, a, whose[a], own[1]);
	}
	return error ? bench_failed("quota", error) : 0;
}

int bench_quota(struct bench *b)
{
	struct trace *t = NULL;
	int error = bench_trace(&t, b, b->quick ? TRACE_QUICK : 0);

	if (!error)
		error = set_beside_scan(b, SALT, 40, 100);
	/* More than its fair share, half of the tier: compared with itself in such a half. */
	if (!error)
		error = set_beside_scan(b, SALT, 80, 50);
	if (!error)
		error = set_beside_scan(b, CONTEXT, 40, 100);
	if (!error)
		error = set_beside_scan(b, CLIENT, 40, 100);
	if (!error)
		error = set_beside_scan(b, CLIENT, 80, 50);
	if (!error)
		error = trace_beside_scan(b, t);
	trace_close(t);
	return error ? error : three(b);
}
