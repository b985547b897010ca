/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables for people; see ctl.h. They are made for 80 columns, or for as many as the terminal has
 * that they are shown on. What is wider has its text wrapped, then less space between its columns,
 * then its names cut: these on a terminal only, for who reads a file may need them whole.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tierd/ctl/ctl.h"

#define COLUMNS_WANTED 80u
#define GRID_COLUMNS 16u
#define NAME_LEAST 8u  /* a name is not cut to less */
#define TEXT_LEAST 16u /* text is not wrapped to less */
#define CUT "…"

struct grid {
	const char *const *heads;
	char (*cell)[CTL_CELL];
	uint32_t columns, count, room;
	uint32_t width[GRID_COLUMNS], gap;
	bool failed;
};

uint32_t ctl_terminal(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		return 0;
	return size.ws_col;
}

struct grid *grid_new(const char *const *heads, uint32_t columns)
{
	struct grid *g = columns <= GRID_COLUMNS ? calloc(1, sizeof(*g)) : NULL;

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

uint32_t grid_rows(const struct grid *g)
{
	return g ? g->count / g->columns : 0;
}

static bool begins_letter(char byte)
{
	return ((unsigned char)byte & 0xc0) != 0x80;
}

/* Letters of a text: names may have any of UTF-8. */
static uint32_t letters(const char *text)
{
	uint32_t count = 0;

	for (; *text; text++)
		count += begins_letter(*text);
	return count;
}

/* Where the letter of this number begins, or the text ends. */
static const char *letter(const char *text, uint32_t number)
{
	for (; *text; text++)
		if (begins_letter(*text) && number-- == 0)
			break;
	return text;
}

static char kind(const struct grid *g, uint32_t column)
{
	return g->heads[column][0];
}

static const char *head_text(const struct grid *g, uint32_t column)
{
	return g->heads[column] + (strchr(">~=", kind(g, column)) && *g->heads[column]);
}

static uint32_t widest(const struct grid *g, uint32_t column)
{
	uint32_t most = letters(head_text(g, column));

	for (uint32_t i = column; i < g->count; i += g->columns)
		if (letters(g->cell[i]) > most)
			most = letters(g->cell[i]);
	return most;
}

static uint32_t total(const struct grid *g)
{
	uint32_t sum = (g->columns - 1) * g->gap;

	for (uint32_t c = 0; c < g->columns; c++)
		sum += g->width[c];
	return sum;
}

/* Columns of a kind give what the table is too wide, down to `least`. */
static void shrink(struct grid *g, char which, uint32_t least, uint32_t most)
{
	for (uint32_t c = 0; c < g->columns && total(g) > most; c++) {
		uint32_t over = total(g) - most, width = g->width[c];

		if (kind(g, c) == which && width > least)
			g->width[c] = width - least < over ? least : width - over;
	}
}

/* terminal: its columns; 0 = none */
static void fit(struct grid *g, uint32_t terminal)
{
	uint32_t most = terminal ? terminal : COLUMNS_WANTED;

	for (uint32_t c = 0; c < g->columns; c++)
		g->width[c] = widest(g, c);
	g->gap = 2;
	shrink(g, '=', TEXT_LEAST, most);
	if (total(g) > most)
		g->gap = 1;
	if (terminal)
		shrink(g, '~', NAME_LEAST, most);
}

static void pad(uint32_t count, FILE *to)
{
	fprintf(to, "%*s", (int)count, "");
}

/* So many letters of the text, the middle ones left out where it has more. Returns how many. */
static uint32_t print_name(const char *text, uint32_t width, FILE *to)
{
	uint32_t count = letters(text), front = width / 2;

	if (count <= width) {
		fputs(text, to);
		return count;
	}
	fwrite(text, 1, (size_t)(letter(text, front) - text), to);
	fputs(CUT, to);
	fputs(letter(text, count - (width - front - 1)), to);
	return width;
}

/* As many words as fit in a line, and a longer one as it is. Returns what is left. */
static const char *print_words(const char *text, uint32_t width, FILE *to)
{
	const char *end = letter(text, width), *space = end;

	while (*end && space > text && *space != ' ')
		space--;
	if (space > text)
		end = space;
	else
		end = text + strcspn(text, " ");
	fwrite(text, 1, (size_t)(end - text), to);
	return *end ? end + 1 : end;
}

static void print_cell(const struct grid *g, uint32_t column, const char *text, FILE *to)
{
	uint32_t width = g->width[column], indent = total(g) - width;
	bool last = column + 1 == g->columns;

	if (kind(g, column) == '>') {
		pad(width - letters(text), to);
		fputs(text, to);
	} else if (kind(g, column) == '=') {
		for (text = print_words(text, width, to); *text;
		     text = print_words(text, width, to)) {
			fputc('\n', to);
			pad(indent, to);
		}
	} else {
		uint32_t used = print_name(text, width, to);

		pad(last ? 0 : width - used, to);
	}
	if (last)
		fputc('\n', to);
	else
		pad(g->gap, to);
}

int grid_print(struct grid *g, FILE *to, uint32_t terminal)
{
	int error = !g || g->failed ? -ENOMEM : 0;

	if (!error && g->count) {
		fit(g, terminal);
		for (uint32_t c = 0; c < g->columns; c++)
			print_cell(g, c, head_text(g, c), to);
		for (uint32_t i = 0; i < g->count; i++)
			print_cell(g, i % g->columns, g->cell[i], to);
	}
	if (g)
		free(g->cell);
	free(g);
	return error;
}
