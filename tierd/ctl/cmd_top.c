/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierctl top: tiers and rates, drawn anew. On a terminal a screen is cut to its width and the
 * rates stand in as many columns as fit; in a file nothing is cut. With --json what a screen is
 * made of: the daemon's two documents, in a line.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "libtier/base/units.h"
#include "tierd/ctl/ctl.h"

#define COUNT(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))

#define PAIR_COLUMNS 39u /* a rate with its name */

struct screen {
	FILE *to;
	uint32_t terminal;
	uint32_t pairs; /* rates a line */
};

struct top {
	double interval_s;
	uint64_t count; /* 0 = until interrupted */
};

/* Counters that are worth a line when they move, and what they are called there. */
static const struct {
	const char *metric, *text;
	bool bytes;
} top_rates[] = {
	{ "requests", "requests", false },
	{ "blocks_committed", "blocks committed", false },
	{ "put_bytes", "put", true },
	{ "read_bytes", "read from NVMe", true },
	{ "promoted_bytes", "copied to HBM", true },
	{ "direct_bytes", "read straight into HBM", true },
	{ "written_bytes", "written to NVMe", true },
	{ "evicted_cxl", "pages out of CXL", false },
	{ "evicted_hbm", "pages out of HBM", false },
	{ "puts_dropped", "puts dropped", false },
	{ "read_bad", "rotten pages", false },
};

static double metric_value(const json_t *stat, const char *name)
{
	const json_t *metrics = json_at(stat, "metrics");

	for (size_t i = 0; i < json_array_size(metrics); i++) {
		const json_t *one = json_array_get(metrics, i);
		const char *found = json_string_value(json_at(one, "name"));

		if (found && strcmp(found, name) == 0)
			return json_number_value(json_at(one, "value"));
	}
	return 0;
}

/*
 * Rates since the screen before, and on the first one since the daemon began: a count that fell is
 * another daemon's.
 */
static void show_rates(const json_t *now, const json_t *before, double seconds, struct screen s)
{
	char text[UNITS_TEXT_BYTES];

	fprintf(s.to, "rates, over the last %.1f s:\n", seconds);
	for (uint32_t i = 0; i < COUNT(top_rates); i++) {
		double value = metric_value(now, top_rates[i].metric);
		double old = before ? metric_value(before, top_rates[i].metric) : 0;
		double rate = seconds > 0 ? (value - (old <= value ? old : 0)) / seconds : 0;

		if (top_rates[i].bytes)
			fprintf(s.to, "  %-24s %12s", top_rates[i].text,
				units_print_rate(text, rate));
		else
			fprintf(s.to, "  %-24s %10s/s", top_rates[i].text,
				units_print_count(text, rate));
		if ((i + 1) % s.pairs == 0 || i + 1 == COUNT(top_rates))
			fputc('\n', s.to);
	}
}

static double seconds_between(const json_t *status, const json_t *now, const json_t *before)
{
	if (!before)
		return json_number_value(json_at(status, "uptime_ns")) / 1e9;
	return (json_number_value(json_at(now, "now_ns")) -
		json_number_value(json_at(before, "now_ns"))) /
	       1e9;
}

static int compose(const json_t *status, const json_t *now, const json_t *before, struct screen s)
{
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL];
	int error;

	fprintf(s.to, "tierd %s, up %s: %s clients, ", ctl_text(a, status, "version"),
		ctl_ns(b, status, "uptime_ns"), ctl_count(c, status, "connections.open"));
	fprintf(s.to, "%s blocks, %s requests under way, %s pins\n\n",
		ctl_count(a, status, "blocks"), ctl_count(b, status, "requests"),
		ctl_count(c, status, "pins"));
	error = ctl_show_tiers(status, s.to, s.terminal);
	fputc('\n', s.to);
	show_rates(now, before, seconds_between(status, now, before), s);
	return error;
}

/* Lines of at most so many columns; 0 = as they are. */
static void print_cut(const char *text, uint32_t columns)
{
	while (*text) {
		int length = (int)strcspn(text, "\n");

		printf("%.*s\n", columns && length > (int)columns ? (int)columns : length, text);
		text += length + (text[length] == '\n');
	}
}

static int draw(const json_t *status, const json_t *now, const json_t *before)
{
	uint32_t columns = ctl_terminal(); /* it may have become another one */
	char *text = NULL;
	size_t bytes;
	struct screen s = {
		.to = open_memstream(&text, &bytes),
		.terminal = columns,
		.pairs = columns && columns < 2 * PAIR_COLUMNS ? 1 : 2,
	};
	int error = s.to ? compose(status, now, before, s) : -errno;

	if (s.to && fclose(s.to) && !error)
		error = -ENOMEM;
	if (!error) {
		/* Home, and clear what is below: it does not flicker. In a file: an empty line. */
		if (isatty(STDOUT_FILENO))
			fputs(before ? "\033[H\033[J" : "\033[2J\033[H", stdout);
		else if (before)
			fputc('\n', stdout);
		print_cut(text, columns);
		fflush(stdout);
	}
	free(text);
	return error;
}

static int print_line(json_t *status, json_t *stat)
{
	json_t *line = json_pack("{s:O, s:O}", "status", status, "stat", stat);
	int error = line ? json_dumpf(line, stdout, JSON_COMPACT) : -1;

	json_decref(line);
	return error || putchar('\n') == EOF || fflush(stdout) ? -EIO : 0;
}

/* One screen. *before becomes the present counters. */
static int top_screen(struct ctl *ctl, json_t **before)
{
	json_t *status = NULL, *stat = NULL;
	int rc = ctl_ask(ctl, "status", NULL, &status);

	if (rc == CTL_OK)
		rc = ctl_ask(ctl, "stat", NULL, &stat);
	if (rc == CTL_OK) {
		rc = (ctl->json ? print_line(status, stat) : draw(status, stat, *before)) ?
			     CTL_FAILED : CTL_OK;
		json_decref(*before);
		*before = json_incref(stat);
	}
	json_decref(status);
	json_decref(stat);
	return rc;
}

static int take_top(struct ctl *ctl, struct top *top, int argc, char **argv)
{
	static const struct option options[] = { { "interval", 1, NULL, 'i' },
						 { "count", 1, NULL, 'n' },
						 { 0 } };
	char *end;
	int c;

	optind = 0; /* anew: the words before were read by another table */
	while ((c = getopt_long(argc + 1, argv - 1, ":i:n:", options, NULL)) != -1) {
		errno = 0;
		if (c == 'i') {
			top->interval_s = strtod(optarg, &end);
			if (errno || *end || !(top->interval_s >= 0.1 && top->interval_s <= 3600))
				return ctl_usage(ctl, "--interval %s: 0.1 to 3600 seconds", optarg);
		} else if (c == 'n') {
			top->count = strtoull(optarg, &end, 10);
			if (errno || *end || *optarg == '-' || !top->count)
				return ctl_usage(ctl, "--count %s: a number from 1 on", optarg);
		} else {
			return ctl_option(ctl, c, argv[optind - 2]);
		}
	}
	if (optind < argc + 1)
		return ctl_usage(ctl, "\"%.64s\" is one argument too many", argv[optind - 1]);
	return CTL_OK;
}

int ctl_top(struct ctl *ctl, int argc, char **argv)
{
	struct top top = { .interval_s = 1 };
	json_t *before = NULL;
	int rc = take_top(ctl, &top, argc, argv);
	struct timespec pause;

	if (rc != CTL_OK)
		return rc;
	pause = time_to_timespec((uint64_t)(top.interval_s * 1e9));
	for (uint64_t i = 0; rc == CTL_OK && (!top.count || i < top.count); i++) {
		if (i)
			nanosleep(&pause, NULL);
		rc = top_screen(ctl, &before);
	}
	json_decref(before);
	return rc;
}
