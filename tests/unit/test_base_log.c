/*
 * Log lines as they arrive in a pipe: shape, time, levels, rate limit, bytes from outside that try
 * to forge a line, and a reader who takes them piece by piece.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/log.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/time.h"

#define TIME_LEN 24 /* 2026-01-31T12:00:00.123Z */

static uint32_t piecemeal; /* calls of write that were interrupted or cut short; 0 = none is */

/* In the place of the library's: a descriptor that takes little at a time. */
ssize_t write(int fd, const void *buf, size_t bytes)
{
	if (piecemeal && piecemeal++ % 2) {
		errno = EINTR;
		return -1;
	}
	return syscall(SYS_write, fd, buf, piecemeal && bytes > 7 ? 7 : bytes);
}

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

static void test_a_line_in_pieces(void **state)
{
	struct capture c;

	(void)state;
	begin(&c, LOG_LEVEL_INFO);
	piecemeal = 1;
	errno = EBADF;
	log_info(&c.log, "started", NULL, "a=%d b=%d c=%d", 1, 22, 333);
	assert_int_equal(errno, EBADF);
	assert_true(piecemeal > 5);
	piecemeal = 0;
	assert_string_equal(end(&c) + TIME_LEN, " info what=\"started\" a=1 b=22 c=333\n");
}

static uint64_t wall_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* UTC, to the millisecond; over a whole second, so that each digit of these counts. */
static void test_the_time_is_right(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 10; i++) {
		uint64_t before = wall_ms(), after, told;
		struct tm at = { 0 };
		struct capture c;
		int ms;

		begin(&c, LOG_LEVEL_INFO);
		log_info(&c.log, "x", NULL, "");
		after = wall_ms();
		assert_int_equal(sscanf(end(&c), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &at.tm_year,
					&at.tm_mon, &at.tm_mday, &at.tm_hour, &at.tm_min,
					&at.tm_sec, &ms), 7);
		at.tm_year -= 1900;
		at.tm_mon--;
		told = (uint64_t)timegm(&at) * 1000 + (uint64_t)ms;
		assert_in_range(told, before, after);
		usleep(101000);
	}
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
	log_info(&c.log, "client named", "a\" error what=\"x\n2026 error\x1b[2J\x7f", "name=%s",
		 "b\nc");
	line = end(&c);
	assert_string_equal(line + TIME_LEN,
			    " info what=\"client named\""
			    " object=\"a' error what='x?2026 error?[2J?\" name=b?c\n");
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
		cmocka_unit_test(test_a_line_in_pieces),
		cmocka_unit_test(test_the_time_is_right),
		cmocka_unit_test(test_optional_parts),
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_outside_bytes_cannot_forge_a_line),
		cmocka_unit_test(test_long_lines_are_cut),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_limited_log_tells_what_it_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
