/* SPDX-License-Identifier: Apache-2.0 */
/* tierctl context: list, show, create, remove, epoch. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/key.h"
#include "libtier/base/units.h"
#include "tierd/ctl/context_spec.h"
#include "tierd/ctl/ctl.h"

#define COUNT(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))

/* ---- list, show ---------------------------------------------------------------------------- */

static int show_list(const json_t *answer, uint32_t terminal)
{
	static const char *const heads[] = { "~context", ">uid", "mode", ">epoch",
					     ">blocks",	 ">each", ">HBM", ">CXL",
					     ">NVMe",	 ">clients", "policy" };
	static const char *const bytes[] = { "block_bytes", "tiers.0.live", "tiers.1.live",
					     "tiers.2.live" };
	const json_t *contexts = json_at(answer, "contexts");
	char cell[CTL_CELL];
	struct grid *g;

	if (!json_array_size(contexts)) {
		printf("no contexts%s\n", ctl_only_own(answer) ? " of yours" : "");
		return 0;
	}
	g = grid_new(heads, COUNT(heads));
	for (size_t i = 0; i < json_array_size(contexts); i++) {
		const json_t *one = json_array_get(contexts, i);

		grid_add(g, ctl_text(cell, one, "name"));
		grid_add(g, ctl_text(cell, one, "owner_uid"));
		grid_add(g, ctl_text(cell, one, "mode"));
		grid_add(g, ctl_count(cell, one, "epoch"));
		grid_add(g, ctl_count(cell, one, "blocks"));
		for (uint32_t k = 0; k < COUNT(bytes); k++)
			grid_add(g, ctl_bytes_short(cell, one, bytes[k]));
		grid_add(g, ctl_count(cell, one, "attached"));
		grid_add(g, ctl_text(cell, one, "policy"));
	}
	return grid_print(g, stdout, terminal);
}

int ctl_context_list(struct ctl *ctl, int argc, char **argv)
{
	json_t *answer;
	int rc = ctl_ask(ctl, "contexts", NULL, &answer);

	(void)argc;
	(void)argv;
	return rc == CTL_OK ? ctl_show(ctl, answer, show_list) : rc;
}

/* A tier that the context does not use has no quota, or one of 0. */
static bool has_quota(const json_t *tier_of_context)
{
	return json_number_value(json_at(tier_of_context, "quota")) > 0;
}

static int show_context_tiers(const json_t *one, uint32_t terminal)
{
	static const char *const heads[] = { "tier",  ">quota", ">pages",  ">used",
					     ">live", ">dirty", ">pinned", ">leased" };
	static const char *const bytes[] = { "used", "live", "dirty", "pinned", "quarantined" };
	struct grid *g = grid_new(heads, COUNT(heads));
	const json_t *tiers = json_at(one, "tiers");
	char cell[CTL_CELL];

	for (size_t i = 0; i < json_array_size(tiers); i++) {
		const json_t *t = json_array_get(tiers, i);

		if (i > TIER_NVME && !has_quota(t))
			continue;
		grid_add(g, ctl_text(cell, t, "tier"));
		grid_add(g, has_quota(t) ? ctl_bytes_short(cell, t, "quota") : "none");
		grid_add(g, ctl_count(cell, t, "resident_pages"));
		for (uint32_t k = 0; k < COUNT(bytes); k++)
			grid_add(g, ctl_bytes_short(cell, t, bytes[k]));
	}
	return grid_print(g, stdout, terminal);
}

/* How many, and from which of the model's on. */
static const char *show_layers(char cell[CTL_CELL], const json_t *part)
{
	char first[CTL_CELL];
	size_t used = strlen(ctl_count(cell, part, "layers"));

	if (json_number_value(json_at(part, "layer_first")) > 0)
		snprintf(cell + used, CTL_CELL - used, " from %.16s",
			 ctl_count(first, part, "layer_first"));
	return cell;
}

/* Which blocks of a prefix must have the part, so that it can be gone on from. */
static const char *show_needed(char cell[CTL_CELL], const json_t *part)
{
	char last[CTL_CELL];

	if (!json_is_integer(json_at(part, "needed_last")))
		return "by all";
	snprintf(cell, CTL_CELL, "by last %.16s", ctl_count(last, part, "needed_last"));
	return cell;
}

static int show_parts(const json_t *one, uint32_t terminal)
{
	static const char *const heads[] = { "~part", "kind",	 ">layers", ">groups",
					     ">page", ">padded", "needed",  "shards" };
	struct grid *g = grid_new(heads, COUNT(heads));
	const json_t *parts = json_at(one, "geometry.parts");
	char cell[CTL_CELL];

	for (size_t i = 0; i < json_array_size(parts); i++) {
		const json_t *p = json_array_get(parts, i);

		grid_add(g, ctl_text(cell, p, "name"));
		grid_add(g, ctl_text(cell, p, "kind"));
		grid_add(g, show_layers(cell, p));
		grid_add(g, ctl_count(cell, p, "groups"));
		grid_add(g, ctl_bytes_short(cell, p, "page_bytes"));
		grid_add(g, ctl_bytes_short(cell, p, "page_stride"));
		grid_add(g, show_needed(cell, p));
		grid_add(g, json_is_true(json_at(p, "replicated")) ? "replicated" : "groups");
	}
	return grid_print(g, stdout, terminal);
}

static int show_context(const json_t *one, uint32_t terminal)
{
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL];
	int error;

	printf("context %s: id %s\n", ctl_text(a, one, "name"), ctl_text(b, one, "id"));
	printf("owner %s:%s, mode %s", ctl_text(a, one, "owner_uid"), ctl_text(b, one, "owner_gid"),
	       ctl_text(c, one, "mode"));
	printf(", epoch %s, policy %s, connections %s\n", ctl_count(a, one, "epoch"),
	       ctl_text(b, one, "policy"), ctl_count(c, one, "attached"));
	ctl_text(a, one, "fingerprint");
	printf("fingerprint %s\n", strspn(a, "0") == strlen(a) ? "none" : a);
	printf("%s blocks (%s being put), room for %s\n", ctl_count(a, one, "blocks"),
	       ctl_count(b, one, "blocks_pending"), ctl_count(c, one, "blocks_max"));
	printf("%s tokens, %s pages, %s a block; index %s\n\n", ctl_count(a, one, "block_tokens"),
	       ctl_count(b, one, "pages_per_block"), ctl_bytes(c, one, "block_bytes"),
	       ctl_bytes(d, one, "index_bytes"));
	error = show_parts(one, terminal);
	fputc('\n', stdout);
	return error ? error : show_context_tiers(one, terminal);
}

int ctl_context_show(struct ctl *ctl, int argc, char **argv)
{
	json_t *answer;
	int rc;

	(void)argc;
	rc = ctl_ask(ctl, "context", json_pack("{ss}", "context", argv[0]), &answer);
	if (rc != CTL_OK)
		return rc;
	if (ctl->json)
		rc = ctl_print_json(answer);
	else
		rc = show_context(answer, ctl->terminal) ? CTL_FAILED : CTL_OK;
	json_decref(answer);
	return rc;
}

/* ---- create -------------------------------------------------------------------------------- */

static const struct option create_options[] = {
	{ "preset", 1, NULL, 0 },      { "part", 1, NULL, 0 }, { "block-tokens", 1, NULL, 0 },
	{ "page-align", 1, NULL, 0 },  { "mode", 1, NULL, 0 }, { "hbm", 1, NULL, 0 },
	{ "cxl", 1, NULL, 0 },	       { "nvme", 1, NULL, 0 }, { "blocks-max", 1, NULL, 0 },
	{ "fingerprint", 1, NULL, 0 }, { "policy", 1, NULL, 0 }, { 0 },
};

/* Parse into a spec; what is wrong is said by the spec's own text. */
static int take_create(struct ctl *ctl, struct context_spec *spec, int argc, char **argv)
{
	int c, which = 0;

	optind = 0;
	while ((c = getopt_long(argc, argv, ":", create_options, &which)) != -1) {
		if (c)
			return ctl_option(ctl, c, argv[optind - 1]);
		if (context_spec_set(spec, create_options[which].name, optarg))
			return ctl_usage(ctl, "%s", spec->why);
	}
	if (optind < argc)
		return ctl_usage(ctl, "\"%s\" is one argument too many", argv[optind]);
	if (context_spec_check(spec))
		return ctl_usage(ctl, "%s", spec->why);
	return CTL_OK;
}

static int create(struct ctl *ctl, const char *name, const struct context_spec *spec)
{
	tier_geometry *g = NULL;
	tier_context *c = NULL;
	int error = context_spec_geometry(spec, &g);

	if (!error)
		error = tier_context_create(ctl->t, name, g, &spec->options, &c);
	tier_geometry_free(g);
	if (error)
		return ctl_failed(ctl, error);
	tier_context_close(c);
	return CTL_OK;
}

int ctl_context_create(struct ctl *ctl, int argc, char **argv)
{
	struct context_spec spec;
	int rc;

	context_spec_init(&spec);
	if (argc < 1 || argv[0][0] == '-')
		return ctl_usage(ctl, "the context's name is missing");
	/* getopt_long skips the first word, and that is the name. */
	rc = take_create(ctl, &spec, argc, argv);
	if (rc == CTL_OK)
		rc = create(ctl, argv[0], &spec);
	if (rc == CTL_OK)
		rc = ctl_context_show(ctl, 1, argv);
	return rc;
}

/* ---- remove, epoch ------------------------------------------------------------------------- */

static int done(const struct ctl *ctl, json_t *document, const char *format, const char *name,
		uint64_t value)
{
	int rc = CTL_OK;

	if (ctl->json)
		rc = ctl_print_json(document);
	else
		printf("%s: %s %llu\n", name, format, (unsigned long long)value);
	json_decref(document);
	return rc;
}

int ctl_context_remove(struct ctl *ctl, int argc, char **argv)
{
	json_t *document;
	int rc = CTL_OK, error;

	(void)argc;
	error = tier_context_remove(ctl->t, argv[0]);
	if (error)
		return ctl_failed(ctl, error);
	document = json_pack("{ssss}", "context", argv[0], "state", "removed");
	if (ctl->json)
		rc = ctl_print_json(document);
	else
		printf("%s: removed, in every tier\n", argv[0]);
	json_decref(document);
	return rc;
}

int ctl_context_epoch(struct ctl *ctl, int argc, char **argv)
{
	uint64_t epoch = 0;
	int error;
	char *end;

	if (argc == 2) {
		errno = 0;
		epoch = strtoull(argv[1], &end, 10);
		if (errno || *end || end == argv[1] || *argv[1] == '-' || !epoch)
			return ctl_usage(ctl, "epoch \"%s\" is not a number from 1 on", argv[1]);
	}
	error = tier_context_raise_epoch(ctl->t, argv[0], &epoch);
	if (error)
		return ctl_failed(ctl, error);
	return done(ctl, json_pack("{sssI}", "context", argv[0], "epoch", (json_int_t)epoch),
		    "all blocks so far are invalid; epoch", argv[0], epoch);
}
