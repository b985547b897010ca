/* SPDX-License-Identifier: Apache-2.0 */
/* Bounce buffers beside the device's memory: one for each operation of a drive; see bounce.h. */
#include "tierd/bounce.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct bounce {
	struct core_io *io; /* NULL: it is free */
	uint8_t *buffer;
	struct core_copy copy;
};

struct bounces {
	struct bounce one[CORE_IO_MAX];
};

int bounces_open(struct bounces **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : -ENOMEM;
}

void bounces_close(struct bounces *b)
{
	for (uint32_t i = 0; b && i < CORE_IO_MAX; i++)
		free(b->one[i].buffer);
	free(b);
}

/* Of this operation, or a free one. */
static struct bounce *find(struct bounces *b, const struct core_io *io)
{
	for (uint32_t i = 0; b && i < CORE_IO_MAX; i++)
		if (b->one[i].io == io)
			return &b->one[i];
	return NULL;
}

static void end(struct bounce *one)
{
	free(one->buffer);
	one->buffer = NULL;
	one->io = NULL;
}

struct core_copy *bounce_in(struct bounces *b, struct core_io *io)
{
	struct bounce *one = find(b, NULL);
	uint64_t at = 0;

	assert(one && !find(b, io)); /* there are as many as operations */
	one->buffer = aligned_alloc(ABI_PAGE_ALIGN, (io->bytes + ABI_PAGE_ALIGN - 1) /
					    ABI_PAGE_ALIGN * ABI_PAGE_ALIGN);
	if (!one->buffer)
		return NULL;
	one->io = io;
	one->copy = (struct core_copy){ .count = io->piece_count, .klass = io->klass,
					.deadline_ns = io->deadline_ns,
					.src_tier = io->write ? ABI_TIER_CXL : ABI_TIER_COUNT,
					.dst_tier = io->write ? ABI_TIER_COUNT : ABI_TIER_CXL };
	for (uint32_t i = 0; i < io->piece_count; i++) {
		struct core_io_piece *piece = &io->piece[i];
		uint8_t *bounced = one->buffer + at;

		one->copy.item[i] = (struct core_copy_item){
			.src = io->write ? piece->addr : bounced,
			.dst = io->write ? bounced : piece->addr, .bytes = piece->bytes };
		piece->addr = bounced;
		at += piece->bytes;
	}
	assert(at == io->bytes);
	return io->write ? &one->copy : NULL;
}

struct core_copy *bounce_out(struct bounces *b, struct core_io *io)
{
	struct bounce *one = find(b, io);

	if (!one)
		return NULL;
	for (uint32_t i = 0; i < io->piece_count; i++)
		io->piece[i].addr = io->write ? (void *)(uintptr_t)one->copy.item[i].src :
						one->copy.item[i].dst;
	if (!io->write && io->res >= 0)
		return &one->copy;
	end(one);
	return NULL;
}

void bounce_end(struct bounces *b, const struct core_io *io)
{
	end(find(b, io));
}
