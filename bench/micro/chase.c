/* SPDX-License-Identifier: Apache-2.0 */
/* The chain of pointers and the memory in which it lies; see chase.h. */
#include "bench/micro/chase.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/micro/pool.h"
#include "libtier/base/units.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define HUGE_BYTES ((uint64_t)2 << 20)
#define COLLAPSE_TRIES 3
#define LINE_BYTES 64u

static void *node(const struct chase *c, uint64_t i)
{
	return c->memory +
	       (uint64_t)((__uint128_t)i * (c->span / LINE_BYTES) / c->lines) * LINE_BYTES;
}

/* A random cycle through all nodes (Sattolo). */
static int link_nodes(struct chase *c)
{
	uint32_t *order = malloc(c->lines * sizeof(*order));
	uint64_t random = UINT64_C(0x853c49e6748fea9b);

	if (!order)
		return -ENOMEM;
	for (uint64_t i = 0; i < c->lines; i++)
		order[i] = (uint32_t)i;
	for (uint64_t i = c->lines - 1; i > 0; i--) {
		uint64_t k = (bench_random(&random) >> 11) % i;
		uint32_t swap = order[i];

		order[i] = order[k];
		order[k] = swap;
	}
	for (uint64_t i = 0; i < c->lines; i++)
		*(void **)node(c, order[i]) = node(c, order[(i + 1) % c->lines]);
	c->at = node(c, order[0]);
	free(order);
	return 0;
}

/* Where shared memory gets no huge pages by itself, each piece is collapsed after a first touch. */
void *chase_map(int fd, uint64_t span, bool huge)
{
	uint8_t *all = mmap(NULL, span + HUGE_BYTES, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
		*at;

	if (all == MAP_FAILED)
		return NULL;
	at = all + (HUGE_BYTES - (uintptr_t)all % HUGE_BYTES) % HUGE_BYTES;
	if (mmap(at, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		munmap(all, span + HUGE_BYTES);
		return NULL;
	}
	if (huge)
		madvise(at, span, MADV_HUGEPAGE);
	for (uint64_t done = 0; huge && done < span; done += HUGE_BYTES) {
		madvise(at + done, 4096, MADV_POPULATE_WRITE);
		for (int i = 0; i < COLLAPSE_TRIES; i++)
			if (!madvise(at + done, HUGE_BYTES, MADV_COLLAPSE))
				break;
	}
	return at;
}

int chase_open(struct chase *c, uint64_t span, uint64_t lines, bool huge)
{
	int fd = memfd_create("chase", MFD_CLOEXEC), error = fd < 0 ? -errno : 0;

	*c = (struct chase){ .span = (span + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1), .lines = lines };
	if (c->lines > c->span / LINE_BYTES)
		c->lines = c->span / LINE_BYTES;
	if (c->lines < 2 || c->lines > UINT32_MAX)
		error = -EINVAL;
	if (!error && ftruncate(fd, (off_t)c->span))
		error = -errno;
	if (!error) {
		c->memory = chase_map(fd, c->span, huge);
		error = c->memory ? 0 : -ENOMEM;
	}
	if (fd >= 0)
		close(fd);
	if (error) {
		c->memory = NULL;
		return error;
	}
	error = link_nodes(c);
	if (error)
		chase_close(c);
	else
		c->huge = huge_share("/memfd:chase");
	return error;
}

void chase_close(struct chase *c)
{
	if (c->memory)
		munmap(c->memory, c->span);
	c->memory = NULL;
}

double chase_run(struct chase *c, uint64_t steps)
{
	const void *at = c->at;
	uint64_t from = time_now_ns();

	for (uint64_t i = 0; i < steps; i++)
		at = *(const void *const *)at;
	/* The last pointer is used, so that no step can be left out. */
	__asm__ volatile("" : : "r"(at));
	from = time_now_ns() - from;
	c->at = at;
	return (double)from / (double)steps;
}

void chase_describe(const struct chase *c, char *text, size_t bytes)
{
	char span[UNITS_TEXT_BYTES], lines[UNITS_TEXT_BYTES];

	snprintf(text, bytes, "pointer chase, %s lines over %s, %.0f%% huge pages",
		 units_print_count(lines, (double)c->lines), units_print_bytes(span, c->span),
		 100 * (c->huge > 0 ? c->huge : 0));
}
