/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sparse layer as cuda/predictions has it: index keys of 128 values a token, pages of 4 KV heads,
 * 16 of which a head attends to. It lies in memory of the device; graphs of its kernels are timed.
 */
#ifndef CUDA_DEVICE_LAYER_H
#define CUDA_DEVICE_LAYER_H

#include "cuda/device/door.h"
#include "cuda/kernels/msa.h"

#define LAYER_HEADS 4u
#define LAYER_SETS 2u /* of keys: a launch does not find those of the one before in a cache */
#define LAYER_MAIN_BYTES ((uint64_t)LAYER_HEADS * MSA_TOP * MSA_PAGE_BYTES)

struct layer {
	struct door *d;
	uint32_t blocks, span;
	uint32_t repeats; /* of the main branch, each with pages of its own */
	struct door_memory keys[LAYER_SETS], pages, rest;
	uint64_t page_bytes;  /* of all pages */
	uint64_t table_of[2]; /* page tables of decode: as they lie on the device, and another */
	struct msa_index index[LAYER_SETS];
	struct msa_decode layer, main; /* main: of repeat 0 */
};

/* Of so many tokens. Errors: the driver's. */
cuda_result layer_open(struct layer *l, struct door *d, uint32_t tokens);
void layer_close(struct layer *l);

/* Decode, when it is asked for next, finds its pages there: pages of the same order and bytes. */
cuda_result layer_pages_at(struct layer *l, uint64_t pages);

/* A graph of `count` layers one behind another, or of each repeat of the main branch. */
cuda_result layer_graph(struct layer *l, uint32_t count, struct cuda_run **out);
cuda_result layer_main_graph(struct layer *l, struct cuda_run **out);

/* What the last launch made of the query, [LAYER_HEADS][MSA_ROWS][MSA_DIM]. */
#define LAYER_OUT (LAYER_HEADS * MSA_ROWS * MSA_DIM)
cuda_result layer_out(struct layer *l, float *out);

/* What lies in a page: [repeats * LAYER_HEADS * MSA_TOP][MSA_PAGE_BYTES]. */
void layer_fill_pages(const struct layer *l, void *to);

/* Launch it and wait, some times; ns of the best. Once on the stand-in, which tells no time. */
cuda_result layer_time(struct door *d, struct cuda_run *run, uint64_t *ns);

#endif
