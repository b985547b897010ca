/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that goes away under the daemon's workers: the job says -EIO and the process lives; a
 * fault outside of guarded work ends it. The signal is a real one, of a file that was truncated.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libtier/base/crc32c.h"
#include "tests/lib/unit.h"
#include "tierd/fault.h"
#include "tierd/worker.h"

#define BYTES 65536u

static uint8_t *lost_memory(void)
{
	int fd = memfd_create("lost", MFD_CLOEXEC);
	uint8_t *at;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(at != MAP_FAILED);
	at[0] = 1;
	assert_int_equal(ftruncate(fd, 0), 0);
	close(fd);
	return at;
}

static void set(void *arg)
{
	memset(arg, 5, 16);
}

static void test_work_on_lost_memory_is_given_up(void **state)
{
	uint8_t there[16] = { 0 }, *lost = lost_memory();
	void (*before)(int) = signal(SIGBUS, SIG_DFL);

	(void)state;
	assert_int_equal(fault_open(), 0);
	assert_int_equal(fault_guard(set, there), 0);
	assert_int_equal(there[15], 5);
	for (int i = 0; i < 3; i++)
		assert_int_equal(fault_guard(set, lost), -EIO);
	assert_int_equal(fault_guard(set, there), 0);
	munmap(lost, BYTES);
	signal(SIGBUS, before);
}

/* A read that was verified cannot be called bad, for then its block would be deleted. */
static void test_a_read_into_lost_memory_failed(void **state)
{
	uint8_t there[16] = { 0 }, *lost = lost_memory();
	void (*before)(int) = signal(SIGBUS, SIG_DFL);
	struct core_io io = { .piece_count = 2, .res = BYTES };

	(void)state;
	assert_int_equal(fault_open(), 0);
	io.piece[0] = (struct core_io_piece){ .addr = there, .bytes = 16 };
	io.piece[1] = (struct core_io_piece){ .addr = lost, .bytes = 16 };
	worker_verify(&io);
	assert_int_equal(io.res, -EFAULT);
	io = (struct core_io){ .piece_count = 1, .res = 16 };
	io.piece[0] = (struct core_io_piece){ .addr = there, .bytes = 16 };
	io.piece[0].crc = crc32c(0, there, 16);
	worker_verify(&io);
	assert_int_equal(io.res, 16);
	assert_int_equal(io.bad_mask, 0);
	munmap(lost, BYTES);
	signal(SIGBUS, before);
}

/* Which blocks a write lacks is found by touching them. */
static void test_a_write_of_lost_memory_says_which(void **state)
{
	static uint8_t there[3 * 4096];
	uint8_t *lost = lost_memory();
	void (*before)(int) = signal(SIGBUS, SIG_DFL);
	struct core_io io = { .piece_count = 3, .res = -EFAULT };

	(void)state;
	assert_int_equal(fault_open(), 0);
	io.piece[0] = io.piece[2] = (struct core_io_piece){ .addr = there, .bytes = sizeof(there) };
	io.piece[1] = (struct core_io_piece){ .addr = lost, .bytes = 8192 };
	worker_find_gone(&io);
	assert_int_equal(io.bad_mask, 2);
	munmap(lost, BYTES);
	signal(SIGBUS, before);
}

/* Memory that has poison and was not touched by us: the kernel says so by the way. */
static void test_poison_of_others_is_no_fault(void **state)
{
	siginfo_t info = { .si_signo = SIGBUS, .si_code = BUS_MCEERR_AO };
	pid_t pid = fork();
	int how;

	(void)state;
	if (pid == 0) {
		/* To oneself any code may be sent. */
		_exit(fault_open() || syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &info));
	}
	assert_int_equal(waitpid(pid, &how, 0), pid);
	assert_int_equal(how, 0);
}

static void test_other_faults_kill(void **state)
{
	uint8_t *lost = lost_memory();
	pid_t pid = fork();
	int how;

	(void)state;
	if (pid == 0) {
		signal(SIGBUS, SIG_DFL);
		if (fault_open() == 0)
			set(lost);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &how, 0), pid);
	assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGBUS);
	munmap(lost, BYTES);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_work_on_lost_memory_is_given_up),
		cmocka_unit_test(test_a_read_into_lost_memory_failed),
		cmocka_unit_test(test_a_write_of_lost_memory_says_which),
		cmocka_unit_test(test_poison_of_others_is_no_fault),
		cmocka_unit_test(test_other_faults_kill),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
