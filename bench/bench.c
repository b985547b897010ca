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

int bench_trace(struct trace **out, const struct bench *b, size_t requests_max)
{
	char why[256];
	int error = trace_open(out, b->trace, requests_max, why, sizeof(why));

	if (error)
		bench_say("%s", why);
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
