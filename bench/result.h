/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of tierbench: one a figure, with what it is measured against, the goal and the verdict.
 * Printed as a table and written as JSON; the judging is done here and nowhere else.
 */
#ifndef TIER_BENCH_RESULT_H
#define TIER_BENCH_RESULT_H

#include <stdbool.h>
#include <stdio.h>

#include "bench/sample.h"
#include "libtier/base/hist.h"

enum bench_verdict { BENCH_MET, BENCH_SHORT, BENCH_CANNOT_TELL };

enum bench_goal_kind {
	BENCH_RATIO_AT_MOST,
	BENCH_RATIO_AT_LEAST,
	BENCH_VALUE_AT_MOST,
};

struct bench_goal {
	enum bench_goal_kind kind;
	double limit;
};

#define BENCH_TEXT 128

struct bench_row {
	char workload[16];
	char figure[BENCH_TEXT];
	char unit[16];
	char against[BENCH_TEXT];
	double value, against_value, ratio;
	double low, high; /* spread of what is judged: of the ratio, or of the value */
	struct bench_goal goal;
	enum bench_verdict verdict;
	struct sample rounds, peer_rounds; /* of value and against_value; empty where counted */
};

/* What a reader must know of a workload's rows: settings, the machine. */
struct bench_note {
	char workload[16];
	char *text;
};

/* What a picture of curves shows: y over x, both logarithmic. */
struct bench_plot {
	const char *workload, *x_name, *y_name;
};

struct bench_point {
	char workload[16], x_name[24], y_name[24], curve[BENCH_TEXT];
	double x, y;
};

struct bench_results {
	struct bench_row *row;
	uint32_t count, room;
	struct bench_note *note;
	uint32_t notes;
	struct bench_point *point;
	uint32_t points;
	bool quiet; /* rows are not printed: the workload has a table of its own */
};

/* What a figure is called and compared with; the numbers come beside. */
struct bench_figure {
	const char *workload, *figure, *unit, *against;
	struct bench_goal goal;
};

/*
 * Judge a figure measured in rounds against a peer measured in the same rounds, add it as a row and
 * print it. Fewer than SAMPLE_ROUNDS_MIN rounds, or an interval that spans the goal: cannot tell.
 * Errors: -ENOMEM.
 */
int bench_judge(struct bench_results *results, const struct bench_figure *figure,
		const struct sample *value, const struct sample *peer);

/* A figure that is counted, not sampled: the same every time, so one value is enough. */
int bench_judge_exact(struct bench_results *results, const struct bench_figure *figure,
		      double value, double peer);

/* A row for what could not be measured here; why goes where the peer stands. */
int bench_judge_missing(struct bench_results *results, const struct bench_figure *figure,
			const char *why);

/* Note and print one line. Errors: -ENOMEM. */
int bench_note(struct bench_results *results, const char *workload, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Keep a point of a curve for the page; nothing is printed. x and y above 0. Errors: -ENOMEM. */
int bench_point(struct bench_results *results, const struct bench_plot *plot, const char *curve,
		double x, double y);
/* Points of three curves: p50, p99 and p99.9 of what was measured in ns, in units of `unit` ns. */
int bench_points_of(struct bench_results *results, const struct bench_plot *plot, const char *name,
		    double x, const struct hist *h, double unit);

enum bench_verdict bench_verdict_of(const struct bench_goal *goal, double low, double high);
const char *bench_verdict_name(enum bench_verdict verdict);

/* "ratio <= 3.5" */
void bench_goal_text(const struct bench_goal *goal, char *text, size_t bytes);

void bench_print_head(FILE *to);
void bench_print_row(FILE *to, const struct bench_row *row);

/*
 * All notes, points and rows as a JSON array, with what each round came to, into a file that
 * appears whole or not at all. Negative errno.
 */
int bench_write_json(const struct bench_results *results, const char *path);

void bench_results_free(struct bench_results *results);

#endif
