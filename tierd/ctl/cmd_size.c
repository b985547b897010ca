/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierctl size: how much of each tier a model and its traffic want, without a daemon. Arithmetic
 * over the geometry, and three rules that docs/guide/sizing.md gives the measurements of.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/units.h"
#include "tierd/ctl/ctl.h"

#define HOT_BLOCKS 64u	   /* of each sparse layer and group: four times what a step chooses */
#define STORE_FULL 85u	   /* percent of a store that are blocks; cleaning takes the rest */
#define CXL_PART 4u	   /* one of so many stored bytes is in CXL */
#define TABLE_BLOCK 282u   /* bytes beside the tiers that a block in one lane is charged with */
#define TABLE_PAGE 32u	   /* (docs/decisions/032), and of a page (008) */
#define NUMBER_MOST 1e9
#define BYTES_MOST 1e18

struct traffic {
	const char *model;
	uint64_t users, tokens, shared, active, turns, fresh;
};

struct sizes {
	uint64_t token, block, conversation; /* bytes of each */
	uint64_t blocks, stored;
	uint64_t nvme, cxl, hbm, tables, written; /* written: a day */
	bool sparse;
};

enum { MODEL = 1, USERS, TOKENS, SHARED, ACTIVE, TURNS, FRESH };
static const struct option options[] = {
	{ "model", required_argument, NULL, MODEL },
	{ "users", required_argument, NULL, USERS },
	{ "tokens", required_argument, NULL, TOKENS },
	{ "shared", required_argument, NULL, SHARED },
	{ "active", required_argument, NULL, ACTIVE },
	{ "turns", required_argument, NULL, TURNS },
	{ "new", required_argument, NULL, FRESH },
	{ NULL, 0, NULL, 0 },
};

static int number(const struct ctl *ctl, const char *option, uint64_t *to)
{
	char *end;
	double value = strtod(optarg, &end);

	if (end == optarg || *end || !(value >= 0 && value <= NUMBER_MOST))
		return ctl_usage(ctl, "--%s %s is not a number", option, optarg);
	*to = (uint64_t)value;
	return 0;
}

static int read_options(const struct ctl *ctl, int argc, char **argv, struct traffic *t)
{
	uint64_t *const to[] = { [USERS] = &t->users,   [TOKENS] = &t->tokens,
				 [SHARED] = &t->shared, [ACTIVE] = &t->active,
				 [TURNS] = &t->turns,   [FRESH] = &t->fresh };
	int c, error = 0, at = 0;

	/* getopt skips the first word: the verb stands there. */
	argv--;
	argc++;
	optind = 0;
	while (!error && (c = getopt_long(argc, argv, ":", options, &at)) != -1) {
		if (c == '?' || c == ':')
			return ctl_option(ctl, c, argv[optind - 1]);
		if (c == MODEL)
			t->model = optarg;
		else
			error = number(ctl, options[at].name, to[c]);
	}
	if (error)
		return error;
	if (optind < argc || !t->model || !t->users)
		return ctl_usage(ctl, "it wants --model and --users");
	if (t->shared > t->tokens)
		return ctl_usage(ctl, "--shared is more than --tokens");
	if (!t->active)
		t->active = t->users / 16 ? t->users / 16 : 1;
	return 0;
}

/* What one context that is being computed needs in HBM: of sparse layers only what is hot. */
static uint64_t hot_bytes(const tier_geometry *g, uint64_t blocks, bool *sparse)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < tier_geometry_part_count(g); i++) {
		struct tier_part p;

		if (tier_geometry_part(g, i, &p))
			continue;
		*sparse |= p.kind == TIER_KIND_SPARSE;
		bytes += (uint64_t)p.layers * p.groups * p.page_stride *
			 (p.kind == TIER_KIND_SPARSE && blocks > HOT_BLOCKS ? HOT_BLOCKS : blocks);
	}
	return bytes;
}

static void compute(const tier_geometry *g, const struct traffic *t, struct sizes *s)
{
	uint64_t per = tier_geometry_block_tokens(g);
	uint64_t whole = (t->tokens + per - 1) / per, common = t->shared / per;

	s->block = tier_geometry_block_bytes(g);
	s->token = s->block / per;
	s->conversation = whole * s->block;
	s->blocks = common + t->users * (whole - common);
	s->stored = s->blocks * s->block;
	s->nvme = s->stored / STORE_FULL * 100;
	s->cxl = s->stored / CXL_PART;
	if (s->cxl < t->active * s->conversation)
		s->cxl = t->active * s->conversation;
	if (s->cxl > s->stored)
		s->cxl = s->stored;
	s->hbm = t->active * hot_bytes(g, whole, &s->sparse);
	s->tables = s->blocks * (TABLE_BLOCK + (uint64_t)TABLE_PAGE * tier_geometry_pages(g));
	s->written = t->users * t->turns * t->fresh * s->token;
}

static int show_json(const struct traffic *t, const struct sizes *s)
{
	json_t *document = json_pack(
		"{ss sI sI sI sI sI sI sI sI sI sI}", "model", t->model, "token_bytes", s->token,
		"block_bytes", s->block, "conversation_bytes", s->conversation, "blocks", s->blocks,
		"stored_bytes", s->stored, "hbm_bytes", s->hbm, "cxl_bytes", s->cxl, "nvme_bytes",
		s->nvme, "table_bytes", s->tables, "written_bytes_a_day", s->written);
	int rc = ctl_print_json(document);

	json_decref(document);
	return rc;
}

static void row(struct grid *g, const char *what, uint64_t bytes, const char *why)
{
	char text[UNITS_TEXT_BYTES];

	grid_add(g, what);
	grid_add(g, units_print_bytes(text, bytes));
	grid_add(g, why);
}

static int show(const struct ctl *ctl, const struct traffic *t, const struct sizes *s)
{
	static const char *const heads[] = { "what", ">bytes", "=why" };
	struct grid *g = grid_new(heads, 3);
	char why[CTL_CELL];

	row(g, "a token", s->token, "");
	row(g, "a conversation", s->conversation, "whole blocks");
	snprintf(why, sizeof(why), "%" PRIu64 " users; what they share, once", t->users);
	row(g, "stored", s->stored, why);
	snprintf(why, sizeof(why), "the engine's, %" PRIu64 " at a time%s", t->active,
		 s->sparse ? ": index and dense layers whole, of sparse ones 64 blocks" : "");
	row(g, "hbm", s->hbm, why);
	row(g, "cxl", s->cxl, "a quarter of what is stored, and all who compute at a time");
	row(g, "nvme", s->nvme, "what is stored, in a store 85% full");
	row(g, "memory beside", s->tables, "tables of the daemon: index.size");
	snprintf(why, sizeof(why),
		 "a day: %" PRIu64 " turns of %" PRIu64 " new tokens; %.2f of nvme", t->turns,
		 t->fresh, s->nvme ? (double)s->written / (double)s->nvme : 0);
	row(g, "written", s->written, why);
	return grid_print(g, stdout, ctl->terminal ? ctl->terminal : 80) ? CTL_FAILED : CTL_OK;
}

int ctl_size(struct ctl *ctl, int argc, char **argv)
{
	struct traffic t = { .tokens = 8192, .turns = 20, .fresh = 512 };
	struct sizes s = { 0 };
	tier_geometry *g;
	int error = read_options(ctl, argc, argv, &t);

	if (error)
		return error;
	error = tier_geometry_preset(&g, t.model);
	if (error)
		return ctl_failed(ctl, error);
	if ((double)t.users * ((double)t.tokens + (double)t.turns * (double)t.fresh) *
		    (double)tier_geometry_block_bytes(g) > BYTES_MOST) {
		tier_geometry_free(g);
		return ctl_usage(ctl, "that is more than an exabyte");
	}
	compute(g, &t, &s);
	tier_geometry_free(g);
	return ctl->json ? show_json(&t, &s) : show(ctl, &t, &s);
}
