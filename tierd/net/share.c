/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts that are shared: which, their digest (what must agree between hosts), the shape of their
 * blocks, and who of this host may ask for them. Who may open a context at tierd may ask for it
 * here; to all others it looks as if it were not there (I4).
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/json_at.h"
#include "libtier/base/key.h"
#include "libtier/base/time.h"
#include "tierd/net/node.h"

#define LOOK_AGAIN_NS (1 * NS_PER_S)

/* ---- shape --------------------------------------------------------------------------------- */

static uint32_t layer_least(const tier_geometry *g, uint32_t *layers)
{
	uint32_t least = UINT32_MAX, most = 0;
	struct tier_part part;

	for (uint32_t i = 0; tier_geometry_part(g, i, &part) == 0; i++) {
		least = part.layer_first < least ? part.layer_first : least;
		if (part.layer_first + part.layers > most)
			most = part.layer_first + part.layers;
	}
	*layers = most - least;
	return least;
}

static void add_layer(struct shape *s, const struct tier_part *part, uint32_t i, uint32_t layer)
{
	for (uint32_t group = 0; group < part->groups; group++)
		s->page[s->pages++] = (struct shape_page){
			.page = part->page_base + layer * part->groups + group,
			.bytes = part->page_bytes,
			.part = (uint16_t)i,
			.layer = (uint16_t)layer,
			.group = group,
		};
	s->block_bytes += (uint64_t)part->groups * part->page_bytes;
}

static int shape_make(struct shape *s, const tier_geometry *g)
{
	uint32_t least = layer_least(g, &s->layers);
	struct tier_part part;

	s->layer_first = least;
	s->first = calloc(s->layers + 1, sizeof(*s->first));
	s->page = calloc(tier_geometry_pages(g), sizeof(*s->page));
	s->by_number = calloc(tier_geometry_pages(g), sizeof(*s->by_number));
	if (!s->first || !s->page || !s->by_number)
		return -ENOMEM;
	for (uint32_t layer = 0; layer < s->layers; layer++) {
		s->first[layer] = s->pages;
		for (uint32_t i = 0; tier_geometry_part(g, i, &part) == 0; i++)
			if (least + layer >= part.layer_first &&
			    least + layer < part.layer_first + part.layers)
				add_layer(s, &part, i, least + layer - part.layer_first);
	}
	s->first[s->layers] = s->pages;
	for (uint32_t i = 0; i < s->pages; i++)
		s->by_number[s->page[i].page] = i;
	return 0;
}

/* ---- digest -------------------------------------------------------------------------------- */

static void digest_part(EVP_MD_CTX *sha, const struct tier_part *p)
{
	const uint32_t word[] = { p->kind, p->kind_arg, p->hit_rule, p->hit_arg, p->layers,
				  p->groups, p->page_bytes, p->layer_first,
				  p->layout.element_bits };
	char name[32] = "";

	snprintf(name, sizeof(name), "%s", p->name);
	EVP_DigestUpdate(sha, name, sizeof(name));
	EVP_DigestUpdate(sha, word, sizeof(word));
	EVP_DigestUpdate(sha, p->layout.order, sizeof(p->layout.order));
	EVP_DigestUpdate(sha, p->layout.stride, sizeof(p->layout.stride));
}

/* Of all that must be equal, or the bytes mean something else. */
static int digest_make(struct share *s, const uint8_t fingerprint[32])
{
	const tier_geometry *g = tier_context_geometry(s->c);
	uint32_t tokens = tier_geometry_block_tokens(g);
	EVP_MD_CTX *sha = EVP_MD_CTX_new();
	struct tier_part part;

	if (!sha || !EVP_DigestInit_ex(sha, EVP_sha256(), NULL)) {
		EVP_MD_CTX_free(sha);
		return -ENOMEM;
	}
	EVP_DigestUpdate(sha, "tier-net-context-1", 19);
	EVP_DigestUpdate(sha, s->name, sizeof(s->name));
	EVP_DigestUpdate(sha, fingerprint, 32);
	EVP_DigestUpdate(sha, &tokens, sizeof(tokens));
	for (uint32_t i = 0; tier_geometry_part(g, i, &part) == 0; i++)
		digest_part(sha, &part);
	EVP_DigestFinal_ex(sha, s->agreed.digest, NULL);
	EVP_MD_CTX_free(sha);
	return 0;
}

/* ---- opening ------------------------------------------------------------------------------- */

static void share_free(struct share *s)
{
	if (!s)
		return;
	tier_context_close(s->c);
	free(s->shape.first);
	free(s->shape.page);
	free(s->shape.by_number);
	free(s);
}

/* What tierd says of the context now: whose it is, and which one of that name. */
static int describe(struct node *n, struct share *s, uint8_t fingerprint[32])
{
	char args[128], *reply CLEANUP_FREE = NULL;
	json_t *d;
	int rc;

	snprintf(args, sizeof(args), "{\"context\": \"%s\"}", s->name);
	rc = tier_admin(n->t, "context", args, &reply);
	if (rc)
		return rc;
	d = json_loads(reply, 0, NULL);
	s->owner_uid = (uint32_t)json_integer_value(json_at(d, "owner_uid"));
	s->owner_gid = (uint32_t)json_integer_value(json_at(d, "owner_gid"));
	s->number = (uint64_t)json_integer_value(json_at(d, "number"));
	if (json_is_string(json_at(d, "mode")))
		s->mode = (uint32_t)strtoul(json_string_value(json_at(d, "mode")), NULL, 8);
	if (!json_is_string(json_at(d, "fingerprint")) ||
	    key_parse(fingerprint, json_string_value(json_at(d, "fingerprint"))))
		rc = -EPROTO;
	json_decref(d);
	return rc;
}

static bool may(const struct share *s, const struct ucred *who, uint32_t bits)
{
	if (who->uid == 0 || who->uid == s->owner_uid)
		return true;
	return s->mode & (who->gid == s->owner_gid ? bits << 3 : bits);
}

/* May they say who else gets it? What they may not open looks as if it were not there. */
static int may_share(const struct share *s, const struct ucred *who)
{
	if (!may(s, who, 4))
		return -ENOENT;
	return who->uid && who->uid != s->owner_uid ? -EACCES : 0;
}

/* Nothing is opened for who may not share it: that would take its time, and tell. */
static int share_open(struct node *n, const char *name, const struct ucred *who,
		      struct share **out)
{
	struct share *s = calloc(1, sizeof(*s));
	uint8_t fingerprint[32];
	int rc;

	if (!s)
		return -ENOMEM;
	snprintf(s->name, sizeof(s->name), "%s", name);
	rc = describe(n, s, fingerprint);
	if (rc == 0)
		rc = may_share(s, who);
	if (rc == 0)
		rc = tier_context_open(n->t, name, NULL, &s->c);
	if (rc == 0)
		rc = digest_make(s, fingerprint);
	if (rc == 0)
		rc = shape_make(&s->shape, tier_context_geometry(s->c));
	if (rc) {
		share_free(s);
		return rc;
	}
	s->agreed.shared = true;
	s->agreed.known = !n->config.etcd[0]; /* else agree.h says so */
	s->looked_ns = time_now_ns();
	*out = s;
	return 0;
}

/* ---- with whom ----------------------------------------------------------------------------- */

bool share_with(const struct share *s, const char *host)
{
	for (uint32_t i = 0; i < s->names; i++)
		if (strcmp(s->with[i], host) == 0)
			return true;
	return !s->names;
}

bool share_lasts(struct node *n, const struct share *s)
{
	LOCK_SCOPE(&n->shares);
	return s->agreed.shared;
}

/* Words behind a context's name in the state file: strict, with and a list of hosts. */
static bool read_terms(struct share *s, char *rest)
{
	bool with = false;
	char *word;

	while ((word = strsep(&rest, " ,\n"))) {
		if (!with && strcmp(word, "strict") == 0)
			s->agreed.strict = true;
		else if (!with && strcmp(word, "with") == 0)
			with = true;
		else if (*word && (!with || s->names == NET_NAMES_MAX ||
				   strlen(word) >= NET_NAME_BYTES))
			return false;
		else if (*word)
			snprintf(s->with[s->names++], NET_NAME_BYTES, "%s", word);
	}
	return !with || s->names;
}

static void write_terms(FILE *f, const struct share *s)
{
	fprintf(f, "%s%s", s->name, s->agreed.strict ? " strict" : "");
	for (uint32_t i = 0; i < s->names; i++)
		fprintf(f, "%s%s", i ? "," : " with ", s->with[i]);
	fputc('\n', f);
}

/* ---- the list ------------------------------------------------------------------------------ */

/* Whoever holds it frees it. */
static void drop(struct share **place)
{
	struct share *s = *place;

	*place = NULL;
	s->agreed.shared = false;
	if (!s->holders)
		share_free(s);
}

static struct share **place_of(struct node *n, const char *name) REQUIRES(n->shares)
{
	for (uint32_t i = 0; i < NODE_SHARES_MAX; i++)
		if (n->share[i] && strcmp(n->share[i]->name, name) == 0)
			return &n->share[i];
	return NULL;
}

static void save(struct node *n) REQUIRES(n->shares)
{
	char path[NODE_PATH_BYTES + 8];
	FILE *f;
	bool bad;

	if (!n->config.state[0])
		return;
	snprintf(path, sizeof(path), "%s.new", n->config.state);
	f = fopen(path, "w");
	bad = !f;
	for (uint32_t i = 0; f && i < NODE_SHARES_MAX; i++)
		if (n->share[i])
			write_terms(f, n->share[i]);
	if (f)
		bad = fflush(f) || fsync(fileno(f));
	if ((f && fclose(f)) || bad || rename(path, n->config.state))
		log_error(&n->log, "which contexts are shared is not kept", n->config.state,
			  "give a --state that can be written", "errno=%d", errno);
}

static int add(struct node *n, struct share *s) REQUIRES(n->shares)
{
	for (uint32_t i = 0; i < NODE_SHARES_MAX; i++)
		if (!n->share[i]) {
			n->share[i] = s;
			return 0;
		}
	return -ENOSPC;
}

int share_set(struct node *n, const struct net_admin *m, enum share_how how,
	      const struct ucred *who, char *text)
{
	const char *name = m->word[0];
	struct share *s = NULL, **place;
	int rc;

	snprintf(text, SHARE_TEXT_BYTES, "%s", "without TLS nobody proves a name; only all can be "
					       "shared with");
	if (m->header.length > sizeof(*m) && !n->config.tls[0])
		return -EINVAL;
	rc = share_open(n, name, who, &s);
	snprintf(text, SHARE_TEXT_BYTES, "context %.63s: %s", name,
		 rc == -EACCES ? "only its owner may do that" :
				 "there is none that these credentials open");
	if (rc)
		return rc;
	LOCK_SCOPE(&n->shares);
	place = place_of(n, name);
	if (place)
		drop(place);
	s->agreed.strict = how == SHARE_STRICT;
	s->names = (m->header.length - (uint32_t)sizeof(*m)) / NET_NAME_BYTES;
	memcpy(s->with, m + 1, s->names * sizeof(s->with[0]));
	if (how) {
		rc = add(n, s);
		snprintf(text, SHARE_TEXT_BYTES, "%u contexts are shared, the most there can be",
			 NODE_SHARES_MAX);
	}
	if (rc || !how)
		share_free(s);
	if (rc == 0)
		save(n);
	return rc;
}

void share_load(struct node *n)
{
	FILE *f CLEANUP_FCLOSE = n->config.state[0] ? fopen(n->config.state, "r") : NULL;
	static const struct ucred self = { .uid = 0 }; /* who shared it might */
	char line[(NET_NAMES_MAX + 2) * NET_NAME_BYTES], *rest;
	struct share *s;

	LOCK_SCOPE(&n->shares);
	while (f && fgets(line, sizeof(line), f)) {
		rest = line;
		strsep(&rest, " \n");
		if (!line[0] || place_of(n, line))
			continue;
		if (share_open(n, line, &self, &s)) {
			log_warn(&n->log, "a shared context is not there", line,
				 "share it again when it is", "why=\"%s\"", tier_error_text());
			continue;
		}
		if (!read_terms(s, rest) || (s->names && !n->config.tls[0])) {
			log_warn(&n->log, "who a context is shared with cannot be told apart",
				 line, "it is not shared; share it again, or use TLS", "");
			share_free(s);
		} else if (add(n, s)) {
			share_free(s);
		}
	}
}

/*
 * The context of that name was removed and made anew: the new one is shared by who shares it. Owner
 * and mode of one never change, and of one that was removed nothing is found or put: so that is
 * looked at now and then.
 */
static int check_number(struct node *n, struct share *s)
{
	struct share now = { 0 };
	uint8_t fingerprint[32];
	int rc;

	memcpy(now.name, s->name, sizeof(now.name));
	rc = describe(n, &now, fingerprint);
	if (rc)
		return rc;
	s->owner_uid = now.owner_uid;
	s->owner_gid = now.owner_gid;
	s->mode = now.mode;
	s->looked_ns = time_now_ns();
	return now.number == s->number ? 0 : -ENOENT;
}

int share_named(struct node *n, const char *name, const struct ucred *who, struct share **out)
{
	struct share **place, *s;
	int rc = 0;

	LOCK_SCOPE(&n->shares);
	place = place_of(n, name);
	if (!place)
		return -ENOENT;
	s = *place;
	if (time_now_ns() - s->looked_ns > LOOK_AGAIN_NS)
		rc = check_number(n, s);
	if (rc == -ENOENT)
		drop(place);
	if (rc)
		return rc;
	if (!may(s, who, 4))
		return -ENOENT;
	s->holders++;
	*out = s;
	return 0;
}

struct share *share_digest(struct node *n, const uint8_t digest[32], const char *host)
{
	LOCK_SCOPE(&n->shares);
	for (uint32_t i = 0; i < NODE_SHARES_MAX; i++)
		if (n->share[i] && memcmp(n->share[i]->agreed.digest, digest, 32) == 0 &&
		    (!host || share_with(n->share[i], host))) {
			n->share[i]->holders++;
			return n->share[i];
		}
	return NULL;
}

void share_put(struct node *n, struct share *s)
{
	LOCK_SCOPE(&n->shares);
	if (--s->holders == 0 && !s->agreed.shared)
		share_free(s);
}

void share_refresh(struct node *n, struct share *s)
{
	s->agreed.epoch = tier_context_epoch(s->c);
	s->agreed.publishing = 0;
	LOCK_SCOPE(&n->pullers_lock);
	for (uint32_t i = 0; i < NODE_PULLERS_MAX; i++)
		if (n->puller[i].number == s->number)
			s->agreed.publishing += n->puller[i].unsettled;
}

bool share_stands(struct node *n, struct share *s)
{
	LOCK_SCOPE(&n->shares);
	return agreed_stands(&n->agree, &s->agreed, time_now_ns());
}

bool share_intact(struct node *n, struct share *s, uint64_t epoch, uint64_t reattached)
{
	return share_stands(n, s) && tier_context_epoch(s->c) == epoch &&
	       node_reattached(n) == reattached;
}

int share_asked(struct node *n, const char *host, const uint8_t digest[32], uint64_t epoch,
		uint64_t deleted, struct share **out)
{
	struct share *s = share_digest(n, digest, host);
	int rc = s ? share_grants(n, s, epoch, deleted) : -ENOENT;

	if (s && rc)
		share_put(n, s);
	*out = rc ? NULL : s;
	return rc;
}

int share_grants(struct node *n, struct share *s, uint64_t epoch, uint64_t deleted)
{
	LOCK_SCOPE(&n->shares);
	s->agreed.epoch = tier_context_epoch(s->c);
	return agreed_grants(&n->agree, &s->agreed, epoch, deleted, time_now_ns());
}

bool share_publishes(struct node *n, struct share *s, uint64_t epoch, uint64_t deleted,
		     struct puller *p)
{
	LOCK_SCOPE(&n->shares);
	s->agreed.epoch = tier_context_epoch(s->c);
	if (!agreed_publishes(&n->agree, &s->agreed, epoch, deleted, time_now_ns()))
		return false;
	LOCK_SCOPE(&n->pullers_lock);
	p->unsettled++;
	return true;
}

bool share_would_publish(struct node *n, struct share *s, uint64_t epoch, uint64_t deleted)
{
	LOCK_SCOPE(&n->shares);
	s->agreed.epoch = tier_context_epoch(s->c);
	return agreed_publishes(&n->agree, &s->agreed, epoch, deleted, time_now_ns());
}

uint64_t share_deleted(struct node *n, const struct share *s)
{
	LOCK_SCOPE(&n->shares);
	return s->agreed.deleted;
}

bool share_writable(const struct share *s, const struct ucred *who)
{
	return may(s, who, 2);
}

struct share *share_at(struct node *n, uint32_t i)
{
	LOCK_SCOPE(&n->shares);
	if (n->share[i])
		n->share[i]->holders++;
	return n->share[i];
}

static json_t *names_of(const struct share *s)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < s->names; i++)
		json_array_append_new(list, json_string(s->with[i]));
	return list;
}

json_t *share_list(struct node *n, const struct ucred *who)
{
	json_t *list = json_array();

	LOCK_SCOPE(&n->shares);
	for (uint32_t i = 0; i < NODE_SHARES_MAX; i++) {
		const struct share *s = n->share[i];
		char hex[KEY_HEX_BYTES];

		if (s && (may(s, who, 4) || who->uid == geteuid()))
			json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I, s:b, s:b, s:o}",
				"name", s->name, "digest", key_print(hex, s->agreed.digest),
				"deleted", (json_int_t)s->agreed.deleted,
				"epoch", (json_int_t)tier_context_epoch(s->c),
				"strict", s->agreed.strict, "known", s->agreed.known,
				"with", names_of(s)));
	}
	return list;
}
