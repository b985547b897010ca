/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators are told of a core: each number under its own name, whose connection is whose, and
 * what is refused of what they ask. The core is real, with a small host around it.
 */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/json_at.h"
#include "libtier/base/key.h"
#include "libtier/base/time.h"
#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"
#include "tierd/obs/obs.h"

#define BLOCKS 8u
#define TENANT 0xfedcba9876543210ull
#define MY_UID 1000u
#define THEIR_UID (HOST_OWNER + 1)

static const struct obs_connection connections[] = {
	{ .id = 0, .name = "mine\x1b[2J\n", .uid = MY_UID, .open = true },
	{ .id = 1, .name = "gone", .uid = MY_UID, .open = false },
	{ .id = 2, .name = "other", .uid = MY_UID + 1, .open = true },
};

static struct obs obs;
static struct {
	bool operator_;
	uint32_t uid;
} asker;

/*
 * Two contexts of two users, one's name the beginning of the other's; blocks of a salt in the
 * first.
 */
static int begin(void **state)
{
	const struct abi_put_args args = { .count = BLOCKS, .salt = TENANT };
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	snprintf(spec.name, sizeof(spec.name), "chat-long");
	one_host_boot(&spec, 3);
	host_spec(&spec, HOST_KIND_MEMORY, 1);
	snprintf(spec.name, sizeof(spec.name), "chat");
	spec.owner_uid = THEIR_UID;
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	assert_int_equal(host_reserve(&host, &args, 0, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_true(host_settle(&host, 60));
	obs = (struct obs){ .core = host.core, .version = "1", .socket = "s", .store = "store",
			    .uid = MY_UID, .super = host.super };
	asker.operator_ = true;
	asker.uid = 0;
	return 0;
}

static char why[OBS_WHY_BYTES]; /* of the last refusal */

static int ask(const char *verb, const char *args, json_t **out, struct obs_deed *deed)
{
	struct obs_question q = { .verb = verb,
				  .args = args,
				  .operator_ = asker.operator_,
				  .uid = asker.uid,
				  .now_ns = host.now_ns,
				  .connection = connections,
				  .connections = sizeof(connections) / sizeof(connections[0]) };
	char *text = NULL;
	int rc;

	why[0] = '\0';
	rc = obs_answer(&obs, &q, &text, deed, why);
	assert_true(rc == 0 || rc == -EINPROGRESS || why[0]);
	*out = rc ? NULL : json_loads(text, 0, NULL);
	assert_true(rc || *out);
	free(text);
	return rc;
}

static json_t *told(const char *verb, const char *args)
{
	struct obs_deed deed;
	json_t *answer;

	assert_int_equal(ask(verb, args, &answer, &deed), 0);
	return answer;
}

static uint64_t number(const json_t *document, const char *path)
{
	const json_t *at = json_at(document, path);

	assert_true(json_is_integer(at));
	return (uint64_t)json_integer_value(at);
}

static const char *text(const json_t *document, const char *path)
{
	const char *at = json_string_value(json_at(document, path));

	assert_non_null(at);
	return at;
}

static void test_tiers_are_told_by_their_names(void **state)
{
	json_t *status = told("status", "");
	struct core_stats stats;
	char path[48];

	(void)state;
	core_stats(host.core, &stats);
	assert_true(stats.tier[ABI_TIER_CXL].used > stats.tier[ABI_TIER_CXL].live);
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
		const struct core_tier_stats *s = &stats.tier[t];
		const struct {
			const char *name;
			uint64_t value;
		} all[] = { { "capacity", s->capacity }, { "used", s->used }, { "live", s->live },
			    { "dirty", s->dirty }, { "pinned", s->pinned }, { "free", s->free },
			    { "reserved", s->reserved }, { "retiring", s->retiring } };

		for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
			snprintf(path, sizeof(path), "tiers.%u.%s", t, all[i].name);
			assert_int_equal(number(status, path), all[i].value);
		}
	}
	json_decref(status);
}

/* Also those whose children are held for now. */
static void test_how_many_are_leaving(void **state)
{
	json_t *status;

	(void)state;
	host.core->dropped.parents_leaving.count += 2;
	host.core->dropped.waiting.count += 3;
	status = told("status", "");
	assert_int_equal(number(status, "leaving"), 5);
	json_decref(status);
	host.core->dropped.parents_leaving.count -= 2;
	host.core->dropped.waiting.count -= 3;
}

/* Those that have ended share nothing any more. */
static void test_who_shares_the_daemons_user(void **state)
{
	json_t *status = told("status", "");

	(void)state;
	assert_true(json_is_false(json_at(status, "isolation.isolated")));
	assert_non_null(strstr(text(status, "isolation.text"), "1 of 2 clients"));
	json_decref(status);
	obs.uid = MY_UID + 7;
	status = told("status", "");
	assert_true(json_is_true(json_at(status, "isolation.isolated")));
	json_decref(status);
}

/* Written 100 bytes, 50 of them again: each byte went out one and a half times. */
static void test_how_often_bytes_were_written(void **state)
{
	struct core_stats stats;
	json_t *status;
	double want;

	(void)state;
	core_stats(host.core, &stats);
	assert_true(stats.log[DISK_LOG_CACHE].written > 0);
	host.core->metrics.reinserted_bytes += stats.log[DISK_LOG_CACHE].written / 2;
	core_stats(host.core, &stats);
	want = 1 + (double)stats.log[DISK_LOG_CACHE].again /
			   (double)stats.log[DISK_LOG_CACHE].written;
	status = told("status", "");
	assert_string_equal(text(status, "store.logs.1.log"), "cache");
	assert_true(want > 1.2);
	assert_float_equal(json_real_value(json_at(status, "store.logs.1.write_amplification")),
			   want, 0.01);
	json_decref(status);
}

static void test_who_holds_what(void **state)
{
	uint64_t bytes = BLOCKS * context()->spec.geometry.block_bytes;
	json_t *quota = told("quota", "{\"context\":\"chat-long\"}"), *salts, *salt, *clients;
	size_t i;
	bool found = false;

	(void)state;
	salts = json_object_get(json_array_get(json_object_get(quota, "contexts"), 0), "salts");
	assert_int_equal(json_array_size(json_object_get(quota, "contexts")), 1);
	assert_string_equal(text(quota, "contexts.0.context"), "chat-long");
	json_array_foreach(salts, i, salt) {
		if (strcmp(text(salt, "holder"), "0xfedcba9876543210") != 0)
			continue;
		found = true;
		assert_int_equal(number(salt, "cxl.used"), bytes);
		assert_int_equal(number(salt, "nvme.used"), bytes);
		assert_int_equal(number(salt, "hbm.used"), 0);
	}
	assert_true(found);
	json_decref(quota);
	/* What a client's leases keep counts in both tiers. */
	host.core->client[0].held_last[ABI_TIER_HBM] = 3;
	host.core->client[0].held_last[ABI_TIER_CXL] = 4;
	clients = told("clients", "");
	assert_int_equal(number(clients, "clients.0.quarantined"), 7);
	assert_int_equal(number(clients, "clients.2.quarantined"), 0);
	/* Bytes of a client's name cannot reach a terminal. */
	assert_string_equal(text(clients, "clients.0.name"), "mine?[2J?");
	json_decref(clients);
}

/* The whole name. */
static void test_a_context_is_found_by_its_name(void **state)
{
	json_t *one = told("context", "{\"context\":\"chat\"}");
	struct obs_deed deed;

	(void)state;
	assert_int_equal(number(one, "id"), host.context[1].id);
	json_decref(one);
	assert_int_equal(ask("context", "{\"context\":\"cha\"}", &one, &deed), -ENOENT);
	assert_int_equal(ask("context", "{\"context\":\"chat-longer\"}", &one, &deed), -ENOENT);
}

/* ---- who asks -------------------------------------------------------------------------------- */

static void become(uint32_t uid)
{
	asker.operator_ = false;
	asker.uid = uid;
}

/* The arguments for the first block put, in that context. */
static const char *block_in(const char *name)
{
	static char args[256];
	uint8_t key[ABI_KEY_BYTES];
	char hex[KEY_HEX_BYTES];

	host_key(0, key);
	snprintf(args, sizeof(args), "{\"context\":\"%s\",\"key\":\"%s\"}", name,
		 key_print(hex, key));
	return args;
}

/* In the same words whether there is none or it is somebody else's. */
static void not_there(const char *name)
{
	char words[OBS_WHY_BYTES];
	struct obs_deed deed;
	json_t *answer;

	snprintf(words, sizeof(words), "no context \"%s\"; tierctl context list shows yours", name);
	assert_int_equal(ask("context", block_in(name), &answer, &deed), -ENOENT);
	assert_string_equal(why, words);
	assert_int_equal(ask("locate", block_in(name), &answer, &deed), -ENOENT);
	assert_string_equal(why, words);
}

static void test_owners_see_their_own(void **state)
{
	json_t *list, *one;

	(void)state;
	become(HOST_OWNER);
	list = told("contexts", "");
	assert_string_equal(text(list, "seen"), "own");
	assert_int_equal(json_array_size(json_at(list, "contexts")), 1);
	assert_string_equal(text(list, "contexts.0.name"), "chat-long");
	one = told("context", "{\"context\":\"chat-long\"}");
	assert_int_equal(number(one, "blocks"), BLOCKS);
	assert_int_equal(number(one, "owner_uid"), HOST_OWNER);
	assert_int_equal(number(one, "number"), host.core->context[0]->spec.uid);
	assert_int_equal(number(one, "uid"), number(one, "number")); /* by its old name */
	json_decref(one);
	json_decref(list);
	one = told("locate", block_in("chat-long"));
	assert_string_equal(text(one, "context"), "chat-long");
	assert_string_equal(text(one, "state"), "committed");
	json_decref(one);
	become(THEIR_UID);
	list = told("contexts", "");
	assert_int_equal(json_array_size(json_at(list, "contexts")), 1);
	assert_string_equal(text(list, "contexts.0.name"), "chat");
	json_decref(list);
}

static void test_others_are_not_there(void **state)
{
	json_t *list;

	(void)state;
	become(HOST_OWNER);
	not_there("chat");
	not_there("chap");
	become(THEIR_UID);
	not_there("chat-long");
	not_there("chap-long");
	become(MY_UID); /* the daemon's own, without its rights */
	not_there("chat-long");
	not_there("chat");
	list = told("contexts", "");
	assert_int_equal(json_array_size(json_at(list, "contexts")), 0);
	json_decref(list);
}

/* Nor do counts tell: what is counted is what is seen. */
static void test_counts_of_what_is_seen(void **state)
{
	json_t *all = told("status", ""), *mine, *theirs;

	(void)state;
	assert_string_equal(text(all, "seen"), "all");
	assert_int_equal(number(all, "contexts"), 2);
	become(HOST_OWNER);
	mine = told("status", "");
	assert_string_equal(text(mine, "seen"), "own");
	assert_true(json_is_null(json_at(mine, "leaving")));
	assert_int_equal(number(mine, "contexts"), 1);
	assert_int_equal(number(mine, "blocks"), BLOCKS);
	assert_int_equal(number(mine, "pages"), number(all, "pages"));
	become(THEIR_UID);
	theirs = told("status", "");
	assert_int_equal(number(theirs, "contexts"), 1);
	assert_int_equal(number(theirs, "blocks"), 0);
	assert_int_equal(number(theirs, "pages"), 0);
	assert_true(number(mine, "index_bytes") > 0 && number(theirs, "index_bytes") > 0);
	assert_int_equal(number(all, "index_bytes"),
			 number(mine, "index_bytes") + number(theirs, "index_bytes"));
	json_decref(theirs);
	become(0);
	theirs = told("status", "");
	assert_int_equal(number(theirs, "contexts"), 0);
	assert_int_equal(number(theirs, "index_bytes"), 0);
	json_decref(theirs);
	json_decref(mine);
	json_decref(all);
}

/* All the rest is for operators, whoever's context is named. */
static void test_the_rest_is_for_operators(void **state)
{
	static const char *const verbs[] = { "stat", "check", "pins", "requests", "clients",
					     "evict", "drain", "quota", "quota-set" };
	struct obs_deed deed = { .kind = OBS_DEED_NONE };
	json_t *answer;

	(void)state;
	become(HOST_OWNER);
	for (uint32_t v = 0; v < sizeof(verbs) / sizeof(verbs[0]); v++) {
		assert_int_equal(ask(verbs[v], "{\"context\":\"chat-long\",\"tier\":\"cxl\"}",
				     &answer, &deed), -EPERM);
		assert_int_equal(deed.kind, OBS_DEED_NONE);
	}
}

static void test_requests_by_their_names(void **state)
{
	static const char *const names[] = {
		[ABI_OP_NOP] = "nop", [ABI_OP_PUT_RESERVE] = "put-reserve",
		[ABI_OP_PUT_COMMIT] = "put-commit", [ABI_OP_PUT_ABORT] = "put-abort",
		[ABI_OP_FETCH] = "fetch", [ABI_OP_FETCH_PAGES] = "fetch-pages",
		[ABI_OP_PIN] = "pin", [ABI_OP_UNPIN] = "unpin", [ABI_OP_DELETE] = "delete",
		[ABI_OP_CANCEL] = "cancel", [ABI_OP_DRAIN] = "drain",
		[ABI_OP_PREFETCH] = "prefetch", [ABI_OP_MIGRATE] = "migrate",
		[ABI_OP_STREAM] = "stream", [ABI_OP_CONVERSATION] = "conversation",
		[ABI_OP_PLAN] = "plan",
	};
	const struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_HBM };
	json_t *requests;

	(void)state;
	host.held = true;
	assert_true(host_request_keys(&host, 0, sqe, 0, BLOCKS));
	requests = told("requests", "");
	assert_string_equal(text(requests, "requests.0.op"), "fetch");
	assert_string_equal(text(requests, "requests.0.class"), "demand");
	assert_string_equal(text(requests, "requests.0.context"), "chat-long");
	assert_int_equal(number(requests, "requests.0.count"), host.core->requests.table[0].total);
	json_decref(requests);
	for (uint8_t op = 0; op < sizeof(names) / sizeof(names[0]); op++) {
		host.core->requests.table[0].sqe.op = op;
		requests = told("requests", "");
		assert_string_equal(text(requests, "requests.0.op"), names[op]);
		json_decref(requests);
	}
	host.core->requests.table[0].sqe.op = ABI_OP_FETCH;
	host.held = false;
	host_carry_all(&host);
}

/* Of puts and deletions it is blocks: what can be read, what is in the log, what was looked at. */
static void test_what_is_done_of_blocks(void **state)
{
	const struct abi_put_args args = { .count = 4 };
	struct abi_sqe sqe = { .op = ABI_OP_DELETE };
	json_t *requests;

	(void)state;
	for (uint16_t durable = 0; durable < 2; durable++) {
		assert_int_equal(host_reserve(&host, &args, 500 + 10 * durable,
					      durable ? ABI_SQE_DURABLE : 0), 0);
		host.held = true;
		assert_true(host_commit(&host, durable ? ABI_SQE_DURABLE : 0));
		requests = told("requests", "");
		assert_string_equal(text(requests, "requests.0.op"), "put-commit");
		assert_int_equal(number(requests, "requests.0.done"), 0);
		assert_int_equal(number(requests, "requests.0.count"), 4);
		json_decref(requests);
		host.held = false;
		host_carry_all(&host);
		assert_true(host_settle(&host, 60));
	}
	host.held = true;
	assert_true(host_request_keys(&host, 0, sqe, 500, 8)); /* of which four are there */
	requests = told("requests", "");
	assert_string_equal(text(requests, "requests.0.op"), "delete");
	assert_int_equal(number(requests, "requests.0.done"), 8); /* its tombstones come */
	assert_int_equal(number(requests, "requests.0.count"), 8);
	json_decref(requests);
	host.held = false;
	host_carry_all(&host);
	assert_true(host_settle(&host, 60));
}

/* A parked prefetch holds nothing yet: what it will bring is told, and when it begins. */
static void test_what_is_parked(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_HBM };
	uint64_t block = context()->spec.geometry.block_bytes, use_ns = host.now_ns + 9 * NS_PER_S;
	uint32_t pages = context()->ix.pages_per_block;
	json_t *requests;

	(void)state;
	assert_true(host_request_keys(&host, 0, sqe, 2, 3));
	assert_true(host_settle(&host, 60));
	sqe = (struct abi_sqe){ .op = ABI_OP_PREFETCH, .klass = ABI_CLASS_DEADLINE,
				.tier = ABI_TIER_HBM, .user_data = 5, .deadline_ns = use_ns };
	assert_true(host_request_keys(&host, 0, sqe, 0, BLOCKS));
	host_tick(&host, NS_PER_MS);
	requests = told("requests", "");
	assert_string_equal(text(requests, "requests.0.op"), "prefetch");
	assert_true(json_is_true(json_at(requests, "requests.0.parked")));
	assert_int_equal(number(requests, "requests.0.count"), BLOCKS * pages);
	assert_int_equal(number(requests, "requests.0.done"), 0);
	assert_int_equal(number(requests, "requests.0.bytes"), (BLOCKS - 3) * block);
	assert_true(number(requests, "requests.0.start_ns") > host.now_ns &&
		    number(requests, "requests.0.start_ns") < use_ns);
	json_decref(requests);
	/* Only the first part of each. */
	host_request(&host, 0, &(struct abi_sqe){ .op = ABI_OP_CANCEL, .handle = 5 });
	sqe.tier = ABI_TIER_CXL;
	sqe.part_count = 1;
	assert_true(host_request_keys(&host, 0, sqe, 0, BLOCKS));
	requests = told("requests", "");
	assert_true(json_is_true(json_at(requests, "requests.0.parked")));
	assert_int_equal(number(requests, "requests.0.count"), BLOCKS * 2);
	assert_int_equal(number(requests, "requests.0.bytes"), 0); /* all of it is in CXL */
	json_decref(requests);
	/* Under way there is a count of what is done instead. */
	host_request(&host, 0, &(struct abi_sqe){ .op = ABI_OP_CANCEL, .handle = 5 });
	sqe = (struct abi_sqe){ .op = ABI_OP_FETCH, .tier = ABI_TIER_HBM };
	host.held = true;
	assert_true(host_request_keys(&host, 0, sqe, 0, BLOCKS));
	requests = told("requests", "");
	assert_true(json_is_false(json_at(requests, "requests.0.parked")));
	assert_true(json_is_null(json_at(requests, "requests.0.bytes")));
	assert_true(json_is_null(json_at(requests, "requests.0.start_ns")));
	json_decref(requests);
	host.held = false;
	host_carry_all(&host);
}

/* ---- what is asked for ----------------------------------------------------------------------- */

static void test_arguments_are_judged(void **state)
{
	static const char *const cases[][2] = {
		{ "evict", "{\"context\":\"chat\",\"tier\":\"cxl\",\"bytes\":-1}" },
		{ "evict", "{\"context\":\"chat\",\"tier\":\"cxl\",\"bytes\":1.5}" },
		{ "evict", "{\"context\":\"chat\",\"tier\":\"nvme\"}" },
		{ "quota-set", "{\"context\":\"chat\",\"tier\":\"cxl\",\"hard\":-1}" },
		{ "quota-set", "{\"context\":\"chat\",\"tier\":\"cxl\",\"soft\":\"1\"}" },
		{ "quota-set", "{\"context\":\"chat\",\"tier\":\"cxl\",\"salt\":7}" },
		{ "quota-set", "{\"context\":\"chat\",\"tier\":\"cxl\",\"salt\":\"-7\"}" },
		{ "quota-set", "{\"context\":\"chat\",\"tier\":\"cxl\",\"salt\":\"7x\"}" },
		{ "quota-set", "{\"context\":\"chat\",\"tier\":\"cxl\","
			       "\"salt\":\"0x10000000000000007\"}" },
		{ "quota-set", "{\"context\":\"chat\",\"client\":1,\"tier\":\"cxl\"}" },
		{ "quota-set", "{\"client\":-1,\"tier\":\"cxl\"}" },
		{ "quota-set", "{\"tier\":\"cxl\"}" },
	};
	struct obs_deed deed;
	json_t *answer;

	(void)state;
	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(ask(cases[i][0], cases[i][1], &answer, &deed), -EINVAL);
	assert_int_equal(ask("stat", "[]", &answer, &deed), -EINVAL);
	assert_string_equal(why, "the arguments are not a JSON object: they are something else");
	assert_int_equal(ask("quota-set", "{\"context\":\"chat\",\"tier\":\"cxl\",\"soft\":1,"
			     "\"hard\":2,\"pins\":3,\"salt\":\"0xffffffffffffffff\"}", &answer,
			     &deed), -EINPROGRESS);
	assert_int_equal(deed.kind, OBS_DEED_QUOTA);
	assert_int_equal(deed.quota.who, CORE_HOLDER_SALT);
	assert_int_equal(deed.quota.key, UINT64_MAX);
	assert_int_equal(deed.quota.tier, ABI_TIER_CXL);
	assert_int_equal(deed.quota.limit.soft, 1);
	assert_int_equal(deed.quota.limit.hard, 2);
	assert_int_equal(deed.quota.pins, 3);
	assert_int_equal(deed.quota.context_id, host.context[1].id);
	assert_int_equal(ask("evict", "{\"context\":\"chat\",\"tier\":\"hbm\"}", &answer, &deed),
			 -EINPROGRESS);
	assert_int_equal(deed.tier, ABI_TIER_HBM);
	assert_true(deed.bytes == UINT64_MAX);
	assert_int_equal(deed.context_id, host.context[1].id);
}

/* Quantiles under their own names, and of what never happened nothing but its count. */
static void test_latencies(void **state)
{
	static struct hist some, none;
	json_t *stat;

	(void)state;
	hist_init(&some);
	hist_init(&none);
	for (uint32_t i = 1; i <= 1000; i++)
		hist_record(&some, i * 1000);
	obs_latency(&obs, "request", "demand", &some);
	obs_latency(&obs, "copy", NULL, &none);
	stat = told("stat", "");
	assert_string_equal(text(stat, "latency.0.name"), "request");
	assert_string_equal(text(stat, "latency.0.class"), "demand");
	assert_int_equal(number(stat, "latency.0.count"), 1000);
	assert_int_equal(number(stat, "latency.0.mean_ns"), 500500);
	assert_int_equal(number(stat, "latency.0.p50_ns"), hist_quantile(&some, 0.5));
	assert_int_equal(number(stat, "latency.0.p99_ns"), hist_quantile(&some, 0.99));
	assert_int_equal(number(stat, "latency.0.p999_ns"), hist_quantile(&some, 0.999));
	assert_int_equal(number(stat, "latency.0.max_ns"), 1000000);
	assert_int_equal(number(stat, "latency.1.count"), 0);
	assert_true(json_is_null(json_at(stat, "latency.1.class")));
	json_decref(stat);
}

/* More facts than there is room for are left out. */
static void test_facts_have_a_limit(void **state)
{
	static char name[OBS_FACTS_MAX + 8][16];
	json_t *status;

	(void)state;
	for (uint32_t i = 0; i < OBS_FACTS_MAX + 8; i++) {
		snprintf(name[i], sizeof(name[i]), "fact %u", i);
		obs_fact(&obs, name[i], "%u", i);
	}
	status = told("status", "");
	assert_int_equal(json_object_size(json_at(status, "kernel")), OBS_FACTS_MAX);
	assert_int_equal(obs.facts, OBS_FACTS_MAX);
	json_decref(status);
}

static void test_what_is_not_there(void **state)
{
	struct obs_deed deed = { .kind = OBS_DEED_NONE };
	json_t *answer;

	(void)state;
	assert_int_equal(ask("locate", "{\"context\":\"chat\",\"key\":\""
			     "00000000000000000000000000000000"
			     "00000000000000000000000000000000\"}", &answer, &deed), -ENOENT);
	/* Nobody has a number of more than 32 bits: the lower half is somebody else's. */
	assert_int_equal(ask("quota-set", "{\"client\":4294967296,\"tier\":\"cxl\"}", &answer,
			     &deed), -EINPROGRESS);
	assert_true(deed.quota.key == 1ull << 32);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, one_host_off)
	const struct CMUnitTest tests[] = {
		CASE(test_tiers_are_told_by_their_names),
		CASE(test_how_many_are_leaving),
		CASE(test_who_shares_the_daemons_user),
		CASE(test_how_often_bytes_were_written),
		CASE(test_who_holds_what),
		CASE(test_a_context_is_found_by_its_name),
		CASE(test_owners_see_their_own),
		CASE(test_others_are_not_there),
		CASE(test_counts_of_what_is_seen),
		CASE(test_the_rest_is_for_operators),
		CASE(test_requests_by_their_names),
		CASE(test_what_is_done_of_blocks),
		CASE(test_what_is_parked),
		CASE(test_arguments_are_judged),
		CASE(test_latencies),
		CASE(test_facts_have_a_limit),
		CASE(test_what_is_not_there),
	};

	return cmocka_run_group_tests_name("obs", tests, one_host, NULL);
}
