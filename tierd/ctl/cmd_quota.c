/* SPDX-License-Identifier: Apache-2.0 */
/* tierctl quota show, quota set: who holds what of each tier, and what they may. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/units.h"
#include "tierd/ctl/ctl.h"

/* A tier's head stands over what is used of it. */
static const char *const heads[] = { "~context, its salts", ">HBM",  ">soft", ">hard",
				     ">CXL",		    ">soft", ">hard", ">NVMe",
				     ">soft",		    ">hard" };
#define COLUMNS (sizeof(heads) / sizeof(heads[0]))

static const char *const held_heads[] = { "~in CXL, of these", ">dirty",  ">leased",
					  ">reserved",	       ">pinned", ">pins' limit" };
static const char *const held[] = { "cxl.dirty", "cxl.quarantined", "cxl.reserved", "cxl.pinned",
				    "cxl.pin_limit" };
#define HELD (sizeof(held) / sizeof(held[0]))

/* A share or limit of 0 is none. */
static const char *limit(char cell[CTL_CELL], const json_t *one, const char *path)
{
	return json_number_value(json_at(one, path)) > 0 ? ctl_bytes_short(cell, one, path) : "-";
}

static void add_holder(struct grid *g, const json_t *one, const char *before, const char *name)
{
	char cell[CTL_CELL], text[2 * CTL_CELL];

	snprintf(text, sizeof(text), "%s%s", before, ctl_text(cell, one, name));
	grid_add(g, text);
}

static void add_used(struct grid *g, const json_t *one, const char *before, const char *name)
{
	static const char *const tiers[] = { "hbm", "cxl", "nvme" };
	char cell[CTL_CELL], path[32];

	add_holder(g, one, before, name);
	for (size_t t = 0; t < 3; t++) {
		snprintf(path, sizeof(path), "%s.used", tiers[t]);
		grid_add(g, ctl_bytes_short(cell, one, path));
		snprintf(path, sizeof(path), "%s.soft", tiers[t]);
		grid_add(g, limit(cell, one, path));
		snprintf(path, sizeof(path), "%s.hard", tiers[t]);
		grid_add(g, limit(cell, one, path));
	}
}

/* What keeps bytes in CXL: only of whom something does, or might. */
static void add_held(struct grid *g, const json_t *one, const char *before, const char *name)
{
	char cell[CTL_CELL];
	bool any = false;

	for (size_t k = 0; k < HELD; k++)
		any = any || json_number_value(json_at(one, held[k])) > 0;
	if (!any)
		return;
	add_holder(g, one, before, name);
	for (size_t k = 0; k < HELD; k++)
		grid_add(g, k == HELD - 1 ? limit(cell, one, held[k])
					  : ctl_bytes_short(cell, one, held[k]));
}

static void add_all(struct grid *g, const json_t *answer,
		    void (*add)(struct grid *g, const json_t *one, const char *before,
				const char *name))
{
	const json_t *contexts = json_at(answer, "contexts"), *clients = json_at(answer, "clients");
	const json_t *removed = json_at(answer, "removed");

	for (size_t i = 0; i < json_array_size(contexts); i++) {
		const json_t *one = json_array_get(contexts, i), *salts = json_at(one, "salts");

		add(g, one, "", "context");
		for (size_t k = 0; k < json_array_size(salts); k++)
			add(g, json_array_get(salts, k), "  ", "holder");
	}
	for (size_t i = 0; i < json_array_size(removed); i++)
		add(g, json_array_get(removed, i), "removed: ", "context");
	for (size_t i = 0; i < json_array_size(clients); i++)
		add(g, json_array_get(clients, i), "put by ", "holder");
}

static int show(const json_t *answer, uint32_t terminal)
{
	struct grid *g = grid_new(heads, COLUMNS), *more = grid_new(held_heads, HELD + 1);
	int rc, error;

	add_all(g, answer, add_used);
	add_all(more, answer, add_held);
	if (!grid_rows(g))
		puts("no contexts");
	rc = grid_print(g, stdout, terminal);
	if (grid_rows(more))
		fputc('\n', stdout);
	error = grid_print(more, stdout, terminal);
	return rc ? rc : error;
}

int ctl_quota_show(struct ctl *ctl, int argc, char **argv)
{
	json_t *answer, *args = NULL;
	int rc;

	if (argc == 1)
		args = json_pack("{ss}", "context", argv[0]);
	rc = ctl_ask(ctl, "quota", args, &answer);
	return rc == CTL_OK ? ctl_show(ctl, answer, show) : rc;
}

/* ---- set ----------------------------------------------------------------------------------- */

static const struct option set_options[] = {
	{ "client", 1, NULL, 'c' }, { "salt", 1, NULL, 's' }, { "soft", 1, NULL, 'S' },
	{ "hard", 1, NULL, 'H' },   { "pins", 1, NULL, 'p' }, { 0 },
};

static int take_option(struct ctl *ctl, json_t *args, int c)
{
	uint64_t bytes = 0;
	char *end;

	if (c == 's') {
		json_object_set_new(args, "salt", json_string(optarg));
		return CTL_OK;
	}
	if (c == 'c') {
		bytes = strtoull(optarg, &end, 10);
		if (*optarg < '0' || *optarg > '9' || *end)
			return ctl_usage(ctl, "--client %.32s: write a number of tierctl clients",
					 optarg);
		json_object_set_new(args, "client", json_integer((json_int_t)bytes));
		return CTL_OK;
	}
	if (units_parse_bytes(optarg, &bytes) || bytes > INT64_MAX)
		return ctl_usage(ctl, "\"%.32s\": write bytes with a unit, as 512MiB", optarg);
	json_object_set_new(args, c == 'S' ? "soft" : c == 'H' ? "hard" : "pins",
			    json_integer((json_int_t)bytes));
	return CTL_OK;
}

/* Words that are no options: [CONTEXT] TIER. */
static int take_words(struct ctl *ctl, json_t *args, int argc, char **argv)
{
	int client = json_object_get(args, "client") != NULL, left = argc - optind;

	if (left != 2 - client)
		return ctl_usage(ctl, "%s",
				 client ? "name one tier after --client"
					: "name a context and a tier");
	if (!client)
		json_object_set_new(args, "context", json_string(argv[optind]));
	json_object_set_new(args, "tier", json_string(argv[argc - 1]));
	return CTL_OK;
}

int ctl_quota_set(struct ctl *ctl, int argc, char **argv)
{
	json_t *args = json_object(), *answer;
	int rc = CTL_OK, c;

	/* getopt skips the first word: the verb stands there. */
	argv--;
	argc++;
	optind = 0;
	while (rc == CTL_OK && (c = getopt_long(argc, argv, ":", set_options, NULL)) != -1)
		rc = c == ':' || c == '?' ? ctl_option(ctl, c, argv[optind - 1])
					  : take_option(ctl, args, c);
	if (rc == CTL_OK)
		rc = take_words(ctl, args, argc, argv);
	if (rc != CTL_OK) {
		json_decref(args);
		return rc;
	}
	rc = ctl_ask(ctl, "quota-set", args, &answer);
	if (rc != CTL_OK)
		return rc;
	json_decref(answer);
	/* Show what it has become. */
	return ctl_quota_show(ctl, 0, NULL);
}
