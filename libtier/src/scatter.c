/*
 * Pages into a list of places: at once, and as one request that fetches first. A load's pieces are
 * copied by the thread that takes its completion, because the library has no thread of its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "libtier/src/ask.h"
#include "libtier/src/error.h"
#include "libtier/src/reader.h"
#include "libtier/src/submit.h"

#define GROUP 64u

/* ---- scatter --------------------------------------------------------------------------------- */

/* Copies a leased piece. 0, or why not. */
static int copy(const struct tier_piece *piece, const struct tier_lease *lease)
{
	uint32_t bytes = piece->bytes;

	if (!lease->data)
		return lease->error;
	if (piece->offset > lease->bytes || bytes > lease->bytes - piece->offset)
		return -EINVAL;
	if (bytes == 0)
		bytes = lease->bytes - piece->offset;
	memcpy(piece->to, (const uint8_t *)lease->data + piece->offset, bytes);
	return 0;
}

/* A group that fits the reader's slots. Returns how many were copied, or an error of all. */
static int scatter_group(tier_reader *r, tier_context *c, const struct tier_piece *pieces,
			 uint32_t count, int32_t *error)
{
	struct tier_page pages[GROUP] = { { .page = 0 } };
	struct tier_lease leases[GROUP];
	int copied = 0, rc;

	for (uint32_t i = 0; i < count; i++)
		pages[i] = pieces[i].page;
	rc = tier_lease_pages(r, c, pages, count, 0, leases);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < count; i++) {
		int why = copy(&pieces[i], &leases[i]);

		copied += why == 0;
		if (error)
			error[i] = why;
	}
	tier_release_many(r, leases, count);
	return copied;
}

static int check_pieces(const struct tier_piece *pieces, uint32_t count)
{
	if (count > INT32_MAX)
		return error_note(-EINVAL, "scatter: too many pieces");
	for (uint32_t i = 0; i < count; i++)
		if (!pieces[i].to || pieces[i].reserved)
			return error_set(-EINVAL, "scatter: piece %u has no place, or its reserved "
					 "is not 0", i);
	return 0;
}

int tier_scatter(tier_reader *r, tier_context *c, const struct tier_piece *pieces, uint32_t count,
		 int32_t *error)
{
	int copied = 0, rc;
	uint32_t n;

	if (!r || !c || (count > 0 && !pieces))
		return error_note(-EINVAL, "tier_scatter: a pointer is NULL");
	if (connection_orphaned(r->alive))
		return connection_check(r->t);
	rc = check_pieces(pieces, count);
	if (rc)
		return rc;
	for (uint32_t at = 0; at < count; at += n) {
		n = count - at < GROUP ? count - at : GROUP;
		if (n > reader_free_slots(r))
			n = reader_free_slots(r);
		if (n == 0)
			return error_note(-EAGAIN, "tier_scatter: all slots of the reader are "
						   "held; release some");
		rc = scatter_group(r, c, pieces + at, n, error ? error + at : NULL);
		if (rc < 0)
			return rc;
		copied += rc;
	}
	return copied;
}

/* ---- load ------------------------------------------------------------------------------------ */

/* A fetch that failed says more of a page than that it is not there. */
static void copy_one(struct tier *t, const struct request *rq, struct tier_completion *done)
	REQUIRES(t->copy)
{
	int came = tier_scatter(t->copier, rq->context, rq->pieces, rq->count, rq->error);

	for (uint32_t i = 0; i < rq->count; i++) {
		if (came < 0)
			rq->error[i] = came;
		else if (rq->error[i] == -ENODATA && done->result)
			rq->error[i] = done->result;
	}
	done->value = came > 0 ? (uint64_t)came : 0;
	if (done->value == rq->count) {
		done->result = 0;
		done->status = TIER_READY;
	} else if (done->status == TIER_READY) {
		done->status = TIER_MISSED;
	}
}

void load_copy(struct tier *t, const struct done_list *loads, struct tier_completion *out)
{
	struct done_list over = *loads;

	{
		LOCK_SCOPE(&t->copy);
		for (uint32_t n = 0, i = loads->first; n < loads->count; n++) {
			const struct request *rq = &t->requests.entry[i];

			copy_one(t, rq, &out[rq->at]);
			i = rq->next;
		}
	}
	LOCK_SCOPE(&t->lock);
	submit_copied(t, &over);
}

static int need_copier(struct tier *t)
{
	LOCK_SCOPE(&t->copy);
	return t->copier ? 0 : tier_reader_open(t, &t->copier);
}

int tier_load_start(tier_context *c, const struct tier_piece *pieces, uint32_t count,
		    const struct tier_ask *ask, int32_t *error)
{
	struct submission s;
	int rc = context_check(c);

	if (rc == 0)
		rc = ask_check_list("load", pieces, count, ASK_PAGES_MAX);
	if (rc == 0 && !error)
		rc = error_note(-EINVAL, "tier_load_start: error is NULL");
	if (rc == 0)
		rc = check_pieces(pieces, count);
	if (rc == 0)
		rc = ask_pages(&s, c, ask);
	if (rc == 0)
		rc = need_copier(c->t);
	if (rc)
		return rc;
	s.args = (struct request_args){ .pieces = pieces, .count = count };
	s.error = error;
	return submit_start(c->t, &s);
}
