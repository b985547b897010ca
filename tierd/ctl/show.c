/* SPDX-License-Identifier: Apache-2.0 */
/* Members of documents for people; see ctl.h. */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "libtier/base/units.h"
#include "tierd/ctl/ctl.h"

/* Text from a daemon's clients goes to a terminal: nothing in it may be a control character. */
static void disarm(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

char *ctl_text(char cell[CTL_CELL], const json_t *document, const char *path)
{
	const json_t *at = json_at(document, path);

	if (json_is_string(at))
		snprintf(cell, CTL_CELL, "%s", json_string_value(at));
	else if (json_is_integer(at))
		snprintf(cell, CTL_CELL, "%lld", (long long)json_integer_value(at));
	else
		snprintf(cell, CTL_CELL, "-");
	disarm(cell);
	return cell;
}

/* -ENOENT when there is no such number. */
static int number(const json_t *document, const char *path, uint64_t *out)
{
	const json_t *at = json_at(document, path);
	double value = json_number_value(at);

	if (!json_is_number(at) || value < 0)
		return -ENOENT;
	*out = json_is_integer(at) ? (uint64_t)json_integer_value(at) : (uint64_t)value;
	return 0;
}

char *ctl_count(char cell[CTL_CELL], const json_t *document, const char *path)
{
	uint64_t value;

	if (number(document, path, &value))
		snprintf(cell, CTL_CELL, "-");
	else
		snprintf(cell, CTL_CELL, "%llu", (unsigned long long)value);
	return cell;
}

char *ctl_bytes(char cell[CTL_CELL], const json_t *document, const char *path)
{
	char text[UNITS_TEXT_BYTES];
	uint64_t value;

	if (number(document, path, &value))
		snprintf(cell, CTL_CELL, "-");
	else
		snprintf(cell, CTL_CELL, "%s", units_print_bytes(text, value));
	return cell;
}

/* In a table "64.0 MiB" is "64.0M", "0 B" is "0" and "2.00 s" is "2.00s". */
static char *narrow(char *cell)
{
	char *unit = strchr(cell, ' ');

	if (!unit)
		return cell;
	memmove(unit, unit + 1, strlen(unit));
	if (*unit == 'B')
		unit[0] = '\0';
	else if (strchr("KMGTPE", *unit))
		unit[1] = '\0';
	return cell;
}

char *ctl_bytes_short(char cell[CTL_CELL], const json_t *document, const char *path)
{
	return narrow(ctl_bytes(cell, document, path));
}

char *ctl_ns(char cell[CTL_CELL], const json_t *document, const char *path)
{
	char text[UNITS_TEXT_BYTES];
	uint64_t value;

	if (number(document, path, &value))
		snprintf(cell, CTL_CELL, "-");
	else
		snprintf(cell, CTL_CELL, "%s", units_print_ns(text, value));
	return cell;
}

char *ctl_deadline(char cell[CTL_CELL], const json_t *document, const char *path, uint64_t now_ns)
{
	char text[UNITS_TEXT_BYTES];
	uint64_t value;

	if (number(document, path, &value))
		snprintf(cell, CTL_CELL, "-");
	else if (!value)
		snprintf(cell, CTL_CELL, "never");
	else if (value <= now_ns)
		snprintf(cell, CTL_CELL, "past");
	else
		snprintf(cell, CTL_CELL, "%s", narrow(units_print_ns(text, value - now_ns)));
	return cell;
}

char *ctl_age(char cell[CTL_CELL], const json_t *document, const char *path, uint64_t now_ns)
{
	char text[UNITS_TEXT_BYTES];
	uint64_t since;

	if (number(document, path, &since) || !since || since > now_ns)
		snprintf(cell, CTL_CELL, "-");
	else
		snprintf(cell, CTL_CELL, "%s", narrow(units_print_ns(text, now_ns - since)));
	return cell;
}

char *ctl_yes(char cell[CTL_CELL], const json_t *document, const char *path)
{
	const json_t *at = json_at(document, path);

	snprintf(cell, CTL_CELL, "%s", json_is_true(at) ? "yes" : json_is_false(at) ? "no" : "-");
	return cell;
}

bool ctl_only_own(const json_t *document)
{
	const char *seen = json_string_value(json_at(document, "seen"));

	return seen && strcmp(seen, "own") == 0;
}
