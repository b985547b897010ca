/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of one user beside another's: all uploads that there are, all memory and held open, one
 * name that as many uploads have as there may be, and questions of forty connections at once. The
 * victim makes objects, opens what has left memory, and is never refused. Judged as
 * test_isolation_beside judges.
 */
#include "tests/integration/beside.h"

#include <tier_object.h>

static const char *const settings[] = { "clients.max=64", "hbm.size=8MiB", "cxl.size=64MiB",
					"nvme.size=128MiB", "index.size=64MiB",
					"put.deadline=600s", "object.cxl=16MiB",
					"object.nvme=64MiB", NULL };

#define CLIENTS 44u /* of the 48 that one user may have */
#define NAMES 12u   /* of the victim, 1 MiB each: more than the part that it is left */
#define OF_NAME (1u << 20)

static struct client raw[CLIENTS];
static uint8_t bytes[OF_NAME];

/* ---- by hand --------------------------------------------------------------------------------- */

static int ask_object(struct client *c, uint16_t type, const char *name, uint32_t flags)
{
	struct wire_object m = { .flags = flags };
	union answer a;

	snprintf(m.context, sizeof(m.context), "things");
	snprintf(m.name, sizeof(m.name), "%s", name);
	CHECK(client_ask(c, &m, type, sizeof(m), &a) > 0);
	return a.header.type == WIRE_ERROR ? a.error.error : 0;
}

static void open_raw(struct isolation *w, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		CHECK(client_open(&raw[i], &w->d) == 0);
}

/* As many uploads as there may be, of one name or of different ones; returns how many. */
static uint32_t take_uploads(uint32_t clients, uint32_t flags, bool one)
{
	uint32_t got = 0;
	char name[16] = "one";

	for (uint32_t i = 0; i < clients; i++)
		for (;;) {
			if (!one)
				snprintf(name, sizeof(name), "up-%u", got);
			if (ask_object(&raw[i], WIRE_OBJ_CREATE, name, flags))
				break;
			got++;
			if (!one)
				close(raw[i].fd[0]);
		}
	return got;
}

static tier *with_things(struct isolation *w)
{
	struct tier_context_options o = { .size = sizeof(o), .mode = 0600 };
	tier *t = connect_to(&w->d);

	CHECK(tier_object_context(t, "things", &o) == 0);
	return t;
}

static int put_object(tier *t, const char *context, const char *name, uint32_t count)
{
	tier_object *object;
	int rc = tier_object_create(t, context, name, NULL, &object);

	if (rc)
		return rc;
	CHECK(write(tier_object_fd(object), bytes, count) == (ssize_t)count);
	return tier_object_commit(object);
}

/* ---- the victim ------------------------------------------------------------------------------ */

/* Each of its names is opened in turn, so most have left memory by then; and one is made anew. */
static void objects_work(struct isolation *w)
{
	struct tier_context_options o = { .size = sizeof(o), .mode = 0600 };
	tier *t = connect_to(&w->d);
	uint32_t n = 0, refused = 0;
	char name[16];
	int last = 0;

	CHECK(tier_object_context(t, "mine", &o) == 0);
	for (uint32_t i = 0; i < 2 * NAMES || going_on(); i++, n++) {
		int rc;

		snprintf(name, sizeof(name), "mine-%u", i % NAMES);
		rc = put_object(t, "mine", name, OF_NAME);
		snprintf(name, sizeof(name), "mine-%u", (i + 1) % NAMES);
		if (rc == 0 && i > NAMES)
			rc = tier_object_open(t, "mine", name, 0);
		if (rc >= 0 && i > NAMES)
			close(rc);
		refused += rc < 0;
		last = rc < 0 ? rc : last;
	}
	printf("#   beside it %u times put and opened, %u refused (%d) %s\n", n, refused, last,
	       refused ? tier_error_text() : "");
	fflush(stdout);
	CHECK(refused == 0);
	tier_close(t);
}

/* ---- attacks --------------------------------------------------------------------------------- */

struct held {
	pid_t pid;
	int told[2];
};

/* An attacker that has taken what it can, and keeps it. */
static void hold(struct isolation *w, struct held *h, void (*take)(struct isolation *w))
{
	char byte;

	assert_int_equal(pipe(h->told), 0);
	fflush(NULL);
	h->pid = fork();
	assert_true(h->pid >= 0);
	if (h->pid == 0) {
		become(UID_ATTACKER, UID_ATTACKER);
		take(w);
		fflush(stdout);
		CHECK(write(h->told[1], "x", 1) == 1);
		pause();
		_exit(0);
	}
	close(h->told[1]);
	assert_int_equal(read(h->told[0], &byte, 1), 1);
	close(h->told[0]);
}

static void let_go(struct held *h)
{
	int status;

	kill(h->pid, SIGKILL);
	assert_int_equal(waitpid(h->pid, &status, 0), h->pid);
}

static void take_all_uploads(struct isolation *w)
{
	with_things(w);
	open_raw(w, 16);
	printf("#   %u uploads\n", take_uploads(16, 0, false));
}

/* Written and held open; then what is committed, opened and kept. */
static void take_all_memory(struct isolation *w)
{
	tier *t = with_things(w);
	uint32_t open = 0, uploads = 0;
	tier_object *object;
	char name[16];

	for (uint32_t i = 0; i < 32; i++) {
		snprintf(name, sizeof(name), "big-%u", i);
		if (put_object(t, "things", name, OF_NAME) == 0)
			open += tier_object_open(t, "things", name, 0) >= 0;
	}
	for (uint32_t i = 0; i < 400; i++) {
		snprintf(name, sizeof(name), "small-%u", i);
		if (put_object(t, "things", name, 512) == 0)
			open += tier_object_open(t, "things", name, 0) >= 0;
	}
	for (uint32_t i = 0; i < 32; i++) {
		snprintf(name, sizeof(name), "up-%u", i);
		if (tier_object_create(t, "things", name, NULL, &object))
			continue;
		uploads += write(tier_object_fd(object), bytes, OF_NAME) == (ssize_t)OF_NAME;
	}
	usleep(300000); /* until what was written is charged */
	printf("#   %u open, %u uploads of 1 MiB\n", open, uploads);
}

static void beside_held(struct isolation *w, const char *name, void (*take)(struct isolation *w))
{
	struct held h;

	hold(w, &h, take);
	atomic_store_release_u64(&board->until_ns, time_now_ns() + attack_ms() * 1000000ull);
	attack_as(w, UID_VICTIM, UID_VICTIM, name, objects_work);
	let_go(&h);
}

static void test_uploads_of_all(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		beside_held(w, "all uploads that one may have", take_all_uploads);
}

static void test_memory_held_open(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		beside_held(w, "memory of objects, held open", take_all_memory);
}

/* A name that thousands of uploads have which wait for their last close, and all ask about it. */
static void by_one_name(struct isolation *w)
{
	struct wire_object m = { .flags = 0 };
	uint32_t got, asked = 0;
	union answer a;

	with_things(w);
	open_raw(w, 8);
	got = take_uploads(8, WIRE_OBJ_AT_CLOSE, true);
	for (uint32_t i = 0; i < 8; i++)
		client_close(&raw[i]);
	usleep(300000); /* its connection is gone: each is one that is closing */
	open_raw(w, CLIENTS - 4);
	snprintf(m.context, sizeof(m.context), "things");
	snprintf(m.name, sizeof(m.name), "one");
	do {
		for (uint32_t i = 0; i < CLIENTS - 4; i++) {
			client_header(&raw[i], &m, WIRE_OBJ_STAT, sizeof(m));
			CHECK(send(raw[i].sock, &m, sizeof(m), MSG_NOSIGNAL) > 0);
		}
		for (uint32_t i = 0; i < CLIENTS - 4; i++)
			asked += client_receive(&raw[i], &a) > 0;
	} while (asked < 400 || going_on());
	printf("#   %u uploads, asked %u times\n", got, asked);
	CHECK(got == 256); /* of one name */
}

/* Everybody's questions, of all connections in the same turn. */
static void by_questions(struct isolation *w)
{
	static const char *const verbs[] = { "contexts", "status" };
	uint32_t asked = 0;
	tier *t = connect_to(&w->d);
	char name[16];
	union answer a;

	for (uint32_t i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "asked-%u", i);
		tier_context_close(create_as(t, name, 0600));
	}
	open_raw(w, CLIENTS - 4);
	do {
		for (uint32_t i = 0; i < CLIENTS - 4; i++) {
			struct {
				struct wire_admin m;
				char text[8];
			} q = { .text = "{}" };

			snprintf(q.m.verb, sizeof(q.m.verb), "%s", verbs[asked % 2]);
			client_header(&raw[i], &q, WIRE_ADMIN, sizeof(q.m) + 2);
			CHECK(send(raw[i].sock, &q, sizeof(q.m) + 2, MSG_NOSIGNAL) > 0);
		}
		for (uint32_t i = 0; i < CLIENTS - 4; i++)
			do
				CHECK(client_receive(&raw[i], &a) > 0);
			while (a.header.type == WIRE_TEXT && a.text.more);
		asked++;
	} while (asked < 10 || going_on());
	printf("#   %u times\n", asked);
	for (uint32_t i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "asked-%u", i);
		CHECK(tier_context_remove(t, name) == 0);
	}
}

static const struct attack attacks[] = {
	{ "uploads of one name, asked by all", by_one_name },
	{ "questions of forty connections", by_questions },
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
		cmocka_unit_test(test_uploads_of_all),
		cmocka_unit_test(test_memory_held_open),
		cmocka_unit_test(test_beside_each),
		cmocka_unit_test(test_the_end_and_a_start),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("isolation, objects", tests, setup, isolation_teardown);
}
