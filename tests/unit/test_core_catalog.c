/*
 * The catalog and flushes that fail: nobody is told that a change is durable while the write that
 * carries it may be gone. Here the device says late that it has written; in the simulator such a
 * write must also be lost and be followed by a crash to be noticed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"
#include "tierd/core/unit/store.h"

#define MIB (1ull << 20)
#define TOKEN 77u
#define GONE 78u

struct world {
	struct core *c;
	struct disk_super super;
	struct core_context_memory memory;
	uint64_t now_ns;
	struct core_io *write; /* of the catalog, under way; NULL = none */
	uint32_t writes;       /* so far */
	bool flushing;
	uint64_t flush_token;
	uint32_t answers, gone;
};

static void collect(struct world *w)
{
	struct core_action a;

	while (core_action_next(w->c, &a)) {
		if (a.kind == CORE_AC_WRITE) {
			assert_null(w->write);
			assert_true(a.io->offset >= w->super.catalog_offset);
			assert_true(a.io->offset + a.io->bytes <=
				    w->super.catalog_offset + 2 * w->super.catalog_bytes);
			w->write = a.io;
			w->writes++;
		} else if (a.kind == CORE_AC_SYNC) {
			assert_false(w->flushing);
			w->flushing = true;
			w->flush_token = a.sync.token;
		} else if (a.kind == CORE_AC_REPLY && a.reply.token == TOKEN) {
			assert_int_equal(a.reply.res, 0);
			w->answers++;
		}
		w->gone += a.kind == CORE_AC_REPLY && a.reply.token == GONE;
	}
}

static void event(struct world *w, struct core_event *e, uint64_t ns)
{
	e->now_ns = w->now_ns += ns;
	core_event(w->c, e);
	collect(w);
}

static void tick(struct world *w, uint64_t ns)
{
	struct core_event e = { .kind = CORE_EV_TICK };

	event(w, &e, ns);
}

static void ended(struct world *w, int32_t res)
{
	struct core_event e = { .kind = CORE_EV_IO_DONE, .io = w->write };

	assert_non_null(w->write);
	w->write->res = res;
	w->write = NULL;
	event(w, &e, MS);
}

static void written(struct world *w)
{
	assert_non_null(w->write);
	ended(w, (int32_t)w->write->bytes);
}

static void flushed(struct world *w, int res)
{
	struct core_event e = { .kind = CORE_EV_SYNC_DONE };

	assert_true(w->flushing);
	w->flushing = false;
	e.sync.token = w->flush_token;
	e.sync.res = res;
	event(w, &e, MS);
}

static void spec_of(struct disk_context *spec)
{
	struct abi_geometry *g = &spec->geometry;

	memset(spec, 0, sizeof(*spec));
	snprintf(spec->name, sizeof(spec->name), "a");
	spec->mode = 0600;
	spec->kind = 1;
	g->block_tokens = 128;
	g->page_align = 4096;
	g->part_count = 1;
	snprintf(g->part[0].name, sizeof(g->part[0].name), "kv");
	g->part[0].kind = ABI_KIND_SPARSE;
	g->part[0].layers = g->part[0].groups = 1;
	g->part[0].page_bytes = g->part[0].page_stride = 4096;
	g->pages_per_block = 1;
	g->block_bytes = 4096;
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct core_config config = { .boot_token = 1, .capacity = { 0, 16 * MIB, 0 } };
	struct core_context_plan plan;
	struct disk_context spec;
	char why[128];
	uint32_t id;

	assert_int_equal(store_super_plan(&w->super, 16 * MIB, MIB, 0x1234), 0);
	disk_super_seal(&w->super);
	config.super = w->super;
	config.capacity[ABI_TIER_NVME] =
		w->super.segment_count * (w->super.segment_bytes - w->super.summary_bytes);
	assert_int_equal(core_open(&w->c, &config), 0);
	for (uint32_t i = 0; i < CORE_IO_MAX; i++)
		w->c->actions.io[i].priv.owner = w; /* as of an operation before */
	spec_of(&spec);
	assert_int_equal(core_context_plan(w->c, &spec, &plan, why, sizeof(why)), 0);
	w->memory.index = calloc(1, plan.index_bytes);
	w->memory.mem[ABI_TIER_CXL] = calloc(1, plan.mem_bytes[ABI_TIER_CXL]);
	assert_int_equal(core_context_create(w->c, &spec, &w->memory, TOKEN, &id), 0);
	tick(w, MS);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	core_close(w->c);
	free(w->memory.index);
	free(w->memory.mem[ABI_TIER_CXL]);
	free(w);
	return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_answered_after_the_flush(void **state)
{
	struct world *w = *state;

	assert_int_equal(w->answers, 0);
	written(w);
	assert_int_equal(w->answers, 0);
	flushed(w, 0);
	assert_int_equal(w->answers, 1);
	assert_int_equal(w->writes, 1);
}

/* Whoever withdraws what was queued for a request must not take the catalog's write for it. */
static void test_it_is_nobodys_request(void **state)
{
	struct world *w = *state;

	assert_non_null(w->write);
	assert_null(w->write->priv.owner);
}

static void test_written_again_after_a_failed_flush(void **state)
{
	struct world *w = *state;
	uint64_t slot = w->write->offset;

	written(w);
	flushed(w, -EIO);
	tick(w, 1000 * MS);
	assert_non_null(w->write);
	assert_int_equal(w->write->offset, slot); /* not the one that holds the last good catalog */
	assert_int_equal(w->answers, 0);
}

static void test_a_write_under_way_is_suspect_too(void **state)
{
	struct world *w = *state;
	uint64_t slot = w->write->offset;

	written(w);
	flushed(w, -EIO);
	tick(w, 1000 * MS);
	assert_int_equal(w->writes, 2);
	assert_true(w->flushing);
	flushed(w, -EIO); /* the device had written, and has lost it; it says so only now: */
	written(w);
	for (uint32_t i = 0; i < 20 && w->writes < 3; i++) {
		if (w->flushing)
			flushed(w, 0);
		tick(w, 100 * MS);
		assert_int_equal(w->answers, 0);
	}
	assert_non_null(w->write);
	assert_int_equal(w->write->offset, slot);
	written(w);
	for (uint32_t i = 0; i < 20 && !w->answers; i++) {
		if (w->flushing)
			flushed(w, 0);
		tick(w, 100 * MS);
	}
	assert_int_equal(w->answers, 1);
	assert_int_equal(w->writes, 3);
}

/* The limits of the catalog that is being written. */
static const struct disk_limit *limits(const struct world *w, uint32_t count)
{
	const struct disk_catalog *head;
	const struct disk_context *list;

	assert_non_null(w->write);
	assert_int_equal(disk_catalog_open(w->write->piece[0].addr, w->write->bytes,
					   w->super.store_id, &head, &list), 0);
	assert_int_equal(head->limit_count, count);
	return disk_catalog_limits(head);
}

static void set(struct world *w, uint64_t salt, uint32_t tier, uint64_t soft, uint64_t hard)
{
	const struct core_quota q = { CORE_HOLDER_SALT, w->c->context[0]->id, salt, tier,
				      { soft, hard }, 0 };

	assert_int_equal(core_quota_set(w->c, &q, TOKEN), 0);
}

static void write_out(struct world *w)
{
	for (uint32_t i = 0; i < 20 && (w->write || w->flushing); i++) {
		if (w->write)
			written(w);
		if (w->flushing)
			flushed(w, 0);
		tick(w, MS);
	}
}

/* Limits of salts are answered when the catalog that has them is durable; lifted ones are gone. */
static void test_limits_of_salts_are_kept(void **state)
{
	struct world *w = *state;
	const struct disk_limit *l;

	write_out(w);
	assert_int_equal(w->answers, 1);
	set(w, 7, ABI_TIER_CXL, MIB, 2 * MIB);
	assert_int_equal(w->answers, 1);
	tick(w, MS);
	l = limits(w, 1);
	assert_int_equal(l->context_uid, w->c->context[0]->spec.uid);
	assert_int_equal(l->salt, 7);
	assert_int_equal(l->soft[ABI_TIER_CXL], MIB);
	assert_int_equal(l->hard[ABI_TIER_CXL], 2 * MIB);
	write_out(w);
	assert_int_equal(w->answers, 2);
	set(w, 0, ABI_TIER_NVME, 0, MIB);
	tick(w, MS);
	limits(w, 2);
	write_out(w);
	set(w, 7, ABI_TIER_CXL, 0, 0);
	tick(w, MS);
	l = limits(w, 1);
	assert_int_equal(l->salt, 0);
	assert_int_equal(l->hard[ABI_TIER_NVME], MIB);
	write_out(w);
	assert_int_equal(w->answers, 4);
}

/* What a start does with them. */
static void test_limits_come_back(void **state)
{
	struct world *w = *state;
	const struct context *x = w->c->context[0];
	struct disk_limit l = { x->spec.uid, 9, { 0, MIB, 0 }, { 0, 3 * MIB, 5 * MIB } };
	struct core_holder_view v;
	uint32_t i = 0;

	assert_int_equal(core_limit_restore(w->c, &l), 0);
	while (core_holder_at(w->c, x->id, i, &v) == 0 && v.key != 9)
		i++;
	assert_int_equal(v.key, 9);
	assert_int_equal(v.limit[ABI_TIER_CXL].soft, MIB);
	assert_int_equal(v.limit[ABI_TIER_CXL].hard, 3 * MIB);
	assert_int_equal(v.limit[ABI_TIER_NVME].hard, 5 * MIB);
	l.context_uid++; /* a context that is gone */
	l.salt = 10;
	assert_int_equal(core_limit_restore(w->c, &l), 0);
	assert_int_equal(ledger_find(&x->salts, 10), 0);
	l.context_uid--;
	for (i = 1; i < CONTEXT_SALTS - LEDGER_FIRST; i++, l.salt++)
		assert_int_equal(core_limit_restore(w->c, &l), 0);
	assert_int_equal(core_limit_restore(w->c, &l), -ENOSPC); /* no account is left */
}

static void tell(void *arg, const char *what)
{
	(void)arg;
	fail_msg("%s", what);
}

/*
 * No catalog names it, so it cannot be found. It can be removed all the same: its memory goes at
 * once, whether the device takes a write again or not, and nothing of it stays charged.
 */
static void test_a_context_that_no_catalog_names_can_go(void **state)
{
	struct world *w = *state;
	uint32_t id = w->c->context[0]->id;
	struct core_context_view view;

	for (uint32_t i = 0; i < 3; i++) {
		ended(w, -EIO);
		assert_int_equal(core_context_find(w->c, "a", 0, 0, &view), -ENOENT);
		tick(w, 2000 * MS);
	}
	ended(w, -EIO);
	assert_int_equal(core_context_remove(w->c, id, TOKEN, GONE), 0);
	tick(w, MS);
	assert_int_equal(w->gone, 1);
	assert_int_equal(w->c->contexts, 0);
	assert_null(w->c->context[0]);
	assert_int_equal(w->c->pool[ABI_TIER_CXL].used, 0);
	assert_int_equal(core_audit(w->c, tell, NULL), 0);
	assert_int_equal(w->answers, 0);
	tick(w, 2000 * MS);
	write_out(w);
	assert_int_equal(w->answers, 2); /* of the one that made it, and of the one that removed */
	assert_int_equal(w->gone, 1);
}

/* Contexts and limits share a slot of the catalog. */
static void test_the_catalog_has_an_end(void **state)
{
	struct world *w = *state;
	uint32_t sectors = (uint32_t)(w->super.catalog_bytes / DISK_SECTOR) - 2;

	assert_true(catalog_room(w->c, sectors, 0));
	assert_false(catalog_room(w->c, sectors + 1, 0));
	assert_true(catalog_room(w->c, 0, sectors * DISK_SECTOR / sizeof(struct disk_limit)));
	assert_false(catalog_room(w->c, 0, sectors * DISK_SECTOR / sizeof(struct disk_limit) + 1));
	assert_true(catalog_room(w->c, sectors - 1, DISK_SECTOR / sizeof(struct disk_limit)));
	assert_false(catalog_room(w->c, sectors, 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_answered_after_the_flush),
		TEST(test_it_is_nobodys_request),
		TEST(test_written_again_after_a_failed_flush),
		TEST(test_a_write_under_way_is_suspect_too),
		TEST(test_limits_of_salts_are_kept),
		TEST(test_limits_come_back),
		TEST(test_a_context_that_no_catalog_names_can_go),
		TEST(test_the_catalog_has_an_end),
	};

	return cmocka_run_group_tests_name("catalog", tests, NULL, NULL);
}
