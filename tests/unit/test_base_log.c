/*
 * Log lines as they arrive in a pipe: shape, levels, rate limit, and bytes from outside that try to
 * forge a line.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/log.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libtier/base/time.h"

#define TIME_LEN 24 /* 2026-01-31T12:00:00.123Z */

struct capture {
	int fds[2];
	struct log log;
	char text[8192];
};

static void begin(struct capture *c, enum log_level level)
{
	memset(c, 0, sizeof(*c));
	assert_int_equal(pipe2(c->fds, O_NONBLOCK), 0);
	c->log.level = level;
	c->log.fd = c->fds[1];
}

/* What was written since begin, without a closing newline. */
static const char *end(struct capture *c)
{
	ssize_t n = read(c->fds[0], c->text, sizeof(c->text) - 1);

	c->text[n > 0 ? n : 0] = '\0';
	close(c->fds[0]);
	close(c->fds[1]);
	return c->text;
}

static void test_shape(void **state)
{
	struct capture c;
	const char *line;

	(void)state;
	begin(&c, LOG_LEVEL_INFO);
	errno = EBADF;
	log_error(&c.log, "open failed", "/dev/x", "give tierd the group disk", "errno=%d size=%zu",
		  ENOENT, (size_t)7);
	assert_int_equal(errno, EBADF);
	line = end(&c);
	assert_int_equal(line[4], '-');
	assert_int_equal(line[TIME_LEN - 1], 'Z');
	assert_string_equal(line + TIME_LEN,
			    " error what=\"open failed\" object=\"/dev/x\""
			    " advice=\"give tierd the group disk\" errno=2 size=7\n");
}

static void test_optional_parts(void **state)
{
	struct capture c;

	(void)state;
	begin(&c, LOG_LEVEL_INFO);
	log_info(&c.log, "started", NULL, "");
	assert_string_equal(end(&c) + TIME_LEN, " info what=\"started\"\n");
}

static void test_levels(void **state)
{
	enum log_level level = LOG_LEVEL_WARN;
	struct capture c;

	(void)state;
	begin(&c, LOG_LEVEL_WARN);
	log_info(&c.log, "hidden", NULL, "");
	log_debug(&c.log, "hidden", NULL, "");
	log_warn(&c.log, "seen", NULL, NULL, "");
	assert_string_equal(end(&c) + TIME_LEN, " warn what=\"seen\"\n");
	assert_int_equal(log_level_parse("debug", &level), 0);
	assert_int_equal(level, LOG_LEVEL_DEBUG);
	assert_int_equal(log_level_parse("loud", &level), -EINVAL);
	assert_int_equal(level, LOG_LEVEL_DEBUG);
}

static void test_outside_bytes_cannot_forge_a_line(void **state)
{
	struct capture c;
	const char *line;

	(void)state;
	begin(&c, LOG_LEVEL_INFO);
	log_info(&c.log, "client named", "a\" error what=\"x\n2026 error\x1b[2J", "name=%s",
		 "b\nc");
	line = end(&c);
	assert_string_equal(line + TIME_LEN,
			    " info what=\"client named\""
			    " object=\"a' error what='x?2026 error?[2J\" name=b?c\n");
}

static void test_long_lines_are_cut(void **state)
{
	char big[3000];
	struct capture c;
	const char *line;

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	begin(&c, LOG_LEVEL_INFO);
	log_info(&c.log, "long", big, "also=%s", big);
	line = end(&c);
	assert_true(strlen(line) <= LOG_LINE_BYTES_MAX);
	assert_int_equal(line[strlen(line) - 1], '\n');
	assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

static void test_limit(void **state)
{
	struct log_limit limit = { 0 };
	uint64_t dropped = 99;

	(void)state;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(log_limit_pass(&limit, 3, 5, &dropped), i < 3);
		assert_int_equal(dropped, 0);
	}
	assert_true(log_limit_pass(&limit, 3, NS_PER_S, &dropped));
	assert_int_equal(dropped, 7);
	assert_true(log_limit_pass(&limit, 3, NS_PER_S + 1, &dropped));
	assert_int_equal(dropped, 0);
	for (int i = 0; i < 10; i++)
		assert_true(log_limit_pass(&limit, 0, NS_PER_S, &dropped));
}

static void test_limited_log_tells_what_it_dropped(void **state)
{
	struct capture c;
	const char *text;
	size_t lines = 0;

	(void)state;
	begin(&c, LOG_LEVEL_INFO);
	c.log.lines_per_s_max = 2;
	c.log.limit.dropped_count = 41;
	for (int i = 0; i < 10; i++)
		log_info(&c.log, "again", NULL, "");
	text = end(&c);
	assert_non_null(strstr(text, "dropped_lines=41\n"));
	for (const char *p = text; *p; p++)
		lines += *p == '\n';
	/* A second may have ended between two of the ten. */
	assert_true(lines == 2 || lines == 4 || lines == 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shape),
		cmocka_unit_test(test_optional_parts),
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_outside_bytes_cannot_forge_a_line),
		cmocka_unit_test(test_long_lines_are_cut),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_limited_log_tells_what_it_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
