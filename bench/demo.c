/* SPDX-License-Identifier: Apache-2.0 */
/* The demo: its arguments, its steps, its exit status; see demo.h. */
#include "bench/demo.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/report/report.h"
#include "bench/service.h"
#include "bench/trace/gen.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"

/* Blocks of the prompt that is looked for in the recovered store, at least. */
#define FIRST_HIT_BLOCKS 24u

struct demo {
	const char *trace_path, *html, *json, *template_path, *commit;
	uint64_t requests, engines, steps;
	struct service_options options;
	const char *settings[2]; /* of the daemon: "metrics.port=..."; NULL at the end */
	struct service service;
	struct replay replay;
	struct trace *trace;
	struct report_restart restart;
	json_t *status, *stat;
	double generator_gbps, verifier_gbps;
};

static const struct engine_settings engine_defaults = {
	.context = "demo",
	.layers = 3,
	.groups = 2,
	.page_bytes = 8192,
	.sidecar_bytes = 4096,
	.decode_steps = 12,
	.top = 16,
	.repeat_percent = 75,
	.staging_bytes = 64 << 20,
};

/* ---- arguments ----------------------------------------------------------------------------- */

static int usage(int status)
{
	fputs("usage: tierbench demo --tierd FILE --dir DIR --trace FILE [--requests N]\n"
	      "         --hbm SIZE --cxl SIZE --nvme SIZE [--engines N] [--steps N]\n"
	      "         [--html FILE --template FILE] [--json FILE] [--commit TEXT]\n"
	      "Replays a trace through engine processes; called by bench/demo.\n",
	      status ? stderr : stdout);
	return status;
}

static int take_size(const char *name, const char *text, uint64_t *out)
{
	int error = units_parse_bytes(text, out);

	if (error)
		fprintf(stderr, "tierbench demo: --%s %s: write bytes with a unit, as 512MiB\n",
			name, text);
	return error;
}

static int take_number(const char *name, const char *text, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	if (!errno && *end == '\0' && end != text && *text != '-' && *out <= max)
		return 0;
	fprintf(stderr, "tierbench demo: --%s %s: write a number up to %llu\n", name, text,
		(unsigned long long)max);
	return -EINVAL;
}

static int take_option(struct demo *d, const char *name, const char *value)
{
	const struct {
		const char *name;
		const char **text;
		uint64_t *number;
		uint64_t max; /* 0: the number is a size */
	} known[] = {
		{ "tierd", &d->options.tierd, NULL, 0 },
		{ "dir", &d->options.dir, NULL, 0 },
		{ "trace", &d->trace_path, NULL, 0 },
		{ "html", &d->html, NULL, 0 },
		{ "json", &d->json, NULL, 0 },
		{ "metrics", &d->settings[0], NULL, 0 },
		{ "template", &d->template_path, NULL, 0 },
		{ "commit", &d->commit, NULL, 0 },
		{ "hbm", NULL, &d->options.hbm_bytes, 0 },
		{ "cxl", NULL, &d->options.cxl_bytes, 0 },
		{ "nvme", NULL, &d->options.nvme_bytes, 0 },
		{ "requests", NULL, &d->requests, TRACE_REQUESTS_MAX },
		{ "engines", NULL, &d->engines, REPLAY_ENGINES_MAX },
		{ "steps", NULL, &d->steps, 1000 },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(name, known[i].name) != 0)
			continue;
		if (known[i].number && known[i].max)
			return take_number(name, value, known[i].max, known[i].number);
		if (known[i].number)
			return take_size(name, value, known[i].number);
		*known[i].text = value;
		return 0;
	}
	return -EINVAL;
}

/* Returns 0, or the exit status + 1. */
static int take_arguments(struct demo *d, int argc, char **argv)
{
	static const struct option options[] = {
		{ "tierd", 1, NULL, 'x' },
		{ "dir", 1, NULL, 'x' },
		{ "trace", 1, NULL, 'x' },
		{ "html", 1, NULL, 'x' },
		{ "json", 1, NULL, 'x' },
		{ "metrics", 1, NULL, 'x' },
		{ "template", 1, NULL, 'x' },
		{ "commit", 1, NULL, 'x' },
		{ "hbm", 1, NULL, 'x' },
		{ "cxl", 1, NULL, 'x' },
		{ "nvme", 1, NULL, 'x' },
		{ "requests", 1, NULL, 'x' },
		{ "engines", 1, NULL, 'x' },
		{ "steps", 1, NULL, 'x' },
		{ "help", 0, NULL, 'h' },
		{ 0 },
	};
	int c, which;

	while ((c = getopt_long(argc, argv, "", options, &which)) != -1) {
		if (c == 'h')
			return 1 + usage(0);
		if (c != 'x')
			return 1 + usage(2);
		if (take_option(d, options[which].name, optarg))
			return 1 + 2;
	}
	if (optind < argc || !d->options.tierd || !d->options.dir || !d->trace_path ||
	    !d->options.cxl_bytes || !d->options.nvme_bytes || (d->html && !d->template_path))
		return 1 + usage(2);
	return 0;
}

/* ---- steps --------------------------------------------------------------------------------- */

static int tell(const char *what, int error)
{
	if (error)
		fprintf(stderr, "demo: %s: %s (%s)\n", what, tier_error_text(), strerror(-error));
	return error;
}

/* How fast the bytes are made and verified on one core, in cache. */
static void measure_generator(struct demo *d)
{
	uint8_t page[8192];
	tier_key key = { .bytes = { 1 } };
	uint64_t from = time_now_ns(), middle, wrong = 0;
	const uint32_t rounds = 50000;

	for (uint32_t i = 0; i < rounds; i++)
		gen_page(page, sizeof(page), &key, i);
	middle = time_now_ns();
	for (uint32_t i = 0; i < rounds; i++)
		wrong += gen_verify(page, sizeof(page), &key, rounds - 1, NULL) != 0;
	d->generator_gbps = (double)rounds * sizeof(page) / (double)(middle - from);
	d->verifier_gbps =
		wrong ? 0 : (double)rounds * sizeof(page) / (double)(time_now_ns() - middle);
}

static void tell_setting(const struct demo *d)
{
	const struct engine_settings *s = &d->replay.set;
	uint64_t block = s->layers * (s->groups * s->page_bytes + s->sidecar_bytes);
	char sizes[5][UNITS_TEXT_BYTES];

	printf("  trace     %zu requests, %zu blocks of %u tokens (%llu different)\n",
	       d->trace->request_count, d->trace->id_count, d->trace->block_tokens,
	       (unsigned long long)d->trace->distinct);
	printf("  geometry  %u layers x %u groups x %u KiB pages + a %u KiB sidecar a layer: %s a "
	       "block,\n            scaled: a large model's block of 512 tokens has about 64 MiB\n",
	       s->layers, s->groups, s->page_bytes >> 10, s->sidecar_bytes >> 10,
	       units_print_bytes(sizes[0], block));
	printf("  tiers     HBM %s (emulated), CXL %s, NVMe %s; all blocks together %s\n",
	       units_print_bytes(sizes[1], d->options.hbm_bytes),
	       units_print_bytes(sizes[2], d->options.cxl_bytes),
	       units_print_bytes(sizes[3], d->options.nvme_bytes),
	       units_print_bytes(sizes[4], d->trace->distinct * block));
	printf("  bytes     made from each key at %.1f GB/s a core, verified at %.1f GB/s\n",
	       d->generator_gbps, d->verifier_gbps);
	fflush(stdout);
}

static json_t *ask(tier *t, const char *verb)
{
	char *reply CLEANUP_FREE = NULL;

	if (tier_admin(t, verb, NULL, &reply))
		return NULL;
	return json_loads(reply, 0, NULL);
}

/* The daemon's own account, for the report. */
static int look_at_daemon(struct demo *d)
{
	const struct tier_connect_options options = {
		.size = sizeof(options),
		.socket = d->service.socket,
		.name = "demo",
	};
	tier *t;
	int error = tier_connect(&t, &options);

	if (error)
		return error;
	d->status = ask(t, "status");
	d->stat = ask(t, "stat");
	tier_close(t);
	return 0;
}

/* The last request of so many blocks whose prefix the recovered store still has. */
static int64_t last_hit(struct demo *d, struct engine *e, uint32_t blocks)
{
	int64_t n = 0;

	for (size_t i = d->trace->request_count; i > 0 && n == 0; i--) {
		uint64_t from = time_now_ns(), first_ns = 0;

		if (d->trace->request[i - 1].id_count < blocks)
			continue;
		n = engine_look(e, d->trace, &d->trace->request[i - 1], &first_ns);
		if (n <= 0)
			continue;
		d->restart.hit_s = (double)(from + first_ns - d->service.started_ns) / 1e9;
		d->restart.first_hit_ms = (double)first_ns / 1e6;
		d->restart.prefix_ms = (double)(time_now_ns() - from - first_ns) / 1e6;
		d->restart.blocks = (uint64_t)n;
	}
	return n;
}

/* What was put last is looked for first; nothing was put after it. */
static int first_hit(struct demo *d, struct engine_stats *stats)
{
	struct engine *e;
	int64_t n;
	int error = engine_open(&e, &d->replay.set, stats, REPLAY_ENGINES_MAX);

	if (error)
		return error;
	/* A prompt that shows something, not the shortest, if there is one. */
	n = last_hit(d, e, FIRST_HIT_BLOCKS);
	if (n == 0)
		n = last_hit(d, e, 1);
	engine_close(e);
	d->restart.bad_pages = stats->bad_pages;
	return n < 0 ? (int)n : 0;
}

static int restart(struct demo *d)
{
	struct engine_stats *stats = calloc(1, sizeof(*stats));
	uint64_t from = time_now_ns();
	int error = stats ? service_stop(&d->service) : -ENOMEM;

	if (!error) {
		d->restart.stop_s = (double)(time_now_ns() - from) / 1e9;
		error = service_start(&d->service, &d->options, NULL);
	}
	if (!error) {
		d->restart.ready_s = (double)(d->service.ready_ns - d->service.started_ns) / 1e9;
		error = first_hit(d, stats);
	}
	free(stats);
	return error;
}

static int write_reports(struct demo *d, const struct report *r)
{
	json_t *json = report_json(r);
	int error = json ? 0 : -ENOMEM;

	if (!error && d->json)
		error = report_write_json(json, d->json);
	if (!error && d->html)
		error = report_write_html(json, d->template_path, d->html);
	json_decref(json);
	return error;
}

/* Everything went as it must: what the exit status says. */
static int verdict(const struct demo *d)
{
	const struct engine_stats *t = &d->replay.total;
	int status = 0;

	if (t->bad_pages || d->restart.bad_pages) {
		printf("\n  FAILED: wrong bytes were read\n");
		status = 1;
	}
	if (t->requests != d->trace->request_count) {
		printf("\n  FAILED: %" PRIu64 " of %" PRIu64 " requests were served\n", t->requests,
		       (uint64_t)d->trace->request_count);
		status = 1;
	}
	if (t->put_failed) {
		printf("\n  FAILED: %" PRIu64 " blocks could not be put, at last for \"%s\"%s\n",
		       t->put_failed, tier_strerror((int)t->put_error),
		       t->put_error == -ETIMEDOUT ? ": was the machine busy with other work?" : "");
		status = 1;
	}
	if (!d->restart.blocks) {
		printf("\n  FAILED: nothing was found in the store after the restart\n");
		status = 1;
	}
	return status;
}

static int run(struct demo *d)
{
	struct report report = {
		.replay = &d->replay,
		.restart = &d->restart,
		.trace_name = strrchr(d->trace_path, '/') ? strrchr(d->trace_path, '/') + 1
							  : d->trace_path,
		.commit = d->commit,
	};
	int error = tell("tierd", service_start(&d->service, &d->options, NULL));

	if (error)
		return 1;
	printf("  daemon    up in %.2f s, store preallocated\n\n",
	       (double)(d->service.ready_ns - d->service.started_ns) / 1e9);
	fflush(stdout);
	d->replay.set.socket = d->service.socket;
	tick_calibrate(&d->replay.set.tick);
	d->replay.trace = d->trace;
	error = replay_run(&d->replay);
	if (error) {
		fprintf(stderr, "demo: %s (%s)\n", d->replay.error_text, strerror(-error));
		service_tell_log(&d->service);
		return 1;
	}
	if (tell("status", look_at_daemon(d)) || tell("restart", restart(d)))
		return 1;
	report.status = d->status;
	report.stat = d->stat;
	report.generator_gbps = d->generator_gbps;
	report.verifier_gbps = d->verifier_gbps;
	report_table(&report, stdout);
	error = write_reports(d, &report);
	if (error)
		fprintf(stderr, "demo: report: %s\n", strerror(-error));
	return verdict(d) || error;
}

int demo_main(int argc, char **argv)
{
	struct demo d = {
		.replay = { .set = engine_defaults },
		.engines = 2,
		.steps = engine_defaults.decode_steps,
	};
	int status = take_arguments(&d, argc, argv);
	char why[256];

	if (status)
		return status - 1;
	if (trace_open(&d.trace, d.trace_path, d.requests, why, sizeof(why))) {
		fprintf(stderr, "demo: %s\n", why);
		return 1;
	}
	d.options.set = d.settings;
	d.replay.engines = (uint32_t)d.engines;
	d.replay.set.decode_steps = (uint32_t)d.steps;
	measure_generator(&d);
	tell_setting(&d);
	status = run(&d);
	if (service_stop(&d.service))
		status = 1;
	json_decref(d.status);
	json_decref(d.stat);
	replay_free(&d.replay);
	trace_close(d.trace);
	return status;
}
