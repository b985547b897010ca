/* SPDX-License-Identifier: Apache-2.0 */
/* Weights part by part: in the order of layers, by a plan, and tables that lie. */
#include "tests/integration/object_world.h"

#define PARTS 6u
#define PART_BYTES (5 * MIB / 2)

static void put_table(struct world *w, const char *text)
{
	tier_object *o;

	assert_int_equal(tier_object_create(w->t, "files", "model/tensors", NULL, &o), 0);
	assert_int_equal(write_all(tier_object_fd(o), (const uint8_t *)text, strlen(text)), 0);
	assert_int_equal(tier_object_commit(o), 0);
}

static void put_weights(struct world *w)
{
	char name[32], text[512];
	size_t used = (size_t)snprintf(text, sizeof(text), "tier weights 1 %u\n", PARTS);

	for (uint32_t i = 0; i < PARTS; i++) {
		snprintf(name, sizeof(name), "model/%04u", i);
		assert_int_equal(put(w->t, "files", name, PART_BYTES, i), 0);
		used += (size_t)snprintf(text + used, sizeof(text) - used, "part %u %u %u\n", i,
					 i + 7, PART_BYTES);
	}
	put_table(w, text);
}

/* Twice of what there is memory for, pass after pass; ahead of the reader, within the window. */
static void test_weights_stream(void **state)
{
	const struct tier_object_stream_options options = {
		.size = sizeof(options), .window_bytes = 2 * PART_BYTES,
		.flags = TIER_OBJECT_STREAM_AGAIN,
	};
	uint8_t *want = malloc(PART_BYTES);
	struct world *w = *state;
	struct tier_object_part part;
	struct tier_object_info info;
	tier_object_stream *s;
	int ready = 0;

	put_weights(w);
	assert_int_equal(tier_object_stream_open(w->t, "files", "model", &options, &s), 0);
	for (uint32_t i = 0; i < 4 * PARTS; i++) {
		assert_int_equal(tier_object_stream_next(s, 0, &part), 0);
		fill(want, PART_BYTES, i % PARTS);
		assert_int_equal(part.part, i % PARTS);
		assert_int_equal(part.layer, i % PARTS + 7);
		assert_int_equal(part.bytes, PART_BYTES);
		assert_memory_equal(part.data, want, PART_BYTES);
		/* Memory is for three: the window comes without being waited for. */
		for (int k = 0; k < 5000 && ready != 2; k++, usleep(1000))
			ready = tier_object_stream_ready(s);
		assert_int_equal(ready, 2);
		ready = 0;
	}
	tier_object_stream_close(s);
	assert_int_equal(tier_object_stream_open(w->t, "files", "model", NULL, &s), 0);
	for (uint32_t i = 0; i < PARTS; i++)
		assert_int_equal(tier_object_stream_next(s, 0, &part), 0);
	assert_int_equal(tier_object_stream_next(s, 0, &part), -ENODATA);
	tier_object_stream_close(s);
	/* What was read last makes room: the next pass finds the first one. */
	assert_int_equal(tier_object_stat(w->t, "files", "model/0000", &info), 0);
	assert_true(info.flags & TIER_OBJECT_RESIDENT);
	assert_int_equal(tier_object_stat(w->t, "files", "model/0003", &info), 0);
	assert_false(info.flags & TIER_OBJECT_RESIDENT);
	free(want);
}

#define EXPERTS 12u
#define EXPERT_BYTES (3 * MIB / 2)
#define STEPS 240u

static void read_in_order(struct world *w, const uint32_t *order, uint32_t count)
{
	struct tier_object_stream_options options = { .size = sizeof(options), .window_bytes = 1,
						      .order = order, .order_count = count };
	struct tier_object_part part;
	tier_object_stream *s;

	assert_int_equal(tier_object_stream_open(w->t, "files", "model", &options, &s), 0);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(tier_object_stream_next(s, 0, &part), 0);
		assert_int_equal(part.part, order[i]);
		assert_int_equal(*(const uint8_t *)part.data, order[i]);
	}
	assert_int_equal(tier_object_stream_next(s, 0, &part), -ENODATA);
	tier_object_stream_close(s);
}

/* The same by opens, which say nothing of what is next. */
static void read_as_it_comes(struct world *w, const uint32_t *order, uint32_t count)
{
	char name[32];

	for (uint32_t i = 0; i < count; i++) {
		int fd;

		snprintf(name, sizeof(name), "model/%04u", order[i]);
		fd = tier_object_open(w->t, "files", name, 0);
		assert_true(fd >= 0);
		close(fd);
	}
}

/* What the best of all orders would bring, where so many have room. */
static uint64_t belady(const uint32_t *order, uint32_t count, uint32_t room)
{
	bool here[EXPERTS] = { false };
	uint32_t used = 0;
	uint64_t n = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t far = 0, victim = 0;

		if (here[order[i]])
			continue;
		n++;
		for (uint32_t e = 0; e < EXPERTS && used == room; e++) {
			uint32_t due = i;

			while (due < count && order[due] != e)
				due++;
			if (here[e] && due >= far) {
				far = due;
				victim = e;
			}
		}
		if (used == room)
			here[victim] = false;
		else
			used++;
		here[order[i]] = true;
	}
	return n;
}

/* Experts as a router chooses them, some more often, and memory for 5 of 12: the plan knows all. */
static void test_a_plan_of_experts(void **state)
{
	uint32_t order[STEPS], wrong[2] = { 0, EXPERTS };
	struct tier_object_stream_options options = { .size = sizeof(options), .order = wrong,
						      .order_count = 2 };
	uint8_t *data = malloc(EXPERT_BYTES);
	char name[32], text[512];
	size_t used = (size_t)snprintf(text, sizeof(text), "tier weights 1 %u\n", EXPERTS);
	struct rng rng = { 22 };
	struct world *w = *state;
	uint64_t from, plan, blind, best;
	tier_object_stream *s;

	for (uint32_t i = 0; i < EXPERTS; i++) {
		tier_object *o;

		snprintf(name, sizeof(name), "model/%04u", i);
		memset(data, (int)i, EXPERT_BYTES);
		assert_int_equal(tier_object_create(w->t, "files", name, NULL, &o), 0);
		assert_int_equal(write_all(tier_object_fd(o), data, EXPERT_BYTES), 0);
		assert_int_equal(tier_object_commit(o), 0);
		used += (size_t)snprintf(text + used, sizeof(text) - used, "part %u 1 %u\n", i,
					 EXPERT_BYTES);
	}
	free(data);
	put_table(w, text);
	for (uint32_t i = 0; i < STEPS; i++)
		order[i] = (uint32_t)(rng_next(&rng) % (1 + rng_next(&rng) % EXPERTS));
	from = status(w, "brought");
	read_as_it_comes(w, order, STEPS);
	blind = status(w, "brought") - from;
	from = status(w, "brought");
	read_in_order(w, order, STEPS);
	plan = status(w, "brought") - from;
	best = belady(order, STEPS, 5);
	print_message("# of %u reads of experts %u are brought, by a plan %u, at best %u\n", STEPS,
		      (unsigned)blind, (unsigned)plan, (unsigned)best);
	assert_true(plan < blind && plan <= best + best / 4);
	assert_int_equal(tier_object_stream_open(w->t, "files", "model", &options, &s), -EINVAL);
	options.order = NULL;
	assert_int_equal(tier_object_stream_open(w->t, "files", "model", &options, &s), -EINVAL);
}

static void test_tables_that_lie(void **state)
{
	static const char *const texts[] = {
		"", "tier weights 2 1\npart 0 0 1\n", "tier weights 1 0\n",
		"tier weights 1 99999\n", "tier weights 1 2\npart 0 0 5\n",
		"tier weights 1 1\npart 1 0 5\n", "tier weights 1 1\npart 0 0\n",
	};
	struct world *w = *state;
	struct tier_object_part part;
	tier_object_stream *s;

	assert_int_equal(tier_object_stream_open(w->t, "files", "model", NULL, &s), -ENOENT);
	for (uint32_t i = 0; i < COUNT(texts); i++) {
		put_table(w, texts[i]);
		assert_int_equal(tier_object_stream_open(w->t, "files", "model", NULL, &s),
				 -EBADMSG);
	}
	put_table(w, "tier weights 1 1\npart 0 0 5\n");
	assert_int_equal(tier_object_stream_open(w->t, "files", "model", NULL, &s), 0);
	assert_int_equal(tier_object_stream_next(s, 0, &part), -ENOENT);
	assert_int_equal(put(w->t, "files", "model/0000", 4, 1), 0);
	assert_int_equal(tier_object_stream_next(s, 0, &part), -ESTALE);
	assert_int_equal(put(w->t, "files", "model/0000", 5, 1), 0);
	assert_int_equal(tier_object_stream_next(s, 0, &part), 0);
	tier_object_stream_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_weights_stream, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_plan_of_experts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tables_that_lie, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
