/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's questions on the daemon's side: verb and JSON arguments, over a core that has
 * contexts, blocks, pins and clients.
 *
 * Must hold: an answer is one JSON document, a refusal says why, a deed names what exists, and who
 * is no operator learns nothing but the status and what is told of contexts of their own.
 */
#include <errno.h>
#include <jansson.h>

#include "tests/fuzz/host.h"
#include "tierd/obs/obs.h"

#define BLOCKS 6u

static struct {
	struct host host;
	struct obs obs;
	struct obs_connection connection[2];
	struct hist hist;
	uint64_t handle;
} admin;

static const char *const verbs[] = { "status", "stat", "contexts", "context", "locate", "check",
				     "pins", "requests", "clients", "evict", "drain" };
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

static void complete(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	admin.handle = cqe->value;
}

static void keys(uint8_t *at)
{
	memset(at, 0, BLOCKS * ABI_KEY_BYTES);
	for (uint32_t i = 0; i < BLOCKS; i++)
		at[i * ABI_KEY_BYTES] = (uint8_t)i;
}

/* Blocks put and pinned, and a put that is only begun. */
static void fill(void)
{
	struct host *h = &admin.host;
	uint8_t *staging = h->client[0].staging;
	struct abi_put_args args = { .count = BLOCKS };
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .context_id = h->context[0].id,
			       .arg_bytes = sizeof(args) + BLOCKS * ABI_KEY_BYTES,
			       .count = BLOCKS };

	memcpy(staging, &args, sizeof(args));
	keys(staging + sizeof(args));
	FUZZ_CHECK(host_request(h, 0, &sqe));
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .handle = admin.handle };
	FUZZ_CHECK(host_request(h, 0, &sqe));
	keys(staging);
	sqe = (struct abi_sqe){ .op = ABI_OP_PIN, .context_id = h->context[0].id, .count = BLOCKS,
				.flags = ABI_SQE_KEYS, .arg_bytes = BLOCKS * ABI_KEY_BYTES,
				.tier = ABI_TIER_CXL };
	FUZZ_CHECK(host_request(h, 0, &sqe));
	host_settle(h, 10);
}

void fuzz_open(void)
{
	struct obs *o = &admin.obs;
	struct disk_context spec;

	host_init(&admin.host);
	admin.host.ears.complete = complete;
	host_boot(&admin.host, NULL);
	for (uint32_t i = 0; i < 2; i++) {
		host_spec(&spec, i, i);
		spec.owner_uid = HOST_OWNER + i;
		FUZZ_CHECK(host_context_make(&admin.host, i, &spec) == 0);
	}
	host_client_open(&admin.host, 0);
	host_client_attach(&admin.host, 0);
	fill();
	o->core = admin.host.core;
	o->version = "fuzz";
	o->socket = "/tmp/fuzz";
	o->store = "/tmp/store";
	o->super = admin.host.super;
	o->workers = 2;
	for (uint32_t t = 0; t <= ABI_TIER_NVME; t++)
		o->tier[t] = (struct obs_tier){ .present = true, .backend = "host" };
	obs_fact(o, "kernel", "%s", "6.1 \"quoted\" \x01\xff");
	obs_latency(o, "request", "demand", &admin.hist);
	admin.connection[0] = (struct obs_connection){ .id = 0, .name = "engine", .uid = HOST_OWNER,
						       .open = true };
	admin.connection[1] = (struct obs_connection){ .id = 1, .name = "\"\\\x7f\xc3",
						       .operator_ = true };
}

static json_t *check_json(char *json)
{
	json_error_t at;
	json_t *document = json_loads(json, 0, &at);

	FUZZ_CHECK(document && json_is_object(document));
	return document;
}

/* Who is no operator owns one context at most: of others there is no name, and no count. */
static void check_own(const struct obs_question *q, const json_t *document, const char *json)
{
	const json_t *list = json_object_get(document, "contexts");
	bool status = strcmp(q->verb, "status") == 0;
	char name[16];

	FUZZ_CHECK(status || strcmp(q->verb, "contexts") == 0 || strcmp(q->verb, "context") == 0 ||
		   strcmp(q->verb, "locate") == 0);
	for (uint32_t i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "context-%u", i);
		FUZZ_CHECK(q->uid == HOST_OWNER + i || !strstr(json, name));
	}
	if (status)
		FUZZ_CHECK(json_integer_value(list) == (q->uid - HOST_OWNER < 2));
	else if (list)
		FUZZ_CHECK(json_array_size(list) == (q->uid - HOST_OWNER < 2));
}

/* Verb and arguments are strings of their own, on the heap. */
static char *text_of(const uint8_t *bytes, size_t count)
{
	char *text = malloc(count + 1);

	FUZZ_CHECK(text);
	memcpy(text, bytes, count);
	text[count] = '\0';
	return text;
}

static void check_answer(const struct obs_question *q, int rc, char *json,
			 const struct obs_deed *deed, const char *why)
{
	if (rc == 0) {
		json_t *document = check_json(json);

		if (!q->operator_)
			check_own(q, document, json);
		json_decref(document);
		free(json);
	} else if (rc == -EINPROGRESS) {
		struct core_context_stats stats;

		FUZZ_CHECK(q->operator_ && deed->kind != OBS_DEED_NONE);
		json = obs_done(deed->kind, deed->bytes);
		json_decref(check_json(json));
		free(json);
		if (deed->kind == OBS_DEED_EVICT)
			FUZZ_CHECK(deed->tier < ABI_MEM_TIERS &&
				   !core_context_stats(admin.host.core, deed->context_id, &stats));
	} else {
		FUZZ_CHECK(rc == -EPERM || rc == -ENOENT || rc == -EINVAL);
		FUZZ_CHECK(why[0] && memchr(why, 0, OBS_WHY_BYTES));
	}
}

void fuzz_one(struct fuzz_input *in)
{
	uint8_t how = fuzz_u8(in);
	size_t name = (how & 15) < VERBS ? 0 : fuzz_u8(in) % (in->left + 1);
	char *verb = text_of(in->at, name), *args;
	char why[OBS_WHY_BYTES] = "", *json = NULL;
	struct obs_deed deed = { .kind = OBS_DEED_NONE };
	struct obs_question q = { .operator_ = how & 16,
				  .uid = HOST_OWNER + (how >> 6),
				  .now_ns = admin.host.now_ns,
				  .connection = admin.connection,
				  .connections = how >> 5 & 1 ? 2 : 0 };
	int rc;

	args = text_of(in->at + name, in->left - name);
	q.verb = (how & 15) < VERBS ? verbs[how & 15] : verb;
	q.args = args;
	rc = obs_answer(&admin.obs, &q, &json, &deed, why);
	check_answer(&q, rc, json, &deed, why);
	free(verb);
	free(args);
}

/* ---- seeds -------------------------------------------------------------------------------- */

void fuzz_seeds(void)
{
	static const char args[] =
		"{\"context\":\"context-0\",\"tier\":\"cxl\",\"bytes\":4096,\"key\":\""
		"0100000000000000000000000000000000000000000000000000000000000000\"}";
	static struct fuzz_seed s;
	char name[32];

	for (uint8_t i = 0; i < VERBS; i++) {
		fuzz_put_u8(&s, i | 16 | 32);
		fuzz_put(&s, args, sizeof(args) - 1);
		fuzz_seed_end(&s, verbs[i]);
	}
	for (uint8_t i = 0; i < VERBS; i++) {
		snprintf(name, sizeof(name), "own-%s", verbs[i]);
		fuzz_put_u8(&s, (uint8_t)(i | 32 | i << 6));
		fuzz_put(&s, args, sizeof(args) - 1);
		fuzz_seed_end(&s, name);
	}
	fuzz_put_u8(&s, 0);
	fuzz_seed_end(&s, "no-args");
	fuzz_put_u8(&s, 15 | 16);
	fuzz_put_u8(&s, 6);
	fuzz_put(&s, "locate", 6);
	fuzz_put(&s, args, sizeof(args) - 1);
	fuzz_seed_end(&s, "by-name");
}
