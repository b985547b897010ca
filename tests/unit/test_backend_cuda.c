/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU's backend on the stand-in for its driver: copies across chunks, a pool that is used up, a
 * driver that knows no batches, work that ends in an error, and each call of the driver failing
 * once at each place: bytes that were said to be copied are right, and nothing is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libtier/base/crc32c.h"
#include "tests/lib/standin.h"
#include "tests/lib/unit.h"
#include "tierd/backend/mem_common.h"

#define CHUNKS 4u
#define BYTES (CHUNKS * (uint64_t)ABI_HUGE)
#define ITEM 200001u
#define ITEMS 9u

static struct standin_calls standin;

struct fixture {
	const struct mem_ops *ops;
	struct mem_region region;
	uint8_t *from, *to; /* [ITEMS][ITEM] */
};

static int open_pool(struct fixture *fx)
{
	int rc;

	*fx = (struct fixture){ .ops = &mem_cuda };
	rc = fx->ops->open(&fx->ops, NULL, BYTES);
	if (rc)
		return rc;
	rc = fx->ops->create(fx->ops, &fx->region, "tier-test", BYTES);
	if (rc)
		fx->ops->close(fx->ops);
	fx->from = malloc(ITEMS * ITEM);
	fx->to = calloc(ITEMS, ITEM);
	assert_true(fx->from && fx->to);
	for (uint32_t i = 0; i < ITEMS * ITEM; i++)
		fx->from[i] = (uint8_t)(i * 2654435761u >> 13);
	return rc;
}

static void close_pool(struct fixture *fx)
{
	struct standin_left left, none;

	fx->ops->destroy(&fx->region);
	fx->ops->close(fx->ops);
	free(fx->from);
	free(fx->to);
	memset(&none, 0, sizeof(none));
	standin.left(&left);
	assert_memory_equal(&left, &none, sizeof(none));
}

/* So that some items lie across the ends of chunks. */
static uint8_t *place_of(const struct fixture *fx, uint32_t i)
{
	return (uint8_t *)fx->region.addr + (i + 1) * (BYTES / (ITEMS + 1)) - 7 * i;
}

static int copy_all(struct fixture *fx, bool in, bool checksum, struct core_copy *copy)
{
	*copy = (struct core_copy){ .count = ITEMS, .res = 1, .checksum = checksum };
	copy->dst_tier = in ? ABI_TIER_HBM : ABI_TIER_CXL;
	copy->src_tier = in ? ABI_TIER_CXL : ABI_TIER_HBM;
	for (uint32_t i = 0; i < ITEMS; i++)
		copy->item[i] = (struct core_copy_item){
			.dst = in ? place_of(fx, i) : fx->to + (size_t)i * ITEM,
			.src = in ? fx->from + (size_t)i * ITEM : place_of(fx, i),
			.bytes = ITEM, .seed = i };
	fx->ops->copy(fx->ops, copy);
	assert_int_not_equal(copy->res, 1);
	return copy->res;
}

static void test_copies_cross_chunks(void **state)
{
	static struct core_copy copy;
	struct fixture fx;

	(void)state;
	assert_int_equal(open_pool(&fx), 0);
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES), 0);
	assert_int_equal(copy_all(&fx, true, false, &copy), 0);
	assert_int_equal(copy_all(&fx, false, true, &copy), 0);
	assert_memory_equal(fx.to, fx.from, ITEMS * ITEM);
	for (uint32_t i = 0; i < ITEMS; i++)
		assert_int_equal(copy.item[i].crc, crc32c(i, fx.from + (size_t)i * ITEM, ITEM));
	assert_true(standin.calls("cuMemcpyBatchAsync") > 0);
	/* The sum of what no processor can read. */
	assert_int_equal(copy_all(&fx, true, true, &copy), -EOPNOTSUPP);
	close_pool(&fx);
}

static void test_copy_within(void **state)
{
	struct core_copy copy = { .count = 1, .src_tier = ABI_TIER_HBM, .dst_tier = ABI_TIER_HBM };
	static struct core_copy other;
	struct fixture fx;

	(void)state;
	assert_int_equal(open_pool(&fx), 0);
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES), 0);
	assert_int_equal(copy_all(&fx, true, false, &other), 0);
	copy.item[0] = (struct core_copy_item){ .dst = place_of(&fx, 4), .src = place_of(&fx, 0),
						.bytes = ITEM };
	fx.ops->copy(fx.ops, &copy);
	assert_int_equal(copy.res, 0);
	assert_int_equal(copy_all(&fx, false, false, &other), 0);
	assert_memory_equal(fx.to + 4 * ITEM, fx.from, ITEM);
	assert_memory_equal(fx.to + 5 * ITEM, fx.from + 5 * ITEM, ITEM);
	close_pool(&fx);
}

/* Refused before the driver hears of it, so nothing else suffers. */
static void test_places_without_memory(void **state)
{
	static struct core_copy copy;
	struct mem_region other;
	struct fixture fx;

	(void)state;
	assert_int_equal(open_pool(&fx), 0);
	assert_int_equal(copy_all(&fx, true, false, &copy), -ENOMEM);
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES), 0);
	/* All is taken: the tier's memory does not grow. */
	assert_int_equal(fx.ops->create(fx.ops, &other, "other", ABI_HUGE), 0);
	assert_int_equal(fx.ops->prepare(&other, 0, ABI_HUGE), -ENOMEM);
	assert_int_equal(fx.ops->punch(&fx.region, ABI_HUGE, ABI_HUGE), 0);
	assert_int_equal(fx.ops->prepare(&other, 0, ABI_HUGE), 0);
	assert_int_equal(fx.ops->resident(&other), ABI_HUGE);
	assert_int_equal(copy_all(&fx, true, false, &copy), -ENOMEM);
	fx.ops->destroy(&other);
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES), 0);
	assert_int_equal(copy_all(&fx, true, false, &copy), 0);
	close_pool(&fx);
}

static void test_batch_is_refused(void **state)
{
	static struct core_copy copy;
	uint32_t asked = standin.calls("cuMemcpyBatchAsync");
	struct fixture fx;

	(void)state;
	assert_int_equal(open_pool(&fx), 0);
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES), 0);
	standin.fail_at("cuMemcpyBatchAsync", 1, CUDA_NOT_SUPPORTED);
	assert_int_equal(copy_all(&fx, true, false, &copy), 0);
	assert_int_equal(copy_all(&fx, false, false, &copy), 0);
	assert_memory_equal(fx.to, fx.from, ITEMS * ITEM);
	assert_int_equal(standin.calls("cuMemcpyBatchAsync"), asked + 1); /* not again */
	close_pool(&fx);
}

/* One copy of several fails: those that were begun have ended before anybody uses their places. */
static void test_what_was_begun_is_waited_for(void **state)
{
	static struct core_copy copy;
	struct fixture fx;
	uint32_t waits;

	(void)state;
	assert_int_equal(open_pool(&fx), 0);
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES), 0);
	standin.fail_at("cuMemcpyBatchAsync", 1, CUDA_NOT_SUPPORTED);
	standin.fail_at("cuMemcpyAsync", 3, CUDA_OUT_OF_MEMORY);
	waits = standin.calls("cuEventSynchronize");
	assert_int_equal(copy_all(&fx, true, false, &copy), -ENOMEM);
	assert_int_equal(standin.calls("cuEventSynchronize"), waits + 1);
	close_pool(&fx);
}

/* ---- chunks that clients have ---------------------------------------------------------------- */

/* The file behind the region's first chunk, as a client gets it; or negative errno. */
static int64_t file_of_first(const struct mem_region *region)
{
	uint32_t count = 1;
	struct stat st;
	int fd, rc = mem_cuda.lend(region, 0, ABI_HUGE, &fd, &count);

	if (rc)
		return rc;
	assert_int_equal(count, 1);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	return (int64_t)st.st_ino;
}

/* So many first bytes of the region, as one item. */
static int copy_region(struct fixture *fx, bool in, uint8_t *bytes, uint32_t count)
{
	struct core_copy copy = { .count = 1 };

	copy.dst_tier = in ? ABI_TIER_HBM : ABI_TIER_CXL;
	copy.src_tier = in ? ABI_TIER_CXL : ABI_TIER_HBM;
	copy.item[0] = (struct core_copy_item){ .dst = in ? fx->region.addr : bytes,
						.src = in ? bytes : fx->region.addr,
						.bytes = count };
	fx->ops->copy(fx->ops, &copy);
	return copy.res;
}

static void fill_region(struct fixture *fx)
{
	uint8_t *bytes = malloc(BYTES);

	assert_non_null(bytes);
	memset(bytes, 0xa5, BYTES);
	assert_int_equal(copy_region(fx, true, bytes, BYTES), 0);
	free(bytes);
}

/* Of these, those that are not 0; negative: it could not be read. */
static int rest_in_region(struct fixture *fx, uint32_t count)
{
	uint8_t *bytes = malloc(count);
	int rest;

	assert_non_null(bytes);
	rest = copy_region(fx, false, bytes, count);
	for (uint32_t i = 0; i < count && rest >= 0; i++)
		rest += bytes[i] != 0;
	free(bytes);
	return rest;
}

/* All of it is given back, and taken for a user's context. */
static int pass_to(struct fixture *fx, uint32_t owner)
{
	assert_int_equal(fx->ops->punch(&fx->region, 0, BYTES), 0);
	fx->region.owner = owner;
	return fx->ops->prepare(&fx->region, 0, BYTES);
}

static void test_a_chunk_passes_to_another_user(void **state)
{
	struct fixture fx;
	uint32_t made, count = CHUNKS;
	int fd[CHUNKS];
	int64_t file;

	(void)state;
	assert_int_equal(open_pool(&fx), 0);
	assert_int_equal(file_of_first(&fx.region), -EAGAIN); /* it has no memory yet */
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES), 0);
	fill_region(&fx);
	/* Nobody has it: it is emptied, and stays what it is. */
	assert_int_equal(pass_to(&fx, 7), 0);
	assert_int_equal(rest_in_region(&fx, BYTES), 0);
	file = file_of_first(&fx.region);
	assert_true(file > 0);
	fill_region(&fx);
	/* Of the same user: nothing is made anew. */
	made = standin.calls("cuMemCreate");
	assert_int_equal(pass_to(&fx, 7), 0);
	assert_int_equal(standin.calls("cuMemCreate"), made);
	/* Whoever kept it sees nothing of another user's. */
	assert_int_equal(mem_cuda.lend(&fx.region, 0, BYTES, fd, &count), 0);
	while (count)
		close(fd[--count]);
	assert_int_equal(pass_to(&fx, 8), 0);
	assert_int_equal(standin.calls("cuMemCreate"), made + CHUNKS);
	assert_int_equal(rest_in_region(&fx, BYTES), 0);
	assert_int_not_equal(file_of_first(&fx.region), file);
	count = CHUNKS - 1;
	assert_int_equal(mem_cuda.lend(&fx.region, 0, BYTES, fd, &count), -EFBIG);
	close_pool(&fx);
}

/* A driver that has no memory for the new one: the chunk is tried again later. */
static void test_a_chunk_cannot_be_made_anew(void **state)
{
	struct fixture fx;

	(void)state;
	assert_int_equal(open_pool(&fx), 0);
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES), 0);
	assert_true(file_of_first(&fx.region) > 0);
	standin.fail_at("cuMemCreate", 1, CUDA_OUT_OF_MEMORY);
	assert_int_equal(pass_to(&fx, 9), -ENOMEM);
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES), 0);
	assert_int_equal(fx.ops->resident(&fx.region), BYTES);
	close_pool(&fx);
}

/* CUDA 12.8 has a batch of other parameters under the same name. */
static void test_older_driver(void **state)
{
	static struct core_copy copy;
	uint32_t asked = standin.calls("cuMemcpyBatchAsync");
	struct fixture fx;

	(void)state;
	setenv("STANDIN_CUDA", "12080", 1);
	assert_int_equal(open_pool(&fx), 0);
	unsetenv("STANDIN_CUDA");
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES), 0);
	assert_int_equal(copy_all(&fx, true, false, &copy), 0);
	assert_int_equal(copy_all(&fx, false, false, &copy), 0);
	assert_memory_equal(fx.to, fx.from, ITEMS * ITEM);
	assert_int_equal(standin.calls("cuMemcpyBatchAsync"), asked);
	close_pool(&fx);
}

/* Work under way that fails ends the context: all is refused from then on, and taken down. */
static void test_error_is_for_good(void **state)
{
	static struct core_copy copy;
	struct fixture fx;
	uint32_t copies;

	(void)state;
	assert_int_equal(open_pool(&fx), 0);
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES / 2), 0);
	assert_int_equal(fx.ops->prepare(&fx.region, BYTES / 2, BYTES / 2), 0);
	standin.fail_at("engine", 3, CUDA_ECC_UNCORRECTABLE);
	assert_int_equal(copy_all(&fx, true, false, &copy), -EIO);
	copies = standin.calls("cuMemcpyAsync");
	assert_int_equal(copy_all(&fx, false, false, &copy), -EIO);
	assert_int_equal(standin.calls("cuMemcpyAsync"), copies);
	assert_int_equal(fx.ops->punch(&fx.region, 0, ABI_HUGE), 0);
	assert_int_equal(fx.ops->prepare(&fx.region, 0, ABI_HUGE), -EIO);
	close_pool(&fx);
	/* Another one is as good as new. */
	assert_int_equal(open_pool(&fx), 0);
	assert_int_equal(fx.ops->prepare(&fx.region, 0, BYTES), 0);
	assert_int_equal(copy_all(&fx, true, false, &copy), 0);
	close_pool(&fx);
}

static void test_bad_sizes(void **state)
{
	const struct mem_ops *ops = &mem_cuda;
	struct mem_region region;

	(void)state;
	assert_int_equal(ops->open(&ops, NULL, 0), -EINVAL);
	assert_int_equal(ops->open(&ops, NULL, ABI_HUGE + 4096), -EINVAL);
	assert_int_equal(ops->open(&ops, NULL, 2 * STANDIN_DEVICE_BYTES), -ENOMEM);
	assert_ptr_equal(ops, &mem_cuda);
	assert_int_equal(ops->open(&ops, NULL, ABI_HUGE), 0);
	assert_int_equal(ops->create(ops, &region, "x", 0), -EINVAL);
	assert_int_equal(ops->create(ops, &region, "x", 4097), -EINVAL);
	assert_int_equal(ops->create(ops, &region, "x", UINT64_MAX / 4096 * 4096), -EINVAL);
	ops->close(ops);
}

/* ---- each call fails once ------------------------------------------------------------------ */

/* These give something back; what they were asked for stays if they fail. */
static bool gives_back(const char *name)
{
	static const char *const names[] = { "cuMemUnmap", "cuMemRelease", "cuMemAddressFree",
					     "cuStreamDestroy", "cuEventDestroy",
					     "cuDevicePrimaryCtxRelease", "cuCtxSetCurrent" };

	for (uint32_t i = 0; i < COUNT(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

#define NOT_REACHED 7

/* In a child: 0 = as it should be, NOT_REACHED = there is no such call any more. */
static int fail_once(const char *name, uint32_t nth, cuda_result answer)
{
	static struct core_copy copy;
	struct backend_info info;
	struct standin_left left, none;
	struct fixture fx;
	bool lent = false, passed = false;
	int rc, in = -1, out = -1;

	standin.fail_at(name, nth, answer);
	memset(&none, 0, sizeof(none));
	rc = mem_cuda.probe(0, &info) ? 0 : open_pool(&fx);
	if (rc == 0 && standin.calls("cuMemCreate")) {
		fx.ops->prepare(&fx.region, 0, BYTES);
		in = copy_all(&fx, true, false, &copy);
		out = copy_all(&fx, false, false, &copy);
		if (in == 0 && out == 0 && memcmp(fx.to, fx.from, ITEMS * ITEM) != 0)
			return 1;
		lent = file_of_first(&fx.region) > 0;
		passed = pass_to(&fx, 7) == 0;
		if (passed && rest_in_region(&fx, 4096) > 0)
			return 4;
		fx.ops->destroy(&fx.region);
		fx.ops->close(fx.ops);
	}
	standin.left(&left);
	if (!gives_back(name) && memcmp(&left, &none, sizeof(none)) != 0)
		return 2;
	if (standin.calls(name) < nth)
		return rc == 0 && in == 0 && out == 0 && lent && passed ? NOT_REACHED : 3;
	return 0;
}

static void test_each_call_fails_once(void **state)
{
	static const char *const names[] = {
#define ENTRY(field, name, version, parameters) name,
#include "libtier/base/cuda_driver.def"
#undef ENTRY
		"engine",
	};
	static const cuda_result answers[] = { CUDA_OUT_OF_MEMORY, CUDA_ILLEGAL_ADDRESS };
	uint32_t failed = 0;

	(void)state;
	for (uint32_t i = 0; i < COUNT(names) * COUNT(answers); i++) {
		const char *name = names[i / COUNT(answers)];
		int status = 0;

		for (uint32_t nth = 1; status == 0; nth++, failed++) {
			pid_t pid = fork();

			if (pid == 0)
				_exit(fail_once(name, nth, answers[i % COUNT(answers)]));
			assert_int_equal(waitpid(pid, &status, 0), pid);
			if (status && WEXITSTATUS(status) != NOT_REACHED)
				fail_msg("%s failing at call %u: status %x", name, nth, status);
		}
		failed--;
	}
	print_message("# %u failures of calls, of the stand-in's\n", failed);
	assert_true(failed > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_call_fails_once), /* first: it forks */
		cmocka_unit_test(test_copies_cross_chunks),
		cmocka_unit_test(test_copy_within),
		cmocka_unit_test(test_places_without_memory),
		cmocka_unit_test(test_a_chunk_passes_to_another_user),
		cmocka_unit_test(test_a_chunk_cannot_be_made_anew),
		cmocka_unit_test(test_batch_is_refused),
		cmocka_unit_test(test_what_was_begun_is_waited_for),
		cmocka_unit_test(test_older_driver),
		cmocka_unit_test(test_error_is_for_good),
		cmocka_unit_test(test_bad_sizes),
	};

	standin = standin_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
