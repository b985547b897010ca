/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world's life: moves, the bag of actions, crash and boot. See world.h for what is promised.
 */
#include "tests/sim/world_priv.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/areas.h"
#include "tests/lib/core_shell.h"

void world_fail(struct world *w, const char *format, ...)
{
	va_list ap;

	if (w->result->failure[0])
		return;
	va_start(ap, format);
	vsnprintf(w->result->failure, sizeof(w->result->failure), format, ap);
	va_end(ap);
}

/* ---- moves -------------------------------------------------------------------------------- */

static uint32_t rare_kind(uint64_t dice, const struct world_faults *f)
{
	if (dice < f->crash_ppm)
		return MOVE_CRASH;
	dice -= f->crash_ppm;
	if (dice < f->death_ppm)
		return MOVE_DEATH;
	dice -= f->death_ppm;
	return dice < f->device_ppm ? MOVE_DEVICE : MOVE_KINDS;
}

static uint32_t common_kind(uint64_t dice, bool tight)
{
	static const uint32_t mix[2][4] = { { 44, 27, 22, 6 }, { 46, 31, 14, 6 } };
	const uint32_t *percent = mix[tight];
	uint32_t at = (uint32_t)(dice % 1000) / 10;

	if (dice % 4000 == 3999)
		return MOVE_QUIET;
	for (uint32_t kind = 0; kind < 4; kind++) {
		if (at < percent[kind])
			return kind;
		at -= percent[kind];
	}
	return MOVE_OWNER;
}

void world_moves(struct move *moves, uint32_t n, uint64_t seed, const struct world_faults *faults)
{
	uint64_t state = seed * 0xd1342543de82ef95ull + 1;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t r = random_next(&state);

		moves[i].kind = rare_kind(r % 1000000, faults);
		if (moves[i].kind == MOVE_KINDS)
			moves[i].kind = common_kind(random_next(&state), faults->tight);
		moves[i].random = (uint32_t)(r >> 32);
	}
	if (seed % 8 == 3 && n > 40) /* the first moments of a store are worth many crashes */
		moves[random_next(&state) % 40].kind = MOVE_CRASH;
}

/* ---- events, actions ---------------------------------------------------------------------- */

static bool is_io(const struct core_action *a)
{
	return a->kind == CORE_AC_READ || a->kind == CORE_AC_WRITE;
}

static bool is_device(const struct core_action *a)
{
	return is_io(a) || a->kind == CORE_AC_SYNC || a->kind == CORE_AC_DISCARD;
}

/*
 * It is nobody's, now and after a crash; and nothing else is under way, unless the one before it
 * was long ago.
 */
static void discard_check(struct world *w, const struct core_range *range)
{
	bool soon = w->now_ns < w->discard_ns + w->late_ns;

	for (uint32_t i = 0; i < w->bag_count && soon; i++)
		if (is_device(&w->bag[i]) || w->bag[i].kind == CORE_AC_COPY)
			world_fail(w, "P6: a discard beside action %d", (int)w->bag[i].kind);
	w->discard_ns = w->now_ns;
	image_discards(w, range);
	inside_discards(w, range);
}

/*
 * P6, after each event: with room on the device neither demand nor a background class that has
 * waited too long is held back, no demand has passed such a one, and beside demand background is in
 * small units. `issued`: the bag's first action of this event.
 */
static void drive_check(struct world *w, uint32_t drive, uint32_t issued)
{
	struct sched_channel_stats read, write;
	uint32_t count = 0, background = 0, demand = 0;

	sched_drive_stats(w->core, drive, SCHED_READ, &read);
	sched_drive_stats(w->core, drive, SCHED_WRITE, &write);
	for (uint32_t i = 0; i < w->bag_count; i++) {
		if (!is_io(&w->bag[i]) || w->bag[i].io->device != drive)
			continue;
		count++;
		background += w->bag[i].io->klass != ABI_CLASS_DEMAND;
		demand += i >= issued && w->bag[i].io->klass == ABI_CLASS_DEMAND;
	}
	if (count > w->depth)
		world_fail(w, "P6: %u operations on a device of depth %u", count, w->depth);
	if (count < w->depth && read.queued[0] + write.queued[0])
		world_fail(w, "P6: demand waits while the device has room");
	for (uint32_t k = 1; k < ABI_CLASS_COUNT && !background; k++)
		if (sched_waits_ns(w->core, drive, k) > w->starve_ns &&
		    (count < w->depth || demand))
			world_fail(w, "P6: class %u starves", k);
	for (uint32_t i = issued; count > background && i < w->bag_count; i++)
		if (is_io(&w->bag[i]) && w->bag[i].io->device == drive &&
		    w->bag[i].io->klass != ABI_CLASS_DEMAND && w->bag[i].io->piece_count > 1 &&
		    w->bag[i].io->bytes > SCHED_UNIT_BUSY)
			world_fail(w, "P6: background of %llu bytes beside demand",
				   (unsigned long long)w->bag[i].io->bytes);
}

static void device_check(struct world *w, uint32_t issued)
{
	for (uint32_t i = 0; i < w->drives; i++)
		drive_check(w, i, issued);
}

static void collect(struct world *w)
{
	uint32_t issued = w->bag_count;
	struct core_action a;

	while (core_action_next(w->core, &a)) {
		if (a.kind == CORE_AC_COMPLETE) {
			client_completed(w, a.complete.client, &a.complete.cqe);
		} else if (a.kind == CORE_AC_REPLY) {
			owner_replied(w, a.reply.token, a.reply.res, a.reply.value);
		} else if (a.kind == CORE_AC_END) {
			wide_ended(w, &a);
		} else if (a.kind == CORE_AC_WAKE) {
			w->client[a.wake].woken = true;
		} else if (a.kind != CORE_AC_PREPARE) {
			if (a.kind == CORE_AC_DISCARD)
				discard_check(w, &a.range);
			assert(w->bag_count < WORLD_BAG);
			w->bag[w->bag_count++] = a;
		}
	}
	device_check(w, issued);
}

void world_event(struct world *w, struct core_event *e)
{
	enum image_part written = image_part(w, e);

	w->now_ns += 1 + world_below(w, 20000);
	w->ticks += e->kind == CORE_EV_TICK;
	e->now_ns = w->now_ns;
	if (++w->move_events > WORLD_MOVE_EVENTS)
		world_fail(w, "I8: a move does not end");
	foresight_look(w);
	client_event(w);
	core_event(w->core, e);
	if (core_metrics(w->core)->event_items_most > CORE_ITEMS_MAX)
		world_fail(w, "I8: an event looks at %llu items",
			   (unsigned long long)core_metrics(w->core)->event_items_most);
	foresight_check(w);
	inside_decided(w);
	w->result->events++;
	collect(w);
	streams_event(w);
	theirs_check(w);
	image_look(w, e->kind == CORE_EV_SYNC_DONE, written);
}

/* Returns whether it garbled what its checksum then shows. */
static bool do_copy(struct world *w, struct core_copy *copy)
{
	bool moves = copy->src_tier == copy->dst_tier; /* such copies are few */
	bool fault = !w->fair && world_chance(w, (moves ? 10 : 1) * w->faults->read_ppm);
	bool garbles = fault && copy->checksum && moves && world_chance(w, 500000);

	inside_copies(w, copy);
	copy->res = fault && !garbles ? -EIO : 0;
	for (uint32_t i = 0; i < copy->count; i++) {
		struct core_copy_item *it = &copy->item[i];

		if (!copy->in_place)
			memcpy(it->dst, it->src, it->bytes - it->pad);
		memset((uint8_t *)it->dst + it->bytes - it->pad, 0, it->pad);
		if (garbles) /* it was told by nobody, and the checksum is of what came */
			*(uint8_t *)it->dst ^= 1;
		if (copy->checksum)
			it->crc = crc32c(it->seed, it->dst, it->bytes);
		if (copy->res) /* what it left behind is anything */
			memset(it->dst, 0xee, 512);
	}
	w->copies_failed += copy->res && copy->dst_tier == ABI_TIER_HBM;
	return garbles;
}

static void copy_carry(struct world *w, struct core_copy *copy)
{
	struct core_event e = { .kind = CORE_EV_COPY_DONE, .copy = copy };
	bool garbled = do_copy(w, copy);
	struct core_copy was = *copy;

	lend_moved(w, copy);
	world_event(w, &e);
	if (garbled)
		inside_unmoved(w, &was);
}

/* What stood there is not to be read any more. */
static void do_punch(struct world *w, const struct core_range *range)
{
	lend_punched(w, range);
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
		if (w->context[i].mem[range->tier] && w->context[i].id == range->context_id)
			areas_spoil(w->context[i].mem[range->tier] + range->offset, range->bytes,
				    0xdd);
}

static void read_carry(struct world *w, struct core_io *io)
{
	struct core_event e = { .kind = CORE_EV_IO_LANDED, .io = io };
	struct world_rotten rotten;

	device_io(w, io);
	model_rotten(w, io, &rotten);
	if (world_chance(w, 300000))
		world_event(w, &e);
	inside_units_end(w, io);
	e.kind = CORE_EV_IO_DONE;
	world_event(w, &e);
	model_voided(w, &rotten);
}

static void do_action(struct world *w, const struct core_action *a)
{
	struct core_event e;

	if (a->kind == CORE_AC_COPY || a->kind == CORE_AC_READ) {
		if (a->kind == CORE_AC_COPY)
			copy_carry(w, a->copy);
		else
			read_carry(w, a->io);
		return;
	}
	if (!core_shell_done(a, &e)) {
		world_fail(w, "unknown action %d", (int)a->kind);
		return;
	}
	if (a->kind == CORE_AC_SYNC)
		e.sync.res = device_flush_end(w, a->sync.device);
	else if (a->kind == CORE_AC_DISCARD)
		e.discard.res = device_discard(w, &a->range);
	else if (a->kind == CORE_AC_FENCE)
		reader_fence(w);
	else if (a->kind == CORE_AC_SCAN)
		core_scan(w->core);
	else if (a->kind == CORE_AC_PUNCH)
		do_punch(w, &a->range);
	world_event(w, &e);
}

/* Of an operation of a device: whose it is. */
static uint32_t drive_of(const struct core_action *a)
{
	if (a->kind == CORE_AC_SYNC)
		return a->sync.device;
	return a->kind == CORE_AC_DISCARD ? a->range.device : a->io->device;
}

static void action_step(struct world *w)
{
	struct core_action a;
	uint32_t i;

	if (!w->bag_count)
		return;
	i = world_below(w, w->bag_count);
	if (is_device(&w->bag[i]) && !device_answers(w, drive_of(&w->bag[i])))
		return;
	a = w->bag[i];
	if (a.kind == CORE_AC_WRITE && device_is_late(w, a.io))
		return;
	if (a.kind == CORE_AC_SYNC &&
	    (device_flush_begin(w, a.sync.device) || (w->faults->voids && !w->fair &&
						      world_chance(w, 900000))))
		return; /* it has begun: another move ends it */
	if (a.kind == CORE_AC_WRITE && !device_wrote(w, a.io))
		return; /* it is there: another move says so */
	w->bag[i] = w->bag[--w->bag_count];
	do_action(w, &a);
}

static void tick(struct world *w, uint64_t ns)
{
	struct core_event e = { .kind = CORE_EV_TICK };

	w->now_ns += ns;
	world_event(w, &e);
	inside_streams(w);
}

/* Most of what waits in the bag is done, a few ms pass. */
void world_settle(struct world *w)
{
	w->fair = true;
	for (uint32_t i = 0; i < 3 && !w->result->failure[0]; i++) {
		for (uint32_t n = 0; n < 50 && w->bag_count && !w->result->failure[0]; n++)
			action_step(w);
		tick(w, MSEC);
	}
	w->fair = false;
}

/* ---- life and death ----------------------------------------------------------------------- */

/* Its connection ends, by itself or, with an error, by the daemon; its process is there still. */
static void client_goes(struct world *w, uint32_t i, int error)
{
	struct world_client *k = &w->client[i];
	struct core_event e = { .kind = CORE_EV_CLIENT_GONE, .client = i, .error = error };

	w->result->deaths++;
	k->state = 2;
	k->over = false;
	model_died(w, i);
	foresight_died(w, i);
	memset(k->ask, 0, sizeof(k->ask));
	streams_forget(w, i);
	memset(&k->room, 0, sizeof(k->room));
	for (uint32_t p = 0; p < WORLD_LEASES; p++)
		if (w->pin[p].client == i)
			w->pin[p].id = 0;
	world_event(w, &e);
}

/*
 * The daemon ends its connection, if it has one, and in half of the worlds takes back its memory.
 */
static void client_is_over(struct world *w, uint32_t i)
{
	struct core_event e = {
		.kind = CORE_EV_CLIENT_REVOKED, .client = i, .tiers = 1u << ABI_TIER_CXL,
	};

	w->client[i].over = false;
	if (w->client[i].state == 1)
		client_goes(w, i, -EDQUOT);
	if (w->client[i].state != 2 || w->starve_ns % 2)
		return;
	reader_revoked(w, i, ABI_TIER_CXL);
	world_event(w, &e);
}

/* Its process, when the connection has ended. */
void world_dies(struct world *w, uint32_t i)
{
	struct world_client *k = &w->client[i];
	struct core_event e = { .kind = CORE_EV_CLIENT_DEAD, .client = i };

	/* The process dies: its leases end with it, not before, and so do words that it left. */
	reader_release(w, i, WORLD_CONTEXTS);
	for (uint32_t r = 0; r < WORLD_READERS; r++)
		memset(k->reader[r].slot, 0, sizeof(k->reader[r].slot));
	for (uint32_t a = w->bag_count; a-- > 0;)
		if (w->bag[a].kind == CORE_AC_COPY && w->bag[a].copy->src_tier == ABI_TIER_COUNT) {
			struct core_action copy = w->bag[a];

			w->bag[a] = w->bag[--w->bag_count];
			do_action(w,
				  &copy); /* the shell unmaps staging only when no job reads it */
		}
	lend_forget(w, i);
	world_event(w, &e);
	client_open(w, i);
}

static void death_step(struct world *w)
{
	uint32_t i = world_below(w, WORLD_CLIENTS);

	if (w->client[i].state == 1)
		client_goes(w, i, 0);
	else if (w->client[i].state == 2)
		world_dies(w, i);
}

/* The wall clock as the core hears of it; somebody may have set it. */
static void clock_tell(struct world *w)
{
	struct core_event e = { .kind = CORE_EV_CLOCK };

	if (world_chance(w, 300000))
		w->wall_ms = 1790000000000 + world_below(w, 4000);
	e.wall_ms = w->wall_ms + w->now_ns / MSEC;
	world_event(w, &e);
}

static void config_draw(struct world *w, struct core_config *out)
{
	struct core_config config = {
		.boot_token = world_random(w),
		.capacity = { HBM_BYTES, w->faults->tight ? CXL_TIGHT_BYTES : CXL_BYTES,
			      device_capacity(w) },
		.super = w->super,
		.writeback_age_ns = 2 * MSEC,
		.request_deadline_ns = 2000 * MSEC,
		.put_deadline_ns = (50 + world_below(w, 3000)) * MSEC,
		.device_depth = w->depth = 1 + world_below(w, WORLD_DEPTH),
		.starve_ns = w->starve_ns = MSEC + world_below(w, 4 * MSEC),
		.stream_hold_ns = WORLD_HOLD,
		.stream_again_ns = 5 * MSEC,
		.yield = world_chance(w, 300000),
		.place_bytes = w->starve_ns % 4 == 1 ? ABI_UNIT : 0,
		.direct = world_chance(w, 700000),
		.admit_all = world_chance(w, 750000),
		.discard = w->starve_ns % 8 != 0,
		.discard_quiet_ns = 1 + w->starve_ns % 11 * MSEC / 10,
		.discard_late_ns = w->late_ns = (w->starve_ns % 3 ? 1000 : 4) * MSEC,
		.pin_percent = w->starve_ns % 7 ? 0 : 5,
		.client_pins_bytes = { w->starve_ns % 3 ? 0 : 12 * BLOCK_BYTES,
				       w->starve_ns % 3 ? 0 : 20 * BLOCK_BYTES },
		.salt_pins = { w->starve_ns % 5 ? 0 : 9 * BLOCK_BYTES,
			       w->starve_ns % 5 ? 0 : 16 * BLOCK_BYTES },
	};

	config.drives = out->drives;
	memcpy(config.more, out->more, sizeof(config.more));
	memcpy(config.listed, out->listed, sizeof(config.listed));
	config.listed_count = out->listed_count;
	wide_config(w, &config);
	*out = config;
}

static void boot(struct world *w)
{
	struct core_config config;
	const struct disk_catalog *head = NULL;
	const struct disk_context *list = NULL;
	bool old = device_catalog(w, &head, &list);
	int err;

	if (drives_boot(w, head, list, &config))
		device_catalog(w, &head, &list);
	config_draw(w, &config);
	if (old) {
		config.next_uid = head->next_uid;
		config.catalog_sequence = head->sequence;
		device_void_torn(w, head->sequence);
	}
	memset(w->misread, 0, sizeof(w->misread));
	err = core_open(&w->core, &config);
	assert(!err);
	w->bag_count = 0;
	w->landed_count = 0;
	w->foreseen = 0;
	memset(w->conversation, 0, sizeof(w->conversation));
	memset(w->lead, 0, sizeof(w->lead));
	theirs_boot(w);
	clock_tell(w);
	memset(w->link, 0, sizeof(w->link));
	for (uint32_t i = 0; old && i < head->count; i++)
		context_make(w, !strcmp(list[i].name, "memory"), &list[i]);
	for (uint32_t i = 0; old && i < head->limit_count; i++)
		owner_limit_restore(w, &disk_catalog_limits(head)[i]);
	device_recover(w);
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
		if (!w->context[i].made) {
			lives_missed(w, i);
			context_make(w, i, NULL);
		}
	collect(w);
	for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
		client_open(w, i);
}

static void shut(struct world *w)
{
	const struct core_metrics *m = core_metrics(w->core);

	w->result->evicted += m->evicted_cxl + m->evicted_hbm;
	w->result->segments_dropped += m->segments_dropped;
	w->result->quarantined += m->quarantined;
	w->result->runs += m->runs_written;
	w->result->direct += m->direct_bytes;
	w->result->copied += m->promoted_bytes;
	w->result->path_failed += m->path_failed;
	w->result->repaired += m->blocks_repaired;
	w->result->parked_prefetches += m->prefetches_parked;
	w->result->plan_loads += m->plan_loads;
	w->result->staged_conversations += m->conversations_staged;
	w->result->staged_used += m->prefetch_used;
	w->result->staged_wasted += m->prefetch_wasted;
	w->result->proved += m->proved_blocks;
	w->result->cleaned += m->cleaned_segments;
	w->result->moved += m->cleaned_blocks;
	w->result->carried += m->tombstones_carried;
	w->result->discards += m->discards;
	w->result->reinserted += m->reinserted_bytes;
	w->result->moved_pages += m->moved_pages;
	w->result->moves_failed += m->moves_failed;
	w->result->parked += m->parked_bytes;
	w->result->reservations += m->reservations;
	w->result->drawn += m->reserve_drawn;
	core_close(w->core);
	w->core = NULL;
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
		context_free(w, i);
	memset(w->lease, 0, sizeof(w->lease));
	lend_forget(w, WORLD_CLIENTS);
	memset(w->pin, 0, sizeof(w->pin));
	for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
		streams_forget(w, i);
}

static void crash(struct world *w)
{
	w->result->crashes++;
	w->crash_due = false;
	shut(w);
	device_crash(w);
	for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
		w->client[i].state = w->client[i].over = 0;
	boot(w);
	inside_recovered(w);
	model_check_stored(w, true);
	model_check_all(w, true);
	if (world_chance(w, 500000))
		client_again(w);
}

/*
 * Time goes on by `most`, or until the core wants to be asked: a parked prefetch must not be
 * overslept.
 */
static uint64_t quiet_step(const struct world *w, uint64_t most)
{
	uint64_t next = core_next_tick(w->core);

	if (next >= w->now_ns + most)
		return most;
	return next > w->now_ns + MSEC ? next - w->now_ns : MSEC;
}

static void drain(struct world *w)
{
	while (w->bag_count && !w->result->failure[0])
		action_step(w);
}

static bool anyone_waits(const struct world *w)
{
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t i = 0; i < WORLD_ASKS; i++)
			if (w->client[c].ask[i].kind != ASK_NONE &&
			    w->client[c].ask[i].kind != ASK_RESERVED)
				return true;
	return false;
}

/* Bytes that the cleaner copies in the next 20 s. */
static uint64_t cleaned_soon(struct world *w)
{
	uint64_t before = core_metrics(w->core)->cleaned_bytes;

	for (uint32_t i = 0; i < 100 && !w->result->failure[0]; i++) {
		tick(w, 200 * MSEC);
		drain(w);
	}
	return core_metrics(w->core)->cleaned_bytes - before;
}

/*
 * Nothing changes any more: then a full store is not cleaned for ever. A round that gains nothing
 * copies more than the store holds; some may pass before that is seen.
 */
static void rest_on(struct world *w)
{
	uint64_t cleaned = UINT64_MAX;

	for (uint32_t i = 0; i < 5 && cleaned > device_capacity(w) / 4; i++)
		cleaned = cleaned_soon(w);
	if (cleaned > device_capacity(w) / 4)
		world_fail(w, "at rest %llu bytes of a full store are cleaned in 20 s",
			   (unsigned long long)cleaned);
}

/* Everyone waits; the host makes progress until nothing is under way. */
static void quiet(struct world *w)
{
	uint64_t end = w->now_ns + 30000 * MSEC, evict = w->now_ns + 4000 * MSEC;

	w->fair = true;
	w->mood = 0;
	w->result->quiets++;
	client_rest(w);
	lend_rest(w);
	foresight_rest(w);
	for (uint32_t i = 0; i < 6000 && !w->result->failure[0]; i++) {
		drain(w);
		if (w->now_ns > end || core_next_tick(w->core) > w->now_ns + 20000 * MSEC)
			break; /* but for conversations that will be forgotten */
		/* Who wakes every ms, as in a full store, is waited for less often. */
		if (i > 2800 && !anyone_waits(w))
			w->now_ns += 9 * MSEC;
		tick(w, quiet_step(w, i < 100 ? MSEC : i < 500 ? 10 * MSEC : 1000 * MSEC));
		if (w->now_ns < evict)
			continue;
		foresight_settle(w);
		owner_evict_all(w); /* an operator; who waits has what he waits for held */
		evict = w->now_ns + 4000 * MSEC;
	}
	drain(w);
	model_quiet(w);
	foresight_quiet(w);
	drives_quiet(w);
	if (model_full(w))
		rest_on(w);
	w->fair = false;
}

static void step(struct world *w, const struct move *m)
{
	w->random = m->random;
	w->move_events = 0;
	for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
		if (w->client[i].over)
			client_is_over(w, i);
		else if (!w->client[i].state)
			client_open(w, i);
	switch (m->kind) {
	case MOVE_ACTION:
		action_step(w);
		break;
	case MOVE_CLIENT:
		client_step(w);
		break;
	case MOVE_LEASE:
		if (world_chance(w, 300000))
			streams_step(w);
		else if (w->faults->wide && world_chance(w, 200000))
			lend_step(w);
		else
			reader_step(w);
		break;
	case MOVE_TICK:
		if (world_chance(w, 10000))
			clock_tell(w);
		tick(w, world_chance(w, 40000) ? world_below(w, 1200) * MSEC
					       : world_below(w, 3 * MSEC));
		model_check_deadlines(w);
		break;
	case MOVE_OWNER:
		owner_step(w);
		break;
	case MOVE_DEVICE:
		w->mood = w->mood ? 0 : world_below(w, 4);
		w->mood_drive = w->disks > 1 ? world_below(w, w->disks + 1) : 0;
		drives_fate(w);
		break;
	case MOVE_DEATH:
		death_step(w);
		break;
	case MOVE_CRASH:
		crash(w);
		break;
	default:
		quiet(w);
	}
	if (w->crash_due)
		crash(w);
	model_check_key(w, m->random % WORLD_CONTEXTS, m->random / 7 % WORLD_KEYS);
	model_check_quotas(w);
	inside_check(w);
	if (wide_spends(w))
		inside_spent(w);
	if (m->random % 16 == 0)
		inside_prefixes(w);
}

static void trace_move(const struct world *w, uint32_t i, const struct move *m)
{
	static const char *const name[] = { "action", "client", "lease", "tick", "owner",
					    "device", "death",	"crash", "quiet" };

	if (w->trace)
		printf("%6u %12.3f ms  %-6s %08x  bag %u\n", i, (double)w->now_ns / 1e6,
		       name[m->kind], m->random, w->bag_count);
}

static bool world_open(struct world *w)
{
	w->bag = calloc(WORLD_BAG, sizeof(*w->bag));
	for (uint32_t i = 0; i < WORLD_CLIENTS; i++) {
		w->client[i].staging = calloc(1, STAGING_BYTES);
		w->client[i].reader = calloc(WORLD_READERS, sizeof(struct abi_reader));
		w->client[i].line = calloc(WORLD_LINES, sizeof(struct abi_stream));
		w->client[i].dead_line = calloc(WORLD_LINES, sizeof(struct abi_stream));
		if (!w->client[i].staging || !w->client[i].reader || !w->client[i].line ||
		    !w->client[i].dead_line)
			return false;
		theirs_lines_anew(w, i);
	}
	device_open(w);
	image_open(w);
	return w->bag && w->disk;
}

static void world_close(struct world *w)
{
	image_close(w);
	device_close(w);
	for (uint32_t i = 0; i < WORLD_CLIENTS; i++) {
		free(w->client[i].staging);
		free(w->client[i].reader);
		free(w->client[i].line);
		free(w->client[i].dead_line);
	}
	free(w->bag);
	free(w);
}

int world_run(const struct move *moves, uint32_t n, const struct world_faults *faults, bool trace,
	      struct world_result *result)
{
	struct world *w = calloc(1, sizeof(*w));

	memset(result, 0, sizeof(*result));
	if (!w)
		return -ENOMEM;
	w->faults = faults;
	w->result = result;
	w->trace = trace;
	if (!world_open(w)) {
		world_close(w);
		return -ENOMEM;
	}
	boot(w);
	world_settle(w); /* the contexts are listed */
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
		client_fill(w, 0, i, faults->fill[i]);
	for (uint32_t i = 0; i < n && !result->failure[0]; i++) {
		trace_move(w, i, &moves[i]);
		result->move = i;
		step(w, &moves[i]);
		if (i % 256 == 255)
			model_check_all(w, false);
		if (faults->wide && moves[i].random % 64 == 0)
			wide_check(w);
	}
	if (!result->failure[0])
		quiet(w);
	shut(w);
	world_close(w);
	return result->failure[0] ? -EILSEQ : 0;
}
