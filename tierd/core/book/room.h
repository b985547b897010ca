/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may hold what, and how it passes on: quota.c, reserve.c, as the rest of the core calls them.
 * The last part of state.h, which includes it.
 */
#ifndef TIERD_CORE_ROOM_H
#define TIERD_CORE_ROOM_H

#define RESERVE_DEFAULT_NS (60000 * MS) /* one without a deadline ends then */
#define ROOM_AHEAD_SHARE 128u /* of a tier: what eviction keeps free (evict_room_ahead) */

struct reservation {
	bool used;
	bool growing; /* low: wants another step */
	uint32_t client;
	struct context *ctx;
	uint64_t id, deadline_ns, retry_ns;
	struct predict_key key;
	uint32_t upper; /* as predicted; 0 = it was not */
	uint32_t expected, p95, step, granted; /* blocks */
	uint32_t most;   /* of ctx->reserved_most_blocks */
	uint64_t drawn;  /* pages */
	uint64_t beside; /* pages put under it that had to find their place elsewhere */
	uint32_t left[ABI_PARTS_MAX]; /* places promised, by class */
	uint32_t next_free;
};

/* quota.c */
int quota_open(struct core *c);
void quota_client_open(struct core *c, struct client *k, uint32_t client);
void quota_client_gone(struct core *c, struct client *k);
bool quota_client_lives(const struct core *c, uint32_t owner);
void quota_name(struct core *c, struct context *x, uint32_t slot, uint64_t salt, uint32_t owner);
void quota_unname(struct core *c, struct context *x, uint32_t slot);
void quota_add(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes);
void quota_sub(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes);
uint32_t quota_rank(const struct core *c, const struct context *x, uint32_t slot, uint32_t tier);
bool quota_within(const struct core *c, const struct context *x, uint32_t slot, uint32_t tier,
		  uint32_t rank);
struct core_limit quota_limit(const struct core *c, const struct context *x, uint32_t account,
			      uint32_t tier);
int64_t quota_over(const struct core *c, const struct context *x, uint32_t account, uint32_t tier);
uint64_t quota_pins(const struct core *c, const struct context *x, uint32_t account, uint32_t tier);
bool quota_ranked(const struct core *c, const struct context *x, uint32_t tier, uint32_t rank);
uint64_t quota_left(const struct core *c, const struct context *x, uint32_t slot, uint32_t tier);
uint64_t quota_left_of(const struct core *c, const struct context *x, const uint32_t *slot,
		       uint32_t count, uint32_t tier);
struct holding *quota_short(struct core *c, struct context *x, uint32_t slot, uint32_t tier);
bool quota_of(const struct core *c, const struct context *x, uint32_t slot,
	      const struct holding *a);
/* Has any client a share of the tier? */
static inline bool quota_of_clients(const struct core *c, uint32_t tier)
{
	return c->config.client_limit[tier].soft || c->owners.soft_sum[tier];
}
/* Of a tier: pins, promises, quarantine and the stream pool together (I7). */
#define QUOTA_PROMISES_PERCENT 80u
bool quota_may_promise(const struct core *c, uint32_t tier, uint64_t bytes);
bool quota_shares(const struct context *x, uint32_t tier);
uint64_t quota_least(const struct context *x, uint32_t tier);
uint64_t quota_held(const struct core *c, const struct context *x, uint32_t tier);
uint64_t quota_holders(const struct core *c, const struct context *x, uint32_t tier);
uint64_t quota_share(const struct core *c, const struct context *x, uint32_t tier);
struct context *quota_donor(const struct core *c, const struct context *x, uint32_t tier);

/* reclaim.c */
uint64_t reclaim_held(const struct core *c, const struct context *x, uint32_t tier);

/* reserve.c */
int reserve_open(struct core *c);
void reserve_close(struct core *c);
void reserve_request(struct core *c, struct request *q);
void reserve_step(struct core *c, struct request *q);
struct reservation *reserve_find(struct core *c, uint64_t id, uint32_t client,
				 const struct context *x);
int64_t reserve_draw(struct core *c, const struct put *p, uint32_t slot, uint32_t page);
void reserve_beside(struct core *c, const struct put *p);
void reserve_grow(struct core *c);
void reserve_client_gone(struct core *c, uint32_t client);
void reserve_context_gone(struct core *c, const struct context *x);
void reserve_tick(struct core *c);

#endif
