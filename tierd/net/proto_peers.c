/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom to ask, and what to expect of them; see proto.h. A peer that failed is on probation: no
 * request waits for it until a look of our own has met it again (R4).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tierd/net/proto.h"

struct peer *peers_find(struct peers *p, const char *name)
{
	for (uint32_t i = 0; i < PEERS_MAX; i++)
		if (p->peer[i].state != PEER_FREE && strcmp(p->peer[i].name, name) == 0)
			return &p->peer[i];
	return NULL;
}

struct peer *peers_add(struct peers *p, const char *name, const char *address)
{
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		struct peer *one = &p->peer[i];

		if (one->state != PEER_FREE)
			continue;
		*one = (struct peer){ .state = PEER_NEW };
		snprintf(one->name, sizeof(one->name), "%s", name);
		snprintf(one->address, sizeof(one->address), "%s", address);
		return one;
	}
	return NULL;
}

void peers_member(struct peers *p, const struct peer *member, uint64_t now_ns)
{
	struct peer *one = peers_find(p, member->name);

	if (!one)
		one = peers_add(p, member->name, member->address);
	if (!one)
		return;
	if (strcmp(one->address, member->address) == 0 && one->incarnation == member->incarnation)
		return;
	/* Another life of it: what failed was the one before. */
	snprintf(one->address, sizeof(one->address), "%s", member->address);
	one->incarnation = member->incarnation;
	one->state = PEER_NEW;
	one->retry_ns = now_ns;
	one->failures = 0;
	one->path_failures = 0;
}

void peers_forget(struct peers *p, const char *name)
{
	struct peer *one = peers_find(p, name);

	if (one)
		*one = (struct peer){ 0 };
}

bool peer_asked(const struct peer *p)
{
	return p->state == PEER_UP;
}

bool peer_due(const struct peer *p, uint64_t now_ns)
{
	return (p->state == PEER_NEW || p->state == PEER_PROBATION) && now_ns >= p->retry_ns;
}

static uint64_t probation_ns(uint32_t failures)
{
	uint64_t wait_ns = PROBATION_FIRST_NS << (failures < 5 ? failures : 5);

	return wait_ns < PROBATION_MAX_NS ? wait_ns : PROBATION_MAX_NS;
}

void peer_failed(struct peer *p, uint64_t now_ns, const char *why)
{
	p->state = PEER_PROBATION;
	p->retry_ns = now_ns + probation_ns(p->failures++);
	p->failed++;
	snprintf(p->why, sizeof(p->why), "%s", why);
}

int peer_met(struct peer *p, uint64_t incarnation)
{
	if (p->incarnation && p->incarnation != incarnation && !p->fixed)
		return -ESTALE;
	p->incarnation = incarnation;
	p->state = PEER_UP;
	p->failures = 0;
	p->why[0] = '\0';
	return 0;
}

/* The new value counts an eighth. */
static uint64_t average(uint64_t old, uint64_t new)
{
	return old ? old - old / 8 + new / 8 : new;
}

void peer_moved(struct peer *p, uint64_t bytes, uint64_t took_ns)
{
	p->pulls++;
	p->bytes_in += bytes;
	if (took_ns && bytes)
		p->bytes_per_s = average(p->bytes_per_s,
					 (uint64_t)((double)bytes * 1e9 / (double)took_ns));
}

void peer_answered(struct peer *p, uint64_t took_ns)
{
	p->answer_ns = average(p->answer_ns, took_ns);
}

void peer_path_failed(struct peer *p, uint64_t now_ns)
{
	p->path = false;
	p->path_retry_ns = now_ns + probation_ns(p->path_failures++);
}

void peer_read(struct peer *p, uint64_t bytes, bool good)
{
	p->path = good && bytes;
	p->read_in += bytes;
	if (p->path)
		p->path_failures = 0;
}

bool peer_path_due(const struct peer *p, uint64_t now_ns)
{
	return !p->path_failures || now_ns >= p->path_retry_ns;
}

/* A rate that nobody has measured costs nothing: so it is tried, and then it is known. */
static uint64_t at_rate(uint64_t bytes, uint64_t bytes_per_s)
{
	return bytes_per_s ? (uint64_t)((double)bytes * 1e9 / (double)bytes_per_s) : 0;
}

uint64_t peer_estimate(const struct peer *p, uint64_t bytes, uint64_t cold_bytes)
{
	uint64_t wire_ns = at_rate(bytes, p->bytes_per_s);
	uint64_t stage_ns = at_rate(cold_bytes, p->stage_bytes_per_s);

	/* Staging and sending overlap, layer by layer: the slower one tells. */
	return p->answer_ns + (wire_ns > stage_ns ? wire_ns : stage_ns);
}

/* ---- anchors ------------------------------------------------------------------------------- */

bool anchor(uint32_t depth)
{
	return depth < 32 ? (depth & (depth + 1)) == 0 : depth % 32 == 31;
}

uint32_t anchors(uint32_t from, uint32_t count, uint32_t depth[NET_ANCHORS_MAX])
{
	uint32_t n = 0;

	for (uint32_t d = from; d < count && n < NET_ANCHORS_MAX; d++)
		if (d == from || anchor(d) || d + 1 == count)
			depth[n++] = d;
	return n;
}
