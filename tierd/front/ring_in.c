/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Submission rings: which clients are looked at, and taking entries out. The rules are those of
 * abi/ring.h; R1 and R3: an entry is copied once, the two words of the client that we use are
 * clamped against our own copies, and nonsense in them ends the connection.
 *
 *   parked  sq_wake = 1, in no list; its doorbell makes it watched
 *   watched sq_wake = 0, looked at every turn; parked when it has had no entry for a while
 */
#include <errno.h>

#include "libtier/base/atomic.h"
#include "tierd/front/front_priv.h"

#define TURN_SHARES 4u /* of CORE_ITEMS_MAX: what entries of a turn make the core look at */

static void set_full(struct front *f, struct connection *s, bool full)
{
	f->full += (uint32_t)full - (uint32_t)s->full;
	s->full = full;
}

void ring_watch(struct front *f, struct connection *s, uint64_t now_ns)
{
	if (s->watched)
		return;
	atomic_store_relaxed_u32(&s->header->sq_wake, 0);
	s->watched = true;
	s->active_ns = now_ns;
	list_push_back(&f->watched, &s->watched_link);
}

void ring_unwatch(struct front *f, struct connection *s)
{
	set_full(f, s, false);
	s->watched = false;
	list_remove(&s->watched_link);
}

/* False: an entry came at the last moment. */
static bool park(struct front *f, struct connection *s)
{
	atomic_store_relaxed_u32(&s->header->sq_wake, 1);
	/* Our sq_wake before the last look at sq_tail; the client does the reverse (ring.h, 2). */
	full_fence();
	if (atomic_load_acquire_u32(&s->header->sq_tail) != s->sq_head) {
		atomic_store_relaxed_u32(&s->header->sq_wake, 0);
		return false;
	}
	ring_unwatch(f, s);
	return true;
}

/* One request of each class is timed at a time: cheap, and fair enough for quantiles. */
static void sample_begin(struct front *f, const struct connection *s, const struct abi_sqe *sqe,
			 uint64_t now_ns)
{
	struct sample *sample;

	if (sqe->klass >= ABI_CLASS_COUNT)
		return;
	sample = &f->sample[sqe->klass];
	if (sample->running && now_ns - sample->since_ns < 60 * 1000000000ull)
		return;
	*sample = (struct sample){ true, s->id, sqe->user_data, now_ns };
}

/* What the client's words say, each read once; false = impossible (R3). */
struct words {
	uint32_t ready; /* entries to take */
	uint32_t room;  /* completions that still fit (R2) */
};

static bool read_words(const struct connection *s, struct words *w)
{
	uint32_t unread = s->cq_tail - atomic_load_acquire_u32(&s->header->cq_head);

	w->ready = atomic_load_acquire_u32(&s->header->sq_tail) - s->sq_head;
	w->room = s->cq_entries - s->in_flight - unread;
	return w->ready <= s->sq_entries && unread <= s->cq_entries &&
	       w->room <= s->cq_entries;
}

/* What its entries made the core look at since then is more than one event's share. */
static bool has_asked_much(const struct turn *t, uint64_t since, uint32_t shares)
{
	return core_metrics(t->core)->items - since >= (uint64_t)shares * CORE_ITEMS_MAX;
}

static uint32_t take(struct front *f, struct turn *t, struct connection *s, uint32_t most)
{
	uint64_t items = core_metrics(t->core)->items;
	uint32_t taken = 0;

	while (taken < most && core_accepts(t->core, s->id) && !has_asked_much(t, items, 1)) {
		struct core_event event = { .kind = CORE_EV_REQUEST };

		event.request.client = s->id;
		event.request.sqe = s->sq[s->sq_head & (s->sq_entries - 1)];
		compiler_fence(); /* from here on only the copy is looked at */
		s->sq_head++;
		s->in_flight++;
		taken++;
		sample_begin(f, s, &event.request.sqe, t->now_ns);
		trace_note(f->config.obs->trace, (struct trace_record){
			.now_ns = t->clock_ns, .kind = TRACE_REQUEST,
			.phase = TRACE_BEGIN, .who = (uint16_t)s->id,
			.id = event.request.sqe.user_data, .op = event.request.sqe.op,
			.klass = event.request.sqe.klass });
		turn_next(t, &event);
	}
	if (taken == 0)
		return 0;
	atomic_store_release_u32(&s->header->sq_head, s->sq_head);
	s->taken += taken;
	s->active_ns = t->now_ns;
	return taken;
}

/* Look at one ring. Returns entries taken; *held: it has more, and something holds it back. */
static uint32_t look(struct front *f, struct turn *t, struct connection *s, uint32_t most,
		     bool *held)
{
	uint32_t taken;
	struct words w;

	*held = false;
	if (!read_words(s, &w)) {
		connection_end(f, t, s, -EPROTO, "its ring's head or tail is impossible; is its "
					      "library of this version?");
		return 0;
	}
	set_full(f, s, w.ready > 0 && w.room == 0);
	if (w.ready == 0)
		return 0;
	if (most > CONNECTION_TAKE_MAX)
		most = CONNECTION_TAKE_MAX;
	if (most > w.ready)
		most = w.ready;
	if (most > w.room)
		most = w.room;
	taken = take(f, t, s, most);
	*held = taken == 0;
	return taken;
}

uint32_t front_poll(struct front *f, struct turn *t, uint64_t awake_ns)
{
	uint32_t budget = f->closing ? 0 : FRONT_TAKE_MAX;
	uint64_t items = core_metrics(t->core)->items;
	uint32_t hopeful = 0;
	struct list *first = list_first(&f->watched), *next = NULL;

	list_each(at, &f->watched) {
		struct connection *s = list_entry(at, struct connection, watched_link);
		bool held = f->closing;

		if (budget && has_asked_much(t, items, TURN_SHARES)) {
			budget = 0;
			next = at; /* who was not looked at comes first next time */
		}
		if (budget)
			budget -= look(f, t, s, budget, &held);
		if (!s->watched || held)
			continue;
		if (t->now_ns - s->active_ns < awake_ns || !park(f, s))
			hopeful++;
		if (next == at && !s->watched)
			next = NULL;
	}
	/* Another one comes first next time. */
	for (uint32_t n = 0; first && list_first(&f->watched) == first && n < CORE_CLIENTS_MAX;
	     n++) {
		list_remove(first);
		list_push_back(&f->watched, first);
		first = next && list_first(&f->watched) != next ? list_first(&f->watched) : NULL;
	}
	return hopeful;
}
