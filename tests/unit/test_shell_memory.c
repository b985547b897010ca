/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of contexts by id: a job that touches it keeps it mapped, however soon its context goes;
 * an id of another life finds nothing; what clients get can only be read.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "tests/lib/unit.h"
#include "tierd/backend/mem_common.h"
#include "tierd/memory.h"
#include "tierd/worker.h"

#define GENERATION (1u << 16) /* an id's upper half: the same index, another context */

struct fixture {
	struct memory *memory;
	struct worker_pool *workers;
	int wake;
	uint32_t release; /* atomic: the job may end */
};

static struct fixture fx;

/* A backend whose copies last as long as the test says. */
static void slow_copy(const struct mem_ops *self, struct core_copy *copy)
{
	while (!atomic_load_acquire_u32(&fx.release))
		usleep(100);
	mem_copy(self, copy);
}

static struct mem_ops slow;

static int setup(void **state)
{
	const struct mem_ops *ops[ABI_MEM_TIERS] = { NULL, &mem_cxl_memfd };

	(void)state;
	slow = mem_cxl_memfd;
	slow.copy = slow_copy;
	fx = (struct fixture){ .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	assert_int_equal(memory_open(&fx.memory, ops), 0);
	assert_int_equal(worker_open(&fx.workers, 1, fx.wake), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	atomic_store_release_u32(&fx.release, 1); /* also after a failure */
	worker_close(fx.workers);
	if (fx.memory)
		memory_close(fx.memory);
	close(fx.wake);
	return 0;
}

static struct context_memory *make(uint32_t id)
{
	const struct core_context_plan plan = { .index_bytes = 1 << 20,
						.mem_bytes = { 0, ABI_HUGE } };
	const struct disk_context spec = { .name = "test" };
	struct context_memory *made;

	assert_int_equal(memory_make(fx.memory, &spec, &plan, &made), 0);
	memory_adopt(fx.memory, id, made, fx.workers);
	return made;
}

static bool is_mapped(const void *at)
{
	unsigned char in[1];

	return mincore((void *)(uintptr_t)at, 4096, in) == 0;
}

static void begin_job(struct core_copy *copy)
{
	struct job *job = worker_job(fx.workers);

	job->kind = JOB_COPY;
	job->klass = ABI_CLASS_DEMAND;
	job->copy = copy;
	job->ops = &slow;
	worker_submit(fx.workers, job);
	worker_kick(fx.workers);
}

static void end_jobs(void)
{
	struct job *job;

	atomic_store_release_u32(&fx.release, 1);
	while (!(job = worker_reap(fx.workers)))
		usleep(100);
	worker_put(fx.workers, job);
}

static void test_a_job_keeps_memory_mapped(void **state)
{
	static struct core_copy copy;
	static uint8_t from[4096];
	struct context_memory *made = make(3);
	uint8_t *at = made->mem[ABI_TIER_CXL].addr;

	(void)state;
	copy = (struct core_copy){ .count = 1, .dst_tier = ABI_TIER_CXL };
	copy.item[0] = (struct core_copy_item){ .dst = at, .src = from, .bytes = sizeof(from) };
	begin_job(&copy);
	memory_retire(fx.memory, 3, fx.workers);
	assert_null(memory_find(fx.memory, 3));
	memory_reap(fx.memory, fx.workers);
	assert_true(is_mapped(at));
	end_jobs();
	memory_reap(fx.memory, fx.workers);
	assert_false(is_mapped(at));
}

static void test_an_id_of_another_life(void **state)
{
	int fd[1 + ABI_MEM_TIERS];

	(void)state;
	make(5);
	assert_non_null(memory_find(fx.memory, 5));
	assert_null(memory_find(fx.memory, 5 + GENERATION));
	assert_null(memory_find(fx.memory, 6));
	assert_int_equal(memory_grant(fx.memory, 5 + GENERATION, 1, fd), -ENOENT);
	memory_retire(fx.memory, 5 + GENERATION, fx.workers);
	assert_non_null(memory_find(fx.memory, 5));
	/* The next life takes the place; the one before goes by itself. */
	make(5 + GENERATION);
	assert_null(memory_find(fx.memory, 5));
	assert_non_null(memory_find(fx.memory, 5 + GENERATION));
	memory_reap(fx.memory, fx.workers);
}

static void test_what_is_granted_is_for_reading(void **state)
{
	int fd[1 + ABI_MEM_TIERS];

	(void)state;
	make(7);
	assert_int_equal(memory_grant(fx.memory, 7, 1, fd), 0);
	for (uint32_t i = 0; i < 1 + ABI_MEM_TIERS; i++) {
		assert_int_equal(fcntl(fd[i], F_GETFL) & O_ACCMODE, O_RDONLY);
		assert_int_equal(fcntl(fd[i], F_GETFD), FD_CLOEXEC);
		close(fd[i]);
	}
}

/* What a client has mapped of the context's tier. */
static const uint8_t *map_granted(uint32_t id)
{
	int fd[1 + ABI_MEM_TIERS];
	void *at;

	assert_int_equal(memory_grant(fx.memory, id, 1, fd), 0);
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd[1 + ABI_TIER_CXL], 0);
	assert_true(at != MAP_FAILED);
	for (uint32_t i = 0; i < 1 + ABI_MEM_TIERS; i++)
		close(fd[i]);
	return at;
}

/* Its leases outlive us; those of a removed context were given back before it was retired. */
static void test_a_reader_keeps_its_pages_over_our_end(void **state)
{
	const uint8_t *kept, *removed;

	(void)state;
	memset(make(3)->mem[ABI_TIER_CXL].addr, 0x5a, 4096);
	memset(make(4)->mem[ABI_TIER_CXL].addr, 0x5a, 4096);
	kept = map_granted(3);
	removed = map_granted(4);
	memory_retire(fx.memory, 4, fx.workers);
	memory_close(fx.memory);
	fx.memory = NULL;
	assert_int_equal(kept[0], 0x5a);
	assert_int_equal(kept[4095], 0x5a);
	assert_int_equal(removed[0], 0);
	munmap((void *)(uintptr_t)kept, 4096);
	munmap((void *)(uintptr_t)removed, 4096);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_job_keeps_memory_mapped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_id_of_another_life, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_granted_is_for_reading, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_reader_keeps_its_pages_over_our_end, setup,
						teardown),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("shell memory", tests, NULL, NULL);
}
