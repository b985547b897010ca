/*
 * Parsing and printing of human units; see units.h for the contract. Integer arithmetic throughout
 * the parsers, so that "2.5GiB" is exact.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/units.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct unit {
	const char *name;
	uint64_t factor;
};

#define KI UINT64_C(1024)
#define K UINT64_C(1000)

static const struct unit byte_units[] = {
	{ "", 1 },
	{ "B", 1 },
	{ "KiB", KI },
	{ "MiB", KI * KI },
	{ "GiB", KI * KI * KI },
	{ "TiB", KI * KI * KI * KI },
	{ "PiB", KI * KI * KI * KI * KI },
	{ "KB", K },
	{ "MB", K * K },
	{ "GB", K * K * K },
	{ "TB", K * K * K * K },
	{ "PB", K * K * K * K * K },
	{ NULL, 0 },
};

static const struct unit percent_units[] = {
	{ "%", 1000 },
	{ NULL, 0 },
};

static const struct unit time_units[] = {
	{ "ns", 1 },
	{ "us", K },
	{ "ms", K * K },
	{ "s", K * K * K },
	{ "min", 60 * K * K * K },
	{ "h", 3600 * K * K * K },
	{ NULL, 0 },
};

static const char *skip_blanks(const char *p)
{
	while (*p == ' ' || *p == '\t')
		p++;
	return p;
}

/* The decimals after the point as a fraction of 10^9; further ones must be there, but are lost. */
static const char *read_fraction(const char *p, uint64_t *billionths)
{
	uint64_t weight = 100000000;

	*billionths = 0;
	for (; isdigit((unsigned char)*p); p++, weight /= 10)
		*billionths += (uint64_t)(*p - '0') * weight;
	return p;
}

/* Reads NUMBER[.DECIMALS] blanks UNIT, where UNIT is in the table, and multiplies. */
static int parse(const char *text, const struct unit *unit, uint64_t *value)
{
	const char *p = skip_blanks(text);
	uint64_t whole = 0, billionths = 0, part;

	if (!isdigit((unsigned char)*p))
		return -EINVAL;
	for (; isdigit((unsigned char)*p); p++)
		if (__builtin_mul_overflow(whole, 10, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
			return -ERANGE;
	if (*p == '.') {
		if (!isdigit((unsigned char)p[1]))
			return -EINVAL;
		p = read_fraction(p + 1, &billionths);
	}
	p = skip_blanks(p);
	while (unit->name && strcasecmp(p, unit->name) != 0)
		unit++;
	if (!unit->name)
		return -EINVAL;
	part = (uint64_t)((unsigned __int128)unit->factor * billionths / 1000000000u);
	if (__builtin_mul_overflow(whole, unit->factor, &whole) ||
	    __builtin_add_overflow(whole, part, value))
		return -ERANGE;
	return 0;
}

int units_parse_bytes(const char *text, uint64_t *bytes)
{
	uint64_t value;
	int rc = parse(text, byte_units, &value);

	if (rc == 0)
		*bytes = value;
	return rc;
}

int units_parse_size(const char *text, struct units_size *size)
{
	struct units_size parsed = { .kind = UNITS_BYTES };
	int rc;

	if (strcasecmp(skip_blanks(text), "auto") == 0) {
		*size = (struct units_size){ .kind = UNITS_AUTO };
		return 0;
	}
	rc = parse(text, byte_units, &parsed.value);
	if (rc == -EINVAL) {
		parsed.kind = UNITS_PERCENT;
		rc = parse(text, percent_units, &parsed.value);
		if (rc == 0 && parsed.value > 100000)
			rc = -ERANGE;
	}
	if (rc == 0)
		*size = parsed;
	return rc;
}

uint64_t units_resolve(const struct units_size *size, uint64_t total, uint64_t auto_bytes)
{
	switch (size->kind) {
	case UNITS_PERCENT:
		return (uint64_t)((unsigned __int128)total * size->value / 100000u);
	case UNITS_AUTO:
		return auto_bytes;
	case UNITS_BYTES:
		break;
	}
	return size->value;
}

int units_parse_ns(const char *text, uint64_t *ns)
{
	uint64_t value;
	int rc;

	if (strcmp(text, "0") == 0) {
		*ns = 0;
		return 0;
	}
	rc = parse(text, time_units, &value);
	if (rc == 0)
		*ns = value;
	return rc;
}

/* Three significant digits: 1.23, 12.3, 123, and whole numbers above (1023 before a KiB). A value
 * that was never divided is whole and prints so. */
static char *print(char text[UNITS_TEXT_BYTES], double value, const char *unit, int divided)
{
	int decimals = 0;

	if (divided && value < 9.995)
		decimals = 2;
	else if (divided && value < 99.95)
		decimals = 1;
	snprintf(text, UNITS_TEXT_BYTES, "%.*f%s%s", decimals, value, *unit ? " " : "", unit);
	return text;
}

/* Divides value by step until it is below, taking the next name each time. */
static char *print_scaled(char text[UNITS_TEXT_BYTES], double value, double step,
			  const char *const *names)
{
	int divided = 0;

	/* What would round up to step belongs to the next unit. */
	while (names[divided + 1] && value >= step - 0.5) {
		value /= step;
		divided++;
	}
	return print(text, value, names[divided], divided);
}

char *units_print_bytes(char text[UNITS_TEXT_BYTES], uint64_t bytes)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", NULL };

	return print_scaled(text, (double)bytes, 1024, names);
}

char *units_print_rate(char text[UNITS_TEXT_BYTES], double bytes_per_s)
{
	static const char *const names[] = { "B/s",   "KiB/s", "MiB/s", "GiB/s",
					     "TiB/s", "PiB/s", NULL };

	return print_scaled(text, bytes_per_s, 1024, names);
}

char *units_print_count(char text[UNITS_TEXT_BYTES], double count)
{
	static const char *const names[] = { "", "K", "M", "G", "T", NULL };

	return print_scaled(text, count, 1000, names);
}

char *units_print_ns(char text[UNITS_TEXT_BYTES], uint64_t ns)
{
	static const char *const names[] = { "ns", "us", "ms", "s", NULL };
	static const struct {
		double from_s, s;
		const char *name;
	} longer[] = { { 4 * 86400, 86400, "d" }, { 10 * 3600, 3600, "h" }, { 600, 60, "min" } };

	for (size_t i = 0; i < sizeof(longer) / sizeof(longer[0]); i++)
		if ((double)ns >= longer[i].from_s * 1e9) {
			snprintf(text, UNITS_TEXT_BYTES, "%.1f %s",
				 (double)ns / 1e9 / longer[i].s, longer[i].name);
			return text;
		}
	return print_scaled(text, (double)ns, 1000, names);
}
