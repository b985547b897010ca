/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is taken away under a lease (libtier/src/taken.c): the signal is a real one, of a
 * file that was truncated under its mapping. Each test is a process of its own, for a handler is
 * the process's, and the frame that runs the tests has one, too.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tier.h>
#include <unistd.h>

#include "libtier/abi/common.h"
#include "libtier/src/taken.h"
#include "tests/lib/unit.h"

#define BYTES (3 * (size_t)ABI_HUGE + 4096)

struct memory {
	volatile uint8_t *at;
	int fd;
	volatile uint64_t usable;
};

static struct memory make(void)
{
	struct memory m = { .fd = memfd_create("taken", MFD_CLOEXEC), .usable = BYTES };

	assert_true(m.fd >= 0);
	assert_int_equal(ftruncate(m.fd, BYTES), 0);
	assert_int_equal(pwrite(m.fd, "a", 1, 0), 1);
	m.at = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, m.fd, 0);
	assert_ptr_not_equal(m.at, MAP_FAILED);
	return m;
}

static void drop(const struct memory *m)
{
	munmap((void *)m->at, BYTES);
	close(m->fd);
}

/* A page of it is leased. */
static struct tier_lease lease_of(const struct memory *m, size_t offset)
{
	return (struct tier_lease){ .data = (const void *)(m->at + offset), .bytes = 4096 };
}

/* In a child: an assertion would be the parent's to fail. */
#define HOLDS(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "# %s:%d: %s\n", __FILE__, __LINE__, #x); \
			_exit(1); \
		} \
	} while (0)

/* How a child that does this ends: 0, or the signal. */
static int fate(void (*deed)(struct memory *m), struct memory *m)
{
	pid_t pid = fork();
	int how;

	if (pid == 0) {
		deed(m);
		_exit(0);
	}
	if (waitpid(pid, &how, 0) != pid)
		return -1;
	return WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how);
}

static int alone(void (*deed)(struct memory *m))
{
	return fate(deed, NULL);
}

static void look(struct memory *m)
{
	(void)m->at[0];
}

static void a_miss(struct memory *none)
{
	struct memory m = make(), other = make();
	struct tier_lease first = lease_of(&m, 0), last = lease_of(&m, BYTES - 4096);
	struct tier_lease between = lease_of(&m, 2 * ABI_HUGE);
	struct tier_lease theirs = lease_of(&other, 0), nothing = { 0 };
	int entry, beside;

	(void)none;
	signal(SIGBUS, SIG_DFL);
	entry = taken_watch((const void *)m.at, BYTES, (uint64_t *)&m.usable);
	beside = taken_watch((const void *)other.at, BYTES, (uint64_t *)&other.usable);
	HOLDS(entry >= 0 && beside >= 0 && m.at[0] == 'a');
	HOLDS(tier_lease_check(&first) == 0 && tier_lease_check(&nothing) == -EINVAL);
	HOLDS(ftruncate(m.fd, 0) == 0 && m.usable == BYTES); /* nobody looked */
	HOLDS(m.at[BYTES - 1] == 0 && m.at[0] == 0 && m.usable == 0);
	HOLDS(tier_lease_check(&first) == -ENODATA && tier_lease_check(&last) == -ENODATA);
	HOLDS(tier_lease_check(&between) == 0 && taken_intact(entry, ABI_HUGE, 2 * ABI_HUGE));
	HOLDS(!taken_intact(entry, ABI_HUGE - 1, 2) && !taken_intact(entry, 3 * ABI_HUGE, 1));
	HOLDS(tier_lease_check(&theirs) == 0 && other.usable == BYTES && other.at[0] == 'a');
	taken_forget(entry);
	HOLDS(tier_lease_check(&first) == 0); /* nobody's any more */
	taken_forget(beside);
	taken_forget(-1);
	drop(&m);
	drop(&other);
}

/* More pieces than can be noted: then nothing of it is trusted any more. */
static void many(struct memory *none)
{
	const uint32_t noted = 16;
	const size_t bytes = (noted + 2) * (size_t)ABI_HUGE;
	uint64_t usable = bytes;
	int fd = memfd_create("taken", MFD_CLOEXEC), entry;
	volatile uint8_t *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

	(void)none;
	entry = taken_watch((const void *)at, bytes, &usable);
	HOLDS(fd >= 0 && at != MAP_FAILED && entry >= 0);
	for (uint32_t i = 0; i < noted; i++)
		HOLDS(at[i * (size_t)ABI_HUGE] == 0 && at[i * (size_t)ABI_HUGE + 1] == 0);
	HOLDS(taken_intact(entry, noted * (uint64_t)ABI_HUGE, 2 * ABI_HUGE));
	HOLDS(at[noted * (size_t)ABI_HUGE] == 0);
	HOLDS(!taken_intact(entry, (noted + 1) * (uint64_t)ABI_HUGE, 1));
	taken_forget(entry);
	HOLDS(taken_watch((const void *)at, bytes, &usable) == entry);
	HOLDS(taken_intact(entry, 0, bytes)); /* another's */
}

static void test_a_fault_is_a_miss(void **state)
{
	(void)state;
	assert_int_equal(alone(a_miss), 0);
	assert_int_equal(alone(many), 0);
}

static void watch_and_look(struct memory *m)
{
	HOLDS(taken_watch((const void *)m->at, BYTES, (uint64_t *)&m->usable) >= 0);
	look(m);
	HOLDS(m->usable == 0);
}

static void ask_to_die(struct memory *m)
{
	(void)m;
	raise(SIGBUS);
}

/* What is nothing of ours kills as ever: also at an address that is the parent's memory. */
static void others(struct memory *none)
{
	struct memory m = make();
	int entry;

	(void)none;
	signal(SIGBUS, SIG_DFL);
	entry = taken_watch((const void *)m.at, BYTES, (uint64_t *)&m.usable);
	HOLDS(entry >= 0 && ftruncate(m.fd, 0) == 0);
	HOLDS(fate(ask_to_die, &m) == SIGBUS);
	HOLDS(fate(look, &m) == SIGBUS);
	HOLDS(fate(watch_and_look, &m) == 0);
	taken_forget(entry);
	HOLDS(fate(look, &m) == SIGBUS);
}

static void test_other_faults_kill(void **state)
{
	(void)state;
	assert_int_equal(alone(others), 0);
}

static volatile sig_atomic_t seen;

static void engine_asks(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	seen++;
	if (!tier_fault(info->si_addr))
		_exit(77);
}

/* An engine that sets its handler later. */
static void handler_later(struct memory *foreign)
{
	struct sigaction action = { .sa_sigaction = engine_asks, .sa_flags = SA_SIGINFO };
	struct memory m = make(), mine = make();

	(void)foreign;
	HOLDS(taken_watch((const void *)m.at, BYTES, (uint64_t *)&m.usable) >= 0);
	HOLDS(sigaction(SIGBUS, &action, NULL) == 0);
	HOLDS(ftruncate(m.fd, 0) == 0 && ftruncate(mine.fd, 0) == 0);
	HOLDS(m.at[ABI_HUGE] == 0 && seen == 1 && m.usable == 0);
	look(&mine);
}

static void engine_ends(int signal)
{
	(void)signal;
	_exit(78);
}

/* One that was there before gets what is not ours. */
static void handler_before(struct memory *foreign)
{
	struct memory m = make(), mine = make();

	(void)foreign;
	signal(SIGBUS, engine_ends);
	HOLDS(taken_watch((const void *)m.at, BYTES, (uint64_t *)&m.usable) >= 0);
	HOLDS(ftruncate(m.fd, 0) == 0 && ftruncate(mine.fd, 0) == 0);
	HOLDS(m.at[0] == 0 && m.usable == 0);
	look(&mine);
}

static void test_handlers_of_the_engines(void **state)
{
	(void)state;
	assert_int_equal(alone(handler_later), 77);
	assert_int_equal(alone(handler_before), 78);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_fault_is_a_miss),
		cmocka_unit_test(test_other_faults_kill),
		cmocka_unit_test(test_handlers_of_the_engines),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("taken", tests, NULL, NULL);
}
