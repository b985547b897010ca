/* SPDX-License-Identifier: Apache-2.0 */
/* tierctl check STORE: a store looked at, and repaired, while no daemon has it (repair.h). */
#include <getopt.h>
#include <string.h>

#include "tierd/ctl/ctl.h"
#include "tierd/ctl/repair.h"

struct lines {
	bool json;
	json_t *list;
};

static void take_line(void *arg, const char *line)
{
	struct lines *lines = arg;

	if (lines->json)
		json_array_append_new(lines->list, json_string(line));
	else
		printf("%s\n", line);
}

static int take_options(struct ctl *ctl, int argc, char **argv, struct repair_options *options)
{
	static const struct option table[] = { { "repair", 0, NULL, 'r' },
					       { "data", 0, NULL, 'd' },
					       { "remove", 1, NULL, 'x' },
					       { "objects", 1, NULL, 'o' },
					       { 0 } };
	int c;

	optind = 0; /* anew: the words before were read by another table */
	while ((c = getopt_long(argc + 1, argv - 1, ":rdx:o:", table, NULL)) != -1) {
		if (c == 'r')
			options->repair = true;
		else if (c == 'd')
			options->data = true;
		else if (c == 'x')
			options->remove = optarg;
		else if (c == 'o')
			options->objects = optarg;
		else
			return ctl_option(ctl, c, argv[optind - 2]);
	}
	if (argc + 1 - optind != 1)
		return ctl_usage(ctl, "name one STORE: the file of store.path");
	options->path = argv[optind - 1];
	return CTL_OK;
}

static int show_json(const struct repair_report *r, bool looked, json_t *lines)
{
	json_t *answer = json_pack("{sb sI sI sI sI sI sI sI sI sI sI sI sI sI sI sI sO}",
				   "looked", looked, "found", (json_int_t)r->found, "repaired",
				   (json_int_t)r->repaired, "mended", /* its old name */
				   (json_int_t)r->repaired, "segments",
				   (json_int_t)r->segments, "free",
				   (json_int_t)r->free, "rotten", (json_int_t)r->rotten,
				   "unreadable", (json_int_t)r->unreadable, "records",
				   (json_int_t)r->records, "records_bad",
				   (json_int_t)r->records_bad, "blocks", (json_int_t)r->blocks,
				   "pages_read", (json_int_t)r->pages_read, "pages_bad",
				   (json_int_t)r->pages_bad, "objects",
				   (json_int_t)r->objects, "objects_read",
				   (json_int_t)r->objects_read, "objects_bad",
				   (json_int_t)r->objects_bad, "messages", lines);
	int rc = ctl_print_json(answer);

	json_decref(answer);
	return rc;
}

static void show(const struct repair_options *options, const struct repair_report *r)
{
	printf("%llu segments: %llu free, %llu rotten, %llu unreadable;\n%llu records of %llu "
	       "blocks, %llu segments with a record that does not verify\n",
	       (unsigned long long)r->segments, (unsigned long long)r->free,
	       (unsigned long long)r->rotten, (unsigned long long)r->unreadable,
	       (unsigned long long)r->records, (unsigned long long)r->blocks,
	       (unsigned long long)r->records_bad);
	if (options->data)
		printf("%llu pages read, %llu do not verify\n", (unsigned long long)r->pages_read,
		       (unsigned long long)r->pages_bad);
	if (r->objects)
		printf("%llu objects, %llu of them read, %llu faults\n",
		       (unsigned long long)r->objects, (unsigned long long)r->objects_read,
		       (unsigned long long)r->objects_bad);
	if (!r->found)
		puts("nothing is wrong with it");
	else if (!options->repair)
		printf("faults: %llu; nothing was changed (--repair repairs what can be "
		       "repaired)\n",
		       (unsigned long long)r->found);
	else
		printf("faults: %llu, of them repaired: %llu\n", (unsigned long long)r->found,
		       (unsigned long long)r->repaired);
}

int ctl_check_store(struct ctl *ctl, int argc, char **argv)
{
	struct repair_options options = { .path = NULL };
	struct repair_report report;
	struct lines lines = { .json = ctl->json, .list = json_array() };
	int rc = take_options(ctl, argc, argv, &options), error;

	if (rc != CTL_OK) {
		json_decref(lines.list);
		return rc;
	}
	error = repair_store(&options, &report, take_line, &lines);
	if (ctl->json)
		rc = show_json(&report, error == 0, lines.list);
	else if (error == 0)
		show(&options, &report);
	json_decref(lines.list);
	if (rc == CTL_OK && (error || report.found > report.repaired))
		rc = CTL_FAILED;
	return rc;
}
