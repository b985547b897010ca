/*
 * Streams through the real daemon: layers come in order and hold their bytes, windows move with
 * what is released, a window that cannot be is refused by its size, deadlines and cancels end a
 * stream with an answer, what is gone is gone when the stream is, and what a client writes into its
 * progress line hurts nobody. Into HBM also where the device can write there (hbm.direct).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/integration/front_client.h"

#include <jansson.h>
#include <tier.h>

#include "libtier/src/stream.h"

#define LAYERS 8u
#define GROUPS 2u
#define PAGE 16384u
#define SIDECAR 4096u
#define LAYER_BYTES (GROUPS * PAGE + SIDECAR)
#define BLOCK_BYTES (LAYERS * LAYER_BYTES)
#define BLOCKS 48u
#define HALF 24u /* these fit into the stream pool as a whole */
#define DEADLINE (time_now_ns() + 60 * NS_PER_S)

#define STREAM(where, ...)                                                                         \
	(&(const struct tier_stream_options){ .size = sizeof(struct tier_stream_options),          \
					      .tier = (where), .deadline_ns = DEADLINE,            \
					      __VA_ARGS__ })

struct world {
	struct daemon d;
	tier *t;
	tier_context *c;
	tier_reader *r;
	tier_key key[BLOCKS];
	tier_block block[BLOCKS];
};

/* ---- setting up ------------------------------------------------------------------------------ */

static uint8_t byte_of(uint32_t block, uint32_t page)
{
	return (uint8_t)(block * 31 + page * 7 + 3);
}

static tier_geometry *geometry(void)
{
	const struct tier_part part[] = {
		{ .name = "kv", .kind = TIER_KIND_SPARSE, .layers = LAYERS, .groups = GROUPS,
		  .page_bytes = PAGE },
		{ .name = "index", .kind = TIER_KIND_INDEX, .shard_rule = TIER_SHARD_REPLICATED,
		  .layers = LAYERS, .groups = 1, .page_bytes = SIDECAR },
	};
	const struct tier_geometry_options o = { .size = sizeof(o), .part_count = 2,
						 .part = part };
	tier_geometry *g;

	assert_int_equal(tier_geometry_new(&g, &o), 0);
	return g;
}

/* A page's number: of the sidecar when group is GROUPS. */
static uint32_t page_of(uint32_t layer, uint32_t group)
{
	return group < GROUPS ? layer * GROUPS + group : LAYERS * GROUPS + layer;
}

static void put_all(struct world *w)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_DURABLE };
	struct tier_found found[BLOCKS];
	uint32_t token[BLOCKS];
	uint8_t *data = malloc((size_t)BLOCKS * BLOCK_BYTES), *at = data;

	for (uint32_t i = 0; i < BLOCKS; i++)
		token[i] = i;
	assert_int_equal(tier_key_chain(w->key, NULL, NULL, token, BLOCKS, 1), 0);
	for (uint32_t b = 0; b < BLOCKS; b++)
		for (uint32_t page = 0; page < LAYERS * (GROUPS + 1); page++) {
			uint32_t bytes = page < LAYERS * GROUPS ? PAGE : SIDECAR;

			memset(at, byte_of(b, page), bytes);
			at += bytes;
		}
	assert_int_equal(tier_put_copy(w->c, w->key, BLOCKS, data, &o), BLOCKS);
	free(data);
	assert_int_equal(tier_match(w->c, w->key, BLOCKS, found), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		w->block[i] = found[i].block;
}

static void ask(struct world *w, const char *verb, const char *args, json_t **out)
{
	char *reply;

	assert_int_equal(tier_admin(w->t, verb, args, &reply), 0);
	*out = json_loads(reply, 0, NULL);
	assert_non_null(*out);
	free(reply);
}

static void evict_all(struct world *w)
{
	json_t *answer;

	ask(w, "evict", "{\"context\":\"kv\",\"tier\":\"hbm\"}", &answer);
	json_decref(answer);
	ask(w, "evict", "{\"context\":\"kv\",\"tier\":\"cxl\"}", &answer);
	json_decref(answer);
}

/* Pages in memory of all blocks, as the daemon counts them. */
static uint64_t in_memory(struct world *w)
{
	json_t *answer, *tiers;
	uint64_t live = 0;
	size_t i;

	for (int tries = 0; tries < PATIENCE_MS / 5; tries++) {
		ask(w, "status", NULL, &answer);
		tiers = json_object_get(answer, "tiers");
		live = 0;
		for (i = 0; i < 2; i++)
			live += (uint64_t)json_integer_value(
				json_object_get(json_array_get(tiers, i), "live"));
		json_decref(answer);
		if (!live)
			break;
		usleep(5000);
	}
	return live;
}

static uint64_t metric(struct world *w, const char *name)
{
	json_t *answer, *one;
	uint64_t value = UINT64_MAX;
	size_t i;

	ask(w, "stat", NULL, &answer);
	json_array_foreach(json_object_get(answer, "metrics"), i, one)
		if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0)
			value = (uint64_t)json_integer_value(json_object_get(one, "value"));
	json_decref(answer);
	assert_int_not_equal(value, UINT64_MAX);
	return value;
}

/* The daemon's own recount, and nothing of streams is left. */
static void check(struct world *w)
{
	json_t *answer;

	for (int i = 0; i < PATIENCE_MS / 10; i++) {
		size_t left;

		ask(w, "requests", NULL, &answer);
		left = json_array_size(json_object_get(answer, "streams"));
		json_decref(answer);
		if (!left)
			break;
		usleep(10000);
	}
	ask(w, "check", NULL, &answer);
	if (json_integer_value(json_object_get(answer, "errors")))
		fail_msg("%s", json_dumps(answer, 0));
	json_decref(answer);
}

static int set_up_with(void **state, const char *const *settings)
{
	struct world *w = calloc(1, sizeof(*w));
	struct tier_connect_options o = { .size = sizeof(o) };
	tier_geometry *g = geometry();

	daemon_folder(&w->d);
	daemon_start(&w->d, settings);
	o.socket = w->d.socket;
	assert_int_equal(tier_connect(&w->t, &o), 0);
	assert_int_equal(tier_context_create(w->t, "kv", g, NULL, &w->c), 0);
	assert_int_equal(tier_reader_open(w->t, &w->r), 0);
	tier_geometry_free(g);
	put_all(w);
	do {
		evict_all(w); /* the last run may still hold its blocks */
	} while (in_memory(w));
	*state = w;
	return 0;
}

static int set_up(void **state)
{
	return set_up_with(state, NULL);
}

static int tear_down(void **state)
{
	struct world *w = *state;

	tier_close(w->t);
	daemon_stop(&w->d);
	daemon_remove(&w->d);
	free(w);
	return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Every page of a layer is there, where it was wanted, and right. */
static void read_layer(struct world *w, uint32_t layer, uint32_t blocks, uint32_t where)
{
	for (uint32_t group = 0; group <= GROUPS; group++) {
		struct tier_lease lease[BLOCKS];
		struct tier_selection all = { .blocks = w->block, .count = blocks,
					      .page = page_of(layer, group) };

		if (tier_lease_blocks(w->r, w->c, &all, lease) != (int)blocks)
			fail_msg("layer %u group %u is not all there", layer, group);
		for (uint32_t b = 0; b < blocks; b++) {
			const uint8_t *data = lease[b].data;

			assert_int_equal(lease[b].tier, where);
			for (uint32_t i = 0; i < lease[b].bytes; i += 509)
				assert_int_equal(data[i], byte_of(b, all.page));
		}
		tier_release_many(w->r, lease, blocks);
	}
}

static void stream_all(struct world *w, const struct tier_stream_options *o)
{
	struct tier_stream_progress p = { .size = sizeof(p) };
	tier_stream *s;

	assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS, o, &s), 0);
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		assert_int_equal(tier_stream_wait(s, layer, 0), BLOCKS);
		assert_true(tier_stream_ready(s) > layer);
		read_layer(w, layer, BLOCKS, o->tier);
		tier_stream_release(s, layer + 1);
	}
	/* The answer comes after the watermark. */
	for (int i = 0; i < PATIENCE_MS && !p.ended; i++) {
		assert_int_equal(tier_stream_look(s, &p), 0);
		usleep(1000);
	}
	assert_int_equal(p.ended, 1);
	assert_int_equal(p.result, 0);
	assert_int_equal(p.status, TIER_READY);
	assert_int_equal(p.layers, LAYERS);
	assert_int_equal(p.ready, LAYERS);
	assert_int_equal(p.usable, BLOCKS);
	assert_int_equal(p.whole, BLOCKS);
	tier_stream_close(s);
}

static void test_layers_come_in_order_and_go(void **state)
{
	struct world *w = *state;

	stream_all(w, STREAM(TIER_CXL));
	check(w);
	assert_int_equal(in_memory(w), 0);
	assert_int_equal(metric(w, "stream_bytes"), (uint64_t)BLOCKS * BLOCK_BYTES);
	assert_int_equal(metric(w, "stream_used"), (uint64_t)BLOCKS * BLOCK_BYTES);
	assert_int_equal(metric(w, "stream_wasted"), 0);
	assert_int_equal(metric(w, "streams_ready"), 1);
}

static void test_a_window_smaller_than_the_prefix_moves(void **state)
{
	struct world *w = *state;

	stream_all(w, STREAM(TIER_CXL, .window_bytes = 2 * BLOCKS * LAYER_BYTES));
	check(w);
	assert_int_equal(in_memory(w), 0);
}

static void test_layers_reach_hbm_through_cxl(void **state)
{
	struct world *w = *state;

	/* An eighth of HBM's 16 MiB: two layers of eight blocks fit. */
	struct tier_stream_progress p = { .size = sizeof(p) };
	tier_stream *s;

	assert_int_equal(tier_stream_open(w->c, w->block, 24, STREAM(TIER_HBM), &s), 0);
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		assert_int_equal(tier_stream_wait(s, layer, 0), 24);
		read_layer(w, layer, 24, TIER_HBM);
		tier_stream_release(s, layer + 1);
	}
	tier_stream_close(s);
	check(w);
	assert_int_equal(in_memory(w), 0);
}

/* ---- straight into HBM ----------------------------------------------------------------------- */

static int set_up_direct(void **state)
{
	static const char *const settings[] = { "hbm.direct=yes", "stream.again=1ms", NULL };

	return set_up_with(state, settings);
}

/* HALF of the blocks, layer by layer. */
static void stream_half_to_hbm(struct world *w)
{
	tier_stream *s;

	assert_int_equal(tier_stream_open(w->c, w->block, HALF, STREAM(TIER_HBM), &s), 0);
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		assert_int_equal(tier_stream_wait(s, layer, 0), HALF);
		read_layer(w, layer, HALF, TIER_HBM);
		tier_stream_release(s, layer + 1);
	}
	tier_stream_close(s);
	check(w);
}

static void stream_to_cxl_and_keep(struct world *w, uint32_t blocks)
{
	tier_stream *s;

	assert_int_equal(tier_stream_open(w->c, w->block, blocks,
					  STREAM(TIER_CXL, .mode = TIER_MODE_CACHE), &s), 0);
	assert_int_equal(tier_stream_wait(s, LAYERS - 1, 0), blocks);
	tier_stream_close(s);
	check(w);
}

/* What is on NVMe alone leaves nothing in CXL. */
static void test_layers_come_straight_into_hbm(void **state)
{
	struct world *w = *state;

	stream_half_to_hbm(w);
	assert_int_equal(in_memory(w), 0);
	assert_int_equal(metric(w, "direct_bytes"), (uint64_t)HALF * BLOCK_BYTES);
	assert_int_equal(metric(w, "promoted_bytes"), 0);
	assert_int_equal(metric(w, "stream_bytes"), (uint64_t)HALF * BLOCK_BYTES);
	assert_int_equal(metric(w, "stream_used"), (uint64_t)HALF * BLOCK_BYTES);
	assert_int_equal(metric(w, "path_failed"), 0);
}

/* What CXL has comes by either path, the rest straight; the cache keeps what it had. */
static void test_both_paths_lead_into_hbm(void **state)
{
	struct world *w = *state;
	uint64_t read, cached = HALF / 2;

	stream_to_cxl_and_keep(w, HALF / 2);
	read = metric(w, "read_bytes");
	stream_half_to_hbm(w);
	assert_int_equal(metric(w, "direct_bytes") + metric(w, "promoted_bytes"),
			 (uint64_t)HALF * BLOCK_BYTES);
	assert_true(metric(w, "direct_bytes") >= (HALF - cached) * BLOCK_BYTES);
	/* Nothing came twice. */
	assert_int_equal(metric(w, "read_bytes") - read, metric(w, "direct_bytes"));
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		read_layer(w, layer, HALF / 2, TIER_CXL);
}

static void test_close_takes_away_what_came_straight(void **state)
{
	struct world *w = *state;

	stream_to_cxl_and_keep(w, HALF / 2);
	for (uint32_t i = 0; i < 16; i++) {
		tier_stream *s;

		assert_int_equal(tier_stream_open(w->c, w->block, HALF, STREAM(TIER_HBM), &s), 0);
		if (i % 3) /* its window is two layers */
			assert_int_equal(tier_stream_wait(s, i % 3 - 1, 0), HALF);
		tier_stream_close(s);
	}
	check(w);
	stream_half_to_hbm(w);
	evict_all(w);
	assert_int_equal(in_memory(w), 0);
}

static void test_last_leases_release_their_layer(void **state)
{
	struct world *w = *state;
	struct tier_stream_progress p = { .size = sizeof(p) };
	struct tier_lease lease[GROUPS + 1][BLOCKS];
	tier_stream *s;

	/* Two layers at a time: without releases the third would never come. */
	assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS,
					  STREAM(TIER_CXL,
						 .window_bytes = 2 * BLOCKS * LAYER_BYTES), &s),
			 0);
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		assert_int_equal(tier_stream_wait(s, layer, 0), BLOCKS);
		for (uint32_t group = 0; group <= GROUPS; group++) {
			const struct tier_selection all = { .blocks = w->block, .count = BLOCKS,
							    .page = page_of(layer, group),
							    .flags = tier_stream_last(s) };

			assert_int_equal(tier_lease_blocks(w->r, w->c, &all, lease[group]),
					 BLOCKS);
		}
		for (uint32_t group = 0; group <= GROUPS; group++)
			tier_release_many(w->r, lease[group], BLOCKS);
	}
	while (!p.ended)
		assert_int_equal(tier_stream_look(s, &p), 0);
	assert_int_equal(p.status, TIER_READY);
	tier_stream_close(s);
	check(w);
	assert_int_equal(in_memory(w), 0);
	assert_int_equal(metric(w, "stream_used"), (uint64_t)BLOCKS * BLOCK_BYTES);
}

static void test_cache_mode_keeps_what_came(void **state)
{
	struct world *w = *state;

	stream_all(w, STREAM(TIER_CXL, .mode = TIER_MODE_CACHE));
	check(w);
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		read_layer(w, layer, BLOCKS, TIER_CXL);
}

static int set_up_small(void **state)
{
	static const char *const settings[] = { "cxl.size=20MiB", NULL };

	return set_up_with(state, settings);
}

/* A cache of 20 MiB keeps 10 of a prefix: the first blocks come, the rest is another stream's. */
static void test_cache_mode_brings_what_fits_of_a_long_prefix(void **state)
{
	struct world *w = *state;
	const uint32_t fits = (10u << 20) / BLOCK_BYTES;
	struct tier_stream_progress p = { .size = sizeof(p) };
	tier_stream *s;

	assert_true(fits < BLOCKS);
	assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS,
					  STREAM(TIER_CXL, .mode = TIER_MODE_CACHE), &s), 0);
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		assert_int_equal(tier_stream_wait(s, layer, 0), fits);
		read_layer(w, layer, fits, TIER_CXL);
	}
	while (!p.ended)
		assert_int_equal(tier_stream_look(s, &p), 0);
	assert_int_equal(p.status, TIER_MISSED);
	assert_int_equal(p.result, 0);
	assert_int_equal(p.whole, fits);
	tier_stream_close(s);
	assert_int_equal(tier_stream_open(w->c, w->block + fits, BLOCKS - fits,
					  STREAM(TIER_CXL, .mode = TIER_MODE_CACHE), &s), 0);
	assert_int_equal(tier_stream_wait(s, LAYERS - 1, 0), BLOCKS - fits);
	tier_stream_close(s);
	check(w);
}

static void test_twice_in_a_short_time_stays(void **state)
{
	struct world *w = *state;

	stream_all(w, STREAM(TIER_CXL));
	assert_int_equal(in_memory(w), 0);
	stream_all(w, STREAM(TIER_CXL));
	check(w);
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		read_layer(w, layer, BLOCKS, TIER_CXL);
}

static void test_a_joiner_keeps_what_the_first_lets_go(void **state)
{
	struct world *w = *state;
	tier_stream *a, *b;

	/* The pool is 8 MiB: half of the blocks fit into it whole, the joiner gets what is left. */
	assert_int_equal(tier_stream_open(w->c, w->block, HALF, STREAM(TIER_CXL), &a), 0);
	assert_int_equal(tier_stream_open(w->c, w->block, HALF / 3, STREAM(TIER_CXL), &b), 0);
	assert_int_equal(tier_stream_wait(a, LAYERS - 1, 0), HALF);
	assert_int_equal(tier_stream_wait(b, 1, 0), HALF / 3);
	tier_stream_release(a, LAYERS);
	tier_stream_close(a);
	usleep(20000);
	read_layer(w, 0, HALF / 3, TIER_CXL);
	read_layer(w, 1, HALF / 3, TIER_CXL);
	tier_stream_close(b);
	/* Each byte that both wanted came once. */
	assert_true(metric(w, "stream_joined") >= 2ull * HALF / 3 * LAYER_BYTES);
	check(w);
}

static void test_a_range_of_layers(void **state)
{
	struct world *w = *state;
	const struct tier_range range = { .part_first = 0, .part_count = 1, .layer_first = 3,
					  .layer_count = 2 };
	struct tier_stream_progress p = { .size = sizeof(p) };
	struct tier_lease lease;
	tier_stream *s;

	assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS, STREAM(TIER_CXL, .range = &range),
					  &s), 0);
	assert_int_equal(tier_stream_wait(s, 1, 0), BLOCKS);
	assert_int_equal(tier_stream_look(s, &p), 0);
	assert_int_equal(p.layers, 2);
	assert_int_equal(tier_lease_page(w->r, w->c, w->block[5], page_of(4, 1), 0, &lease), 0);
	assert_int_equal(*(const uint8_t *)lease.data, byte_of(5, page_of(4, 1)));
	tier_release(w->r, &lease);
	assert_int_equal(tier_lease_page(w->r, w->c, w->block[5], page_of(5, 1), 0, &lease),
			 -ENODATA);
	assert_int_equal(tier_stream_wait(s, 2, 0), -ENODATA);
	assert_non_null(strstr(tier_error_text(), "there is no layer 2, its last is 1"));
	tier_stream_close(s);
	check(w);
}

/* ---- endings --------------------------------------------------------------------------------- */

static void test_a_window_that_cannot_be_is_refused_by_its_size(void **state)
{
	struct world *w = *state;
	struct tier_stream_progress p = { .size = sizeof(p) };
	char need[32];
	tier_stream *s;

	/* Two layers of 48 blocks are 3.4 MB, an eighth of HBM 2 MiB. */
	snprintf(need, sizeof(need), "%u bytes", 2 * BLOCKS * LAYER_BYTES);
	assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS, STREAM(TIER_HBM), &s), 0);
	assert_int_equal(tier_stream_wait(s, 0, 0), -EMSGSIZE);
	assert_non_null(strstr(tier_error_text(), need));
	assert_int_equal(tier_stream_look(s, &p), 0);
	assert_int_equal(p.result, -EMSGSIZE);
	tier_stream_close(s);
	assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS,
					  STREAM(TIER_CXL, .window_bytes = 4096), &s), 0);
	assert_int_equal(tier_stream_wait(s, 0, 0), -EMSGSIZE);
	tier_stream_close(s);
	check(w);
}

static int set_up_long_hold(void **state)
{
	return set_up_with(state, (const char *const[]){ "stream.hold=600s", NULL });
}

static void test_a_deadline_ends_it_with_what_there_is(void **state)
{
	struct world *w = *state;
	struct tier_stream_options o = *STREAM(TIER_CXL, .window_bytes = 2 * BLOCKS * LAYER_BYTES);
	struct tier_stream_progress p = { .size = sizeof(p) };
	tier_stream *s;

	/* Nobody lets go of the first two layers (which may be late): the third never comes. */
	for (uint64_t patience_ns = 500 * NS_PER_MS;; patience_ns *= 2) {
		o.deadline_ns = time_now_ns() + patience_ns;
		assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS, &o, &s), 0);
		if (tier_stream_wait(s, 1, 0) == BLOCKS || patience_ns > 60 * NS_PER_S)
			break;
		tier_stream_close(s);
	}
	assert_int_equal(tier_stream_wait(s, 2, 0), -ENODATA);
	assert_non_null(strstr(tier_error_text(), "is late"));
	assert_true(time_now_ns() >= o.deadline_ns);
	assert_int_equal(tier_stream_look(s, &p), 0);
	assert_int_equal(p.ended, 1);
	assert_int_equal(p.status, TIER_LATE);
	assert_int_equal(p.ready, 2);
	assert_int_equal(p.usable, BLOCKS);
	assert_int_equal(p.whole, 0);
	/* What was promised is still there. */
	read_layer(w, 0, BLOCKS, TIER_CXL);
	read_layer(w, 1, BLOCKS, TIER_CXL);
	tier_stream_close(s);
	check(w);
	assert_int_equal(in_memory(w), 0);
	assert_int_equal(metric(w, "stream_wasted"), 2ull * BLOCKS * LAYER_BYTES);
}

static void test_close_takes_everything_away(void **state)
{
	struct world *w = *state;

	for (uint32_t i = 0; i < 50; i++) {
		tier_stream *s;

		assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS, STREAM(TIER_CXL), &s), 0);
		if (i % 5)
			usleep(i * 100);
		tier_stream_close(s);
	}
	check(w);
}

static void test_a_deleted_block_shortens_the_prefix(void **state)
{
	struct world *w = *state;
	struct tier_stream_progress p = { .size = sizeof(p) };
	tier_stream *s;

	assert_int_equal(tier_delete(w->c, &w->key[20], 1), 1);
	assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS, STREAM(TIER_CXL), &s), 0);
	assert_int_equal(tier_stream_wait(s, LAYERS - 1, 0), 20);
	read_layer(w, LAYERS - 1, 20, TIER_CXL);
	while (!p.ended)
		assert_int_equal(tier_stream_look(s, &p), 0);
	assert_int_equal(p.status, TIER_MISSED);
	assert_int_equal(p.whole, 20);
	tier_stream_close(s);
	check(w);
}

static int set_up_short_hold(void **state)
{
	static const char *const settings[] = { "stream.hold=50ms", NULL };

	return set_up_with(state, settings);
}

static void test_layers_nobody_releases_go_in_the_end(void **state)
{
	struct world *w = *state;
	tier_stream *s;

	assert_int_equal(tier_stream_open(w->c, w->block, HALF, STREAM(TIER_CXL), &s), 0);
	assert_int_equal(tier_stream_wait(s, LAYERS - 1, 0), HALF);
	assert_int_equal(in_memory(w), 0);
	assert_int_equal(metric(w, "streams_expired"), 1);
	tier_stream_close(s);
	check(w);
}

/* A lease outlives the stream that brought the page. */
static void test_a_lease_outlives_its_stream(void **state)
{
	struct world *w = *state;
	struct tier_lease lease;
	tier_stream *s;

	assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS, STREAM(TIER_CXL), &s), 0);
	assert_int_equal(tier_stream_wait(s, 0, 0), BLOCKS);
	assert_int_equal(tier_lease_page(w->r, w->c, w->block[7], page_of(0, 1), 0, &lease), 0);
	tier_stream_close(s);
	for (uint32_t i = 0; i < 20; i++) {
		/* Its own page waits for the reader; the others use the room. */
		assert_int_equal(tier_stream_open(w->c, w->block + 8, HALF, STREAM(TIER_CXL), &s),
				 0);
		assert_int_equal(tier_stream_wait(s, LAYERS - 1, 0), HALF);
		tier_stream_close(s);
		evict_all(w);
		for (uint32_t k = 0; k < PAGE; k++)
			assert_int_equal(((const uint8_t *)lease.data)[k],
					 byte_of(7, page_of(0, 1)));
	}
	tier_release(w->r, &lease);
	check(w);
}

/* ---- bad clients ----------------------------------------------------------------------------- */

static tier_stream *stream_some(struct world *w, uint32_t count)
{
	tier_stream *s;

	assert_int_equal(tier_stream_open(w->c, w->block, count, STREAM(TIER_CXL), &s), 0);
	return s;
}

/* Whatever the client writes into its line: its own stream suffers, nobody else's. */
static void test_nonsense_in_the_progress_line(void **state)
{
	static const uint64_t bad[] = { 0, UINT64_MAX, 1ull << 32, 0xffffffff, 7ull << 40 };
	struct world *w = *state;

	for (uint32_t i = 0; i < COUNT(bad) * 4; i++) {
		struct abi_stream *line;
		tier_stream *s, *good;

		good = stream_some(w, HALF / 2);
		s = stream_some(w, HALF / 2);
		line = (struct abi_stream *)(uintptr_t)s->line_word;
		if (i % 2)
			assert_int_equal(tier_stream_wait(s, 0, 0), HALF / 2);
		memset(line, (int)i * 37, sizeof(line->reserved0) + 24);
		line->wait = i * 0x01010101u;
		line->released = bad[i % COUNT(bad)] + i;
		usleep(1000);
		tier_stream_close(s);
		assert_int_equal(tier_stream_wait(good, LAYERS - 1, 0), HALF / 2);
		read_layer(w, LAYERS - 1, HALF / 2, TIER_CXL);
		tier_stream_release(good, LAYERS);
		tier_stream_close(good);
	}
	check(w);
}

/* A process that dies in the middle leaves nothing behind. */
static void test_a_client_dies_in_the_middle(void **state)
{
	struct world *w = *state;

	for (uint32_t i = 0; i < 8; i++) {
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			struct tier_connect_options o = { .size = sizeof(o),
							  .socket = w->d.socket };
			struct tier_found found[BLOCKS];
			tier_stream *s;
			tier_context *c;
			tier *t;

			if (tier_connect(&t, &o) || tier_context_open(t, "kv", NULL, &c) ||
			    tier_match(c, w->key, BLOCKS, found) != BLOCKS)
				_exit(1);
			for (uint32_t b = 0; b < BLOCKS; b++)
				w->block[b] = found[b].block;
			if (tier_stream_open(c, w->block, BLOCKS, STREAM(TIER_CXL), &s))
				_exit(2);
			if (i % 2 && tier_stream_wait(s, i / 2, 0) != BLOCKS)
				_exit(3);
			kill(getpid(), SIGKILL);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
	}
	check(w);
	stream_all(w, STREAM(TIER_CXL));
	check(w);
}

static void test_what_is_refused(void **state)
{
	struct world *w = *state;
	const struct tier_range past = { .part_first = 2, .part_count = 1 };
	tier_stream *s[33];
	struct tier_stream_options o = { .size = sizeof(o), .tier = TIER_NVME };
	int rc = 0, n;

	assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS, &o, s), -EINVAL);
	assert_int_equal(tier_stream_open(w->c, w->block, 0, NULL, s), -EINVAL);
	assert_int_equal(tier_stream_open(w->c, NULL, 4, NULL, s), -EINVAL);
	assert_int_equal(tier_stream_open(w->c, w->block, BLOCKS, STREAM(TIER_CXL, .mode = 2), s),
			 -EINVAL);
	assert_int_equal(tier_stream_open(w->c, w->block, 4, STREAM(TIER_CXL, .range = &past), s),
			 -EINVAL);
	assert_int_equal(tier_stream_ready(NULL), 0);
	assert_int_equal(tier_stream_wait(NULL, 0, 0), -EINVAL);
	tier_stream_release(NULL, 0);
	tier_stream_close(NULL);
	for (n = 0; n < 33 && !rc; n++)
		rc = tier_stream_open(w->c, w->block, 1, STREAM(TIER_CXL), &s[n]);
	assert_int_equal(rc, -EAGAIN);
	assert_int_equal(n, 33);
	while (n-- > 1)
		tier_stream_close(s[n - 1]);
	check(w);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_layers_come_in_order_and_go),
		TEST(test_a_window_smaller_than_the_prefix_moves),
		TEST(test_layers_reach_hbm_through_cxl),
		cmocka_unit_test_setup_teardown(test_layers_come_straight_into_hbm, set_up_direct,
						tear_down),
		cmocka_unit_test_setup_teardown(test_both_paths_lead_into_hbm, set_up_direct,
						tear_down),
		cmocka_unit_test_setup_teardown(test_close_takes_away_what_came_straight,
						set_up_direct, tear_down),
		TEST(test_last_leases_release_their_layer),
		TEST(test_cache_mode_keeps_what_came),
		cmocka_unit_test_setup_teardown(test_cache_mode_brings_what_fits_of_a_long_prefix,
						set_up_small, tear_down),
		TEST(test_twice_in_a_short_time_stays),
		TEST(test_a_joiner_keeps_what_the_first_lets_go),
		TEST(test_a_range_of_layers),
		TEST(test_a_window_that_cannot_be_is_refused_by_its_size),
		cmocka_unit_test_setup_teardown(test_a_deadline_ends_it_with_what_there_is,
						set_up_long_hold, tear_down),
		TEST(test_close_takes_everything_away),
		TEST(test_a_deleted_block_shortens_the_prefix),
		cmocka_unit_test_setup_teardown(test_layers_nobody_releases_go_in_the_end,
						set_up_short_hold, tear_down),
		TEST(test_a_lease_outlives_its_stream),
		TEST(test_nonsense_in_the_progress_line),
		TEST(test_a_client_dies_in_the_middle),
		TEST(test_what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
