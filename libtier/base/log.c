/*
 * Structured log; see log.h for the contract. No allocation and no lock: a line is built on the
 * stack and leaves in one write(2).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/time.h"

static const char *const level_names[] = { "error", "warn", "info", "debug" };

struct line {
	size_t len;
	char text[LOG_LINE_BYTES_MAX];
};

/* Appends as much as fits; the last byte is kept for the newline. */
static void append(struct line *line, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void append_list(struct line *line, const char *format, va_list args)
	__attribute__((format(printf, 2, 0)));

static void append_list(struct line *line, const char *format, va_list args)
{
	size_t room = sizeof(line->text) - 1 - line->len;
	int len = vsnprintf(line->text + line->len, room, format, args);

	if (len > 0)
		line->len += (size_t)len < room ? (size_t)len : room - 1;
}

static void append(struct line *line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	append_list(line, format, args);
	va_end(args);
}

/* Bytes from outside become harmless: no line breaks, no escapes for the terminal. */
static void disarm(struct line *line, size_t from, bool quotes_too)
{
	for (size_t i = from; i < line->len; i++) {
		unsigned char c = (unsigned char)line->text[i];

		if (c < 0x20 || c == 0x7f)
			line->text[i] = '?';
		else if (quotes_too && c == '"')
			line->text[i] = '\'';
	}
}

static void append_quoted(struct line *line, const char *name, const char *value)
{
	size_t from;

	if (!value)
		return;
	append(line, " %s=\"", name);
	from = line->len;
	append(line, "%s", value);
	disarm(line, from, true);
	append(line, "\"");
}

static void append_time(struct line *line)
{
	struct timespec now;
	struct tm utc;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	append(line, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
	       utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, (int)(now.tv_nsec / 1000000));
}

bool log_limit_pass(struct log_limit *limit, uint32_t lines_per_s_max, uint64_t now_ns,
		    uint64_t *dropped)
{
	/* Plus one, so that a zero-filled limit is never in its second. */
	uint64_t second = now_ns / NS_PER_S + 1;

	*dropped = 0;
	if (lines_per_s_max == 0)
		return true;
	if (atomic_load_relaxed_u64(&limit->second) != second) {
		/* Two threads may both begin the second; the budget is then a few lines larger. */
		atomic_store_relaxed_u64(&limit->second, second);
		atomic_store_relaxed_u64(&limit->line_count, 0);
	}
	if (atomic_add_relaxed_u64(&limit->line_count, 1) >= lines_per_s_max) {
		atomic_add_relaxed_u64(&limit->dropped_count, 1);
		return false;
	}
	if (atomic_load_relaxed_u64(&limit->dropped_count) > 0)
		*dropped = atomic_exchange_u64(&limit->dropped_count, 0);
	return true;
}

static void write_line(int fd, struct line *line)
{
	const char *at = line->text;
	size_t left;

	line->text[line->len++] = '\n';
	left = line->len;
	while (left > 0) {
		ssize_t n = write(fd, at, left);

		/* A log that cannot be written has nobody to tell. */
		if (n < 0 && errno != EINTR)
			return;
		if (n > 0) {
			at += n;
			left -= (size_t)n;
		}
	}
}

void log_event(struct log *log, enum log_level level, const char *what, const char *object,
	       const char *advice, const char *format, ...)
{
	int saved = errno;
	uint64_t dropped = 0;
	struct line line;
	size_t from;
	va_list args;

	if (level > (log ? log->level : LOG_LEVEL_INFO))
		return;
	if (log && !log_limit_pass(&log->limit, log->lines_per_s_max, time_now_ns(), &dropped))
		return;
	line.len = 0;
	append_time(&line);
	append(&line, " %s", level_names[level]);
	append_quoted(&line, "what", what);
	append_quoted(&line, "object", object);
	append_quoted(&line, "advice", advice);
	if (*format) {
		append(&line, " ");
		from = line.len;
		va_start(args, format);
		append_list(&line, format, args);
		va_end(args);
		disarm(&line, from, false);
	}
	if (dropped > 0)
		append(&line, " dropped_lines=%llu", (unsigned long long)dropped);
	write_line(log && log->fd > 0 ? log->fd : STDERR_FILENO, &line);
	errno = saved;
}

int log_level_parse(const char *text, enum log_level *level)
{
	for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
		if (strcmp(text, level_names[i]) == 0) {
			*level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}
