/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door of llama.cpp: the state of a prompt's tokens is kept in tier and set in any process
 * that runs the same model, which then computes the tokens behind it alone.
 *
 *	decode(llama, first few tokens);
 *	tier_llama_open(&door, &(struct tier_llama_options){ .size = ..., .tier = t, ... });
 *	n = tier_llama_load(door, llama, 0, tokens, count);      n tokens need not be computed
 *	decode(llama, tokens + n, count - n);
 *	tier_llama_store(door, llama, 0, tokens, count);
 *
 * It needs no header of llama.cpp: three functions are found by name, and how a sequence's state
 * lies is learnt from one. A build whose state is not understood is refused at the start.
 *
 * One thread at a time for a handle. Functions return 0, a count or a negative errno.
 */
#ifndef TIER_LLAMA_H
#define TIER_LLAMA_H

#include <tier.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tier_llama tier_llama;

#define TIER_LLAMA_DURABLE 1u /* stores return when what they put survives power loss */

struct tier_llama_options {
	size_t size;
	tier *tier;            /* stays open as long as the door */
	const char *context;   /* name of the context; NULL = "llama" */
	const char *model;     /* name and revision of weights and adapters; must be given */
	void *library;         /* of dlopen, the engine's; NULL = what the program has loaded */
	void *llama;           /* a llama_context: two tokens or more of its sequence `sequence` */
	int32_t sequence;      /* are what the layout is learnt from */
	uint32_t block_tokens; /* 0 = 32 */
	uint32_t flags;        /* TIER_LLAMA_DURABLE */
	uint32_t reserved;
	const struct tier_salt *salt; /* keeps tenants apart; stays valid; NULL = none */
	const struct tier_context_options *options; /* the context's; its fingerprint is set */
};

/*
 * Learn the layout and open the context. *out is set unless memory is short, also with an error,
 * for tier_llama_error_text and tier_llama_close. Errors: -ENOSYS the engine lacks a function,
 * -ENOTSUP its state is not understood (turn on flash attention; no window or recurrent models),
 * -EINVAL an option, -ENOMEM, and those of tier_context_create.
 */
int tier_llama_open(tier_llama **out, const struct tier_llama_options *options);
void tier_llama_close(tier_llama *d);

/* What the handle's last failure was. Never NULL; valid until its next call. */
const char *tier_llama_error_text(const tier_llama *d);

/*
 * Set the state of as many of the first tokens as are stored, count - 1 at most: the engine
 * computes the last one itself, for its logits. The sequence's former content is gone when the
 * result is above 0, else it is as it was. Returns the number of tokens set. Errors: -EPROTO the
 * engine did not take the state (the sequence is empty then), -ENOMEM.
 */
int64_t tier_llama_load(tier_llama *d, void *llama, int32_t sequence, const int32_t *tokens,
			size_t count);

/*
 * Store the state of the first count tokens, which the sequence holds at positions 0 to count - 1.
 * What is there already is not put again; a shorter tail gives way to a longer one. Returns how
 * many of the tokens are stored now. Errors: -EINVAL the sequence does not hold them so, -ENOMEM,
 * and those of tier_put_copy.
 */
int64_t tier_llama_store(tier_llama *d, void *llama, int32_t sequence, const int32_t *tokens,
			 size_t count);

/* What the last load did: where its pages lay, and what it took. */
struct tier_llama_loaded {
	size_t size;
	uint32_t tokens, blocks;
	uint32_t from[TIER_COUNT]; /* blocks by the slowest tier that a page of theirs lay in */
	uint64_t bytes;            /* of these blocks, as they are stored */
	uint64_t match_ns, fetch_ns, gather_ns, set_ns;
};
int tier_llama_loaded(const tier_llama *d, struct tier_llama_loaded *out);

#ifdef __cplusplus
}
#endif

#endif
