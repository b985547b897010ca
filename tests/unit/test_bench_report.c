/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demo's report: the page holds the run's JSON and nothing that could end its element, needs no
 * other file, and a broken template is told.
 */
#include "bench/report/report.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEMPLATE "bench/report/template.html"

static struct trace_request request = { .input_tokens = 600, .id_count = 2 };
static uint64_t ids[] = { 1, 2 };

struct fixture {
	struct trace trace;
	struct replay replay;
	struct replay_sample sample[3];
	struct report_restart restart;
	json_t *status;
	struct report report;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	f->trace = (struct trace){ .request = &request,
				   .request_count = 1,
				   .id = ids,
				   .id_count = 2,
				   .block_tokens = 512,
				   .distinct = 2,
				   .reusable = 1 };
	f->replay = (struct replay){
		.trace = &f->trace,
		.set = { .layers = 3, .groups = 2, .page_bytes = 8192, .sidecar_bytes = 4096 },
		.engines = 2,
		.seconds = 1.5,
		.sample = f->sample,
		.sample_count = 3,
	};
	f->replay.total.requests = 1;
	f->replay.total.blocks = 2;
	f->replay.total.blocks_hit = 1;
	f->replay.total.read[TIER_CXL] = (struct engine_tier){ 9, 61440, 10000 };
	for (uint64_t i = 1; i <= 1000; i++) {
		hist_record(&f->replay.total.lease_one, i);
		f->sample[i % 3].seconds = (double)(i % 3);
	}
	f->status = json_pack("{s[{sssbsI}]}", "tiers", "tier", "cxl", "present", 1, "capacity",
			      (json_int_t)1 << 20);
	f->report = (struct report){ .replay = &f->replay,
				     .restart = &f->restart,
				     .trace_name = "</script><script>alert(1)</script>",
				     .commit = "abc",
				     .status = f->status };
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	json_decref(f->status);
	free(f);
	return 0;
}

static void test_json(void **state)
{
	struct fixture *f = *state;
	json_t *json = report_json(&f->report), *lease;

	assert_non_null(json);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(json, "totals"), "blocks_hit")),
		1);
	assert_int_equal(json_integer_value(
				 json_object_get(json_object_get(json, "settings"), "block_bytes")),
			 61440);
	lease = json_object_get(json_object_get(json, "lease"), "one");
	assert_in_range(json_integer_value(json_object_get(lease, "p50")), 490, 510);
	assert_int_equal(json_integer_value(json_object_get(lease, "max")), 1000);
	assert_int_equal(
		json_array_size(json_object_get(json_object_get(json, "series"), "seconds")), 3);
	json_decref(json);
	f->report.restart = NULL;
	f->report.status = NULL;
	json = report_json(&f->report);
	assert_true(json_is_null(json_object_get(json, "restart")));
	json_decref(json);
}

static char *read_file(const char *path)
{
	char *text = calloc(1, 1 << 20);
	FILE *f = fopen(path, "re");

	assert_non_null(text);
	assert_non_null(f);
	assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
	fclose(f);
	return text;
}

static void test_page(void **state)
{
	struct fixture *f = *state;
	const char *dir = getenv("TMPDIR");
	json_t *json = report_json(&f->report), *again;
	char path[256], *page, *begin, *end;

	snprintf(path, sizeof(path), "%s/report.html", dir ? dir : "/tmp");
	assert_int_equal(report_write_html(json, TEMPLATE, path), 0);
	page = read_file(path);
	assert_null(strstr(page, REPORT_MARKER));
	assert_null(strstr(page, "alert(1)</script>"));
	/* Nothing from elsewhere. */
	assert_null(strstr(page, "src="));
	assert_null(strstr(page, "<link"));
	assert_null(strstr(page, "@import"));
	assert_null(strstr(page, "url("));
	begin = strstr(page, "id=\"data\">");
	assert_non_null(begin);
	begin += strlen("id=\"data\">");
	end = strstr(begin, "</script>");
	again = json_loadb(begin, (size_t)(end - begin), 0, NULL);
	assert_non_null(again);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(again, "settings"), "trace")),
		f->report.trace_name);
	json_decref(again);
	json_decref(json);
	free(page);
	unlink(path);
}

static void test_broken_template(void **state)
{
	struct fixture *f = *state;
	json_t *json = report_json(&f->report);

	assert_int_equal(report_write_html(json, "/nonexistent", "/tmp/x.html"), -ENOENT);
	assert_int_equal(report_write_html(json, "LICENSE", "/tmp/x.html"), -EINVAL);
	assert_int_equal(report_write_html(json, TEMPLATE, "/nonexistent/x.html"), -ENOENT);
	assert_int_equal(report_write_json(json, "/nonexistent/x.json"), -ENOENT);
	json_decref(json);
}

static void test_table(void **state)
{
	struct fixture *f = *state;
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	report_table(&f->report, to);
	fclose(to);
	assert_non_null(strstr(text, "wrong: 0"));
	assert_non_null(strstr(text, "blocks hit 50.0%"));
	free(text);
}

/* All but a few is not 100 %, nor a few 0 %. */
static void test_shares_are_not_rounded_to_all_or_none(void **state)
{
	struct fixture *f = *state;
	struct engine_stats *t = &f->replay.total;
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	t->layers = 12029;
	t->layers_there = 12023;
	t->tokens = 10000;
	t->tokens_saved = 1;
	f->trace.reusable = f->trace.id_count;
	report_table(&f->report, to);
	fclose(to);
	assert_non_null(strstr(text, ">99.9% of 12029 layers"));
	assert_non_null(strstr(text, "saved (<0.1%)"));
	assert_non_null(strstr(text, "would be 100.0%"));
	free(text);
}

#define WITH_REPORT(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_REPORT(test_json),
		WITH_REPORT(test_page),
		WITH_REPORT(test_broken_template),
		WITH_REPORT(test_table),
		WITH_REPORT(test_shares_are_not_rounded_to_all_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
