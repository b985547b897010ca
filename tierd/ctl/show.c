/* SPDX-License-Identifier: Apache-2.0 */
/* Members of documents for people, and tables of them; see ctl.h. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
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

char *ctl_bytes_short(char cell[CTL_CELL], const json_t *document, const char *path)
{
	char *unit = strchr(ctl_bytes(cell, document, path), ' ');

	if (unit) {
		unit[0] = unit[1] == 'B' ? '\0' : unit[1];
		unit[1] = '\0';
	}
	return cell;
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
		snprintf(cell, CTL_CELL, "in %s", units_print_ns(text, value - now_ns));
	return cell;
}

char *ctl_age(char cell[CTL_CELL], const json_t *document, const char *path, uint64_t now_ns)
{
	char text[UNITS_TEXT_BYTES];
	uint64_t since;

	if (number(document, path, &since) || !since || since > now_ns)
		snprintf(cell, CTL_CELL, "-");
	else
		snprintf(cell, CTL_CELL, "%s", units_print_ns(text, now_ns - since));
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

/* ---- tables -------------------------------------------------------------------------------- */

struct grid {
	const char *const *heads;
	char (*cell)[CTL_CELL];
	uint32_t columns, count, room;
	uint32_t first; /* most of the first column; 0 = as wide as its cells */
	bool failed;
};

struct grid *grid_new(const char *const *heads, uint32_t columns)
{
	struct grid *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->heads = heads;
	g->columns = columns;
	return g;
}

void grid_add(struct grid *g, const char *text)
{
	if (!g || g->failed)
		return;
	if (g->count == g->room) {
		uint32_t room = g->room ? 2 * g->room : 16 * g->columns;
		void *bigger = reallocarray(g->cell, room, CTL_CELL);

		if (!bigger) {
			g->failed = true;
			return;
		}
		g->cell = bigger;
		g->room = room;
	}
	snprintf(g->cell[g->count++], CTL_CELL, "%s", text);
}

void grid_first(struct grid *g, uint32_t most)
{
	if (g)
		g->first = most;
}

static const char *head_text(const char *head)
{
	return head + (*head == '>');
}

static bool stands_alone(const struct grid *g, uint32_t column, const char *text)
{
	return column == 0 && g->first && strlen(text) > g->first;
}

static int width(const struct grid *g, uint32_t column)
{
	size_t most = strlen(head_text(g->heads[column]));

	for (uint32_t i = column; i < g->count; i += g->columns)
		if (strlen(g->cell[i]) > most && !stands_alone(g, column, g->cell[i]))
			most = strlen(g->cell[i]);
	return (int)most;
}

static void print_cell(const struct grid *g, uint32_t column, const char *text, FILE *to)
{
	bool right = g->heads[column][0] == '>', last = column + 1 == g->columns;
	int wide = width(g, column);

	if (stands_alone(g, column, text)) {
		fprintf(to, "%s\n", text);
		text = "";
	}
	if (right)
		fprintf(to, "%*s", wide, text);
	else if (last)
		fputs(text, to);
	else
		fprintf(to, "%-*s", wide, text);
	fputs(last ? "\n" : "  ", to);
}

int grid_print(struct grid *g, FILE *to)
{
	int error = !g || g->failed ? -ENOMEM : 0;

	if (!error) {
		for (uint32_t c = 0; c < g->columns; c++)
			print_cell(g, c, head_text(g->heads[c]), to);
		for (uint32_t i = 0; i < g->count; i++)
			print_cell(g, i % g->columns, g->cell[i], to);
	}
	if (g)
		free(g->cell);
	free(g);
	return error;
}
