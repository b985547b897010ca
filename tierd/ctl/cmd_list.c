/* SPDX-License-Identifier: Apache-2.0 */
/* tierctl pin list, requests, clients: what is held, asked and connected right now. */
#include <string.h>

#include "libtier/base/time.h"
#include "tierd/ctl/ctl.h"

#define COLUMNS_MAX 16u

/* How a member is shown. */
enum form {
	FORM_TEXT,
	FORM_COUNT,
	FORM_BYTES,
	FORM_DEADLINE,
	FORM_AGE,
	FORM_DONE,   /* "3/32", of the member "count" */
	FORM_LAYERS, /* likewise, of "layers" */
	FORM_ROLE,   /* "operator" or "client", while the connection is open */
};

struct column {
	const char *head; /* as grid_new has it */
	const char *member;
	enum form form;
};

struct list {
	const char *verb, *member, *none;
	const struct column *column;
	uint32_t columns;
};

static const struct column pin_columns[] = {
	{ "pin", "id", FORM_TEXT },
	{ ">client", "client", FORM_COUNT },
	{ "~context", "context", FORM_TEXT },
	{ "tier", "tier", FORM_TEXT },
	{ ">blocks", "blocks", FORM_COUNT },
	{ ">bytes", "bytes", FORM_BYTES },
	{ ">ends in", "deadline_ns", FORM_DEADLINE },
};

static const struct column request_columns[] = {
	{ ">client", "client", FORM_COUNT },
	{ "request", "op", FORM_TEXT },
	{ "class", "class", FORM_TEXT },
	{ "~context", "context", FORM_TEXT },
	{ ">done", "done", FORM_DONE },
	{ ">age", "since_ns", FORM_AGE },
	{ ">late in", "deadline_ns", FORM_DEADLINE },
	{ ">begins", "start_ns", FORM_DEADLINE },
	{ ">brings", "bytes", FORM_BYTES },
};

static const struct column stream_columns[] = {
	{ ">client", "client", FORM_COUNT }, { "stream", "status", FORM_TEXT },
	{ "class", "class", FORM_TEXT },     { "~context", "context", FORM_TEXT },
	{ "tier", "tier", FORM_TEXT },	     { ">blocks", "usable", FORM_COUNT },
	{ ">layers", "ready", FORM_LAYERS },
	{ ">window", "window", FORM_COUNT }, { ">bytes", "bytes", FORM_BYTES },
	{ ">used", "used", FORM_BYTES },     { ">wasted", "wasted", FORM_BYTES },
};

static const struct column client_columns[] = {
	{ ">id", "id", FORM_COUNT },
	{ "~name", "name", FORM_TEXT },
	{ ">pid", "pid", FORM_COUNT },
	{ ">uid", "uid", FORM_COUNT },
	{ "role", "open", FORM_ROLE },
	{ ">staging", "staging_bytes", FORM_BYTES },
	{ ">asked", "taken", FORM_COUNT },
	{ ">now", "requests", FORM_COUNT },
	{ ">puts", "puts", FORM_COUNT },
	{ ">begun", "pending", FORM_COUNT },
	{ ">pins", "pins", FORM_COUNT },
	{ ">leased", "quarantined", FORM_BYTES },
	{ ">age", "since_ns", FORM_AGE },
};

#define LIST(verb, member, none, columns)                                                          \
	{                                                                                          \
		verb, member, none, columns, sizeof(columns) / sizeof((columns)[0])                \
	}

static void add_of(struct grid *g, const json_t *one, const char *member, const char *of)
{
	char done[CTL_CELL], all[CTL_CELL], text[CTL_CELL];

	snprintf(text, sizeof(text), "%.32s/%.32s", ctl_count(done, one, member),
		 ctl_count(all, one, of));
	grid_add(g, text);
}

static const char *role(const json_t *one, const char *member)
{
	const json_t *may = json_at(one, "operator");

	if (json_is_false(json_at(one, member)))
		return "ended";
	return json_is_true(may) ? "operator" : json_is_false(may) ? "client" : "-";
}

static void add(struct grid *g, const json_t *one, const struct column *column)
{
	char cell[CTL_CELL];

	switch (column->form) {
	case FORM_TEXT:
		grid_add(g, ctl_text(cell, one, column->member));
		return;
	case FORM_COUNT:
		grid_add(g, ctl_count(cell, one, column->member));
		return;
	case FORM_BYTES:
		grid_add(g, ctl_bytes_short(cell, one, column->member));
		return;
	case FORM_DEADLINE:
		grid_add(g, ctl_deadline(cell, one, column->member, time_now_ns()));
		return;
	case FORM_AGE:
		grid_add(g, ctl_age(cell, one, column->member, time_now_ns()));
		return;
	case FORM_DONE:
		add_of(g, one, column->member, "count");
		return;
	case FORM_LAYERS:
		add_of(g, one, column->member, "layers");
		return;
	case FORM_ROLE:
		grid_add(g, role(one, column->member));
		return;
	}
}

static int show(const struct list *list, const json_t *answer, uint32_t terminal)
{
	const json_t *rows = json_at(answer, list->member);
	const char *heads[COLUMNS_MAX];
	struct grid *g;

	if (!json_array_size(rows)) {
		puts(list->none);
		return 0;
	}
	for (uint32_t c = 0; c < list->columns; c++)
		heads[c] = list->column[c].head;
	g = grid_new(heads, list->columns);
	for (size_t i = 0; i < json_array_size(rows); i++)
		for (uint32_t c = 0; c < list->columns; c++)
			add(g, json_array_get(rows, i), &list->column[c]);
	return grid_print(g, stdout, terminal);
}

/* more: a second table of the same answer, when it has rows. */
static int run(struct ctl *ctl, const struct list *list, const struct list *more)
{
	json_t *answer;
	int rc = ctl_ask(ctl, list->verb, NULL, &answer);

	if (rc != CTL_OK)
		return rc;
	if (ctl->json)
		rc = ctl_print_json(answer);
	else
		rc = show(list, answer, ctl->terminal) ? CTL_FAILED : CTL_OK;
	if (rc == CTL_OK && !ctl->json && more && json_array_size(json_at(answer, more->member))) {
		putchar('\n');
		rc = show(more, answer, ctl->terminal) ? CTL_FAILED : CTL_OK;
	}
	json_decref(answer);
	return rc;
}

int ctl_pin_list(struct ctl *ctl, int argc, char **argv)
{
	static const struct list list = LIST("pins", "pins", "no pins", pin_columns);

	(void)argc;
	(void)argv;
	return run(ctl, &list, NULL);
}

int ctl_requests(struct ctl *ctl, int argc, char **argv)
{
	static const struct list list =
		LIST("requests", "requests", "no requests under way", request_columns);
	static const struct list streams = LIST("requests", "streams", "", stream_columns);

	(void)argc;
	(void)argv;
	return run(ctl, &list, &streams);
}

int ctl_clients(struct ctl *ctl, int argc, char **argv)
{
	static const struct list list = LIST("clients", "clients", "no clients", client_columns);

	(void)argc;
	(void)argv;
	return run(ctl, &list, NULL);
}
