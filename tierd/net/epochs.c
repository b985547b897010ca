/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epochs of shared contexts (R5). etcd has the highest one, and which one each host has applied:
 *
 *   context/DIGEST       = { "name", "epoch" }
 *   applied/DIGEST/HOST  = { "epoch" }           under HOST's lease
 *
 * A host that shares a context applies etcd's epoch, or raises it to its own, and says so before
 * it serves. A raise is acknowledged when no host is left under applied/ with a lower one: who has
 * not applied it holds that up until its lease is over, and then serves nothing strict.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libtier/base/json_at.h"
#include "libtier/base/key.h"
#include "libtier/base/time.h"
#include "tierd/net/etcd.h"

#define PATH_BYTES 256u
#define LOOK_NS (50 * NS_PER_MS)
#define TURN_TRIES 3u
#define RAISE_TRIES 8u
#define RAISE_MAX_NS (45 * NS_PER_S) /* whoever asks waits for the answer */

static void path_of(char path[PATH_BYTES], const char *kind, const struct share *s,
		    const char *host)
{
	char digest[KEY_HEX_BYTES];

	snprintf(path, PATH_BYTES, "%s/%s%s%s", kind, key_print(digest, s->digest),
		 host ? "/" : "", host ? host : "");
}

/* What is none counts as 0: it is overwritten. */
static uint64_t epoch_in(const json_t *record)
{
	json_int_t epoch = json_integer_value(json_at(record, "value.epoch"));

	return epoch > 0 && epoch <= EPOCH_MAX ? (uint64_t)epoch : 0;
}

/* The context's record among those of context/; NULL: there is none. */
static const json_t *record_of(const json_t *list, const struct share *s)
{
	char digest[KEY_HEX_BYTES];

	key_print(digest, s->digest);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = json_string_value(json_at(json_array_get(list, i), "name"));

		if (name && strcmp(name, digest) == 0)
			return json_array_get(list, i);
	}
	return NULL;
}

static bool put_record(struct etcd *e, const struct share *s, const json_t *record, uint64_t epoch)
{
	char path[PATH_BYTES];

	path_of(path, "context", s, NULL);
	return etcd_put_if(e, path, json_pack("{s:s, s:I}", "name", s->name, "epoch",
					      (json_int_t)epoch),
			   json_integer_value(json_at(record, "mod")));
}

static bool say_applied(struct etcd *e, const struct node *n, struct share *s, uint64_t epoch)
{
	char path[PATH_BYTES];

	path_of(path, "applied", s, n->config.name);
	if (!etcd_put(e, path, json_pack("{s:I}", "epoch", (json_int_t)epoch), true))
		return false;
	s->told = epoch;
	return true;
}

static int apply(struct node *n, struct share *s, uint64_t epoch)
{
	int rc = tier_context_raise_epoch(n->t, s->name, &epoch);

	if (rc)
		log_error(&n->log, "an epoch of the fleet cannot be applied", s->name,
			  "it is not said to be, and a raise is not acknowledged", "why=\"%s\"",
			  tier_error_text());
	else
		log_info(&n->log, "the fleet's epoch was applied", s->name, "epoch=%llu",
			 (unsigned long long)epoch);
	return rc;
}

/*
 * One context's turn: agree on the epoch, apply it, say so. -EAGAIN: somebody else was first, or
 * etcd is away: look again.
 */
static int agree(struct etcd *e, struct node *n, struct share *s, const json_t *list, bool fresh)
{
	const json_t *record = record_of(list, s);
	uint64_t there = epoch_in(record), ours = tier_context_epoch(s->c);

	if (ours > there && !put_record(e, s, record, ours))
		return -EAGAIN;
	if (ours < there && apply(n, s, there))
		return 0;
	ours = ours < there ? there : ours;
	if ((fresh || s->told != ours) && !say_applied(e, n, s, ours))
		return -EAGAIN;
	share_known(n, s);
	return 0;
}

static int agree_on_all(struct etcd *e, struct node *n, bool fresh)
{
	json_t *list = etcd_range(e, "context/");
	int rc = list ? 0 : -EAGAIN;

	for (uint32_t i = 0; i < NODE_SHARES_MAX && rc == 0; i++) {
		struct share *s = share_at(n, i);

		if (!s)
			continue;
		rc = agree(e, n, s, list, fresh);
		share_put(n, s);
	}
	json_decref(list);
	return rc;
}

/* Of contexts that we share no longer nobody waits for us. */
static bool withdraw(struct etcd *e, struct node *n)
{
	json_t *list = etcd_range(e, "applied/");
	bool good = list != NULL;

	for (size_t i = 0; i < json_array_size(list) && good; i++) {
		const char *name = json_string_value(json_at(json_array_get(list, i), "name"));
		char path[PATH_BYTES];
		uint8_t digest[32];
		struct share *s;

		snprintf(path, sizeof(path), "%.64s", name);
		if (strlen(name) < 66 || strcmp(name + 65, n->config.name) != 0 ||
		    key_parse(digest, path))
			continue;
		s = share_digest(n, digest);
		snprintf(path, sizeof(path), "applied/%.200s", name);
		if (s)
			share_put(n, s);
		else
			good = etcd_delete(e, path);
	}
	json_decref(list);
	return good;
}

bool epochs_turn(struct etcd *e, struct node *n, bool fresh)
{
	int rc = -EAGAIN;

	for (uint32_t i = 0; i < TURN_TRIES && rc; i++)
		rc = agree_on_all(e, n, fresh);
	return rc == 0 && withdraw(e, n);
}

/* ---- raising ------------------------------------------------------------------------------- */

/* etcd has at least that epoch, or a higher one if none was wanted. */
static int raise_there(struct etcd *e, struct share *s, uint64_t *epoch)
{
	uint64_t wanted = *epoch;

	for (uint32_t i = 0; i < RAISE_TRIES; i++) {
		json_t *list = etcd_range(e, "context/");
		const json_t *record = record_of(list, s);
		uint64_t there = epoch_in(record), ours = tier_context_epoch(s->c);
		bool away = !list, put;

		there = ours > there ? ours : there;
		if (!wanted)
			*epoch = there + 1;
		put = !away && *epoch > there && put_record(e, s, record, *epoch);
		json_decref(list);
		if (away)
			return -EAGAIN;
		if (*epoch <= there)
			return -EINVAL;
		if (put)
			return 0;
	}
	return -EAGAIN;
}

/* Who has not applied it; "" when all have, NULL when etcd is away. */
static const char *laggard(struct etcd *e, const struct share *s, uint64_t epoch,
			   char name[NET_NAME_BYTES])
{
	char path[PATH_BYTES];
	json_t *list;

	path_of(path, "applied", s, "");
	list = etcd_range(e, path);
	if (!list)
		return NULL;
	name[0] = '\0';
	for (size_t i = 0; i < json_array_size(list) && !name[0]; i++) {
		const json_t *one = json_array_get(list, i);

		if (epoch_in(one) < epoch)
			snprintf(name, NET_NAME_BYTES, "%s",
				 json_string_value(json_at(one, "name")));
	}
	json_decref(list);
	return name;
}

static int wait_for_all(struct etcd *e, struct node *n, const struct share *s, uint64_t epoch,
			char *text)
{
	uint64_t leases_ns = 3 * n->config.lease_ns;
	uint64_t until_ns = time_now_ns() + (leases_ns < RAISE_MAX_NS ? leases_ns : RAISE_MAX_NS);
	char name[NET_NAME_BYTES] = "";
	const char *who;

	while ((who = laggard(e, s, epoch, name)) == NULL || *who) {
		if (time_now_ns() < until_ns && !node_stopped(n, LOOK_NS))
			continue;
		snprintf(text, SHARE_TEXT_BYTES, "epoch %llu is raised, but %.63s",
			 (unsigned long long)epoch, who ? who : "etcd does not answer");
		if (who)
			strncat(text, " has not applied it yet", 32);
		return -EAGAIN;
	}
	return 0;
}

int epochs_raise(struct node *n, struct share *s, uint64_t *epoch, char *text)
{
	struct etcd *e = NULL;
	int rc = n->config.etcd[0] ? etcd_open(&e, n) : -ENOTSUP;

	snprintf(text, SHARE_TEXT_BYTES, "there is no etcd to agree by (--etcd)");
	if (rc)
		return rc;
	rc = raise_there(e, s, epoch);
	snprintf(text, SHARE_TEXT_BYTES, "%s", rc == -EINVAL ?
		 "the epoch must be larger than before" : "etcd does not answer; try again");
	/* Our own members' thread applies it, as everybody's does. */
	if (rc == 0)
		rc = wait_for_all(e, n, s, *epoch, text);
	etcd_close(e);
	return rc;
}
