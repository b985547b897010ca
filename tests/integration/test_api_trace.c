/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tierctl trace` of a daemon at work: the file is JSON as Perfetto reads it, times never go back,
 * each span begins once and ends once behind that, and there are as many of each kind, with as
 * many bytes, as the counters of `tierctl stat` rose by. Beside it: one trace at a time, and what
 * becomes of its memory.
 */
#include "tests/integration/kv_world.h"

#include <jansson.h>

#define BLOCKS 24u

static uint64_t stat_of(struct world *w, const char *name)
{
	char *reply;
	json_t *all, *one;
	uint64_t value = UINT64_MAX;
	size_t i;

	assert_int_equal(tier_admin(w->t, "stat", NULL, &reply), 0);
	all = json_loads(reply, 0, NULL);
	free(reply);
	json_array_foreach(json_object_get(all, "metrics"), i, one)
		if (!strcmp(json_string_value(json_object_get(one, "name")), name))
			value = (uint64_t)json_integer_value(json_object_get(one, "value"));
	json_decref(all);
	assert_true(value != UINT64_MAX);
	return value;
}

/* What a trace says of one kind, or of the requests of one operation. */
struct sum {
	const char *cat, *name, *arg;
	uint64_t count, total;
};

static void add(struct sum *s, const json_t *event)
{
	const json_t *args = json_object_get(event, "args");

	if (strcmp(s->cat, json_string_value(json_object_get(event, "cat"))) ||
	    (s->name && strcmp(s->name, json_string_value(json_object_get(event, "name")))))
		return;
	s->count++;
	if (s->arg)
		s->total += (uint64_t)json_integer_value(json_object_get(args, s->arg));
}

/* Each begin has its end behind it; sums count begins and marks. */
static void look(const json_t *trace, struct sum *sums, size_t count)
{
	static char open[1u << 16];
	double before = 0;
	json_t *event;
	size_t i;

	memset(open, 0, sizeof(open));
	json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
		const char *ph = json_string_value(json_object_get(event, "ph"));
		json_int_t id = json_integer_value(json_object_get(event, "id"));
		double ts = json_number_value(json_object_get(event, "ts"));

		if (*ph == 'M')
			continue;
		assert_true(ts >= before);
		before = ts;
		assert_in_range(id, 0, sizeof(open) - 1);
		if (*ph == 'e') {
			assert_int_equal(open[id], 1);
			open[id] = 2;
			continue;
		}
		assert_true(*ph == 'i' || (*ph == 'b' && !open[id]));
		open[id] = *ph == 'b' ? 1 : open[id];
		for (size_t k = 0; k < count; k++)
			add(&sums[k], event);
	}
	assert_null(memchr(open, 1, sizeof(open)));
}

static FILE *begin(const struct world *w, const char *words)
{
	const char *build = getenv("BUILD");
	char command[512];
	FILE *out;

	snprintf(command, sizeof(command), "exec %s/tierctl --socket %s trace %s 2>&1",
		 build ? build : "build/plain", w->d.socket, words);
	out = popen(command, "re");
	assert_non_null(out);
	return out;
}

/* Its exit status; what it said. */
static int end(FILE *out, char text[1024])
{
	size_t n = fread(text, 1, 1023, out);

	text[n] = '\0';
	return WEXITSTATUS(pclose(out));
}

/* Until one is being taken. */
static void begun(struct world *w)
{
	uint64_t give_up = time_now_ns() + PATIENCE_MS * NS_PER_MS;
	char *reply;

	while (tier_admin(w->t, "trace", "{\"from\":0}", &reply)) {
		assert_true(time_now_ns() < give_up);
		usleep(5000);
	}
	free(reply);
}

/* Everything that leaves a record: stored, evicted, fetched, streamed, moved. */
static void work(struct world *w)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_DURABLE };
	struct tier_stream_options ask = { .size = sizeof(ask), .tier = TIER_HBM };
	uint8_t *data = calloc(BLOCKS, BLOCK_BYTES);
	struct tier_found found[BLOCKS];
	tier_block block[BLOCKS];
	uint32_t token[BLOCKS];
	tier_key key[BLOCKS];
	tier_stream *s;
	char *reply;

	for (uint32_t i = 0; i < BLOCKS; i++)
		token[i] = i;
	assert_int_equal(tier_key_chain(key, NULL, NULL, token, BLOCKS, 1), 0);
	assert_int_equal(tier_put_copy(w->c, key, BLOCKS, data, &o), BLOCKS);
	free(data);
	assert_int_equal(tier_match(w->c, key, BLOCKS, found), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		block[i] = found[i].block;
	assert_int_equal(tier_fetch(w->c, block, 4, ASK(TIER_HBM)), 4);
	for (int cxl = 0; cxl < 2; cxl++) {
		assert_int_equal(tier_admin(w->t, "evict", cxl ?
					    "{\"context\":\"kv\",\"tier\":\"cxl\"}" :
					    "{\"context\":\"kv\",\"tier\":\"hbm\"}", &reply), 0);
		free(reply);
	}
	assert_int_equal(tier_fetch(w->c, block, 8, ASK(TIER_HBM)), 8);
	assert_int_equal(tier_stream_open(w->c, block + 8, 8, &ask, &s), 0);
	assert_int_equal(tier_stream_wait(s, 1, 0), 8); /* its last layer */
	tier_stream_close(s);
	assert_int_equal(tier_migrate(w->c, block, 2, ASK(TIER_NVME, .user_data = 9)), 0);
	assert_int_equal(tier_drain(w->t), 0);
}

static void test_spans_are_what_was_counted(void **state)
{
	static const char *const names[] = { "requests", "streams", "syncs", "fences", "retired",
					     "read_bytes", "put_bytes", "evicted_hbm",
					     "evicted_cxl", "requests_failed" };
	struct sum sums[] = {
		{ .cat = "request" }, { .cat = "request", .name = "stream" }, { .cat = "flush" },
		{ .cat = "fence", .arg = "pages" }, { .cat = "read", .arg = "bytes" },
		{ .cat = "copy", .arg = "bytes" }, { .cat = "evict", .arg = "hbm" },
		{ .cat = "evict", .arg = "cxl" }, { .cat = "write" },
	};
	enum { REQUEST, STREAM, FLUSH, FENCE, READ, COPY, EVICT_HBM, EVICT_CXL, WRITE };
	struct world *w = world_begin(NULL);
	uint64_t was[COUNT(names)], rose[COUNT(names)];
	char words[256], file[160], text[1024];
	json_t *trace, *other;
	FILE *out;

	*state = w;
	snprintf(file, sizeof(file), "%.140s/trace.json", w->d.folder);
	snprintf(words, sizeof(words), "--seconds 3 -o %s", file);
	out = begin(w, words);
	begun(w);
	for (size_t i = 0; i < COUNT(names); i++)
		was[i] = stat_of(w, names[i]);
	work(w);
	assert_int_equal(tier_admin(w->t, "trace", "{\"seconds\":1}", &(char *){ NULL }), -EBUSY);
	if (end(out, text))
		fail_msg("%s", text);
	for (size_t i = 0; i < COUNT(names); i++)
		rose[i] = stat_of(w, names[i]) - was[i];
	trace = json_load_file(file, 0, NULL);
	assert_non_null(trace);
	other = json_object_get(trace, "otherData");
	assert_int_equal(json_integer_value(json_object_get(other, "unpaired")), 0);
	assert_int_equal(json_integer_value(json_object_get(other, "lost")), 0);
	look(trace, sums, COUNT(sums));
	json_decref(trace);
	assert_int_equal(sums[REQUEST].count, rose[0]);
	assert_int_equal(sums[STREAM].count, rose[1]);
	assert_int_equal(sums[STREAM].count, 1);
	assert_int_equal(sums[FLUSH].count, rose[2]);
	assert_int_equal(sums[FENCE].count, rose[3]);
	assert_int_equal(sums[FENCE].total, rose[4]);
	assert_int_equal(sums[READ].total, rose[5]);
	assert_true(sums[READ].total >= 16u * BLOCK_BYTES);
	assert_true(sums[COPY].total >= rose[6] && rose[6] >= BLOCKS * BLOCK_BYTES);
	assert_int_equal(sums[EVICT_HBM].total, rose[7]);
	assert_int_equal(sums[EVICT_CXL].total, rose[8]);
	assert_true(sums[EVICT_CXL].total >= BLOCKS * BLOCK_PAGES && sums[WRITE].count > 0);
	assert_int_equal(tier_admin(w->t, "trace", "{\"from\":0}", &(char *){ NULL }), -ENOENT);
}

static void test_what_is_refused(void **state)
{
	static const char *const wrong[] = { "{}", "{\"seconds\":0}", "{\"seconds\":601}",
					     "{\"seconds\":\"9\"}", "{\"from\":-1}",
					     "{\"end\":false}" };
	struct world *w = world_begin(NULL);
	char text[1024], *reply;

	*state = w;
	for (size_t i = 0; i < COUNT(wrong); i++)
		assert_int_equal(tier_admin(w->t, "trace", wrong[i], &reply), -EINVAL);
	assert_int_equal(end(begin(w, ""), text), 2);
	assert_non_null(strstr(text, "-o FILE"));
	assert_int_equal(end(begin(w, "--seconds 0 -o x"), text), 2);
	assert_int_equal(end(begin(w, "--seconds 1 -o /nonexistent/x"), text), 1);
	assert_non_null(strstr(text, "/nonexistent/x: No such file"));
	/* One that nobody reads is in nobody's way. */
	assert_int_equal(tier_admin(w->t, "trace", "{\"seconds\":1}", &reply), 0);
	free(reply);
	assert_int_equal(end(begin(w, "--seconds 1 -o -"), text), 1);
	assert_non_null(strstr(text, "one is being taken"));
	sleep(1);
	assert_int_equal(end(begin(w, "--seconds 1 -o -"), text), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_spans_are_what_was_counted, world_end),
		cmocka_unit_test_teardown(test_what_is_refused, world_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
