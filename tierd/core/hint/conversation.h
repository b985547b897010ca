/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations (design, section 6 d): at the end of a turn it is known *what* will be read next,
 * not *when*. A conversation is a list of blocks and a few words; it costs no tier a byte until the
 * user may be back, then only its lead: the first layers, so many that the others stream in while
 * these are computed. Everything has a fixed size; who is not heard of any more is forgotten.
 *
 *   AWAY --soon--> STAGING --there--> STAGED --patience ends--> FADED --expires--> forgotten
 *     '--------------- return: the rest is fetched, ACTIVE ------'
 */
#ifndef TIERD_CORE_CONVERSATION_H
#define TIERD_CORE_CONVERSATION_H

#include <stdbool.h>
#include <stdint.h>

#include "libtier/abi/ring.h"

struct core;
struct meter_pass;
struct abi_part;
struct context;
struct request;

#define CONVERSATIONS_MAX 4096u
#define CONVERSATIONS_CLIENT_MAX 2048u
#define CONVERSATION_BUCKETS 8192u
#define CONVERSATION_CHUNKS 32768u
#define CONVERSATION_CHUNK_REFS 31u /* 256 bytes: most prefixes are short */

#define THINK_BUCKETS 88u /* up to 2^44 ns, five hours */
#define THINK_TENANTS 1024u
#define THINK_WAYS 4u
#define THINK_PATIENCE 64u

struct think {
	uint64_t salt;
	uint64_t used_ns;
	uint32_t context_id;
	uint32_t count;
	uint16_t bucket[THINK_BUCKETS];
};

enum conversation_state {
	CONVERSATION_FREE = 0,
	CONVERSATION_ACTIVE, /* a turn is running */
	CONVERSATION_AWAY,
	CONVERSATION_STAGING,
	CONVERSATION_STAGED,
	CONVERSATION_FADED,
	/* forgotten: nobody finds it, and it ends when its marks are withdrawn */
	CONVERSATION_GONE,
};

/* Of a conversation's references, those [from, to) carry marks: as many as were set so far. */
struct conversation_marks {
	uint32_t from, to;
};

struct conversation_chunk {
	struct abi_block_ref ref[CONVERSATION_CHUNK_REFS];
	uint32_t next; /* 1 + index; 0 = none */
	uint32_t count;
};

struct conversation {
	enum conversation_state state;
	uint32_t client, client_connection;
	struct context *ctx;
	uint64_t id, salt;
	uint64_t turn_end_ns;  /* 0 = no turn has ended yet */
	uint64_t use_ns;       /* the earliest return, by estimate or hint */
	uint64_t patience_ns;  /* until then its lead stays */
	uint64_t expires_ns;
	uint64_t wake_ns;      /* the next thing to do */
	uint64_t layer_ns;     /* computing a layer takes so long; 0 = not said */
	uint64_t pin;          /* 0 = none */
	struct request *r;     /* staging; NULL = none */
	struct request *rest;  /* back: what was missing; likewise */
	uint16_t part_first, part_count;
	uint16_t lead;         /* layers to be there at the return */
	uint16_t staged;       /* of these, brought for it; 0 = not yet */
	uint16_t kept;         /* ... its blocks are marked with; 0 = they are not */
	double weight;         /* lead.c: its part of what leads may keep, at the last look */
	uint8_t tier;
	bool told;             /* it said when it comes back */
	bool landed;           /* the lead was there when staging ended */
	bool awaited;          /* back: its blocks carry a mark (block_staged.planned) */
	uint32_t chunks;       /* 1 + index of the first; 0 = none */
	uint32_t blocks;
	struct conversation_marks await, leads; /* what is set of awaited, and of ... */
	uint16_t lead_layers;  /* so many layers; becomes kept */
	bool gives, unsettled; /* its blocks are given back; marks are not yet as they are to be */
	uint32_t given;        /* ... so many were */
	uint32_t next;         /* 1 + index: in its bucket or the free list */
	uint32_t next_unsettled;
};

/* Nobody finds it: it is none, or only waits for what is unsettled. */
static inline bool conversation_gone(const struct conversation *s)
{
	return s->state == CONVERSATION_FREE || s->state == CONVERSATION_GONE;
}

struct conversations {
	struct conversation *table;       /* CONVERSATIONS_MAX */
	struct conversation_chunk *chunk; /* CONVERSATION_CHUNKS */
	uint32_t bucket[CONVERSATION_BUCKETS]; /* 1 + index */
	uint32_t free, chunk_free;   /* 1 + index; handed out from the untouched end first */
	uint32_t high, chunks_high;
	uint32_t count;
	uint32_t awaited;            /* of them, whose blocks carry marks */
	uint32_t going;              /* of them, in CONVERSATION_GONE */
	uint32_t unsettled;          /* 1 + index of the first whose marks are */
	uint32_t looked;             /* lead.c: where its look goes on */
	uint64_t next_ns;
	struct think everyone;
	struct think *tenant; /* THINK_TENANTS */
};

/* conversation.c */
int conversations_open(struct core *c);
void conversations_close(struct core *c);
void conversation_kept(struct core *c, struct conversation *s);
void conversation_work(struct core *c);
void conversation_tick(struct core *c);
uint64_t conversation_next(const struct core *c);
bool conversation_leave(struct core *c, uint32_t client, const struct context *x,
			struct meter_pass *pass);

/* conversation_marks.c */
bool conversation_settle(struct core *c, struct conversation *s);
void conversation_await(struct core *c, struct conversation *s, bool yes);
struct abi_block_ref *conversation_ref(struct core *c, const struct conversation *s, uint32_t i);

/* lead.c */
bool lead_reads(const struct conversation *s, uint32_t part);
uint32_t lead_pages(const struct abi_part *part, uint32_t layers);
uint32_t lead_layers(const struct conversation *s);
uint64_t lead_bytes(const struct conversation *s, uint32_t layers);
uint16_t lead_need(const struct core *c, const struct conversation *s);
uint32_t lead_may(const struct core *c, const struct conversation *s);
void lead_keep(struct core *c, struct conversation *s, uint32_t layers);
bool lead_holds(const struct context *x, uint32_t slot, uint32_t page, uint32_t tier);
bool lead_is_all(const struct context *x, uint32_t slot, uint32_t tier);
void lead_look(struct core *c, struct context *x, uint32_t tier);

/* think.c */
uint64_t think_soon_ns(struct core *c, struct context *x, uint64_t salt);
double think_odds(struct core *c, struct context *x, uint64_t salt, uint64_t away_ns,
		  uint64_t soon_ns);
void think_learn(struct core *c, struct context *x, uint64_t salt, uint64_t ns);
void think_window(struct core *c, struct context *x, uint64_t salt, uint64_t *low, uint64_t *high);

#endif
