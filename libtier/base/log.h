/*
 * Structured log lines on standard error: when, how bad, what failed, on which object, what the
 * operator can do, and key=value facts. An error is logged once, where its cause is known;
 * elsewhere its errno travels up. The state is the caller's, since this code may run in somebody
 * else's process: a NULL log is standard error from level info on, without a limit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_LOG_H
#define TIER_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level {
	LOG_LEVEL_ERROR, /* something was lost or refused; a person should look */
	LOG_LEVEL_WARN,  /* the service goes on with less */
	LOG_LEVEL_INFO,  /* start, stop, a client came or went */
	LOG_LEVEL_DEBUG,
};

/* A budget of lines a second; what is over it is counted, and the count is told by the next line
 * that passes. Any thread may use it. Zero-filled is ready to use. */
struct log_limit {
	uint64_t second;     /* which second is being counted */
	uint64_t line_count; /* lines that asked in it */
	uint64_t dropped_count;
};

struct log {
	enum log_level level;    /* lines above it are not written */
	int fd;                  /* where to; 0 means standard error */
	uint32_t lines_per_s_max; /* 0: no limit */
	struct log_limit limit;
};

/*
 * May one more line be written at now_ns? If so, *dropped is how many were held back since the last
 * one that was. For objects with a budget of their own, as a client that provokes errors at will.
 */
bool log_limit_pass(struct log_limit *limit, uint32_t lines_per_s_max, uint64_t now_ns,
		    uint64_t *dropped);

/*
 * One line:
 *   2026-01-31T12:00:00.123Z error what="open failed" object="/dev/x" advice="…" errno=2
 * object and advice may be NULL. format gives further key=value pairs and may be "". Control
 * characters and quotes in the texts are replaced, so that no client can forge a line. At most
 * LOG_LINE_BYTES_MAX are written, in one write(2). errno is preserved.
 */
void log_event(struct log *log, enum log_level level, const char *what, const char *object,
	       const char *advice, const char *format, ...) __attribute__((format(printf, 6, 7)));

#define LOG_LINE_BYTES_MAX 1024

#define log_error(log, what, object, advice, ...)                                                  \
	log_event(log, LOG_LEVEL_ERROR, what, object, advice, __VA_ARGS__)
#define log_warn(log, what, object, advice, ...)                                                   \
	log_event(log, LOG_LEVEL_WARN, what, object, advice, __VA_ARGS__)
/* Facts need no advice. */
#define log_info(log, what, object, ...)                                                           \
	log_event(log, LOG_LEVEL_INFO, what, object, NULL, __VA_ARGS__)
#define log_debug(log, what, object, ...)                                                          \
	log_event(log, LOG_LEVEL_DEBUG, what, object, NULL, __VA_ARGS__)

/* "error", "warn", "info", "debug"; -EINVAL for another text. */
int log_level_parse(const char *text, enum log_level *level);

#endif
