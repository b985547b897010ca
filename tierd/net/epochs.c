/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns and raises as calls of etcd and of the tierd of this host: agree.h says which, and what
 * their answers mean. Records are JSON: see docs/hosts.md.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/json_at.h"
#include "libtier/base/key.h"
#include "libtier/base/time.h"
#include "tierd/net/etcd.h"

#define PATH_BYTES 256u
#define LOOK_NS (50 * NS_PER_MS)
#define RAISE_MAX_NS (45 * NS_PER_S) /* whoever asks waits for the answer */

/* One who calls. */
struct caller {
	struct etcd *e;
	struct node *n;
	struct share *share[NODE_SHARES_MAX]; /* a turn's, held; a raise's: the first */
	uint32_t shares;
	const struct net_want *want; /* a deletion's keys, from `key` on */
	uint32_t key;
	json_t *list; /* what the last read call returned */
	struct agree_record *record;
	struct agree_answer answer;
};

/* ---- records ------------------------------------------------------------------------------- */

static void path_of(char path[PATH_BYTES], const char *kind, const uint8_t digest[32],
		    const char *rest)
{
	char hex[KEY_HEX_BYTES];

	snprintf(path, PATH_BYTES, "%s/%s%s%s", kind, key_print(hex, digest), rest ? "/" : "",
		 rest ? rest : "");
}

static void number_name(char name[17], uint64_t number)
{
	snprintf(name, 17, "%016llx", (unsigned long long)number);
}

/* What is none counts as 0: it is overwritten. */
static uint64_t number_in(const json_t *value, const char *name, uint64_t most)
{
	json_int_t number = json_integer_value(json_at(value, name));

	return number > 0 && (uint64_t)number <= most ? (uint64_t)number : 0;
}

/* Of context/ by its name; of others by the digest that was asked for. */
static void read_record(const json_t *one, const struct agree_call *c, struct agree_record *out)
{
	const json_t *value = json_at(one, "value");
	const char *name = json_string_value(json_at(one, "name"));

	*out = (struct agree_record){
		.epoch = number_in(value, "epoch", EPOCH_MAX),
		.deleted = number_in(value, "deleted", INT64_MAX),
		.first = number_in(value, "first", INT64_MAX),
		.mod = json_integer_value(json_at(one, "mod")),
	};
	memcpy(out->digest, c->digest, sizeof(out->digest));
	if (c->what == AGREE_READ && (!name || key_parse(out->digest, name)))
		*out = (struct agree_record){ 0 };
}

static int read_all(struct caller *r, const struct agree_call *c, json_t *list)
{
	size_t count = json_array_size(list);

	json_decref(r->list);
	free(r->record);
	r->list = list;
	r->record = calloc(count + 1, sizeof(*r->record));
	if (!list || !r->record)
		return -EAGAIN;
	for (size_t i = 0; i < count; i++)
		read_record(json_array_get(list, i), c, &r->record[i]);
	r->answer.record = r->record;
	r->answer.count = (uint32_t)count;
	return 0;
}

/* Our own of applied/DIGEST/. */
static int read_mine(struct caller *r, const struct agree_call *c, const char *path)
{
	int rc = read_all(r, c, etcd_range(r->e, path));

	for (uint32_t i = 0; rc == 0 && i < r->answer.count; i++) {
		const json_t *one = json_array_get(r->list, i);
		const char *name = json_string_value(json_at(one, "name"));

		if (name && strcmp(name, r->n->config.name) == 0)
			r->answer.mod = r->record[i].mod;
	}
	return rc;
}

static int read_log(struct caller *r, const struct agree_call *c)
{
	char path[PATH_BYTES], from[17], to[17];

	path_of(path, "deletion", c->digest, "");
	number_name(from, c->first);
	number_name(to, c->last + 1);
	return read_all(r, c, etcd_between(r->e, path, from, to));
}

static json_t *keys_of(const struct net_want *m, uint32_t from)
{
	const uint8_t(*key)[NET_KEY_BYTES] = (const void *)(m + 1);
	json_t *list = json_array();
	char hex[KEY_HEX_BYTES];

	for (uint32_t i = from; i < m->count && i < from + AGREE_KEYS_MAX; i++)
		json_array_append_new(list, json_string(key_print(hex, key[i])));
	return json_pack("{s:o}", "keys", list);
}

/* context/DIGEST, and what goes with it. */
static int write_context(struct caller *r, const struct agree_call *c)
{
	char path[PATH_BYTES], log[PATH_BYTES], number[17];
	json_t *parts = json_array();
	const char *name = "";

	for (uint32_t i = 0; i < r->shares; i++)
		if (memcmp(r->share[i]->agreed.digest, c->digest, 32) == 0 && !r->share[i]->names)
			name = r->share[i]->name;
	path_of(path, "context", c->digest, NULL);
	json_array_append_new(parts, etcd_to_put(r->e, path,
		json_pack("{s:s, s:I, s:I, s:I}", "name", name, "epoch", (json_int_t)c->epoch,
			  "deleted", (json_int_t)c->deleted, "first", (json_int_t)c->first),
		false));
	path_of(log, "deletion", c->digest, "");
	number_name(number, c->first);
	json_array_append_new(parts, etcd_to_delete(r->e, log, number));
	if (c->what == AGREE_ADD) {
		number_name(number, c->deleted);
		path_of(log, "deletion", c->digest, number);
		json_array_append_new(parts, etcd_to_put(r->e, log, keys_of(r->want, r->key),
							 false));
	}
	return etcd_change(r->e, path, &r->answer.mod, parts);
}

static int say(struct caller *r, const struct agree_call *c, const char *path)
{
	json_t *value = json_pack("{s:I, s:I}", "epoch", (json_int_t)c->epoch, "deleted",
				  (json_int_t)c->deleted);

	return etcd_change(r->e, path, &r->answer.mod,
			   json_pack("[o]", etcd_to_put(r->e, path, value, true)));
}

/* ---- this host ------------------------------------------------------------------------------ */

static int raise_here(struct caller *r, const struct agree_call *c)
{
	struct share *s = r->share[c->share];
	uint64_t epoch = c->epoch;
	int rc = tier_context_raise_epoch(r->n->t, s->name, &epoch);

	if (rc)
		log_error(&r->n->log, "an epoch of the fleet cannot be applied", s->name,
			  "it is not said to be, and a raise is not acknowledged", "why=\"%s\"",
			  tier_error_text());
	else
		log_info(&r->n->log, "the fleet's epoch was applied", s->name, "epoch=%llu",
			 (unsigned long long)epoch);
	return rc;
}

static int delete_one(struct share *s, const json_t *record)
{
	const json_t *keys = json_at(record, "value.keys");
	tier_key key[AGREE_KEYS_MAX];
	uint32_t count = 0;
	int64_t rc;

	for (size_t i = 0; i < json_array_size(keys) && count < AGREE_KEYS_MAX; i++) {
		const char *hex = json_string_value(json_array_get(keys, i));

		count += hex && key_parse(key[count].bytes, hex) == 0;
	}
	rc = count ? tier_delete(s->c, key, count) : 0;
	return rc < 0 ? (int)rc : 0;
}

static int delete_here(struct caller *r, const struct agree_call *c)
{
	struct share *s = r->share[c->share];
	int rc = 0;

	for (size_t i = 0; i < json_array_size(r->list) && rc == 0; i++)
		rc = delete_one(s, json_array_get(r->list, i));
	if (rc)
		log_error(&r->n->log, "a deletion of the fleet cannot be done", s->name,
			  "the context is shared again when it can", "why=\"%s\"",
			  tier_error_text());
	return rc;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int do_applied(struct caller *r, const struct agree_call *c)
{
	char all[PATH_BYTES], mine[PATH_BYTES];

	path_of(all, "applied", c->digest, "");
	path_of(mine, "applied", c->digest, r->n->config.name);
	switch (c->what) {
	case AGREE_MINE:
		return read_mine(r, c, all);
	case AGREE_SAY:
		return say(r, c, mine);
	case AGREE_LEAVE:
		return etcd_change(r->e, mine, &r->answer.mod,
				   json_pack("[o]", etcd_to_delete(r->e, mine, NULL)));
	default:
		return read_all(r, c, etcd_range(r->e, all));
	}
}

static void perform(struct caller *r, const struct agree_call *c)
{
	static int (*const does[])(struct caller *r, const struct agree_call *c) = {
		[AGREE_MINE] = do_applied,   [AGREE_SAY] = do_applied,
		[AGREE_LEAVE] = do_applied,  [AGREE_APPLIED] = do_applied,
		[AGREE_PUT] = write_context, [AGREE_ADD] = write_context,
		[AGREE_LOG] = read_log,      [AGREE_RAISE] = raise_here,
		[AGREE_DELETE] = delete_here,
	};
	bool writes = c->what == AGREE_SAY || c->what == AGREE_LEAVE || c->what == AGREE_PUT ||
		      c->what == AGREE_ADD || c->what == AGREE_ENTER;

	r->answer = (struct agree_answer){ .mod = writes ? c->mod : 0 };
	if (c->what == AGREE_KEEP)
		r->answer.error = etcd_keep(r->e);
	else if (c->what == AGREE_LEASE)
		r->answer.error = etcd_lease(r->e);
	else if (c->what == AGREE_READ)
		r->answer.error = read_all(r, c, etcd_range(r->e, "context/"));
	else if (c->what == AGREE_MEMBERS)
		r->answer.error = etcd_members(r->e, r->n, &r->answer);
	else if (c->what == AGREE_POOL_READ || c->what == AGREE_POOL_CLAIM)
		r->answer.error = pool_agree(r->e, r->n, c, &r->answer);
	else if (c->what == AGREE_ENTER)
		r->answer.error = etcd_enter(r->e, r->n, &r->answer.mod);
	else
		r->answer.error = does[c->what](r, c);
}

static void caller_end(struct caller *r)
{
	json_decref(r->list);
	free(r->record);
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void refresh(struct caller *r) REQUIRES(r->n->shares)
{
	for (uint32_t i = 0; i < r->shares; i++)
		share_refresh(r->n, r->share[i]);
}

static void turn_begin(struct caller *r)
{
	struct agreed *agreed[NODE_SHARES_MAX];

	for (uint32_t i = 0; i < NODE_SHARES_MAX; i++) {
		struct share *s = share_at(r->n, i);

		if (!s)
			continue;
		agreed[r->shares] = &s->agreed;
		r->share[r->shares++] = s;
	}
	LOCK_SCOPE(&r->n->shares);
	agree_begin(&r->n->agree, agreed, r->shares, time_now_ns());
}

static enum agree_do turn_next(struct caller *r, struct agree_call *c)
{
	LOCK_SCOPE(&r->n->shares);
	refresh(r);
	return agree_next(&r->n->agree, c);
}

static void turn_answered(struct caller *r, const struct agree_call *c)
{
	LOCK_SCOPE(&r->n->shares);
	refresh(r);
	agree_answered(&r->n->agree, c, &r->answer);
}

bool epochs_turn(struct etcd *e, struct node *n)
{
	struct caller r = { .e = e, .n = n };
	enum agree_do what;
	struct agree_call c;

	pull_settle(n);
	turn_begin(&r);
	while ((what = turn_next(&r, &c)) != AGREE_DONE && what != AGREE_AWAY) {
		perform(&r, &c);
		turn_answered(&r, &c);
	}
	for (uint32_t i = 0; i < r.shares; i++)
		share_put(n, r.share[i]);
	caller_end(&r);
	return what == AGREE_DONE;
}

/* ---- raises --------------------------------------------------------------------------------- */

static const char *raise_text(int error, bool deletion)
{
	switch (error) {
	case -EINVAL:
		return "the epoch must be larger than before";
	case -ENOSPC:
		return "too much was deleted in this epoch; raise it, which deletes all";
	case -ENOTSUP:
		return "there is no etcd to agree by (--etcd)";
	default:
		return deletion ? "etcd does not answer; delete again" :
				  "etcd does not answer; try again";
	}
}

static int not_by_all(const struct caller *r, const struct agree_raise *raise, char *text)
{
	const char *who = json_string_value(json_at(json_array_get(r->list, raise->laggard),
						    "name"));

	snprintf(text, SHARE_TEXT_BYTES, "%s %llu is there, but %.63s %s",
		 raise->deletion ? "deletion" : "epoch",
		 (unsigned long long)(raise->deletion ? raise->number : raise->epoch),
		 who ? who : "etcd", who ? "has not applied it yet" : "does not answer");
	return -EAGAIN;
}

/* wait: until all have applied it; else until etcd has it. */
static int raise_it(struct caller *r, struct agree_raise *raise, uint64_t until_ns, bool wait,
		    char *text)
{
	enum agree_do what;
	struct agree_call c;

	memcpy(raise->digest, r->share[0]->agreed.digest, sizeof(raise->digest));
	raise->ours = tier_context_epoch(r->share[0]->c);
	while ((what = agree_raise_next(raise, &c)) != AGREE_DONE && what != AGREE_AWAY) {
		if (what == AGREE_APPLIED && !wait)
			return 0;
		perform(r, &c);
		agree_raise_answered(raise, &c, &r->answer);
		if (what != AGREE_APPLIED || raise->done)
			continue;
		if (time_now_ns() >= until_ns || node_stopped(r->n, LOOK_NS))
			return not_by_all(r, raise, text);
	}
	snprintf(text, SHARE_TEXT_BYTES, "%s", raise_text(raise->error, raise->deletion));
	return what == AGREE_DONE ? 0 : raise->error ? raise->error : -EAGAIN;
}

static int raiser_begin(struct caller *r, char *text)
{
	int rc = r->n->config.etcd[0] ? etcd_open(&r->e, r->n) : -ENOTSUP;

	snprintf(text, SHARE_TEXT_BYTES, "%s", raise_text(rc, false));
	return rc;
}

/* Our own members' thread applies it, as everybody's does. */
int epochs_raise(struct node *n, struct share *s, uint64_t *epoch, char *text)
{
	struct caller r = { .n = n, .share = { s }, .shares = 1 };
	struct agree_raise raise = { .want = *epoch };
	uint64_t leases_ns = 3 * n->config.lease_ns;
	int rc = raiser_begin(&r, text);

	if (rc)
		return rc;
	rc = raise_it(&r, &raise,
		      time_now_ns() + (leases_ns < RAISE_MAX_NS ? leases_ns : RAISE_MAX_NS), true,
		      text);
	*epoch = raise.epoch;
	caller_end(&r);
	etcd_close(r.e);
	return rc;
}

int epochs_delete(struct node *n, struct share *s, const struct net_want *m, char *text)
{
	struct caller r = { .n = n, .share = { s }, .shares = 1, .want = m };
	int rc = raiser_begin(&r, text);

	if (rc)
		return rc;
	for (; r.key < m->count && rc == 0; r.key += AGREE_KEYS_MAX) {
		struct agree_raise raise = { .deletion = true };
		bool last = m->count - r.key <= AGREE_KEYS_MAX;

		rc = raise_it(&r, &raise, m->deadline_ns, last, text);
	}
	caller_end(&r);
	etcd_close(r.e);
	return rc;
}
