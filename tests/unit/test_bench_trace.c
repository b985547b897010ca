/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace reader: the trace that ships, what is refused and with which line, damaged files, and
 * the counts of reuse.
 */
#include "bench/trace/trace.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define SHIPPED "bench/data/mooncake-conversation.jsonl.gz"

struct file {
	char path[256];
};

static void write_file(struct file *f, const void *bytes, size_t count)
{
	const char *dir = getenv("TMPDIR");
	FILE *to;

	snprintf(f->path, sizeof(f->path), "%s/trace", dir ? dir : "/tmp");
	to = fopen(f->path, "we");
	assert_non_null(to);
	assert_int_equal(fwrite(bytes, 1, count, to), count);
	assert_int_equal(fclose(to), 0);
}

static int open_text(const char *text, struct trace **out, char why[256])
{
	struct file f;
	int error;

	write_file(&f, text, strlen(text));
	error = trace_open(out, f.path, 0, why, 256);
	unlink(f.path);
	return error;
}

static void test_shipped(void **state)
{
	struct trace *t;
	char why[256];

	(void)state;
	assert_int_equal(trace_open(&t, SHIPPED, 0, why, sizeof(why)), 0);
	assert_int_equal(t->request_count, 12031);
	assert_int_equal(t->id_count, 288500);
	assert_int_equal(t->distinct, 182790);
	assert_int_equal(t->reusable, 105710);
	assert_int_equal(t->request[0].input_tokens, 6758);
	assert_int_equal(t->request[0].id_count, 14);
	assert_int_equal(t->request[12030].timestamp_ms, 3536999);
	trace_close(t);

	assert_int_equal(trace_open(&t, SHIPPED, 500, NULL, 0), 0);
	assert_int_equal(t->request_count, 500);
	assert_int_equal(t->distinct, 11879);
	trace_close(t);
}

#define LINE(ids) "{\"timestamp\":1,\"input_length\":600,\"output_length\":2,\"hash_ids\":" ids "}"

static void test_good_lines(void **state)
{
	struct trace *t;
	char why[256];

	(void)state;
	/* Blank lines, carriage returns and a last line without its end are fine. */
	assert_int_equal(open_text(LINE("[1,2]") "\r\n\n  \n" LINE("[1,3]"), &t, why), 0);
	assert_int_equal(t->request_count, 2);
	assert_int_equal(t->distinct, 3);
	assert_int_equal(t->reusable, 1);
	trace_close(t);
	assert_int_equal(open_text(LINE("[]") "\n" LINE("[7]"), &t, why), 0);
	assert_int_equal(t->request[0].id_count, 0);
	trace_close(t);
	/* A byte order mark before the first line is passed over, and nowhere else. */
	assert_int_equal(open_text("\xef\xbb\xbf" LINE("[4]"), &t, why), 0);
	assert_int_equal(t->id[0], 4);
	trace_close(t);
	assert_int_equal(open_text(LINE("[4]") "\n\xef\xbb\xbf" LINE("[4]"), &t, why), -EBADMSG);
	trace_close(NULL);
}

/* A prompt of a hundred thousand blocks, which is what a context of 50 M tokens has. */
static void test_long_prompt(void **state)
{
	enum { BLOCKS = 100000 };
	char *text = malloc(16 * BLOCKS), *at = text, why[256];
	struct trace *t;

	(void)state;
	assert_non_null(text);
	at += sprintf(at, "%s", "{\"timestamp\":1,\"input_length\":51200000,"
				"\"output_length\":2,\"hash_ids\":[0");
	for (int i = 1; i < BLOCKS; i++)
		at += sprintf(at, ",%d", 1000000 + i);
	sprintf(at, "]}\n");
	assert_int_equal(open_text(text, &t, why), 0);
	assert_int_equal(t->request[0].id_count, BLOCKS);
	assert_int_equal(t->id[BLOCKS - 1], 1000000 + BLOCKS - 1);
	trace_close(t);
	free(text);
}

/* A file without a block, a folder and a pipe that nobody fills are told apart from a trace. */
static void test_nothing_to_read(void **state)
{
	static const char *const texts[] = { "", "\n\n", LINE("[]"), "\xef\xbb\xbf" };
	char why[256], pipe[256];
	struct trace *t;

	(void)state;
	for (size_t i = 0; i < COUNT(texts); i++) {
		assert_int_equal(open_text(texts[i], &t, why), -EBADMSG);
		assert_non_null(strstr(why, "nothing to replay"));
	}
	assert_int_equal(trace_open(&t, "/", 0, why, sizeof(why)), -EISDIR);
	snprintf(pipe, sizeof(pipe), "%s/pipe", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_int_equal(mkfifo(pipe, 0600), 0);
	assert_int_equal(trace_open(&t, pipe, 0, why, sizeof(why)), -ETIMEDOUT);
	assert_non_null(strstr(why, "nobody writes"));
	unlink(pipe);
}

/* A block after one that is new is no hit, even if it was seen: its prefix is another. */
static void test_reuse_is_by_prefix(void **state)
{
	struct trace *t;
	char why[256];

	(void)state;
	assert_int_equal(open_text(LINE("[1,2,3]") "\n" LINE("[9,2,3]"), &t, why), 0);
	assert_int_equal(t->reusable, 0);
	trace_close(t);
}

/* As others write them: arrivals in seconds, with a point, and hashes that may be negative. */
static void test_traces_of_others(void **state)
{
	struct trace *t;
	char why[256];

	(void)state;
	assert_int_equal(open_text("{\"chat_id\":1,\"timestamp\":61.114,\"input_length\":521,"
				   "\"output_length\":132,\"turn\":2,\"hash_ids\":"
				   "[-9223372036854775808,-2,1]}\n" LINE("[1,-2]"), &t, why), 0);
	assert_int_equal(t->request[0].timestamp_ms, 61114);
	assert_int_equal(t->request[1].timestamp_ms, 1);
	assert_int_equal(t->distinct, 3);
	assert_int_equal(t->reusable, 2);
	trace_close(t);
}

/* Prompts of 1, 2, 3 ... blocks of so many tokens, the last one filled half. */
static void write_blocks(char *text, uint32_t prompts, uint32_t tokens)
{
	for (uint32_t i = 1; i <= prompts; i++) {
		text += sprintf(text, "{\"timestamp\":1,\"input_length\":%u,"
				      "\"output_length\":1,\"hash_ids\":[0",
				i * tokens - tokens / 2);
		for (uint32_t k = 1; k < i; k++)
			text += sprintf(text, ",%u", k);
		text += sprintf(text, "]}\n");
	}
}

/* What an id stands for the lengths tell; where they tell nothing it is what Mooncake has. */
static void test_tokens_of_a_block(void **state)
{
	static const uint32_t sizes[] = { 1, 16, 64, 128, 512, 1024, 8192 };
	char text[8192], why[256];
	struct trace *t;

	(void)state;
	for (size_t i = 0; i < COUNT(sizes); i++) {
		write_blocks(text, 20, sizes[i]);
		assert_int_equal(open_text(text, &t, why), 0);
		assert_int_equal(t->block_tokens, sizes[i]);
		trace_close(t);
	}
	/* Half of them of 16: too few to leave what Mooncake has. */
	write_blocks(text, 10, 16);
	write_blocks(text + strlen(text), 10, 2048);
	assert_int_equal(open_text(text, &t, why), 0);
	assert_int_equal(t->block_tokens, TRACE_BLOCK_TOKENS);
	trace_close(t);
	assert_int_equal(trace_open(&t, SHIPPED, 0, why, sizeof(why)), 0);
	assert_int_equal(t->block_tokens, TRACE_BLOCK_TOKENS);
	trace_close(t);
}

static void test_refused(void **state)
{
	static const char *const texts[] = {
		"nonsense",
		"[]",
		"{}",
		"{\"timestamp\":1}",
		"{\"timestamp\":-1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[]}",
		"{\"timestamp\":1,\"input_length\":4294967296,\"output_length\":1,\"hash_ids\":[]}",
		"{\"timestamp\":1,\"input_length\":\"1\",\"output_length\":1,\"hash_ids\":[]}",
		"{\"timestamp\":1,\"input_length\":1.5,\"output_length\":1,\"hash_ids\":[]}",
		LINE("{}"),
		"{\"timestamp\":-1.5,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}",
		"{\"timestamp\":1e300,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}",
		LINE("[1,2.5]"),
		LINE("[1,-1]"),
		LINE("[1,\"2\"]"),
		LINE("[1,null]"),
		LINE("[1,2"),
		LINE("[1e30]"),
		LINE("[99999999999999999999999]"),
		(LINE("[1]") " trailing"),
		("{\"timestamp\":1,\"timestamp\":1,\"input_length\":1,\"output_length\":1,"
		 "\"hash_ids\":[]}"),
	};
	char text[512], why[256];
	struct trace *t;

	(void)state;
	for (size_t i = 0; i < COUNT(texts); i++) {
		t = (struct trace *)1;
		snprintf(text, sizeof(text), "%s\n%s\n", LINE("[1]"), texts[i]);
		assert_int_equal(open_text(text, &t, why), -EBADMSG);
		assert_null(t);
		assert_non_null(strstr(why, "line 2"));
	}
	assert_int_equal(trace_open(&t, "/nonexistent/file", 0, why, sizeof(why)), -ENOENT);
	assert_int_equal(trace_open(&t, "/nonexistent/file", 0, NULL, 0), -ENOENT);
}

static void test_too_long(void **state)
{
	size_t bytes = TRACE_LINE_BYTES_MAX + 100;
	char *text = malloc(bytes + 1), why[256];
	struct trace *t;

	(void)state;
	assert_non_null(text);
	memset(text, ' ', bytes);
	text[bytes] = '\0';
	assert_int_equal(open_text(text, &t, why), -E2BIG);
	free(text);
	/* Deep nesting is refused by the parser, not by the stack. */
	text = malloc(200001);
	assert_non_null(text);
	memset(text, '[', 200000);
	text[200000] = '\0';
	assert_int_equal(open_text(text, &t, why), -EBADMSG);
	free(text);
}

/* Cut off and bent anywhere: an error or fewer requests, and never more than that. */
static void test_damaged_file(void **state)
{
	char text[4096] = "", why[256];
	unsigned char packed[4096];
	uLongf packed_bytes = 0;
	z_stream z = { 0 };
	struct trace *t;
	struct file f;

	(void)state;
	for (int i = 0; i < 20; i++)
		strcat(text, LINE("[1,2,3]") "\n");
	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (Bytef *)text;
	z.avail_in = (uInt)strlen(text);
	z.next_out = packed;
	z.avail_out = sizeof(packed);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	packed_bytes = z.total_out;
	deflateEnd(&z);

	for (size_t cut = 2; cut < packed_bytes; cut++) {
		write_file(&f, packed, cut);
		assert_int_equal(trace_open(&t, f.path, 0, why, sizeof(why)), -EBADMSG);
	}
	for (size_t at = 2; at < packed_bytes; at++) {
		packed[at] ^= 0x40;
		write_file(&f, packed, packed_bytes);
		if (trace_open(&t, f.path, 0, why, sizeof(why)) == 0) {
			/* A bit of the header that says nothing. */
			assert_int_equal(t->request_count, 20);
			trace_close(t);
		}
		packed[at] ^= 0x40;
	}
	unlink(f.path);
}

static void test_keys(void **state)
{
	struct trace *t;
	tier_key a, b, keys[3];
	char why[256];

	(void)state;
	assert_int_equal(trace_key(&a, 1), 0);
	assert_int_equal(trace_key(&b, 2), 0);
	assert_memory_not_equal(&a, &b, sizeof(a));
	assert_int_equal(open_text(LINE("[5,1,2]"), &t, why), 0);
	assert_int_equal(trace_keys(keys, t, &t->request[0]), 0);
	assert_memory_equal(&keys[1], &a, sizeof(a));
	assert_memory_equal(&keys[2], &b, sizeof(b));
	trace_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shipped),
		cmocka_unit_test(test_good_lines),
		cmocka_unit_test(test_long_prompt),
		cmocka_unit_test(test_nothing_to_read),
		cmocka_unit_test(test_reuse_is_by_prefix),
		cmocka_unit_test(test_traces_of_others),
		cmocka_unit_test(test_tokens_of_a_block),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_damaged_file),
		cmocka_unit_test(test_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
