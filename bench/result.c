/* SPDX-License-Identifier: Apache-2.0 */
/* Rows, verdicts, table and JSON of tierbench; see result.h. */
#include "bench/result.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static bool at_most(const struct bench_goal *goal)
{
	return goal->kind != BENCH_RATIO_AT_LEAST;
}

enum bench_verdict bench_verdict_of(const struct bench_goal *goal, double low, double high)
{
	if (!isfinite(low) || !isfinite(high))
		return BENCH_CANNOT_TELL;
	if (at_most(goal) ? high <= goal->limit : low >= goal->limit)
		return BENCH_MET;
	if (at_most(goal) ? low > goal->limit : high < goal->limit)
		return BENCH_SHORT;
	return BENCH_CANNOT_TELL;
}

const char *bench_verdict_name(enum bench_verdict verdict)
{
	static const char *const names[] = { "met", "short", "cannot tell" };

	return names[verdict];
}

void bench_goal_text(const struct bench_goal *goal, char *text, size_t bytes)
{
	snprintf(text, bytes, "%s %s %g", goal->kind == BENCH_VALUE_AT_MOST ? "value" : "ratio",
		 at_most(goal) ? "<=" : ">=", goal->limit);
}

static int row_add(struct bench_results *results, const struct bench_row *row)
{
	if (results->count == results->room) {
		uint32_t room = results->room ? 2 * results->room : 64;
		struct bench_row *bigger = reallocarray(results->row, room, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		results->row = bigger;
		results->room = room;
	}
	results->row[results->count++] = *row;
	if (!results->quiet)
		bench_print_row(stdout, row);
	return 0;
}

static struct bench_row row_of(const struct bench_figure *figure)
{
	struct bench_row row = { .goal = figure->goal };

	snprintf(row.workload, sizeof(row.workload), "%s", figure->workload);
	snprintf(row.figure, sizeof(row.figure), "%s", figure->figure);
	snprintf(row.unit, sizeof(row.unit), "%s", figure->unit);
	snprintf(row.against, sizeof(row.against), "%s", figure->against);
	return row;
}

int bench_judge(struct bench_results *results, const struct bench_figure *figure,
		const struct sample *value, const struct sample *peer)
{
	struct bench_row row = row_of(figure);
	struct sample ratio = sample_ratio(value, peer);
	struct sample_summary v = sample_summarise(value), r = sample_summarise(&ratio);
	bool of_value = figure->goal.kind == BENCH_VALUE_AT_MOST;
	uint32_t rounds = of_value ? value->count : ratio.count;

	row.value = v.median;
	row.against_value = sample_summarise(peer).median;
	row.ratio = r.median;
	row.low = of_value ? v.low : r.low;
	row.high = of_value ? v.high : r.high;
	row.verdict = rounds < SAMPLE_ROUNDS_MIN ? BENCH_CANNOT_TELL
						 : bench_verdict_of(&row.goal, row.low, row.high);
	row.rounds = *value;
	row.peer_rounds = *peer;
	return row_add(results, &row);
}

int bench_judge_exact(struct bench_results *results, const struct bench_figure *figure,
		      double value, double peer)
{
	struct bench_row row = row_of(figure);

	row.value = value;
	row.against_value = peer;
	row.ratio = peer != 0 ? value / peer : 0;
	row.low = row.high = figure->goal.kind == BENCH_VALUE_AT_MOST ? value : row.ratio;
	row.verdict = bench_verdict_of(&row.goal, row.low, row.high);
	return row_add(results, &row);
}

int bench_judge_missing(struct bench_results *results, const struct bench_figure *figure,
			const char *why)
{
	struct bench_row row = row_of(figure);

	snprintf(row.against, sizeof(row.against), "not measured: %s", why);
	row.value = row.against_value = row.ratio = row.low = row.high = NAN;
	row.verdict = BENCH_CANNOT_TELL;
	return row_add(results, &row);
}

int bench_note(struct bench_results *results, const char *workload, const char *format, ...)
{
	struct bench_note *bigger =
		reallocarray(results->note, results->notes + 1, sizeof(*bigger));
	struct bench_note *note;
	va_list args;
	int n;

	if (!bigger)
		return -ENOMEM;
	results->note = bigger;
	note = &bigger[results->notes];
	snprintf(note->workload, sizeof(note->workload), "%s", workload);
	va_start(args, format);
	n = vasprintf(&note->text, format, args);
	va_end(args);
	if (n < 0)
		return -ENOMEM;
	results->notes++;
	printf("%-7s %s\n", workload, note->text);
	fflush(stdout);
	return 0;
}

int bench_point(struct bench_results *results, const struct bench_plot *plot, const char *curve,
		double x, double y)
{
	struct bench_point *bigger =
		reallocarray(results->point, results->points + 1, sizeof(*bigger));
	struct bench_point *point;

	if (!bigger)
		return -ENOMEM;
	results->point = bigger;
	point = &bigger[results->points++];
	*point = (struct bench_point){ .x = x, .y = y };
	snprintf(point->workload, sizeof(point->workload), "%s", plot->workload);
	snprintf(point->x_name, sizeof(point->x_name), "%s", plot->x_name);
	snprintf(point->y_name, sizeof(point->y_name), "%s", plot->y_name);
	snprintf(point->curve, sizeof(point->curve), "%s", curve);
	return 0;
}

int bench_points_of(struct bench_results *results, const struct bench_plot *plot, const char *name,
		    double x, const struct hist *h, double unit)
{
	static const struct {
		double quantile;
		const char *text;
	} of[] = { { 0.5, "p50" }, { 0.99, "p99" }, { 0.999, "p99.9" } };
	int error = 0;

	for (uint32_t i = 0; i < 3 && !error; i++) {
		char curve[BENCH_TEXT];

		snprintf(curve, sizeof(curve), "%s, %s", name, of[i].text);
		error = bench_point(results, plot, curve, x,
				    (double)hist_quantile(h, of[i].quantile) / unit);
	}
	return error;
}

/* Three significant digits, or a dash. */
static const char *number(char text[16], double value)
{
	if (!isfinite(value))
		return "-";
	if (fabs(value) >= 1000)
		snprintf(text, 16, "%.0f", value);
	else
		snprintf(text, 16, "%.3g", value);
	return text;
}

void bench_print_head(FILE *to)
{
	fprintf(to, "%-7s %-44s %9s %-9s %7s %-17s %-13s %-11s %s\n", "", "figure", "value", "unit",
		"ratio", "95 % interval", "goal", "verdict", "against");
}

void bench_print_row(FILE *to, const struct bench_row *row)
{
	char value[16], peer[16], ratio[16], low[16], high[16], goal[32], spread[40];

	bench_goal_text(&row->goal, goal, sizeof(goal));
	snprintf(spread, sizeof(spread), "%s ... %s", number(low, row->low),
		 number(high, row->high));
	fprintf(to, "%-7s %-44s %9s %-9s %7s %-17s %-13s %-11s %s %s\n", row->workload, row->figure,
		number(value, row->value), row->unit, number(ratio, row->ratio), spread, goal,
		bench_verdict_name(row->verdict), number(peer, row->against_value), row->against);
	fflush(to);
}

/* JSON has no NaN: what was not measured is null. */
static json_t *json_number(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static json_t *rounds_json(const struct sample *s)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < s->count; i++)
		json_array_append_new(all, json_number(s->value[i]));
	return all;
}

static json_t *row_json(const struct bench_row *row)
{
	char goal[32];

	bench_goal_text(&row->goal, goal, sizeof(goal));
	return json_pack("{ss ss so ss ss so so ss ss s[oo] so so}", "workload", row->workload,
			 "figure", row->figure, "value", json_number(row->value), "unit", row->unit,
			 "against", row->against, "against_value", json_number(row->against_value),
			 "ratio", json_number(row->ratio), "goal", goal, "verdict",
			 bench_verdict_name(row->verdict), "spread", json_number(row->low),
			 json_number(row->high), "rounds", rounds_json(&row->rounds), "peer_rounds",
			 rounds_json(&row->peer_rounds));
}

/* What precedes the rows. */
static int add_notes(const struct bench_results *results, json_t *all)
{
	int error = 0;

	for (uint32_t i = 0; i < results->notes && !error; i++) {
		const struct bench_note *n = &results->note[i];
		json_t *note = json_pack("{ss ss}", "workload", n->workload, "note", n->text);

		error = json_array_append_new(all, note);
	}
	for (uint32_t i = 0; i < results->points && !error; i++) {
		const struct bench_point *p = &results->point[i];

		error = json_array_append_new(
			all, json_pack("{ss ss ss ss so so}", "workload", p->workload, "curve",
				       p->curve, "x_name", p->x_name, "y_name", p->y_name, "x",
				       json_number(p->x), "y", json_number(p->y)));
	}
	return error ? -ENOMEM : 0;
}

int bench_write_json(const struct bench_results *results, const char *path)
{
	json_t *all = json_array();
	char *temporary = NULL;
	int error = add_notes(results, all);

	for (uint32_t i = 0; i < results->count && !error; i++)
		error = json_array_append_new(all, row_json(&results->row[i])) ? -ENOMEM : 0;
	if (!error && asprintf(&temporary, "%s.new", path) < 0)
		error = -ENOMEM;
	if (!error && json_dump_file(all, temporary, JSON_INDENT(1) | JSON_REAL_PRECISION(9)))
		error = errno ? -errno : -EIO;
	if (!error && rename(temporary, path))
		error = -errno;
	free(temporary);
	json_decref(all);
	return error;
}

void bench_results_free(struct bench_results *results)
{
	for (uint32_t i = 0; i < results->notes; i++)
		free(results->note[i].text);
	free(results->note);
	free(results->point);
	free(results->row);
	*results = (struct bench_results){ 0 };
}
