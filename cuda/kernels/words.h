/* SPDX-License-Identifier: Apache-2.0 */
/* Pages by the words of the registered index, as they are when the kernel runs (docs/cuda.md). */
#ifndef CUDA_KERNELS_WORDS_H
#define CUDA_KERNELS_WORDS_H

#include <stdint.h>

#include "libtier/include/tier_view.h"

/* As struct tier_page. */
struct msa_word {
	uint32_t slot, generation, page;
};

struct msa_words {
	const struct tier_device_view *view; /* as tier_device_view gave it */
	const struct msa_word *of;           /* [count] */
	uint64_t *page;                      /* [count] address, as of msa_decode; 0 = not there */
	uint32_t count;
};

/* msa_words_find: first in a graph; grid count / WORDS_THREADS, rounded up; WORDS_THREADS. */
#define WORDS_THREADS 128u

#endif
