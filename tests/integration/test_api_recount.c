/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tierctl check` asks the host: what somebody does to the daemon's memory and to its store behind
 * its back is found. Whoever does it here is the daemon's own user, as a debugger is. And what the
 * daemon itself gives back of its store is what nobody needs.
 */
#include <jansson.h>
#include <sys/stat.h>

#include "tests/integration/kv_world.h"

#define BLOCKS 40u
#define MEGA (1ull << 20)
#define TRIES 200u

static void put_from(struct world *w, uint32_t first)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_DURABLE };
	uint8_t *data = calloc(BLOCKS, BLOCK_BYTES);
	tier_key key[BLOCKS];

	memset(data, 0x5a, BLOCKS * BLOCK_BYTES);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		uint32_t n = first + i;

		assert_int_equal(tier_key_opaque(&key[i], &n, sizeof(n), NULL), 0);
	}
	assert_int_equal(tier_put_copy(w->c, key, BLOCKS, data, &o), BLOCKS);
	free(data);
}

static void put_all(struct world *w)
{
	put_from(w, 0);
}

/* Errors that the check tells; *found: one of them says `what`. */
static json_int_t check(struct world *w, const char *what, bool *found, json_t **host)
{
	json_t *answer, *one;
	json_int_t errors;
	char *text;
	size_t i;

	assert_int_equal(tier_admin(w->t, "check", NULL, &text), 0);
	answer = json_loads(text, 0, NULL);
	free(text);
	assert_non_null(answer);
	errors = json_integer_value(json_object_get(answer, "errors"));
	*found = false;
	json_array_foreach(json_object_get(answer, "messages"), i, one)
		*found |= strstr(json_string_value(one), what) != NULL;
	if (host)
		*host = json_incref(json_object_get(answer, "host"));
	json_decref(answer);
	return errors;
}

static uint64_t number(const json_t *host, const char *where, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(json_object_get(host, where), name));
}

/* The daemon's own memfd of the context's CXL memory, open for writing. */
static int steal_memory(const struct world *w)
{
	char folder[64], path[400], label[256];
	struct dirent *e;
	int fd = -1;
	DIR *dir;

	snprintf(folder, sizeof(folder), "/proc/%d/fd", w->d.pid);
	dir = opendir(folder);
	assert_non_null(dir);
	while (fd < 0 && (e = readdir(dir))) {
		ssize_t n;

		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		n = readlink(path, label, sizeof(label) - 1);
		label[n > 0 ? n : 0] = 0;
		if (!strncmp(label, "/memfd:tier-cxl-kv", 18))
			fd = open(path, O_RDWR | O_CLOEXEC);
	}
	closedir(dir);
	return fd;
}

static void test_what_it_holds_is_what_the_host_holds(void **state)
{
	struct world *w = world_begin(NULL);
	json_t *host;
	bool found;

	*state = w;
	put_all(w);
	assert_int_equal(check(w, "", &found, &host), 0);
	assert_int_equal(number(host, "cxl", "written"), BLOCKS * BLOCK_BYTES);
	assert_true(number(host, "cxl", "charged") >= number(host, "cxl", "written"));
	assert_true(number(host, "cxl", "resident") >= number(host, "cxl", "written"));
	assert_true(number(host, "cxl", "resident") <= number(host, "cxl", "charged"));
	assert_int_equal(number(host, "cxl", "resident"), number(host, "cxl", "found"));
	assert_true(number(host, "store", "allocated") >= number(host, "store", "bytes"));
	assert_int_equal(number(host, "cxl", "missing"), 0);
	assert_true(json_integer_value(json_object_get(host, "index_resident")) > 0);
	assert_int_equal(number(host, "store", "holes"), 0);
	assert_int_equal(json_integer_value(json_object_get(host, "descriptors")),
			 json_integer_value(json_object_get(host, "regions")));
	json_decref(host);
}

static uint64_t regions(struct world *w, uint64_t *mapped)
{
	json_t *host;
	uint64_t count;
	bool found;

	assert_int_equal(check(w, "", &found, &host), 0);
	count = (uint64_t)json_integer_value(json_object_get(host, "regions"));
	*mapped = (uint64_t)json_integer_value(json_object_get(host, "mapped"));
	json_decref(host);
	return count;
}

/* What contexts had that are gone, the daemon has no more: descriptors, memory, addresses. */
static void test_memory_of_removed_contexts_goes(void **state)
{
	struct world *w = world_begin(NULL);
	uint64_t before, count, mapped, left;
	tier_context *c;

	*state = w;
	put_all(w);
	count = regions(w, &mapped);
	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(tier_context_create(w->t, "other", w->g, NULL, &c), 0);
		before = regions(w, &left);
		assert_int_equal(before, 2 * count);
		assert_int_equal(left, 2 * mapped);
		tier_context_close(c);
		assert_int_equal(tier_context_remove(w->t, "other"), 0);
		for (uint32_t k = 0; k < PATIENCE_MS / 5 && regions(w, &left) != count; k++)
			usleep(5000);
		assert_int_equal(regions(w, &left), count);
		assert_int_equal(left, mapped);
	}
}

/* The watch over holes gives such memory back, so it may be faster than we are: try again. */
static void test_memory_beside_the_account_is_found(void **state)
{
	struct world *w = world_begin(NULL);
	bool found = false;
	struct stat st;
	int fd;

	*state = w;
	put_all(w);
	fd = steal_memory(w);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	for (uint32_t i = 0; i < TRIES && !found; i++) {
		json_t *host;

		assert_int_equal(pwrite(fd, "x", 1, st.st_size - 1), 1);
		check(w, "nothing is charged", &found, &host);
		assert_true(!found || number(host, "cxl", "foreign") > 0);
		json_decref(host);
	}
	assert_true(found);
	for (uint32_t i = 0; i < PATIENCE_MS / 20 && found; i++) {
		usleep(20000);
		check(w, "nothing is charged", &found, NULL);
	}
	assert_false(found);
	close(fd);
}

static void test_a_hole_under_pages_is_found(void **state)
{
	struct world *w = world_begin(NULL);
	json_t *host;
	bool found;
	int fd;

	*state = w;
	put_all(w);
	fd = steal_memory(w);
	assert_true(fd >= 0);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   lseek(fd, 0, SEEK_DATA), 2 * MEGA), 0);
	assert_true(check(w, "hole in its memory", &found, &host) > 0);
	assert_true(found);
	assert_true(number(host, "cxl", "missing") > 0);
	assert_true(number(host, "cxl", "missing") <= 2 * MEGA);
	json_decref(host);
	close(fd);
	/* What leaves the tier takes the fault along. */
	assert_int_equal(tier_context_remove(w->t, "kv"), 0);
}

static void write_zeros(int fd, uint64_t from, uint64_t bytes)
{
	static const uint8_t zeros[4096];

	for (uint64_t at = from; at < from + bytes; at += sizeof(zeros))
		assert_int_equal(pwrite(fd, zeros, sizeof(zeros), (off_t)at), sizeof(zeros));
}

static void test_a_hole_in_the_store_is_found(void **state)
{
	struct world *w = world_begin(NULL);
	bool found;
	int fd;

	*state = w;
	put_all(w);
	assert_int_equal(check(w, "", &found, NULL), 0);
	fd = open(w->d.store, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 32 * MEGA,
				   MEGA), 0);
	assert_int_equal(check(w, "1048576 bytes of holes, the first at 33554432", &found, NULL),
			 1);
	assert_true(found);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 36 * MEGA,
				   MEGA), 0);
	assert_int_equal(check(w, "2097152 bytes of holes, the first at 33554432", &found, NULL),
			 1);
	assert_true(found);
	write_zeros(fd, 32 * MEGA, MEGA);
	write_zeros(fd, 36 * MEGA, MEGA);
	assert_int_equal(check(w, "", &found, NULL), 0);
	/* Cut off at its end, too. */
	assert_int_equal(ftruncate(fd, 63 * MEGA), 0);
	assert_true(check(w, "the store was cut to 66060288 of 67108864 bytes", &found, NULL) > 0);
	assert_true(found);
	write_zeros(fd, 63 * MEGA, MEGA);
	close(fd);
}

static uint64_t allocated(const struct world *w)
{
	struct stat st;

	assert_int_equal(stat(w->d.store, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* Every page that the store holds of a context, against its checksum, while no daemon has it. */
static void check_store(const struct world *w)
{
	const char *build = getenv("BUILD");
	char command[700];

	snprintf(command, sizeof(command), "%s/tierctl check --data %s >>%s 2>&1",
		 build ? build : "build/plain", w->d.store, w->d.log);
	if (system(command) != 0)
		fail_msg("the store is not sound; see %s", w->d.log);
}

/*
 * Room of a context that was removed goes back to the file system, but that of a few segments; what
 * is put afterwards has it again, and comes back after a start from what a kill left.
 */
static void test_dead_segments_give_their_room_back(void **state)
{
	const char *const settings[] = { "nvme.discard=on", "nvme.segment=1MiB", NULL };
	struct world *w = world_begin(settings);
	uint64_t full = allocated(w);
	json_t *host;
	bool found;

	*state = w;
	for (uint32_t n = 0; n < 16; n++)
		put_from(w, n * BLOCKS); /* 15 MiB */
	assert_int_equal(tier_context_remove(w->t, "kv"), 0);
	for (uint32_t ms = 0; ms < PATIENCE_MS && allocated(w) > full - 8 * MEGA; ms++) {
		if (daemon_logged(&w->d, "cannot be discarded")) {
			print_message("no holes on the file system of %s\n", w->d.store);
			skip();
		}
		usleep(1000);
	}
	assert_true(allocated(w) <= full - 8 * MEGA);
	tier_close(w->t);
	world_open(w);
	put_all(w);
	assert_int_equal(check(w, "", &found, &host), 0);
	assert_true(number(host, "store", "holes") > 0);
	json_decref(host);
	tier_close(w->t);
	assert_int_equal(kill(w->d.pid, SIGKILL), 0);
	daemon_wait(&w->d);
	check_store(w);
	daemon_start(&w->d, settings);
	assert_true(daemon_logged(&w->d, "bad=0 blocks=40 "));
	w->t = world_connect(&w->d);
	assert_int_equal(check(w, "", &found, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_what_it_holds_is_what_the_host_holds, world_end),
		cmocka_unit_test_teardown(test_memory_of_removed_contexts_goes, world_end),
		cmocka_unit_test_teardown(test_memory_beside_the_account_is_found, world_end),
		cmocka_unit_test_teardown(test_a_hole_under_pages_is_found, world_end),
		cmocka_unit_test_teardown(test_a_hole_in_the_store_is_found, world_end),
		cmocka_unit_test_teardown(test_dead_segments_give_their_room_back, world_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
