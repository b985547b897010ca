/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon with one context full of blocks, for the benchmarks that only read. Keys are numbered,
 * and the first word of every page says which page it is, so that reading the wrong one shows.
 */
#ifndef TIER_BENCH_MICRO_POOL_H
#define TIER_BENCH_MICRO_POOL_H

#include "bench/bench.h"

struct pool_spec {
	const char *name;
	uint32_t pages_per_block; /* so many groups of one layer, or of each of */
	uint32_t layers;	  /* these; 0 = 1 */
	uint32_t page_bytes;
	uint32_t page_align; /* 0 = 4096 */
	uint32_t blocks;     /* may be 0: then blocks_max says how many there will be */
	uint64_t blocks_max; /* 0 = as many as blocks */
	const char *policy;  /* eviction; NULL = the default */
	uint64_t hbm_bytes, cxl_bytes; /* of the tiers; cxl 0 = what the blocks need */
	uint64_t nvme_bytes;	       /* 0 = memory only */
	const char *const *set;	       /* further settings of the daemon; may be NULL */
	uint32_t put_blocks; /* blocks of one put, a prefix; 0 = some MiB */
	bool fill_pages; /* with bytes that no device can compress, not only the first word */
	/* Or each page so; NULL = as above. */
	void (*fill)(void *page, uint32_t block, uint32_t number);
};

/* What the daemon holds in memory, as the kernel counts it. */
struct pool_memory {
	uint64_t index; /* of the contexts' index memfds, touched or prepared */
	uint64_t private; /* its own */
};

struct pool {
	struct bench *bench;
	struct pool_spec spec;
	char *dir;
	struct service service;
	tier *t;
	tier_context *c;
	tier_reader *r;
	tier_block *block; /* spec.blocks of them */
	struct pool_memory empty; /* when the context was made and nothing was put */
};

/*
 * Start the daemon, make the context, put all blocks. It says what it does and how long it took.
 * Errors: as the library's; the text has been printed.
 */
int pool_open(struct pool *p, struct bench *b, const struct pool_spec *spec);
void pool_close(struct pool *p);

/* The daemon ends, with what is dirty written, and another begins over its store. */
int pool_restart(struct pool *p);

/* Another connection of this process or a child to the pool's daemon and context, with blocks. */
int pool_attach(struct pool *p, const struct pool *from);
/* The same in a child that was forked since: it need not look the blocks up again. */
int pool_join(struct pool *p, const struct pool *from);
void pool_detach(struct pool *p);

/* Delete the puts that began with these blocks, and put them again, durably. */
int pool_rewrite(struct pool *p, const uint32_t *first, uint32_t count);

/* Look all blocks up. Errors: -ENODATA when one is missing. */
int pool_find(struct pool *p);

/* Errors: -ENOENT no /proc, or it may not be read. */
int pool_memory(const struct pool *p, struct pool_memory *out);

/* The key of block i; cheap. */
void pool_key(tier_key *out, uint32_t i);

/* What the first word of a page says. */
static inline uint64_t pool_word(uint32_t block, uint32_t page)
{
	return (uint64_t)(block + 1) << 20 | page;
}

/* Bytes of index memory, shared and private, that the daemon counts. */
int pool_index_bytes(struct pool *p, uint64_t *bytes);

/*
 * Of our mappings whose name begins so ("/memfd:tier-cxl-"): the share of what is mapped that is
 * mapped by huge pages; < 0 = nothing is mapped. A page counts once this process has touched it.
 */
double huge_share(const char *name);

#endif
