/* SPDX-License-Identifier: Apache-2.0 */
/* etcd, through its JSON gateway; see etcd.h. A few small calls in a lease's time. */
#include <curl/curl.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/json_at.h"
#include "libtier/base/time.h"
#include "tierd/net/etcd.h"

#define CALL_MS 1000L
#define CONNECT_MS 500L
#define REPLY_MAX (1u << 20)
#define KEY_BYTES_MAX 320u

struct etcd {
	struct node *n;
	CURL *curl;
	char lease[24]; /* as etcd writes it; "" = none */
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
	/* Each answer of etcd's has one: of what has none, "nobody is there" is no news. */
	if (!json_is_object(json_at(answer, "header")) &&
	    !json_is_object(json_at(answer, "result.header"))) {
		json_decref(answer);
		return NULL;
	}
	return answer;
}

#define VALUE_MAX 6000u /* a deletion's keys */

/* Bytes as etcd's JSON has them. */
static json_t *base64(const void *bytes, size_t count)
{
	unsigned char text[VALUE_MAX / 3 * 4 + 8];

	if (count > VALUE_MAX)
		return json_null();
	EVP_EncodeBlock(text, bytes, (int)count);
	return json_string((char *)text);
}

/* The reverse: its length with a NUL behind it, or negative: it is none. */
static int text_of(const json_t *from, char *to, size_t bytes)
{
	unsigned char plain[VALUE_MAX / 3 * 4 + 8];
	size_t length = json_string_length(from);
	int count;

	if (!json_is_string(from) || length > sizeof(plain))
		return -EINVAL;
	count = EVP_DecodeBlock(plain, (const unsigned char *)json_string_value(from), (int)length);
	while (count > 0 && !plain[count - 1])
		count--; /* what pads it */
	if (count < 0 || (size_t)count >= bytes)
		return -EINVAL;
	memcpy(to, plain, (size_t)count);
	to[count] = '\0';
	return count;
}

static json_t *from_base64(const json_t *text)
{
	char bytes[VALUE_MAX + 1];
	int count = text_of(text, bytes, sizeof(bytes));

	return count > 0 ? json_loadb(bytes, (size_t)count, 0, NULL) : NULL;
}

/* ---- keys ---------------------------------------------------------------------------------- */

static json_t *key_of(const struct etcd *e, const char *key)
{
	char text[KEY_BYTES_MAX];

	snprintf(text, sizeof(text), "/tier/%s/%.240s", e->n->config.fleet, key);
	return base64(text, strlen(text));
}

json_t *etcd_to_put(const struct etcd *e, const char *key, json_t *value, bool leased)
{
	char *text CLEANUP_FREE = json_dumps(value, JSON_COMPACT);
	json_t *put;

	json_decref(value);
	if (!text)
		return NULL;
	put = json_pack("{s:o, s:o}", "key", key_of(e, key), "value", base64(text, strlen(text)));
	if (leased)
		json_object_set_new(put, "lease", json_string(e->lease));
	return json_pack("{s:o}", "request_put", put);
}

json_t *etcd_to_delete(const struct etcd *e, const char *below, const char *before)
{
	char end[KEY_BYTES_MAX];
	json_t *range = json_pack("{s:o}", "key", key_of(e, below));

	snprintf(end, sizeof(end), "%s%s", below, before ? before : "");
	if (before)
		json_object_set_new(range, "range_end", key_of(e, end));
	return json_pack("{s:o}", "request_delete_range", range);
}

static int64_t number_in(const json_t *answer, const char *path)
{
	const char *text = json_string_value(json_at(answer, path));

	return text ? (int64_t)strtoll(text, NULL, 10) : 0;
}

int etcd_change(struct etcd *e, const char *key, int64_t *mod, json_t *parts)
{
	json_t *compare = json_pack("{s:o, s:s, s:s, s:I}", "key", key_of(e, key), "target", "MOD",
				    "result", "EQUAL", "mod_revision", (json_int_t)*mod);
	json_t *answer = call(e, "kv/txn", json_pack("{s:[o], s:o}", "compare", compare,
						     "success", parts));
	int rc = !answer ? -EAGAIN : json_is_true(json_at(answer, "succeeded")) ? 0 : -ESTALE;

	if (rc == 0)
		*mod = number_in(answer, "header.revision");
	json_decref(answer);
	return rc;
}

static json_t *one_of(const struct etcd *e, const json_t *kv, size_t skip)
{
	char key[KEY_BYTES_MAX];
	const char *lease = json_string_value(json_at(kv, "lease"));
	json_int_t mod = number_in(kv, "mod_revision");
	json_t *value = from_base64(json_at(kv, "value"));

	if (!value || !mod || text_of(json_at(kv, "key"), key, sizeof(key)) <= (int)skip) {
		json_decref(value);
		return NULL;
	}
	return json_pack("{s:s, s:o, s:I, s:b}", "name", key + skip, "value", value, "mod", mod,
			 "lease", lease && strcmp(lease, e->lease) == 0);
}

json_t *etcd_between(struct etcd *e, const char *below, const char *from, const char *to)
{
	char begin[KEY_BYTES_MAX], end[KEY_BYTES_MAX];
	size_t skip = strlen(e->n->config.fleet) + 7 + strlen(below);
	json_t *answer, *list = NULL;
	const json_t *kvs;

	snprintf(begin, sizeof(begin), "%s%s", below, from);
	snprintf(end, sizeof(end), "%s%s", below, to);
	answer = call(e, "kv/range", json_pack("{s:o, s:o}", "key", key_of(e, begin), "range_end",
					       key_of(e, end)));
	kvs = json_at(answer, "kvs");
	if (answer)
		list = json_array();
	for (size_t i = 0; i < json_array_size(kvs); i++)
		json_array_append_new(list, one_of(e, json_array_get(kvs, i), skip));
	json_decref(answer);
	return list;
}

json_t *etcd_range(struct etcd *e, const char *below)
{
	return etcd_between(e, below, "", "\x7f"); /* names are letters: all are before that */
}

/* ---- the lease ------------------------------------------------------------------------------ */

int etcd_keep(struct etcd *e)
{
	json_t *answer = e->lease[0] ? call(e, "lease/keepalive",
					    json_pack("{s:s}", "ID", e->lease)) : NULL;
	int rc = json_is_string(json_at(answer, "result.TTL")) ? 0 :
		 answer || !e->lease[0] ? -ESTALE : -EAGAIN;

	json_decref(answer);
	return rc;
}

int etcd_lease(struct etcd *e)
{
	json_t *answer = call(e, "lease/grant",
			      json_pack("{s:I}", "TTL",
					(json_int_t)(e->n->config.lease_ns / NS_PER_S)));
	const char *id = json_string_value(json_at(answer, "ID"));

	snprintf(e->lease, sizeof(e->lease), "%s", id ? id : "");
	json_decref(answer);
	return e->lease[0] ? 0 : -EAGAIN;
}

/* ---- life ---------------------------------------------------------------------------------- */

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
