/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one user can make many of, beside a victim: blocks by ten thousands and their end, children
 * that may not follow their parent, pins, conversations, epochs, reservations, slabs that must be
 * emptied, objects, questions, entries of nonsense, and processes that die in the middle of a call.
 * Judged as test_isolation_beside judges; TIER_ISOLATION_MS, _ONLY as there.
 */
#include "tests/integration/beside.h"

#include <tier_object.h>

static const char *const settings[] = { "clients.max=64", "hbm.size=8MiB",
					"cxl.size=256MiB", "nvme.size=512MiB", "index.size=128MiB",
					"put.deadline=600s", "object.cxl=16MiB",
					"object.nvme=64MiB", NULL };

#define SMALL 512u
#define LARGE 4096u	       /* pages of the store */
#define KEYS 30000u
/* Blocks, puts of one block with a pin of its own, lists: more than an event may look at. With the
 * sanitizer each costs three times as much, and a third finds the same. */
#if defined(__SANITIZE_ADDRESS__)
#define MANY 12000u
#define CHILDREN 10000u
#define SINGLE 6000u
#define OF_A_LIST 5000u
#define PUTS_MORE 40u
#else
#define MANY 30000u
#define CHILDREN 20000u
#define SINGLE 16000u
#define OF_A_LIST 8000u
#define PUTS_MORE CONTEXTS
#endif
#define OF_A_PUT 2000u /* keys */
#define CONTEXTS 180u

static uint8_t bytes[OF_A_PUT * LARGE];
static tier_key key[KEYS];
static tier_block block[KEYS];
static struct tier_found found[OF_A_PUT];

static void keys_from(uint32_t first)
{
	for (uint32_t i = 0; i < KEYS; i++)
		key[i] = secret_key(first + i);
}

/* Blocks of one page. Waits until the one before has gone. */
static tier_context *make(tier *t, const char *name, uint32_t page_bytes, uint64_t nvme,
			  uint64_t cxl)
{
	const struct shape s = { 1, page_bytes, 40000, cxl, nvme };
	tier_context *c = NULL;
	int rc = -EBUSY;

	for (uint32_t i = 0; i < PATIENCE_MS && rc && rc != -EINVAL; i++) {
		rc = create_shaped(t, name, &s, &c);
		if (rc)
			usleep(1000);
	}
	CHECK(rc == 0);
	return c;
}

static tier_context *in_memory(tier *t, const char *name)
{
	return make(t, name, SMALL, TIER_QUOTA_NONE, 64 * MIB);
}

static uint32_t put_many(tier_context *c, uint32_t count, uint32_t flags)
{
	const struct tier_put_options o = { .size = sizeof(o), .flags = flags };
	uint32_t put = 0;

	for (uint32_t at = 0; at < count; at += OF_A_PUT) {
		int64_t rc = tier_put_copy(c, key + at, OF_A_PUT, bytes, &o);

		put += rc > 0 ? (uint32_t)rc : 0;
	}
	return put;
}

static uint32_t find_many(tier_context *c, uint32_t count)
{
	uint32_t n = 0;

	for (uint32_t at = 0; at < count; at++)
		if (tier_match(c, key + at, 1, found) == 1)
			block[n++] = found[0].block;
	return n;
}

/* Pins of lists; returns how many. */
static uint32_t pin_many(tier_context *c, uint32_t count, uint64_t pin[KEYS / OF_A_LIST + 1])
{
	uint32_t pins = 0;

	for (uint32_t at = 0; at < count; at += OF_A_LIST) {
		uint32_t n = count - at < OF_A_LIST ? count - at : OF_A_LIST;

		pins += tier_pin(c, block + at, n, TIER_CXL, 0, &pin[pins]) > 0;
	}
	return pins;
}

/* ---- blocks by ten thousands ----------------------------------------------------------------- */

static void by_removals(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	uint32_t rounds = 0, put = 0;

	keys_from(1000000);
	do {
		tier_context *c = in_memory(t, "many");

		put += put_many(c, MANY, rounds % 2 ? TIER_PUT_APART : 0);
		tier_context_close(c);
		CHECK(tier_context_remove(t, "many") == 0);
		rounds++;
	} while (going_on());
	printf("#   %u times, %u blocks in all\n", rounds, put);
	CHECK(put > rounds * (MANY / 2));
}

static void by_children(struct isolation *w)
{
	struct tier_put_options o = { .size = sizeof(o), .depth = 1, .parent = &key[0] };
	uint64_t pin[KEYS / OF_A_LIST + 1];
	tier *t = connect_to(&w->d);
	uint32_t rounds = 0, pins = 0;

	keys_from(2000000);
	do {
		tier_context *c = in_memory(t, "children");
		uint32_t there;

		CHECK(tier_put_copy(c, key, 1, bytes, NULL) == 1);
		for (uint32_t i = 1; i <= CHILDREN; i++)
			CHECK(tier_put_copy(c, key + i, 1, bytes, &o) == 1);
		there = find_many(c, CHILDREN + 1);
		pins += pin_many(c, there, pin); /* the parent, too: and then not */
		CHECK(tier_delete(c, key, 1) == 1);
		do
			usleep(100000);
		while (going_on());
		for (uint32_t i = 0; i < 2; i++) /* the third goes with the context */
			CHECK(tier_unpin(c, pin[i]) == 0);
		tier_context_close(c);
		CHECK(tier_context_remove(t, "children") == 0);
		rounds++;
	} while (going_on());
	printf("#   %u times, %u pins\n", rounds, pins);
	CHECK(pins >= rounds * 3);
}

static void by_singles(struct isolation *w)
{
	uint32_t rounds = 0, pins = 0;

	keys_from(3000000);
	do {
		tier *t[5];
		tier_context *c[5];
		uint64_t pin;

		for (uint32_t i = 0; i < 5; i++)
			t[i] = connect_to(&w->d);
		c[0] = in_memory(t[0], "singles");
		for (uint32_t i = 1; i < 5; i++)
			CHECK(tier_context_open(t[i], "singles", NULL, &c[i]) == 0);
		for (uint32_t i = 0; i < SINGLE; i++) {
			CHECK(tier_put_copy(c[0], key + i, 1, bytes, NULL) == 1);
			CHECK(tier_match(c[0], key + i, 1, found) == 1);
			pins += tier_pin(c[i % 5], &found[0].block, 1, TIER_CXL, 0, &pin) == 1;
		}
		if (rounds % 2)
			for (uint32_t i = 0; i < SINGLE; i += OF_A_PUT)
				CHECK(tier_delete(c[0], key + i, OF_A_PUT) >= 0);
		for (uint32_t i = 0; i < 5; i++) /* and with each all its pins */
			tier_close(t[i]);
		t[0] = connect_to(&w->d);
		CHECK(tier_context_remove(t[0], "singles") == 0);
		tier_close(t[0]);
		rounds++;
	} while (going_on());
	printf("#   %u times, %u pins in all\n", rounds, pins);
	CHECK(pins > 0);
}

static void by_epochs(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c = in_memory(t, "epochs");
	uint64_t epoch;
	uint32_t put = 0, rounds = 0;

	keys_from(4000000);
	do {
		put += put_many(c, MANY, 0);
		epoch = 0;
		CHECK(tier_context_raise_epoch(t, "epochs", &epoch) == 0);
		rounds++;
	} while (going_on());
	for (uint32_t i = 0; i < 200; i++) {
		epoch = 0;
		CHECK(tier_context_raise_epoch(t, "epochs", &epoch) == 0);
	}
	printf("#   %u epochs, %u blocks in all\n", rounds, put);
	CHECK(tier_context_remove(t, "epochs") == 0);
}

/* Its events, and its buckets: all keys of a round begin alike, as far as a bucket takes them. */
static void by_churn(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c = in_memory(t, "churn");
	uint32_t put = 0, gone = 0;

	do {
		for (uint32_t i = 0; i < OF_A_PUT; i++) {
			key[i] = secret_key(5000000 + put / OF_A_PUT * 100000 + i / 64);
			memcpy((uint8_t *)&key[i] + 16, &i, sizeof(i));
		}
		put += put_many(c, OF_A_PUT, TIER_PUT_APART);
		for (uint32_t i = 0; i < OF_A_PUT; i += 1000) {
			int64_t rc = tier_delete(c, key + i, 1000);

			gone += rc > 0 ? (uint32_t)rc : 0;
		}
	} while (going_on());
	printf("#   %u blocks put, %u deleted\n", put, gone);
	CHECK(put > 0 && tier_context_remove(t, "churn") == 0);
}

/* ---- room ------------------------------------------------------------------------------------ */

/* So many bytes of pages of one size, each two of three deleted again where `holes`. */
static void fill(tier_context *c, uint32_t page_bytes, uint64_t most, bool holes)
{
	const struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_APART };
	uint32_t each = sizeof(bytes) / page_bytes, count = (uint32_t)(most / page_bytes);

	each = each < OF_A_PUT ? each : OF_A_PUT;
	count = count < KEYS ? count : KEYS;
	for (uint32_t i = 0; i + each <= count; i += each)
		tier_put_copy(c, key + i, each, bytes, &o);
	for (uint32_t i = 0; holes && i + 2 < count; i += 3)
		tier_delete(c, key + i, 2);
}

/* Slabs that are two thirds empty, and pages of another size that want them. */
static void by_evacuation(struct isolation *w)
{
	static const uint32_t sizes[] = { 512, 4096, 65536 };
	tier *t = connect_to(&w->d);
	uint32_t rounds = 0;

	keys_from(6000000);
	do {
		tier_context *c[3];

		for (uint32_t i = 0; i < 3; i++) {
			char name[16];

			snprintf(name, sizeof(name), "slabs-%u", i);
			c[i] = make(t, name, sizes[(rounds + i) % 3], TIER_QUOTA_NONE, 0);
			fill(c[i], sizes[(rounds + i) % 3], 160 * MIB, i < 2);
		}
		for (uint32_t i = 0; i < 3; i++) {
			char name[16];

			snprintf(name, sizeof(name), "slabs-%u", i);
			tier_context_close(c[i]);
			CHECK(tier_context_remove(t, name) == 0);
		}
		rounds++;
	} while (going_on());
	printf("#   %u times\n", rounds);
}

/* Each block of another tenant's, more than there is room for. */
static void by_salts(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c = make(t, "tenants", SMALL, TIER_QUOTA_NONE, MANY / 5 * 4 * SMALL);
	uint32_t n = 0, put = 0;

	keys_from(12000000);
	for (; n < MANY || going_on(); n++) {
		const struct tier_put_options o = { .size = sizeof(o), .salt = 1 + n % MANY };

		put += tier_put_copy(c, key + n % MANY, 1, bytes, &o) == 1;
	}
	printf("#   %u blocks put, %u of them taken\n", n, put);
	CHECK(put > MANY / 2 && tier_context_remove(t, "tenants") == 0);
}

/* As many contexts as there may be, each with a slab, and each wants more. */
static void by_many_contexts(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c[CONTEXTS];
	uint32_t n = 0, put = 0;
	char name[16];

	keys_from(13000000);
	for (uint32_t i = 0; i < CONTEXTS; i++) {
		snprintf(name, sizeof(name), "one-of-%u", i);
		c[i] = make(t, name, LARGE, TIER_QUOTA_NONE, 0);
	}
	for (; n < CONTEXTS + PUTS_MORE || going_on(); n++) {
		const struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_APART,
						    .deadline_ns = time_now_ns() +
							   50 * NS_PER_MS };

		put += tier_put_copy(c[n % CONTEXTS], key + n / CONTEXTS % 40 * 500, 500, bytes,
				     &o) > 0;
	}
	printf("#   %u puts of %u contexts, %u of them taken\n", n, CONTEXTS, put);
	for (uint32_t i = 0; i < CONTEXTS; i++) {
		snprintf(name, sizeof(name), "one-of-%u", i);
		CHECK(tier_context_remove(t, name) == 0);
	}
}

static void by_reservations(struct isolation *w)
{
	struct tier_reserve_options o = { .size = sizeof(o), .expected = 1u << 20 };
	tier *t = connect_to(&w->d);
	tier_context *c = make(t, "room", SMALL, TIER_QUOTA_NONE, 0);
	uint32_t got = 0, refused = 0;

	do {
		struct tier_reserved r;

		o.expected = o.expected > 1000 ? o.expected / 2 : 1u << 18;
		if (tier_reserve(c, &o, &r) == 0) {
			got++;
			tier_reserve_end(c, r.id);
		} else {
			refused++;
		}
	} while (going_on());
	printf("#   %u granted, %u refused: %s\n", got, refused, tier_error_text());
	CHECK(tier_context_remove(t, "room") == 0);
}

/* ---- foresight ------------------------------------------------------------------------------- */

static void drain(tier *t)
{
	struct tier_completion done[64];

	while (tier_poll(t, done, 64) > 0)
		;
}

static void by_conversations(struct isolation *w)
{
	struct tier_conversation_options o = { .size = sizeof(o), .tier = TIER_CXL };
	tier *t = connect_to(&w->d);
	tier_context *c = in_memory(t, "talks");
	uint32_t said = 0;

	keys_from(7000000);
	CHECK(put_many(c, OF_A_LIST, TIER_PUT_APART) > 0);
	o.count = find_many(c, OF_A_LIST);
	o.blocks = block;
	for (uint32_t i = 0; i < 256 || going_on(); i++) {
		static const uint32_t event[] = { TIER_CONVERSATION_TURN_END,
						  TIER_CONVERSATION_RETURN,
						  TIER_CONVERSATION_TURN_END,
						  TIER_CONVERSATION_CLOSE };
		uint32_t e = event[i / 64 % 4];

		said += tier_conversation(c, i % 64 + i / 256 % 32 * 64, e, &o) == 0;
		drain(t);
	}
	printf("#   %u turns of %u blocks\n", said, o.count);
	CHECK(said > 0 && tier_context_remove(t, "talks") == 0);
}

/* Prefetches that wait, streams, fetches, and one word that ends them all. */
static void by_cancels(struct isolation *w)
{
	struct tier_ask o = { .size = sizeof(o), .tier = TIER_CXL, .user_data = 7 };
	struct tier_ask up = o;
	tier *t = connect_to(&w->d);
	tier_context *c = make(t, "asks", LARGE, 64 * MIB, 16 * MIB);
	uint32_t n, asked = 0;

	keys_from(8000000);
	CHECK(put_many(c, OF_A_LIST, TIER_PUT_APART) > 0);
	n = find_many(c, OF_A_LIST);
	do {
		o.deadline_ns = time_now_ns() + 300 * NS_PER_S;
		for (uint32_t i = 0; i < 64; i++)
			asked += tier_prefetch(c, block, n, &o) == 0;
		for (uint32_t i = 0; i < 64; i++)
			asked += tier_fetch_start(c, block + i, n - i, &up) == 0;
		tier_cancel(t, 7);
		drain(t);
	} while (going_on());
	printf("#   %u asked\n", asked);
	CHECK(asked > 0 && tier_context_remove(t, "asks") == 0);
}

/* ---- objects, questions ---------------------------------------------------------------------- */

static void by_objects(struct isolation *w)
{
	struct tier_context_options o = { .size = sizeof(o), .mode = 0600 };
	tier *t = connect_to(&w->d);
	struct tier_object_entry list[64];
	uint32_t n = 0, refused = 0;
	char name[64], to[64];

	CHECK(tier_object_context(t, "things", &o) == 0);
	for (; going_on(); n++) {
		tier_object *object = NULL;

		snprintf(name, sizeof(name), "thing-%u", n % 400);
		snprintf(to, sizeof(to), "other-%u", n % 300);
		if (tier_object_create(t, "things", name, NULL, &object)) {
			refused++;
			continue;
		}
		if (n % 3 == 0)
			tier_object_abort(object);
		else
			refused += tier_object_commit(object) != 0;
		tier_object_rename(t, "things", name, to, 0);
		if (n % 16 == 0)
			tier_object_list(t, "things", NULL, NULL, list, 64);
		if (n % 5 == 0)
			tier_object_remove(t, "things", to);
	}
	printf("#   %u objects, %u refused: %s\n", n, refused, tier_error_text());
	CHECK(tier_context_remove(t, "things") == 0);
}

static void by_questions(struct isolation *w)
{
	static const char *const verbs[] = { "status", "contexts", "context", "locate" };
	tier *t = connect_to(&w->d);
	uint32_t n = 0, answered = 0;
	char name[16];

	for (uint32_t i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "asked-%u", i);
		tier_context_close(in_memory(t, name));
	}
	for (char *reply = NULL; going_on(); n++) {
		answered += tier_admin(t, verbs[n % 4], "{\"context\": \"asked-3\"}", &reply) == 0;
		free(reply);
		reply = NULL;
	}
	printf("#   %u questions, %u answered\n", n, answered);
	for (uint32_t i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "asked-%u", i);
		CHECK(tier_context_remove(t, name) == 0);
	}
}

/* ---- nonsense -------------------------------------------------------------------------------- */

static uint32_t random_of(uint32_t *seed, uint32_t most)
{
	*seed = *seed * 1664525 + 1013904223;
	return (*seed >> 8) % most;
}

/* An entry that could be one; its list, as long as can be, names blocks that are there. */
static struct abi_sqe entry_of(struct client *raw, const uint32_t contexts[2], uint32_t *seed)
{
	uint32_t head = (uint32_t[]){ 0, 16, 32, 32 }[random_of(seed, 4)];
	uint32_t each = (uint32_t[]){ 2, 4, 8 }[random_of(seed, 3)];
	uint32_t *word = (uint32_t *)(void *)raw->staging;
	struct abi_sqe e = {
		.op = (uint8_t)random_of(seed, ABI_OP_COUNT + 1),
		.klass = (uint8_t)random_of(seed, 3),
		.flags = (uint16_t)random_of(seed, 8),
		.context_id = contexts[random_of(seed, 2)],
		.user_data = random_of(seed, 4),
		.handle = random_of(seed, 64),
		.tier = (uint8_t)random_of(seed, 3),
		.mode = (uint8_t)random_of(seed, 5),
		.generation = random_of(seed, 2),
	};

	if (random_of(seed, 2))
		e.deadline_ns = time_now_ns() + random_of(seed, 1u << 30);
	e.count = (uint32_t[]){ 1, 2000, 2040, 4096, 8184, 8192 }[random_of(seed, 6)];
	e.arg_bytes = head * 4 + e.count * each * 4;
	e.arg_bytes = e.arg_bytes < ABI_ARG_BYTES_MAX ? e.arg_bytes : ABI_ARG_BYTES_MAX;
	memset(word, 0, head * 4);
	for (uint32_t k = head, n = 0; k < e.arg_bytes / 4; k += each, n++) {
		word[k] = random_of(seed, 4) ? n : random_of(seed, OF_A_LIST);
		word[k + 1] = 1;
		if (each > 2)
			word[k + 2] = word[k + 3] = 0;
	}
	if (head == 32)
		((struct abi_put_args *)(void *)word)->count = e.count;
	return e;
}

static void by_entries(struct isolation *w)
{
	uint32_t seed = 1, rounds = 0, pushed = 0, contexts[2];
	tier *t = connect_to(&w->d);
	tier_context *c = in_memory(t, "entries-0");
	union answer a;

	keys_from(9000000);
	CHECK(put_many(c, OF_A_LIST, TIER_PUT_APART) > 0);
	tier_context_close(make(t, "entries-1", LARGE, 32 * MIB, 16 * MIB));
	do {
		struct client raw;
		struct abi_cqe cqe;

		CHECK(client_open(&raw, &w->d) == 0);
		for (uint32_t i = 0; i < 2; i++) {
			const char *name = i ? "entries-1" : "entries-0";

			CHECK(ask_context(&raw, WIRE_CTX_OPEN, name, &a) == 0);
			contexts[i] = a.info.context_id;
			for (int k = 0; k < raw.fds; k++)
				close(raw.fd[k]);
		}
		for (uint32_t i = 0; i < 400 && going_on(); i++) {
			struct abi_sqe e = entry_of(&raw, contexts, &seed);

			pushed += client_push(&raw, &e);
			while (client_pop(&raw, &cqe, i % 8 ? 0 : 5))
				;
		}
		client_close(&raw);
		rounds++;
	} while (going_on());
	printf("#   %u entries of %u connections\n", pushed, rounds);
	CHECK(tier_context_remove(t, "entries-0") == 0);
	CHECK(tier_context_remove(t, "entries-1") == 0);
}

/* ---- death ----------------------------------------------------------------------------------- */

static void __attribute__((noreturn)) until_killed(struct isolation *w, uint32_t n)
{
	struct tier_ask down = { .size = sizeof(down), .tier = TIER_NVME };
	tier *t = connect_to(&w->d);
	uint64_t pin[KEYS / OF_A_LIST + 1];
	tier_context *c;
	uint32_t there;

	if (tier_context_open(t, "mortal", NULL, &c))
		_exit(1);
	keys_from(11000000 + n % 4 * KEYS);
	put_many(c, OF_A_LIST, n % 2 ? TIER_PUT_APART : 0);
	there = find_many(c, OF_A_LIST);
	for (;;) {
		pin_many(c, there, pin);
		tier_fetch_start(c, block, there, NULL);
		tier_migrate(c, block, there, &down);
		tier_delete(c, key, OF_A_PUT);
		put_many(c, OF_A_PUT, 0);
		drain(t);
	}
}

static void by_deaths(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c = make(t, "mortal", LARGE, 64 * MIB, 64 * MIB);
	uint32_t seed = 1, n = 0;

	do {
		pid_t pid;

		fflush(NULL);
		pid = fork();
		if (pid == 0)
			until_killed(w, n);
		usleep(1000 + random_of(&seed, 100000));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		n++;
	} while (going_on());
	printf("#   %u killed\n", n);
	tier_context_close(c);
	CHECK(tier_context_remove(t, "mortal") == 0);
}

/* ---- several at once ------------------------------------------------------------------------- */

static void at_once(struct isolation *w, void (*const body[4])(struct isolation *w))
{
	int status, failed = 0;

	fflush(NULL);
	for (uint32_t i = 0; i < 4; i++)
		if (fork() == 0) {
			body[i](w);
			fflush(NULL);
			_exit(0);
		}
	while (wait(&status) > 0)
		failed += status != 0;
	CHECK(failed == 0);
}

static void by_four(struct isolation *w)
{
	at_once(w, (void (*const[])(struct isolation *)){ by_removals, by_children, by_singles,
							  by_conversations });
}

static void four_busy(struct isolation *w)
{
	at_once(w, (void (*const[])(struct isolation *)){ busy, busy, busy, busy });
}

static const struct attack attacks[] = {
	{ "blocks, removed", by_removals },
	{ "pinned children of a deleted parent", by_children },
	{ "puts of one block, each pinned", by_singles },
	{ "epochs of many blocks", by_epochs },
	{ "an index churned, keys alike", by_churn },
	{ "slabs that must be emptied", by_evacuation },
	{ "blocks of many tenants, room short", by_salts },
	{ "180 contexts that want more", by_many_contexts },
	{ "reservations of everything", by_reservations },
	{ "conversations of many blocks", by_conversations },
	{ "128 requests of many blocks cancelled", by_cancels },
	{ "objects", by_objects },
	{ "questions", by_questions },
	{ "entries of nonsense, long lists", by_entries },
	{ "processes killed in their calls", by_deaths },
	{ "four busy loops", four_busy },
	{ "blocks, children, pins, conversations at once", by_four },
};

static void test_beside_each(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack_each(w, attacks, COUNT(attacks));
}

static int setup(void **state)
{
	return beside_begin(state, settings);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beside_each),
		cmocka_unit_test(test_the_end_and_a_start),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("isolation, floods", tests, setup, isolation_teardown);
}
