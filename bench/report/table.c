/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's outcome as a table on the terminal; see report.h. */
#include "bench/report/report.h"

#include <string.h>

#include "libtier/base/units.h"

#define SHARE_BYTES 16

static const char *const labels[] = { "HBM", "CXL", "NVMe" };

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* 100 % is all of it and 0 % is none: neither is what something was rounded to. */
static const char *share(char text[SHARE_BYTES], uint64_t part, uint64_t whole)
{
	double value = percent(part, whole);

	if (part && value < 0.05)
		return "<0.1%";
	if (part < whole && value >= 99.95)
		return ">99.9%";
	snprintf(text, SHARE_BYTES, "%.1f%%", value);
	return text;
}

static double gib(uint64_t bytes)
{
	return (double)bytes / (double)(1u << 30);
}

static double rate(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0;
}

static const char *backend_of(const json_t *status, uint32_t tier_number)
{
	static const char *const names[] = { "hbm", "cxl", "nvme" };
	const json_t *tiers = json_object_get(status, "tiers");

	for (size_t i = 0; i < json_array_size(tiers); i++) {
		const json_t *one = json_array_get(tiers, i);
		const char *name = json_string_value(json_object_get(one, "tier"));
		const char *detail = json_string_value(json_object_get(one, "detail"));

		if (name && detail && strcmp(name, names[tier_number]) == 0)
			return detail;
	}
	return "";
}

static void tiers(const struct report *r, FILE *to)
{
	const struct engine_stats *t = &r->replay->total;
	uint64_t pages =
		t->read[TIER_HBM].pages + t->read[TIER_CXL].pages + t->read[TIER_NVME].pages;
	char text[SHARE_BYTES];

	fprintf(to, "  %-6s %14s %12s %7s %10s %12s  %s\n", "tier", "prefix blocks", "pages read",
		"share", "GiB", "GB/s engine", "what it is");
	for (uint32_t k = 0; k <= TIER_NVME; k++) {
		double gbps = k == TIER_NVME ? rate(t->fetch_bytes, t->fetch_ns)
					     : rate(t->read[k].bytes, t->read[k].ns);

		fprintf(to, "  %-6s %14llu %12llu %7s %10.2f %12.2f  %s\n", labels[k],
			(unsigned long long)t->hit_tier[k], (unsigned long long)t->read[k].pages,
			share(text, t->read[k].pages, pages), gib(t->read[k].bytes), gbps,
			backend_of(r->status, k));
	}
	fprintf(to, "  %-6s %14llu %12s %7s %10.2f %12.2f  %s\n", "put",
		(unsigned long long)t->put_blocks, "", "", gib(t->put_bytes),
		rate(t->put_bytes, t->put_ns), "bytes made from the key, written to staging");
	fputs("  HBM, CXL: reading under a lease with every byte verified; NVMe: while a fetch is "
	      "under way\n",
	      to);
}

static void latency(const char *name, const struct hist *h, FILE *to)
{
	fprintf(to, "  %-34s p50 %5llu   p99 %6llu   p99.9 %7llu   of %llu\n", name,
		(unsigned long long)hist_quantile(h, 0.5),
		(unsigned long long)hist_quantile(h, 0.99),
		(unsigned long long)hist_quantile(h, 0.999), (unsigned long long)h->count);
}

static void restart(const struct report_restart *r, FILE *to)
{
	fprintf(to, "\n  restart   stopped in %.2f s, recovered and answering in %.3f s, ",
		r->stop_s, r->ready_s);
	if (!r->blocks) {
		fputs("no prompt found there\n", to);
		return;
	}
	fprintf(to,
		"first block read and\n            verified %.3f s after the start (look-up and "
		"read: %.2f ms); a prefix of %llu blocks\n            in %.1f ms, wrong pages: "
		"%llu\n",
		r->hit_s, r->first_hit_ms, (unsigned long long)r->blocks, r->prefix_ms,
		(unsigned long long)r->bad_pages);
}

/* How prefixes came, and what became of the bytes (the daemon's account). */
static void streams(const struct report *r, FILE *to)
{
	const struct engine_stats *t = &r->replay->total;
	char text[SHARE_BYTES];

	fprintf(to,
		"  streams   %llu prefixes layer by layer: %llu READY, %llu LATE, %llu MISS, %llu "
		"ended early, %llu\n            failed; %s of %llu layers there when wanted, a "
		"wait is %.2f ms\n",
		(unsigned long long)t->streams, (unsigned long long)t->streams_ready,
		(unsigned long long)t->streams_late, (unsigned long long)t->streams_missed,
		(unsigned long long)t->streams_ended_early, (unsigned long long)t->streams_failed,
		share(text, t->layers_there, t->layers), (unsigned long long)t->layers,
		(double)t->layer_wait_ns / 1e6 /
			(double)(t->layers > t->layers_there ? t->layers - t->layers_there : 1));
	fprintf(to,
		"            %.2f GiB brought from below: %.2f used, %.2f late, %.2f wasted\n",
		gib(report_metric(r, "stream_bytes")), gib(report_metric(r, "stream_used")),
		gib(report_metric(r, "stream_late")), gib(report_metric(r, "stream_wasted")));
}

void report_table(const struct report *r, FILE *to)
{
	const struct replay *p = r->replay;
	const struct engine_stats *t = &p->total;
	char bytes[UNITS_TEXT_BYTES], saved[SHARE_BYTES], hit[SHARE_BYTES], most[SHARE_BYTES];

	fprintf(to,
		"\n  %llu of %llu requests in %.1f s by %u engine processes; %llu blocks asked "
		"for, %llu put\n\n",
		(unsigned long long)t->requests, (unsigned long long)p->trace->request_count,
		p->seconds, p->engines, (unsigned long long)t->blocks,
		(unsigned long long)t->put_blocks);
	tiers(r, to);
	fprintf(to, "\n  lease, ns (the clock counts in steps of %.2g)\n",
		p->set.tick.resolution_ns);
	latency("  one page, with its release", &t->lease_one, to);
	latency("  in lists of up to 16, a page", &t->lease_list, to);
	fprintf(to,
		"\n  prefill   %.2f M of %.2f M prompt tokens saved (%s); blocks hit %s, "
		"with memory\n            for everything it would be %s\n",
		(double)t->tokens_saved / 1e6, (double)t->tokens / 1e6,
		share(saved, t->tokens_saved, t->tokens), share(hit, t->blocks_hit, t->blocks),
		share(most, p->trace->reusable, p->trace->id_count));
	fprintf(to, "  verified  %llu pages, %s; wrong: %llu\n",
		(unsigned long long)t->verified_pages, units_print_bytes(bytes, t->verified_bytes),
		(unsigned long long)t->bad_pages);
	fprintf(to,
		"  puts      %llu blocks stored, %llu by the other engine first, %llu dropped, "
		"%llu failed\n",
		(unsigned long long)t->put_blocks, (unsigned long long)t->put_exists,
		(unsigned long long)t->put_dropped, (unsigned long long)t->put_failed);
	fprintf(to,
		"  pins      %llu taken, %llu refused; fetches late: %llu; pages gone while "
		"decoding: %llu\n",
		(unsigned long long)t->pins, (unsigned long long)t->pins_refused,
		(unsigned long long)t->fetches_late, (unsigned long long)t->decode_gone);
	streams(r, to);
	if (r->restart)
		restart(r->restart, to);
}
