/*
 * Sizes and durations as people write and read them: "512MiB", "10%", "auto", "1.5 GiB/s". Used by
 * the configuration, the command line and the reports. Machine-readable output never uses it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_UNITS_H
#define TIER_BASE_UNITS_H

#include <stdint.h>

/* A size in a configuration: how much is known only when it is resolved. */
enum units_kind {
	UNITS_BYTES,   /* value is bytes */
	UNITS_PERCENT, /* value is thousandths of a percent: 100 % is 100000 */
	UNITS_AUTO,    /* value is 0 */
};

struct units_size {
	enum units_kind kind;
	uint64_t value;
};

/*
 * Parses "4096", "64KiB", "2.5GiB", "1TB", "10%", "12.5%" or "auto". Binary units are KiB MiB GiB
 * TiB PiB, decimal ones kB (KB) MB GB TB PB; upper and lower case are the same; a blank may stand
 * before the unit. A lone K, M or G is refused, for nobody knows which is meant. -EINVAL: not such
 * a text; -ERANGE: above 2^64 - 1 bytes or 100 %.
 */
int units_parse_size(const char *text, struct units_size *size);

/* The bytes that size means where total is 100 % and auto_bytes is the value of "auto". */
uint64_t units_resolve(const struct units_size *size, uint64_t total, uint64_t auto_bytes);

/* Parses bytes only: -EINVAL for "10%" and "auto". */
int units_parse_bytes(const char *text, uint64_t *bytes);

/* Parses "250ns", "1.5us", "20ms", "3s", "2min", "1h". A number alone is refused unless it is 0. */
int units_parse_ns(const char *text, uint64_t *ns);

#define UNITS_TEXT_BYTES 32

/* Three significant digits and a unit, into text; each returns text. */
char *units_print_bytes(char text[UNITS_TEXT_BYTES], uint64_t bytes);      /* "1.50 GiB" */
char *units_print_ns(char text[UNITS_TEXT_BYTES], uint64_t ns);            /* "224 ns", "25 min" */
char *units_print_rate(char text[UNITS_TEXT_BYTES], double bytes_per_s);   /* "25.0 GiB/s" */
char *units_print_count(char text[UNITS_TEXT_BYTES], double count);        /* "760 K", "1.20 M" */

#endif
