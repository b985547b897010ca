/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late commitment (P2): a prefetch with a deadline is parked, without bytes. It begins
 * when time-to-use <= time-to-ready + margin: time-to-ready from what is queued, what is resident
 * and the bandwidth measured now, for all parked prefetches together. Parked prefetches are sorted
 * by deadline; the latest start of each follows from the last one backwards, since they share the
 * channels:
 *
 *   start(i) = min(deadline(i) - margin(i), start(i + 1)) - bytes(i) / bandwidth
 *
 * A user whose return is announced reads what is behind its lead then: demand, which goes before
 * all parked prefetches. So announced leads begin sooner, by the time of RETURNS_BEFORE such reads:
 * those of users who are back just before.
 *
 * Nothing is held or placed before that. The margin grows with how much later than foreseen
 * transfers were, and where room has to pass from another context first.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

#define MARGIN_NS (2 * MS)     /* the loop looks every millisecond */
#define MARGIN_SHARE 8u        /* and this part of the transfer */
#define SLIP_MAX_NS (50 * MS)
#define ROOM_NS (40 * MS)      /* a slab is emptied and passes from one context to another */
#define RETURNS_BEFORE 3u
#define LOOK_MIN_NS (1 * MS)   /* between looks at what is parked */
#define LOOK_MAX_NS (50 * MS)
/* parked prefetches whose residency is counted anew, beside the due ones */
#define FRESH_PER_LOOK 4u
#define PROTECT_NS (100 * MS)  /* beyond the deadline, for a reader that is a little late */
#define PROBE_BYTES (64u << 20)

/* What the channels promise now: a queue in front, then so many ns a byte. */
struct outlook {
	double read_ns, copy_ns; /* a byte */
	uint64_t queue_ns;
};

static void outlook(const struct core *c, struct outlook *o)
{
	uint64_t read0 = sched_ready_ns(c, SCHED_READ, 0, ABI_CLASS_DEADLINE, 0);
	uint64_t copy0 = sched_ready_ns(c, SCHED_TO_HBM, 0, ABI_CLASS_DEADLINE, 0);
	uint64_t read = sched_ready_ns(c, SCHED_READ, PROBE_BYTES, ABI_CLASS_DEADLINE, 0);
	uint64_t copy = sched_ready_ns(c, SCHED_TO_HBM, PROBE_BYTES, ABI_CLASS_DEADLINE, 0);

	o->read_ns = read > read0 ? (double)(read - read0) / PROBE_BYTES : 0;
	o->copy_ns = copy > copy0 ? (double)(copy - copy0) / PROBE_BYTES : 0;
	o->queue_ns = read0 > copy0 ? read0 : copy0;
}

/* ---- what a prefetch would move ----------------------------------------------------------- */

/* What of `range` bytes of the block is not in the tier, by the share of its pages that is. */
static uint64_t missing(const struct context *x, uint32_t slot, uint32_t tier, uint64_t range)
{
	uint32_t pages = block_pages(x, slot), there = x->meta[slot].there[tier].pages;
	uint64_t bytes;

	if (there >= pages)
		return 0;
	bytes = block_bytes(x, slot) / pages * (pages - there);
	return bytes < range ? bytes : range;
}

/* Returns of how many blocks: a prefix ends where one is not there any more. */
static uint32_t count_missing(const struct request *r, uint64_t *read, uint64_t *copy)
{
	const struct abi_block_ref *ref = (const struct abi_block_ref *)r->arg;
	uint64_t range = fetch_range_bytes(r);
	uint32_t i;

	*read = *copy = 0;
	for (i = 0; i < r->sqe.count; i++) {
		if (!block_alive(r->ctx, ref[i]))
			break;
		if (r->sqe.tier == ABI_TIER_HBM) {
			uint64_t up = missing(r->ctx, ref[i].slot, ABI_TIER_HBM, range);
			uint64_t in = missing(r->ctx, ref[i].slot, ABI_TIER_CXL, range);

			*copy += up;
			*read += in < up ? in : up;
		} else {
			*read += missing(r->ctx, ref[i].slot, ABI_TIER_CXL, range);
		}
	}
	return i;
}

/*
 * Must room for it pass from another context first? Places of one size are of no use to pages of
 * another.
 */
static bool wants_slab(const struct core *c, const struct request *r)
{
	const struct context *x = r->ctx;
	const struct space *s = x->space[r->sqe.tier];
	uint64_t bytes = r->sqe.tier == ABI_TIER_HBM ? r->copy_bytes : r->read_bytes;
	uint64_t block = x->spec.geometry.block_bytes;

	return s && space_fit(s, x->block_places, space_slabs_left(s)) * block < bytes &&
	       quota_donor(c, x, r->sqe.tier);
}

static void look(struct core *c, struct request *r)
{
	meter_charge_table(&c->meter, r->sqe.count);
	count_missing(r, &r->read_bytes, &r->copy_bytes);
	r->room_ns = wants_slab(c, r) ? ROOM_NS : 0;
}

static uint64_t transfer_ns(const struct outlook *o, const struct request *r)
{
	double read = (double)r->read_bytes * o->read_ns, copy = (double)r->copy_bytes * o->copy_ns;

	return (uint64_t)(read > copy ? read : copy); /* the channels work side by side */
}

/* ---- the sorted list ---------------------------------------------------------------------- */

static uint32_t park_find(const struct parked *k, const struct request *r)
{
	for (uint32_t i = 0; i < k->count; i++)
		if (k->by_deadline[i].r == r)
			return i;
	assert(!"the request is parked");
	return 0;
}

/* The connection that asked for it; NULL: it has ended, or it is the core's own, for a user. */
static struct client *park_owner(struct core *c, const struct request *r)
{
	if (r->client == CORE_CLIENTS_MAX || c->client[r->client].connection != r->connection)
		return NULL;
	return &c->client[r->client];
}

static void park_add(struct core *c, struct request *r)
{
	struct client *owner = park_owner(c, r);
	struct parked *k = &c->parked;
	uint32_t i = k->count;

	assert(k->count < PARKED_MAX);
	for (; i && k->by_deadline[i - 1].deadline_ns > r->use_ns; i--)
		k->by_deadline[i] = k->by_deadline[i - 1];
	k->by_deadline[i] = (struct park){ .r = r, .deadline_ns = r->use_ns };
	k->count++;
	k->next_ns = c->now_ns; /* where it stands among the others is seen at the next look */
	r->phase = REQUEST_PARKED;
	if (owner)
		account_take(c, owner, ACCOUNT_PARKED);
	else
		account_take_for(c, r->account, ACCOUNT_PARKED);
	c->metrics.prefetches_parked++;
}

static void park_remove(struct core *c, struct request *r)
{
	struct parked *k = &c->parked;
	uint32_t i = park_find(k, r);

	assert(r->parked);
	memmove(k->by_deadline + i, k->by_deadline + i + 1,
		(k->count - i - 1) * sizeof(k->by_deadline[0]));
	k->count--;
	r->parked = false;
	account_give(c, r->account, park_owner(c, r), ACCOUNT_PARKED);
}

/* Park it: references resolved, use_ns set, room there. */
void park_take(struct core *c, struct request *r)
{
	assert(!r->held && !r->outstanding);
	look(c, r);
	r->parked = true;
	park_add(c, r);
}

/* ---- the request -------------------------------------------------------------------------- */

/* May the core park one for this user? */
bool park_may(const struct core *c, uint32_t account)
{
	return c->parked.count < PARKED_MAX && account_user_may(c, account, ACCOUNT_PARKED);
}

static void prefetch_begin(struct core *c, struct request *r)
{
	const struct client *k = &c->client[r->client];
	bool far = r->deadline_ns > c->now_ns + PARK_HORIZON_NS;

	r->foreseen = true;
	if (!r->sqe.deadline_ns) { /* no time of use is known: into idle bandwidth, now */
		fetch_begin(c, r);
		return;
	}
	if (far || !account_may(c, k, ACCOUNT_PARKED) || c->parked.count == PARKED_MAX) {
		c->metrics.prefetches_refused++;
		r->status = ABI_STATUS_DROPPED;
		request_end(c, r, 0, 0, far ? 0 : account_lack(c, k, ACCOUNT_PARKED));
		return;
	}
	r->use_ns = r->deadline_ns;
	fetch_resolve(c, r);
	park_take(c, r);
}

/* It is due, or ends for another reason. */
static void prefetch_step(struct core *c, struct request *r)
{
	if (!r->parked) {
		fetch_step(c, r);
		return;
	}
	park_remove(c, r);
	r->begun_ns = c->now_ns;
	if (r->error)
		fetch_step(c, r); /* ends it: nothing was held */
	else
		fetch_begin(c, r);
}

/* Would what is protected for it be so no longer? It is late then, also if all of it is there. */
static bool park_over(const struct core *c, const struct request *r)
{
	return r->sqe.deadline_ns && c->now_ns >= r->deadline_ns + PROTECT_NS;
}

/* Is what it brought to be pinned? */
static bool park_guards(const struct core *c, const struct request *r)
{
	if (r->error || !r->held)
		return false;
	if (r->guard)
		return r->owner && r->usable;
	return r->sqe.deadline_ns && r->status != ABI_STATUS_LATE && !park_over(c, r) &&
	       r->client != CORE_CLIENTS_MAX && c->client[r->client].connection == r->connection;
}

/*
 * All of it is there: keep it so until the time of use, as far as the pin budget goes (P7). False:
 * there is more than one event looks at.
 */
static bool park_protect(struct core *c, struct request *r)
{
	struct pin_ask ask = {
		.client = r->guard ? r->guard_client : r->client,
		.ctx = r->ctx,
		.tier = r->sqe.tier,
		.layers = r->guard_layers,
		.deadline_ns = r->guard ? r->guard_ns : r->deadline_ns + PROTECT_NS,
		.ref = (const struct abi_block_ref *)r->arg,
		.count = r->held,
		.id = r->pin,
		.at = r->protected_blocks,
	};
	int64_t blocks;

	if (!park_guards(c, r)) {
		pin_drop(c, r->pin);
		r->pin = 0;
		r->protected_blocks = 0;
		return true;
	}
	blocks = pin_take(c, &ask);
	r->pin = ask.id;
	r->protected_blocks = ask.at;
	if (blocks == -EINPROGRESS)
		return false;
	r->protected_blocks = blocks > 0 ? (uint32_t)blocks : 0;
	if (r->protected_blocks < r->held)
		c->metrics.prefetches_unprotected++;
	return true;
}

/* A parked prefetch's transfer is over: was it as long as foreseen? */
static void park_finished(struct core *c, const struct request *r)
{
	uint64_t foreseen = r->begun_ns + r->transfer_ns, slip = 0;

	if (!r->begun_ns)
		return;
	if (c->now_ns > foreseen)
		slip = c->now_ns - foreseen;
	if (slip > SLIP_MAX_NS)
		slip = SLIP_MAX_NS; /* a silent device says nothing of the next transfer */
	if (slip > c->parked.slip_ns) /* grows at once, shrinks slowly */
		c->parked.slip_ns = (c->parked.slip_ns + slip) / 2;
	else
		c->parked.slip_ns -= (c->parked.slip_ns - slip) / 16;
}

static bool prefetch_came(struct core *c, struct request *r, bool lost)
{
	assert(!r->parked && r->ending);
	if (!lost && park_over(c, r))
		r->status = ABI_STATUS_LATE;
	if (!park_protect(c, r))
		return false;
	park_finished(c, r);
	return true;
}

/* ---- time --------------------------------------------------------------------------------- */

/* The latest starts of all, from the last deadline backwards. Returns the earliest. */
static uint64_t starts(struct core *c, const struct outlook *o)
{
	struct parked *k = &c->parked;
	uint64_t next = UINT64_MAX;

	for (uint32_t i = k->count; i-- > 0;) {
		struct park *q = &k->by_deadline[i];
		uint64_t ns = transfer_ns(o, q->r);
		double before = RETURNS_BEFORE * (double)q->r->behind_bytes * o->read_ns;
		uint64_t margin = MARGIN_NS + ns / MARGIN_SHARE + c->parked.slip_ns +
				  q->r->room_ns + (uint64_t)before;
		uint64_t end = q->deadline_ns > margin ? q->deadline_ns - margin : 0;

		assert(!i || q[-1].deadline_ns <= q->deadline_ns);
		q->r->transfer_ns = ns;
		q->start_ns = next = park_latest(end, next, ns);
	}
	return next;
}

static void refresh(struct core *c)
{
	struct parked *k = &c->parked;

	for (uint32_t n = 0; n < FRESH_PER_LOOK && k->count &&
			     c->meter.items < meter_park(&c->meter); n++)
		look(c, k->by_deadline[k->fresh++ % k->count].r);
}

/* Those that seem to be due, as far as the event goes; who was woken already is not asked again. */
static uint32_t look_due(struct core *c, uint64_t due_ns, bool *all)
{
	struct parked *k = &c->parked;
	uint32_t i = 0;

	for (; i < k->count && k->by_deadline[i].start_ns <= due_ns; i++) {
		if (k->by_deadline[i].r->queued)
			continue;
		if (c->meter.items >= meter_park(&c->meter))
			break;
		look(c, k->by_deadline[i].r);
	}
	*all = i == k->count || k->by_deadline[i].start_ns > due_ns; /* starts rise */
	return i;
}

void park_tick(struct core *c)
{
	struct parked *k = &c->parked;
	uint64_t first, due_ns;
	struct outlook o;
	uint32_t looked;
	bool all;

	if (!k->count || c->now_ns < k->next_ns)
		return;
	outlook(c, &o);
	due_ns = c->now_ns + o.queue_ns;
	starts(c, &o);
	looked = look_due(c, due_ns, &all);
	refresh(c);
	first = starts(c, &o);
	for (uint32_t i = 0; i < looked; i++)
		if (k->by_deadline[i].start_ns <= due_ns)
			request_wake(c, k->by_deadline[i].r);
	if (!all) {
		k->next_ns = c->now_ns; /* it goes on */
		return;
	}
	first = first > c->now_ns + o.queue_ns ? first - c->now_ns - o.queue_ns : 0;
	first /= 4; /* bandwidth and residency change: look again well before it is due */
	if (first < LOOK_MIN_NS)
		first = LOOK_MIN_NS;
	k->next_ns = c->now_ns + (first > LOOK_MAX_NS ? LOOK_MAX_NS : first);
}

uint64_t park_next(const struct core *c)
{
	return c->parked.count ? c->parked.next_ns : UINT64_MAX;
}

/* For operators: what it stands for, as it is now. Where it stands among the others: by a look. */
static void park_view(const struct core *c, const struct request *r, struct core_request_view *out)
{
	const struct parked *k = &c->parked;
	uint64_t read, copy;

	if (!r->parked)
		return;
	out->parked = true;
	out->count = count_missing(r, &read, &copy) * fetch_range_pages(r);
	out->bytes = r->sqe.tier == ABI_TIER_HBM ? copy : read;
	out->start_ns = k->by_deadline[park_find(k, r)].start_ns;
}

static bool prefetch_fits(const struct abi_sqe *q)
{
	return !q->mode;
}

const struct op_ops op_prefetch = {
	.name = "prefetch",
	.tiers = ABI_MEM_TIERS,
	.fits = prefetch_fits,
	.context = true,
	.arg_bytes = op_blocks_bytes,
	.begin = prefetch_begin,
	.step = prefetch_step,
	.came = prefetch_came,
	.release = fetch_release,
	.view = park_view,
};
