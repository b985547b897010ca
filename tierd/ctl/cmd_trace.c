/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierctl trace: what the daemon does in some seconds, as a file that ui.perfetto.dev opens. The
 * daemon keeps records; here they are read when the time is over, and each BEGIN finds its END. A
 * span that began before, or ends after, is left out and counted.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libtier/base/time.h"
#include "tierd/ctl/ctl.h"
#include "tierd/obs/trace.h"

#define SECONDS 10u
#define NOBODY UINT32_MAX
#define LATE_NS (200 * NS_PER_MS) /* the loop may sleep a little beyond the end */

struct trace_ask {
	uint32_t seconds;
	const char *file;
};

struct taken {
	struct trace_record *record;
	uint32_t *pair; /* of a record, its other one; NOBODY = it has none */
	uint32_t count, unpaired;
	uint64_t lost;
	const json_t *ops;
};

static const char *const kinds[TRACE_KINDS] = { "request", "read",    "write", "flush",
						"copy",	   "verify",  "prepare", "punch",
						"discard", "fence",   "evict" };

/* ---- reading ------------------------------------------------------------------------------- */

static int nibble(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Records of an answer, behind those that there are. False: they are none. */
static bool take(struct taken *t, const char *hex, uint32_t most)
{
	size_t bytes = hex ? strlen(hex) / 2 : 0;
	uint8_t *to = (uint8_t *)(t->record + t->count);

	if (!bytes || bytes % sizeof(*t->record) || bytes / sizeof(*t->record) > most - t->count)
		return false;
	for (size_t i = 0; i < bytes; i++) {
		int high = nibble(hex[2 * i]), low = nibble(hex[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		to[i] = (uint8_t)(high << 4 | low);
	}
	t->count += (uint32_t)(bytes / sizeof(*t->record));
	for (const struct trace_record *r = (void *)to; r < t->record + t->count; r++)
		if (r->kind >= TRACE_KINDS || r->phase > TRACE_MARK)
			return false;
	return true;
}

/* All that the daemon has. An exit status. */
static int read_all(struct ctl *ctl, struct taken *t)
{
	json_int_t count = 1;
	int rc = CTL_OK;

	while (rc == CTL_OK && t->count < count) {
		json_t *answer;

		rc = ctl_ask(ctl, "trace", json_pack("{si}", "from", (int)t->count), &answer);
		if (rc != CTL_OK)
			return rc;
		count = json_integer_value(json_at(answer, "count"));
		t->lost = (uint64_t)json_integer_value(json_at(answer, "lost"));
		if (!t->record && count > 0 && count <= TRACE_RECORDS_MAX)
			t->record = malloc((size_t)count * sizeof(*t->record));
		if (count && (!t->record || !take(t, json_string_value(json_at(answer, "records")),
						  (uint32_t)count))) {
			fprintf(stderr, "tierctl trace: the daemon's records are not understood; "
					"do the versions agree?\n");
			rc = CTL_FAILED;
		}
		json_decref(answer);
	}
	return rc;
}

/* ---- pairing ------------------------------------------------------------------------------- */

static int by_span(const void *a, const void *b)
{
	const struct trace_record *x = *(const struct trace_record *const *)a;
	const struct trace_record *y = *(const struct trace_record *const *)b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->who != y->who)
		return x->who < y->who ? -1 : 1;
	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Of one span's key: a BEGIN and the END that comes next. */
static int pair(struct taken *t)
{
	const struct trace_record **sorted = calloc(t->count + 1, sizeof(*sorted));
	const struct trace_record *open = NULL;

	t->pair = calloc(t->count + 1, sizeof(*t->pair));
	if (!sorted || !t->pair) {
		free(sorted);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < t->count; i++) {
		sorted[i] = &t->record[i];
		t->pair[i] = NOBODY;
		t->unpaired += t->record[i].phase != TRACE_MARK;
	}
	qsort(sorted, t->count, sizeof(*sorted), by_span);
	for (uint32_t i = 0; i < t->count; i++) {
		const struct trace_record *r = sorted[i];

		if (r->phase == TRACE_END && open && open->kind == r->kind &&
		    open->who == r->who && open->id == r->id) {
			t->pair[open - t->record] = (uint32_t)(r - t->record);
			t->pair[r - t->record] = (uint32_t)(open - t->record);
			t->unpaired -= 2;
		}
		open = r->phase == TRACE_BEGIN ? r : NULL;
	}
	free(sorted);
	return 0;
}

/* ---- writing ------------------------------------------------------------------------------- */

static const char *name_of(const struct taken *t, const struct trace_record *r)
{
	const char *op = json_string_value(json_array_get(t->ops, r->op));

	return op && r->kind == TRACE_REQUEST ? op : kinds[r->kind];
}

static void write_one(FILE *out, const struct taken *t, uint32_t i)
{
	static const char *const classes[] = { "demand", "deadline", "speculative", "writeback",
					       "cleanup" };
	const struct trace_record *r = &t->record[i], *begin = r;
	uint64_t ns = r->now_ns - t->record[0].now_ns;

	if (r->phase == TRACE_END)
		begin = &t->record[t->pair[i]];
	fprintf(out, ",\n{\"ph\":\"%s\",\"pid\":1,\"tid\":%u,\"ts\":%" PRIu64 ".%03u,"
		     "\"cat\":\"%s\",\"name\":\"%s\"",
		r->phase == TRACE_MARK ? "i" : r->phase == TRACE_END ? "e" : "b", r->kind + 1,
		ns / 1000, (unsigned)(ns % 1000), kinds[r->kind], name_of(t, begin));
	if (r->phase == TRACE_MARK)
		fprintf(out, ",\"s\":\"t\",\"args\":{\"hbm\":%" PRIu64 ",\"cxl\":%" PRIu64 "}}",
			r->id, r->bytes);
	else if (r->phase == TRACE_END)
		fprintf(out, ",\"id\":%u,\"args\":{\"res\":%d,\"value\":%" PRIu64 "}}",
			t->pair[i], r->res, r->bytes);
	else
		fprintf(out, ",\"id\":%u,\"args\":{\"%s\":%u,\"class\":\"%s\",\"%s\":%" PRIu64 "}}",
			i, r->kind == TRACE_REQUEST ? "client" : "drive", r->who,
			r->klass < sizeof(classes) / sizeof(classes[0]) ? classes[r->klass] : "?",
			r->kind == TRACE_FENCE ? "pages" : "bytes", r->bytes);
}

/* In the order of time, as the records are. */
static int write_all(const struct taken *t, const char *file)
{
	FILE *out = strcmp(file, "-") ? fopen(file, "we") : stdout;

	if (!out)
		return -errno;
	fprintf(out, "{\"otherData\":{\"records\":%u,\"unpaired\":%u,\"lost\":%" PRIu64 "},\n"
		     "\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\","
		     "\"args\":{\"name\":\"tierd\"}}",
		t->count, t->unpaired, t->lost);
	for (uint32_t k = 0; k < TRACE_KINDS; k++)
		fprintf(out, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\","
			     "\"args\":{\"name\":\"%s\"}}", k + 1, kinds[k]);
	for (uint32_t i = 0; i < t->count; i++)
		if (t->record[i].phase == TRACE_MARK || t->pair[i] != NOBODY)
			write_one(out, t, i);
	fputs("\n]}\n", out);
	errno = 0;
	if (ferror(out) | (out == stdout ? fflush(out) : fclose(out)))
		return errno ? -errno : -EIO;
	return 0;
}

/* ---- the verb ------------------------------------------------------------------------------ */

static int take_options(struct ctl *ctl, int argc, char **argv, struct trace_ask *ask)
{
	static const struct option table[] = { { "seconds", 1, NULL, 'n' },
					       { "output", 1, NULL, 'o' }, { 0 } };
	char *end = NULL;
	int c;

	optind = 0; /* anew: the words before were read by another table */
	while ((c = getopt_long(argc + 1, argv - 1, ":o:", table, NULL)) != -1) {
		if (c == 'o') {
			ask->file = optarg;
		} else if (c == 'n') {
			unsigned long value = strtoul(optarg, &end, 10);

			if (*end || value < 1 || value > TRACE_SECONDS_MAX)
				return ctl_usage(ctl, "\"%.32s\" is not 1 to %u seconds", optarg,
						 TRACE_SECONDS_MAX);
			ask->seconds = (uint32_t)value;
		} else {
			return ctl_option(ctl, c, argv[optind - 2]);
		}
	}
	if (argc + 1 != optind)
		return ctl_usage(ctl, "\"%.64s\" is one argument too many", argv[optind - 1]);
	return ask->file ? CTL_OK : ctl_usage(ctl, "say where it is to go: -o FILE");
}

static void wait_until(uint64_t until_ns)
{
	uint64_t now;

	while ((now = time_now_ns()) < until_ns) {
		struct timespec left = { (time_t)((until_ns - now) / NS_PER_S),
					 (long)((until_ns - now) % NS_PER_S) };

		nanosleep(&left, NULL);
	}
}

static int finish(const struct taken *t, const struct trace_ask *ask)
{
	int error = write_all(t, ask->file);

	if (error) {
		fprintf(stderr, "tierctl trace: %s: %s\n", ask->file, strerror(-error));
		return CTL_FAILED;
	}
	fprintf(stderr, "%u records, %u of spans that are not whole; %s\n", t->count, t->unpaired,
		t->lost ? "the daemon had no room for the last ones: ask for less time" :
			  "ui.perfetto.dev shows them");
	return CTL_OK;
}

int ctl_trace(struct ctl *ctl, int argc, char **argv)
{
	struct trace_ask ask = { .seconds = SECONDS };
	struct taken t = { .count = 0 };
	json_t *begun, *ended;
	int rc = take_options(ctl, argc, argv, &ask);

	if (rc != CTL_OK)
		return rc;
	rc = ctl_ask(ctl, "trace", json_pack("{si}", "seconds", (int)ask.seconds), &begun);
	if (rc != CTL_OK)
		return rc;
	wait_until((uint64_t)json_integer_value(json_at(begun, "until_ns")) + LATE_NS);
	t.ops = json_at(begun, "ops");
	rc = read_all(ctl, &t);
	if (rc == CTL_OK && ctl_ask(ctl, "trace", json_pack("{sb}", "end", 1), &ended) == CTL_OK)
		json_decref(ended);
	if (rc == CTL_OK && pair(&t)) {
		fprintf(stderr, "tierctl trace: out of memory\n");
		rc = CTL_FAILED;
	}
	if (rc == CTL_OK)
		rc = finish(&t, &ask);
	free(t.record);
	free(t.pair);
	json_decref(begun);
	return rc;
}
