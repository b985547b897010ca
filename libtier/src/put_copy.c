/*
 * A put in one call: in pieces that fit the staging arena, the next one being copied while the
 * daemon works on the one before.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "libtier/src/error.h"
#include "libtier/src/put.h"
#include "libtier/src/submit.h"
#include "libtier/src/wait.h"

#define PIECES 2u
#define PIECE_BLOCKS_MAX 64u /* as many as the daemon tells of which exist */
#define ROOM_LOOK_NS (1 * NS_PER_MS)

struct put_stream {
	tier_context *c;
	const tier_key *keys;
	const uint8_t *data;
	uint32_t count;
	uint32_t done;   /* blocks begun */
	uint32_t blocks; /* of the next piece, at most */
	uint32_t depth;  /* of the first block */
	struct put_plan plan;
	tier_key replaces; /* for the last piece, when all others are whole */
	struct request *flying[PIECES]; /* oldest first */
	uint32_t flying_count;
	int64_t whole;
	bool dropped;
	uint64_t until_ns;
};

/* Waits for the oldest piece under way. */
static int reap(struct put_stream *s)
{
	struct tier *t = s->c->t;
	struct tier_completion completion;
	struct request *rq = s->flying[0];
	int rc;

	s->flying_count--;
	memmove(s->flying, s->flying + 1, s->flying_count * sizeof(s->flying[0]));
	{
		LOCK_SCOPE(&t->lock);
		rc = submit_wait(t, rq, s->until_ns, &completion);
	}
	if (rc)
		return rc;
	rc = submit_explain("put", &completion);
	if (rc)
		return rc; /* visible they may be, but not what was asked for */
	s->dropped = s->dropped || completion.status == TIER_DROPPED;
	s->whole += (int64_t)completion.value;
	return 0;
}

static void copy_part(struct tier_put *p, uint32_t block, const struct put_part *part,
		      const uint8_t *from)
{
	uint8_t *staging = p->a->staging + p->data.start + block * p->plan.block_bytes;
	uint32_t pages = part->layers * part->groups;

	if (!put_may_place(p, part->stride)) {
		memcpy(staging + part->offset, from + part->offset,
		       (uint64_t)pages * part->stride);
		return;
	}
	for (uint32_t i = 0; i < pages; i++) {
		uint64_t at = part->offset + (uint64_t)i * part->stride;
		void *to = put_place(p, block, part->before + i, part->stride);

		memcpy(to ? to : staging + at, from + at, part->stride);
	}
}

static void copy_block(struct tier_put *p, uint32_t block, const uint8_t *from)
{
	for (uint32_t i = 0; i < p->plan.part_count; i++)
		copy_part(p, block, &p->plan.part[i], from);
}

static void copy_piece(struct put_stream *s, struct tier_put *p)
{
	const uint8_t *from = s->data + s->done * s->plan.block_bytes;

	/* The daemon takes no byte of a block that it had when the put began. */
	for (uint32_t i = 0; i < p->count; i++)
		if (!tier_put_exists(p, i))
			copy_block(p, i, from + i * s->plan.block_bytes);
}

static int commit_piece(struct put_stream *s, struct tier_put *p)
{
	struct tier *t = s->c->t;
	int rc;

	{
		LOCK_SCOPE(&t->lock);
		while ((rc = put_submit(t, p, REQUEST_WAITER, 0,
					&s->flying[s->flying_count])) == -EAGAIN &&
		       time_now_ns() < s->until_ns)
			wait_step(t, time_now_ns() + ROOM_LOOK_NS);
	}
	if (rc == 0)
		s->flying_count++;
	else
		tier_put_abort(p);
	return rc;
}

/* No room at this moment: let our own pieces end, take smaller ones, or wait for others'. */
static int make_room(struct put_stream *s, uint32_t blocks, int error)
{
	struct tier *t = s->c->t;
	uint64_t now = time_now_ns();

	if (s->flying_count > 0)
		return reap(s);
	if (error == -ENOBUFS && blocks > 1) {
		s->blocks = blocks / 2;
		return 0;
	}
	if (now >= s->until_ns)
		return error;
	LOCK_SCOPE(&t->lock);
	wait_step(t, now + ROOM_LOOK_NS < s->until_ns ? now + ROOM_LOOK_NS : s->until_ns);
	submit_collect(t);
	return 0;
}

static bool is_zero(const tier_key *key)
{
	static const tier_key zero;

	return memcmp(key, &zero, sizeof(zero)) == 0;
}

static int put_piece(struct put_stream *s)
{
	uint32_t left = s->count - s->done;
	uint32_t blocks = left < s->blocks ? left : s->blocks;
	struct tier_put *p;
	int rc;

	if (blocks == left && !is_zero(&s->replaces)) {
		if (s->flying_count > 0)
			return reap(s);
		if (s->whole == s->done)
			memcpy(s->plan.args.replaces, s->replaces.bytes, sizeof(s->replaces));
	}
	if (s->done > 0 && !(s->plan.flags & ABI_SQE_APART))
		memcpy(s->plan.args.parent, s->keys[s->done - 1].bytes,
		       sizeof(s->plan.args.parent));
	s->plan.args.depth = s->plan.flags & ABI_SQE_APART ? 0 : s->depth + s->done;
	rc = put_begin(s->c, s->keys + s->done, blocks, &s->plan, &p);
	if (rc == -ENOBUFS || rc == -EAGAIN)
		return make_room(s, blocks, rc);
	if (rc)
		return rc;
	copy_piece(s, p);
	rc = commit_piece(s, p);
	if (rc)
		return rc;
	s->done += blocks;
	/* Each piece may take its time; waiting for room for one is not begun anew by looking. */
	s->until_ns = submit_until(s->plan.deadline_ns, SUBMIT_LONG_NS);
	return s->flying_count == PIECES ? reap(s) : 0;
}

static bool fits_at_all(const struct put_stream *s)
{
	struct tier *t = s->c->t;

	LOCK_SCOPE(&t->lock);
	return s->plan.block_bytes + PUT_ASK_BYTES(1) <= connection_attachment(t)->arena.bytes;
}

int64_t tier_put_copy(tier_context *c, const tier_key *keys, uint32_t count, const void *data,
		      const struct tier_put_options *options)
{
	struct put_stream s = { .c = c, .keys = keys, .data = data, .count = count };
	int rc = context_check(c);

	if (rc)
		return rc;
	if (count == 0)
		return 0;
	if (!keys || !data)
		return error_note(-EINVAL, "tier_put_copy: keys or data is NULL");
	rc = put_plan(&s.plan, c, options);
	if (rc == 0)
		rc = put_check_keys(&s.plan, keys, count);
	if (rc)
		return rc;
	memcpy(s.replaces.bytes, s.plan.args.replaces, sizeof(s.replaces));
	memset(s.plan.args.replaces, 0, sizeof(s.replaces));
	s.depth = s.plan.args.depth;
	s.blocks = (uint32_t)(c->t->staging_bytes / PIECES / s.plan.block_bytes);
	s.blocks = s.blocks == 0 ? 1 : s.blocks < PIECE_BLOCKS_MAX ? s.blocks : PIECE_BLOCKS_MAX;
	s.until_ns = submit_until(s.plan.deadline_ns, SUBMIT_LONG_NS);
	if (!fits_at_all(&s))
		return error_set(-ENOBUFS, "put: a block of %llu bytes, with its key, is larger "
					   "than the staging arena; connect with more "
					   "staging_bytes",
				 (unsigned long long)s.plan.block_bytes);
	while (rc == 0 && s.done < s.count && !s.dropped)
		rc = put_piece(&s);
	while (s.flying_count > 0) {
		int end = reap(&s);

		rc = rc ? rc : end;
	}
	return s.whole > 0 ? s.whole : rc;
}
