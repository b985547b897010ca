/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, and the calls of stream.c, stream_window.c and stream_end.c. */
#ifndef TIERD_CORE_OP_STREAM_H
#define TIERD_CORE_OP_STREAM_H

#include "tierd/core/core.h"

struct context;
struct core;
struct request;

#define STREAM_ITEMS_MAX (1u << 22) /* pages of one stream */

/* stream.item: what we have done about a page */
#define ITEM_COUNTED 1u /* we count in its claim in the target tier, */
#define ITEM_STAGE 2u   /* in CXL, on its way to HBM */
#define ITEM_MINE 4u    /* we brought it */
#define ITEM_LATE 8u    /* it was still coming at the deadline */

/*
 * A stream: n blocks, layer by layer. Items are numbered layer, part, block, group; those of layers
 * that a part does not have, or of parts that a block does not have, are void. The cursors follow
 * each other: dropped <= done <= copy <= issue.
 */
struct stream {
	bool used;
	bool ended; /* answered: nothing more is begun */
	bool over;  /* all claims go, then the stream */
	bool taking;    /* not all of its blocks are held yet */
	bool finishing; /* it is counted what came: */
	uint32_t finish_status, marked, counted, there; /* ... its answer; how far that is */
	int32_t finish_error;
	uint32_t number;
	uint32_t client, connection;
	uint32_t account; /* of its user, also when its connection has ended */
	struct context *ctx;
	struct request *request; /* as long as something moves for it */
	struct abi_stream *line; /* the client's: never trusted; NULL once its connection ended */
	uint32_t generation;
	uint8_t tier, mode, klass;
	uint32_t status;
	struct abi_block_ref *ref;
	uint8_t *item;
	uint32_t held;   /* refs [0, held) carry a hold */
	uint32_t count;  /* blocks */
	uint32_t usable; /* blocks that can still be whole */
	uint32_t part_first, part_end;
	uint32_t layer_first, layers; /* the model's */
	uint32_t groups;              /* of its parts together */
	uint32_t per_layer;           /* items: groups of all blocks */
	uint32_t released;            /* layers the client is done with */
	uint32_t ready;               /* layers told */
	uint32_t window;              /* layers; 0 = waits to be admitted */
	uint32_t dropped, done, copy, issue;
	uint64_t layer_bytes; /* of its largest layer */
	uint64_t need, want;  /* bytes of window */
	uint64_t kept;        /* bytes of its blocks that are marked BLOCK_AGAIN */
	uint64_t grant[ABI_MEM_TIERS];
	uint64_t until_ns; /* ended: claims go then */
	uint64_t since_ns, deadline_ns;
	uint64_t moved, used_bytes, late, wasted;
};

struct streams {
	struct stream *table;
	uint32_t count, high; /* [0, high) may be in use */
	bool busy;            /* claims are being dropped */
	uint32_t next;        /* ... first by this one */
	uint64_t grants[ABI_MEM_TIERS];
	uint64_t aside[ABI_MEM_TIERS]; /* bytes that others may not have */
	uint64_t idle_ns;              /* what is set aside without a grant is let go then */
};

int stream_memory(struct core *c);
bool stream_item(const struct stream *s, uint32_t i, uint32_t *block, uint32_t *page);
void stream_drop_stage(struct core *c, struct stream *s, uint32_t i, const struct abi_page_ref *at);
void stream_lost(struct request *r, uint32_t slot);
bool stream_release(struct core *c, struct request *r);
void stream_work(struct core *c);
void stream_tick(struct core *c);
uint64_t stream_next(const struct core *c);
void stream_client_gone(struct core *c, uint32_t client);
void stream_context_gone(struct core *c, struct context *x);
void stream_over(struct core *c, struct stream *s);
bool stream_keeps(const struct core *c, const struct context *x, bool holds);
uint64_t stream_window_keeps(const struct core *c, const struct stream *s);
uint64_t stream_block_bytes(const struct stream *s);
int stream_window_plan(struct core *c, struct stream *s, uint64_t wanted);
uint32_t stream_window_blocks(const struct stream *s);
bool stream_admit(struct core *c, struct stream *s);
void stream_window_end(struct core *c, struct stream *s);
void stream_window_moved(struct core *c, struct stream *s);

#endif
