/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members in etcd, through its JSON gateway: our record under a lease, and those of the others. A
 * few small calls in a lease's time. Where etcd is away nothing stops: the members known stay.
 *
 *   /tier/FLEET/member/NAME = {"name": ..., "address": ..., "incarnation": "16 hex digits"}
 */
#include <curl/curl.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/json_at.h"
#include "libtier/base/time.h"
#include "tierd/net/node.h"

#define CALL_MS 1000L
#define CONNECT_MS 500L
#define REPLY_MAX (1u << 20)

struct etcd {
	struct node *n;
	CURL *curl;
	char prefix[NET_NAME_BYTES + 32];
	char lease[24]; /* as etcd writes it; "" = none */
	bool told;      /* that it is away */
	char *reply;
	size_t reply_bytes;
};

/* ---- one call ------------------------------------------------------------------------------ */

static size_t on_bytes(char *from, size_t one, size_t count, void *user)
{
	struct etcd *e = user;

	if (count * one > REPLY_MAX - e->reply_bytes)
		return 0;
	memcpy(e->reply + e->reply_bytes, from, count * one);
	e->reply_bytes += count * one;
	return count * one;
}

/* POST a document to PATH; takes `question` over. NULL: no answer, or an error of etcd's. */
static json_t *call(struct etcd *e, const char *path, json_t *question)
{
	char url[NODE_PATH_BYTES + 64], *body CLEANUP_FREE = json_dumps(question, JSON_COMPACT);
	json_t *answer = NULL;
	long status = 0;

	json_decref(question);
	if (!body)
		return NULL;
	snprintf(url, sizeof(url), "%s/v3/%s", e->n->config.etcd, path);
	e->reply_bytes = 0;
	curl_easy_setopt(e->curl, CURLOPT_URL, url);
	curl_easy_setopt(e->curl, CURLOPT_POSTFIELDS, body);
	if (curl_easy_perform(e->curl) == CURLE_OK &&
	    curl_easy_getinfo(e->curl, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK &&
	    status == 200)
		answer = json_loadb(e->reply, e->reply_bytes, 0, NULL);
	return answer;
}

/* Bytes as etcd's JSON has them. */
static json_t *base64(const void *bytes, size_t count)
{
	unsigned char text[1024];

	if (count > 700)
		return json_null();
	EVP_EncodeBlock(text, bytes, (int)count);
	return json_string((char *)text);
}

/* The reverse, as a document; NULL: it is none. */
static json_t *from_base64(const json_t *text)
{
	unsigned char bytes[1024];
	size_t length = json_string_length(text);
	int count;

	if (!json_is_string(text) || length > sizeof(bytes))
		return NULL;
	count = EVP_DecodeBlock(bytes, (const unsigned char *)json_string_value(text), (int)length);
	while (count > 0 && !bytes[count - 1])
		count--; /* what pads it */
	return count > 0 ? json_loadb((char *)bytes, (size_t)count, 0, NULL) : NULL;
}

/* ---- ours ---------------------------------------------------------------------------------- */

static bool enter(struct etcd *e)
{
	struct node *n = e->n;
	char key[sizeof(e->prefix) + NET_NAME_BYTES], *text CLEANUP_FREE = NULL;
	json_t *lease = call(e, "lease/grant",
			     json_pack("{s:I}", "TTL",
				       (json_int_t)(n->config.lease_ns / NS_PER_S)));
	const char *id = json_string_value(json_at(lease, "ID"));
	json_t *record, *answer;
	bool done;

	snprintf(e->lease, sizeof(e->lease), "%s", id ? id : "");
	json_decref(lease);
	if (!e->lease[0])
		return false;
	snprintf(key, sizeof(key), "%s%s", e->prefix, n->config.name);
	record = json_pack("{s:s, s:s}", "name", n->config.name, "address", n->config.advertise);
	json_object_set_new(record, "incarnation",
			    json_sprintf("%016llx", (unsigned long long)n->self.incarnation));
	text = json_dumps(record, JSON_COMPACT);
	json_decref(record);
	answer = call(e, "kv/put", json_pack("{s:o, s:o, s:s}", "key", base64(key, strlen(key)),
					     "value", base64(text, strlen(text)), "lease",
					     e->lease));
	done = answer != NULL;
	json_decref(answer);
	if (!done)
		e->lease[0] = '\0';
	return done;
}

/* False: the lease is over, or etcd is away. */
static bool keep_alive(struct etcd *e)
{
	json_t *answer = call(e, "lease/keepalive", json_pack("{s:s}", "ID", e->lease));
	bool alive = json_is_string(json_at(answer, "result.TTL"));

	if (answer && !alive)
		e->lease[0] = '\0';
	json_decref(answer);
	return alive;
}

/* ---- the others ---------------------------------------------------------------------------- */

static bool read_member(const json_t *d, struct peer *p)
{
	const char *name = json_string_value(json_at(d, "name"));
	const char *address = json_string_value(json_at(d, "address"));
	const char *incarnation = json_string_value(json_at(d, "incarnation"));

	if (!name || !address || !incarnation || strlen(name) >= sizeof(p->name) ||
	    strlen(address) >= sizeof(p->address))
		return false;
	*p = (struct peer){ .incarnation = strtoull(incarnation, NULL, 16) };
	memcpy(p->name, name, strlen(name));
	memcpy(p->address, address, strlen(address));
	return true;
}

/* Who is not in etcd any more has left, or its lease is over. */
static void forget_absent(struct node *n, const json_t *names) REQUIRES(n->peers_lock)
{
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		struct peer *p = &n->peers.peer[i];

		if (p->state != PEER_FREE && !p->fixed && !json_object_get(names, p->name))
			peers_forget(&n->peers, p->name);
	}
}

static bool read_others(struct etcd *e)
{
	char end[sizeof(e->prefix)];
	size_t length = strlen(e->prefix);
	json_t *answer, *names = json_object();
	const json_t *kvs;

	/* Up to the first key that does not begin like that: '/' + 1 = '0'. */
	snprintf(end, sizeof(end), "%.*s0", (int)length - 1, e->prefix);
	answer = call(e, "kv/range", json_pack("{s:o, s:o}", "key", base64(e->prefix, length),
					       "range_end", base64(end, length)));
	kvs = json_at(answer, "kvs");
	if (answer) {
		LOCK_SCOPE(&e->n->peers_lock);
		for (size_t i = 0; i < json_array_size(kvs); i++) {
			json_t *d = from_base64(json_at(json_array_get(kvs, i), "value"));
			struct peer p;

			if (read_member(d, &p) && strcmp(p.name, e->n->config.name) != 0) {
				json_object_set_new(names, p.name, json_true());
				peers_member(&e->n->peers, &p, time_now_ns());
			}
			json_decref(d);
		}
		forget_absent(e->n, names);
		e->n->etcd_seen_ns = time_now_ns();
	}
	json_decref(names);
	json_decref(answer);
	return answer != NULL;
}

/* ---- life ---------------------------------------------------------------------------------- */

int etcd_turn(struct etcd *e)
{
	bool here = e->lease[0] ? keep_alive(e) || e->lease[0] == '\0' : true;

	if (here && !e->lease[0])
		here = enter(e);
	here = here && read_others(e);
	if (here == e->told)
		log_event(&e->n->log, here ? LOG_LEVEL_INFO : LOG_LEVEL_WARN,
			  here ? "etcd answers again" : "etcd does not answer",
			  e->n->config.etcd, here ? NULL : "the members known go on", "");
	e->told = !here;
	return here ? 0 : -ENOTCONN;
}

static void set_tls(struct etcd *e)
{
	char path[NODE_PATH_BYTES + 16];
	static const struct {
		CURLoption option;
		const char *file;
	} files[] = { { CURLOPT_CAINFO, "ca.pem" }, { CURLOPT_SSLCERT, "cert.pem" },
		      { CURLOPT_SSLKEY, "key.pem" } };

	for (size_t i = 0; e->n->config.tls[0] && i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", e->n->config.tls, files[i].file);
		curl_easy_setopt(e->curl, files[i].option, path);
	}
}

int etcd_open(struct etcd **out, struct node *n)
{
	struct etcd *e = calloc(1, sizeof(*e));

	if (e)
		e->reply = malloc(REPLY_MAX);
	if (e && e->reply)
		e->curl = curl_easy_init();
	if (!e || !e->curl) {
		if (e)
			free(e->reply);
		free(e);
		return -ENOMEM;
	}
	e->n = n;
	snprintf(e->prefix, sizeof(e->prefix), "/tier/%s/member/", n->config.fleet);
	curl_easy_setopt(e->curl, CURLOPT_WRITEFUNCTION, on_bytes);
	curl_easy_setopt(e->curl, CURLOPT_WRITEDATA, e);
	curl_easy_setopt(e->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e->curl, CURLOPT_TIMEOUT_MS, CALL_MS);
	curl_easy_setopt(e->curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	set_tls(e);
	*out = e;
	return 0;
}

void etcd_close(struct etcd *e)
{
	if (!e)
		return;
	if (e->lease[0])
		json_decref(call(e, "lease/revoke", json_pack("{s:s}", "ID", e->lease)));
	curl_easy_cleanup(e->curl);
	free(e->reply);
	free(e);
}
