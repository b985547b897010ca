/* SPDX-License-Identifier: Apache-2.0 */
/* What every workload needs to say or know; see bench.h. */
#include "bench/bench.h"
#include "bench/trace/trace.h"

#include <stdarg.h>
#include <string.h>

#include "libtier/base/cleanup.h"

void bench_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("  # ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

int bench_made_up(const struct bench *b, const char *workload)
{
	struct trace *t = NULL;
	char why[256];
	int error = b->named ? trace_open(&t, b->trace, 0, why, sizeof(why)) : 0;

	trace_close(t);
	if (error)
		bench_say("%s", why);
	else if (b->named)
		bench_say("%s: its users are made up, nothing here comes from %s", workload,
			  b->trace);
	return error;
}

int bench_failed(const char *what, int error)
{
	fprintf(stderr, "tierbench: %s: %s; %s\n", what, strerror(-error), tier_error_text());
	return error;
}

uint64_t bench_memory_available(void)
{
	FILE *f CLEANUP_FCLOSE = fopen("/proc/meminfo", "re");
	unsigned long long kib;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			return (uint64_t)kib << 10;
	return 0;
}
