/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The face of every fuzz target towards libFuzzer. With FUZZ_SEEDS=DIRECTORY in the environment a
 * target writes its seeds there instead of fuzzing, so that they always have today's formats.
 */
#include <sys/stat.h>
#include <time.h>

#include "tests/fuzz/fuzz.h"

static const char *seed_folder;

void fuzz_seed_end(struct fuzz_seed *s, const char *name)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", seed_folder, name);
	file = fopen(path, "we");
	if (!file || fwrite(s->byte, 1, s->bytes, file) != s->bytes || fclose(file)) {
		perror(path);
		exit(1);
	}
	s->bytes = 0;
}

/* isa-l is not instrumented: look at the range before it reads it (ld --wrap). */
unsigned int __wrap_crc32_iscsi(unsigned char *buf, int len, unsigned int init);
unsigned int __real_crc32_iscsi(unsigned char *buf, int len, unsigned int init);

unsigned int __wrap_crc32_iscsi(unsigned char *buf, int len, unsigned int init)
{
	volatile uint8_t byte;

	for (int i = 0; i < len; i += 64)
		byte = buf[i];
	if (len > 0)
		byte = buf[len - 1];
	(void)byte;
	return __real_crc32_iscsi(buf, len, init);
}

/* The clock that the code under test reads, where the target keeps one (ld --wrap). */
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_clock_gettime(clockid_t clock, struct timespec *out);

uint64_t fuzz_clock_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
	if (!fuzz_clock_ns || clock != CLOCK_MONOTONIC)
		return __real_clock_gettime(clock, out);
	out->tv_sec = (time_t)(fuzz_clock_ns / 1000000000u);
	out->tv_nsec = (long)(fuzz_clock_ns % 1000000000u);
	return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	setvbuf(stdout, NULL, _IOLBF, 0);
	fuzz_open();
	seed_folder = getenv("FUZZ_SEEDS");
	if (!seed_folder)
		return 0;
	mkdir(seed_folder, 0755);
	fuzz_seeds();
	exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };

	fuzz_one(&in);
	return 0;
}
