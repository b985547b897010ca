/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside a space: what its two files share. space.c owns places and whole slabs,
 * space_evacuate.c the emptying of slabs.
 */
#ifndef TIERD_CORE_SPACE_PRIV_H
#define TIERD_CORE_SPACE_PRIV_H

#include "tierd/core/unit/space.h"

#define UNITS_MAX 64u /* of a slab */

/* Steps of fullness. */
#define FILL_NONE 0u /* in no heap: unused, being punched or evacuated */
#define FILL_EMPTY 1u
#define FILL_FULL 63u /* not in HEAP_ALLOC */

enum slab_state {
	SLAB_UNUSED,
	SLAB_TAKEN,
	SLAB_EVACUATED,
	SLAB_PUNCHED, /* charged until it is over */
};

/* A slab stands in HEAP_ALLOC, unless it is full, and in one of the other two. */
enum heap_kind { HEAP_ALLOC, HEAP_EVACUATE, HEAP_EMPTY, HEAPS };

struct slab {
	uint32_t live; /* places handed out */
	uint8_t klass;
	uint8_t state;
	uint8_t fill;
	uint8_t shunned; /* space_shun */
	uint16_t lent;    /* clients whose devices have it mapped or registered */
	uint32_t recalled; /* wanted back: space.looks then, or when devices let go; 0 = no */
	uint32_t at[2]; /* where in HEAP_ALLOC, and in the other heap */
	uint64_t going; /* evacuated: a bit a unit that was handed out to be punched */
	uint64_t gone;  /* ... whose punch is over: not charged any more */
};

struct heap {
	uint64_t *key; /* binary heap, best first; each names its slab */
	uint32_t count;
};

struct space_class {
	uint32_t stride;
	uint32_t places; /* of one slab */
	uint64_t free;     /* places free in TAKEN slabs */
	uint64_t live;     /* places handed out, in all */
	uint64_t going;    /* ... in evacuated slabs: they look for room in others */
	uint64_t reserved; /* of these, promised: free >= reserved at any time */
	uint32_t low;      /* empty slabs: the fewest since the last look, */
	uint32_t idle;     /* ... and of those, how many beyond one may go */
	bool wanting;      /* found no place the last time */
	uint64_t weight;   /* bytes that are lost with a place */
	uint8_t *fill;     /* of a slab with so many places handed out */
	struct heap heap[HEAPS];
};

struct space {
	struct pool *pool;
	uint64_t slab_bytes;
	uint64_t unit_bytes;    /* in which an evacuated slab is given back */
	uint32_t slabs;         /* that range and quota allow: only the first so many are used */
	uint32_t limit;         /* slabs that the present quota allows */
	uint32_t taken;         /* with those being punched: what is charged, but for `returned` */
	uint32_t punching;      /* of these, empty ones on their way out */
	uint32_t parked;        /* evacuated slabs with units given back */
	uint32_t looks;         /* space_look, from 1 on */
	uint32_t recall_from;   /* the next one that is looked at for it */
	uint64_t returned;      /* bytes of units that are not charged any more */
	uint32_t unused_from;   /* no slab below is unused */
	uint32_t words;         /* of a slab's bitmap, for the smallest class */
	uint32_t summary_words; /* that follow them */
	uint32_t classes;
	uint64_t live;          /* bytes handed out */
	uint64_t free;          /* bytes of free places, with those of evacuated slabs */
	uint64_t free_evacuated;
	struct slab *slab;
	uint64_t *taken_bits; /* a bit a slab */
	uint64_t *place_bits; /* words + summary_words for each slab; 1 = taken, full */
	uint64_t *heap_memory;
	uint8_t *fill_memory; /* of the classes, one behind the other */
	struct space_class klass[];
};

static inline uint64_t space_class_bytes(const struct space *s, uint32_t klass)
{
	return (uint64_t)s->klass[klass].places * s->klass[klass].stride;
}

static inline uint64_t *space_slab_bits(const struct space *s, uint32_t number)
{
	return s->place_bits + (size_t)number * (s->words + s->summary_words);
}

/* Keys end with their slab's number: where high ones come first, with its complement. */
static inline uint32_t heap_slab(enum heap_kind kind, uint64_t key)
{
	return kind == HEAP_ALLOC ? (uint32_t)key : UINT32_MAX - (uint32_t)key;
}

/* The slab of an offset that is a slab's start. */
uint32_t space_slab_at(const struct space *s, uint64_t offset);
/* Put the slab where its state and its live places want it. */
void space_settle(struct space *s, uint32_t number);
/* It holds no place and is not charged any more. */
void space_slab_unused(struct space *s, uint32_t number);

#endif
