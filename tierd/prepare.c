/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and punches that wait for their memory; see prepare.h. */
#include "tierd/prepare.h"

#include <assert.h>
#include <string.h>

#include "tierd/worker.h"

bool prepare_begin(struct prepare *p, const void *area)
{
	if (p->areas == PREPARE_AREAS_MAX)
		return false;
	p->area[p->areas++] = area;
	return true;
}

void prepare_end(struct prepare *p, const void *area)
{
	for (uint32_t i = 0; i < p->areas; i++)
		if (p->area[i] == area) {
			p->area[i] = p->area[--p->areas];
			return;
		}
}

static bool being_backed(const struct prepare *p, const uint8_t *from, uint64_t bytes)
{
	for (uint32_t a = 0; a < p->areas; a++)
		if (from < p->area[a] + PREPARE_AREA && p->area[a] < from + bytes)
			return true;
	return false;
}

static bool waits(const struct prepare *p, const struct core_io *io)
{
	for (uint32_t i = 0; i < io->piece_count; i++)
		if (being_backed(p, io->piece[i].addr, io->piece[i].bytes))
			return true;
	return false;
}

bool prepare_hold(struct prepare *p, struct core_io *io)
{
	if (!waits(p, io))
		return false;
	assert(p->held_count < PREPARE_HELD_MAX);
	p->held[p->held_count++] = io;
	return true;
}

struct core_io *prepare_release(struct prepare *p)
{
	for (uint32_t i = 0; i < p->held_count; i++) {
		struct core_io *io = p->held[i];

		if (waits(p, io))
			continue;
		memmove(&p->held[i], &p->held[i + 1],
			(--p->held_count - i) * sizeof(p->held[0]));
		return io;
	}
	return NULL;
}

static bool punch_waits(const struct prepare *p, const struct job *job)
{
	const uint8_t *from = (const uint8_t *)job->region->addr + job->range.offset;

	return being_backed(p, from, job->range.bytes);
}

bool prepare_hold_punch(struct prepare *p, struct job *job)
{
	if (p->punches == PREPARE_PUNCHES_MAX || !punch_waits(p, job))
		return false;
	p->punch[p->punches++] = job;
	return true;
}

struct job *prepare_release_punch(struct prepare *p)
{
	for (uint32_t i = 0; i < p->punches; i++) {
		struct job *job = p->punch[i];

		if (punch_waits(p, job))
			continue;
		p->punch[i] = p->punch[--p->punches];
		return job;
	}
	return NULL;
}
