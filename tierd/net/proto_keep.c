/* SPDX-License-Identifier: Apache-2.0 */
/* Standing grants, both ends; see keep.h. What the other end sends is judged as in proto.c. */
#include <assert.h>
#include <errno.h>

#include "tierd/net/keep.h"

const struct shape_page *keep_page(const struct shape *s, uint32_t blocks,
				   const struct net_pick_page *p)
{
	return p->block < blocks && p->page < s->pages ? &s->page[s->by_number[p->page]] : NULL;
}

/* ---- requester ----------------------------------------------------------------------------- */

void keep_ask(struct keep *k, const struct shape *s, uint64_t wait_ns, struct net_ask *m,
	      uint64_t now_ns)
{
	assert(k->asked > 0 && k->asked <= NET_LOCAL_KEYS_MAX);
	k->state = KEEP_ASKED;
	k->shape = s;
	k->sent_ns = now_ns;
	message_header(&m->header, NET_KEEP, sizeof(*m) + k->asked * NET_KEY_BYTES);
	m->id = ++k->id;
	m->epoch = k->epoch;
	m->deleted = k->deleted;
	m->count = k->asked;
	m->wait_ns = wait_ns;
}

static int over(struct keep *k, int error)
{
	k->state = KEEP_FREE;
	return error;
}

int keep_granted(struct keep *k, const struct net_grant *m)
{
	int64_t blocks = k->state == KEEP_ASKED && m->id == k->id ?
				 grant_blocks(m, k->shape, k->asked) : -EPROTO;

	if (blocks < 0)
		return -EPROTO;
	if (!blocks)
		return over(k, m->error && m->error != -EPROTO ? m->error : -ENODATA);
	k->blocks = (uint32_t)blocks;
	k->ends_ns = k->sent_ns + grant_lasts(m);
	k->state = KEEP_OPEN;
	return 0;
}

bool keep_lasts(const struct keep *k, uint64_t until_ns)
{
	return k->state == KEEP_OPEN && until_ns < k->ends_ns;
}

void keep_pick(struct keep *k, struct net_pick *m)
{
	assert(k->state == KEEP_OPEN && k->count > 0 && k->count <= NET_FRAME_PAGES_MAX);
	message_header(&m->header, NET_PICK, sizeof(*m) + k->count * sizeof(struct net_pick_page));
	m->id = ++k->id;
	m->count = k->count;
	m->reserved = 0;
	k->state = KEEP_PICKED;
}

int keep_picked(struct keep *k, const struct net_picked *m)
{
	const struct net_picked_page *got = (const void *)(m + 1);
	uint32_t bytes = 0;

	if (k->state != KEEP_PICKED || m->id != k->id)
		return -EPROTO;
	if (m->error)
		return over(k, m->error != -EPROTO ? m->error : -ENODATA);
	if (m->count != k->count)
		return -EPROTO;
	for (uint32_t i = 0; i < k->count; i++)
		if (!got[i].error)
			bytes += keep_page(k->shape, k->blocks, &k->page[i])->bytes;
	if (bytes != m->bytes)
		return -EPROTO;
	k->state = KEEP_CAME;
	return 0;
}

int keep_whole(struct keep *k, const struct net_word *m, bool publishes, uint64_t now_ns)
{
	if (k->state != KEEP_CAME || m->id != k->id)
		return -EPROTO;
	if (m->error)
		return over(k, m->error != -EPROTO ? m->error : -ESTALE);
	if (!publishes)
		return over(k, -ESTALE);
	if (now_ns >= k->ends_ns)
		return over(k, -ETIMEDOUT);
	k->state = KEEP_OPEN;
	return 0;
}

/* ---- holder -------------------------------------------------------------------------------- */

void kept_grant(struct kept *k, const struct net_ask *m, const struct shape *s, uint32_t blocks,
		struct net_grant *out, uint64_t now_ns)
{
	uint64_t lasts_ns = grant_say(out, m, s, blocks);

	*k = (struct kept){ 0 };
	if (blocks)
		*k = (struct kept){ .open = true, .shape = s, .epoch = m->epoch, .blocks = blocks,
				    .ends_ns = now_ns + lasts_ns };
}

int kept_pick(struct kept *k, const struct net_pick *m, bool intact, uint64_t now_ns)
{
	const struct net_pick_page *page = (const void *)(m + 1);
	const struct shape_page *p;
	uint64_t bytes = 0;

	if (!k->open)
		return -EPROTO;
	for (uint32_t i = 0; i < m->count; i++) {
		p = keep_page(k->shape, k->blocks, &page[i]);
		if (!p)
			return -EPROTO;
		bytes += p->bytes;
	}
	if (bytes > NET_PICK_BYTES)
		return -EPROTO;
	k->id = m->id;
	k->open = intact && now_ns < k->ends_ns;
	return k->open ? 0 : intact ? -ETIMEDOUT : -ESTALE;
}

void kept_picked(const struct kept *k, const struct net_pick *m, int error,
		 struct net_picked *out)
{
	const struct net_picked_page *got = (const void *)(out + 1);
	const struct net_pick_page *page = (const void *)(m + 1);

	*out = (struct net_picked){ .id = m->id, .error = error };
	out->count = error ? 0 : m->count;
	for (uint32_t i = 0; i < out->count; i++)
		if (!got[i].error)
			out->bytes += keep_page(k->shape, k->blocks, &page[i])->bytes;
	message_header(&out->header, NET_PICKED, sizeof(*out) + out->count * sizeof(*got));
}

void kept_whole(struct kept *k, bool intact, struct net_word *out, uint64_t now_ns)
{
	*out = (struct net_word){ .id = k->id };
	message_header(&out->header, NET_WHOLE, sizeof(*out));
	if (!intact)
		out->error = -ESTALE;
	else if (now_ns >= k->ends_ns)
		out->error = -ETIMEDOUT;
	k->open = !out->error;
}
