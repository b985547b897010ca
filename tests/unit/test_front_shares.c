/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one user's questions may take of a turn, and what answers it may leave unread. The clock is
 * ours: each look at it takes some time.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

#include "libtier/base/time.h"
#include "tests/unit/front_turns.h"
#include "tierd/front/front_priv.h"

#define ONE 4321u /* users */
#define OTHER 4322u
#define ASKING 6u /* connections of the first one; one more is the other's */
#define TURN_NS (200 * NS_PER_US) /* of one user's questions */
#define UNREAD (8u << 20)

static uint64_t skew_ns, look_ns;

int clock_gettime(clockid_t clock, struct timespec *t)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, t);

	if (clock != CLOCK_MONOTONIC)
		return rc;
	skew_ns += look_ns;
	*t = time_to_timespec((uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec + skew_ns);
	return rc;
}

static struct connection *greet_as(struct peer *p, uint32_t uid)
{
	struct connection *s;

	greet(p);
	s = &fx.front->connection[p->client];
	s->uid = uid;
	s->operator_ = false;
	return s;
}

static void leave_all(struct peer *p, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		fx.front->connection[p[i].client].uid = geteuid();
		leave(&p[i]);
	}
	turn(MS);
	fx.shell.passed = fx.shell.mark;
	turn(MS);
}

static void say(const struct peer *p, void *message, uint16_t type, uint32_t bytes)
{
	struct wire_header *h = message;

	*h = (struct wire_header){ WIRE_MAGIC, ABI_VERSION, type, bytes, 2 };
	assert_int_equal(send(p->sock, message, bytes, 0), (ssize_t)bytes);
}

/* The answer's error; 0 = it was none; 1 = no answer is there. */
static int heard(const struct peer *p)
{
	union {
		struct wire_header header;
		struct wire_error error;
		uint8_t bytes[WIRE_MESSAGE_MAX];
	} a;
	ssize_t n = recv(p->sock, &a, sizeof(a), MSG_DONTWAIT);

	if (n < 0)
		return 1;
	assert_true(n >= (ssize_t)sizeof(a.header));
	return a.header.type == WIRE_ERROR ? a.error.error : 0;
}

/* A user of many connections asks on in the next turn, the other one is answered in this one. */
static void test_questions_of_one_user_leave_room(void **state)
{
	struct peer p[ASKING + 1];
	uint32_t got = 0, turns = 0;

	(void)state;
	for (uint32_t i = 0; i <= ASKING; i++)
		greet_as(&p[i], i < ASKING ? ONE : OTHER);
	for (uint32_t i = 0; i <= ASKING; i++) {
		struct wire_ctx m = { .name = "none" };

		say(&p[i], &m, WIRE_CTX_OPEN, sizeof(m));
	}
	look_ns = TURN_NS / 2; /* a question takes that at least: one of two ends a user's turn */
	for (; got < ASKING; turns++) {
		uint32_t before = got;

		turn(0);
		for (uint32_t i = 0; i < ASKING; i++)
			got += heard(&p[i]) == -ENOENT;
		assert_in_range(got - before, 1, 2);
		if (turns == 0)
			assert_int_equal(heard(&p[ASKING]), -ENOENT);
	}
	look_ns = 0;
	assert_in_range(turns, ASKING / 2, ASKING);
	leave_all(p, ASKING + 1);
}

static int ask(const struct peer *p)
{
	struct wire_admin m = { .verb = "no verb" };

	say(p, &m, WIRE_ADMIN, sizeof(m));
	turn(MS);
	return heard(p);
}

/* Of all its connections together; nobody else's are counted, and operators are not refused. */
static void test_unread_answers_of_one_user_have_a_limit(void **state)
{
	struct connection *s[3];
	struct peer p[3];

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		s[i] = greet_as(&p[i], i < 2 ? ONE : OTHER);
	s[0]->text = calloc(1, 1);
	s[0]->text_bytes = UNREAD;
	assert_int_equal(ask(&p[1]), -ENOENT);
	s[0]->text_bytes++;
	assert_int_equal(ask(&p[1]), -EBUSY);
	assert_int_equal(ask(&p[2]), -ENOENT);
	s[1]->operator_ = true;
	assert_int_equal(ask(&p[1]), -ENOENT);
	s[1]->operator_ = false;
	free(s[0]->text);
	s[0]->text = NULL;
	assert_int_equal(ask(&p[1]), -ENOENT);
	leave_all(p, 3);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_questions_of_one_user_leave_room),
		T(test_unread_answers_of_one_user_have_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
