/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Very many objects: made by several clients at a time, listed with a cursor, there after a
 * restart, removed. They need no descriptor each, so much memory a name and no more, and none of it
 * holds up who asks beside (I17). TIER_OBJECTS=1000000 says how many; TMPDIR, on which disk.
 */
#include "tests/integration/object_world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#define WRITERS 16u
#define FOLDERS 100u
#define NAMES_A_LIST 2000u
#define MEMORY_A_NAME 256u /* of the daemon: a version, its name and sums */
#if defined(__SANITIZE_ADDRESS__)
#define COUNT_DEFAULT 4000u
#else
#define COUNT_DEFAULT 14000u
#endif

struct many {
	struct daemon d;
	uint32_t count;
	tier *t;
	atomic_bool over;
	uint64_t longest_ns; /* of a question beside */
	uint64_t asked;
};

struct part {
	struct many *m;
	uint32_t first;
	bool remove;
};

static void name_of(char name[32], uint32_t i)
{
	snprintf(name, 32, "%02u/%08u", i % FOLDERS, i % 100000000u);
}

static size_t bytes_of(uint32_t i)
{
	return i % 61;
}

static void *write_part(void *arg)
{
	struct part *p = arg;
	tier *t = connect_to(&p->m->d);
	char name[32];

	for (uint32_t i = p->first; i < p->m->count; i += WRITERS) {
		name_of(name, i);
		if (p->remove)
			CHECK(tier_object_remove(t, "files", name) == 0);
		else
			CHECK((errno = -put(t, "files", name, bytes_of(i), i)) == 0);
	}
	tier_close(t);
	return NULL;
}

/* Somebody who asks for one name all the time. */
static void *ask_beside(void *arg)
{
	struct many *m = arg;
	tier *t = connect_to(&m->d);

	while (!atomic_load(&m->over)) {
		struct tier_object_info info;
		uint64_t begun = time_now_ns(), took;

		CHECK(tier_object_stat(t, "files", "beside", &info) == 0);
		took = time_now_ns() - begun;
		m->longest_ns = took > m->longest_ns ? took : m->longest_ns;
		m->asked++;
		usleep(1000);
	}
	tier_close(t);
	return NULL;
}

static uint64_t memory(const struct many *m)
{
	char path[64], line[128];
	unsigned long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", m->d.pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (!kib && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %lu", &kib) != 1)
			kib = 0;
	fclose(f);
	return kib << 10;
}

static void tell(struct many *m, const char *what, uint64_t begun)
{
	double s = (double)(time_now_ns() - begun) / 1e9;

	print_message("# %-8s %8u objects %8.2f s, %7.0f a second; beside, the longest of %6llu: "
		      "%6.2f ms; %5llu MiB, %d descriptors\n", what, m->count, s, m->count / s,
		      (unsigned long long)m->asked, (double)m->longest_ns / 1e6,
		      (unsigned long long)(memory(m) >> 20), daemon_fds(&m->d));
	m->longest_ns = m->asked = 0;
}

static void by_all(struct many *m, bool remove)
{
	pthread_t thread[WRITERS];
	struct part part[WRITERS];

	for (uint32_t i = 0; i < WRITERS; i++) {
		part[i] = (struct part){ m, i, remove };
		assert_int_equal(pthread_create(&thread[i], NULL, write_part, &part[i]), 0);
	}
	for (uint32_t i = 0; i < WRITERS; i++)
		pthread_join(thread[i], NULL);
}

/* How many there are, each behind the one before. */
static uint32_t list_all(const struct many *m, const char *prefix)
{
	struct tier_object_entry *list = calloc(NAMES_A_LIST, sizeof(*list));
	char after[256] = "";
	uint32_t found = 0;
	int64_t n;

	do {
		n = tier_object_list(m->t, "files", prefix, after, list, NAMES_A_LIST);
		assert_true(n >= 0);
		for (int64_t i = 0; i < n; i++) {
			assert_true(strcmp(after, list[i].name) < 0);
			memcpy(after, list[i].name, sizeof(after));
			found += strcmp(after, "beside") != 0;
		}
	} while (n == NAMES_A_LIST);
	free(list);
	return found;
}

static void start(struct many *m)
{
	char nvme[64];
	const char *const set[] = { "hbm.size=0", "cxl.size=256MiB", "object.cxl=192MiB", nvme,
				    NULL };

	snprintf(nvme, sizeof(nvme), "object.nvme=%uKiB", (m->count + 2000) * 12);
	daemon_start(&m->d, set);
	m->t = connect_to(&m->d);
}

static void restart(struct many *m)
{
	tier_close(m->t);
	daemon_stop(&m->d); /* it recounts, too */
	start(m);
}

static void read_some(struct many *m)
{
	struct rng rng = { 7 };
	char name[32];

	for (int i = 0; i < 100; i++) {
		uint32_t which = (uint32_t)(rng_next(&rng) % m->count);

		name_of(name, which);
		assert_int_equal(is(m->t, "files", name, bytes_of(which), which), 1);
	}
}

static void beside(struct many *m, pthread_t *thread)
{
	atomic_store(&m->over, false);
	assert_int_equal(pthread_create(thread, NULL, ask_beside, m), 0);
}

static void alone(struct many *m, pthread_t thread)
{
	atomic_store(&m->over, true);
	pthread_join(thread, NULL);
}

static void test_many_objects(void **state)
{
	const char *count = getenv("TIER_OBJECTS");
	struct many m = { .count = count ? (uint32_t)atoi(count) : COUNT_DEFAULT };
	uint64_t begun, empty __attribute__((unused));
	struct rlimit limit;
	pthread_t thread;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	daemon_folder(&m.d);
	start(&m);
	assert_int_equal(tier_object_context(m.t, "files", NULL), 0);
	assert_int_equal(put(m.t, "files", "beside", 1, 1), 0);
	empty = memory(&m);
	beside(&m, &thread);
	begun = time_now_ns();
	by_all(&m, false);
	tell(&m, "made", begun);
	begun = time_now_ns();
	assert_int_equal(list_all(&m, NULL), m.count);
	tell(&m, "listed", begun);
	assert_int_equal(list_all(&m, "07/"), m.count / FOLDERS);
	assert_true((rlim_t)daemon_fds(&m.d) < limit.rlim_max * 3 / 5);
	begun = time_now_ns();
	daemon_check(&m.d);
	tell(&m, "checked", begun);
	alone(&m, thread);
	begun = time_now_ns();
	restart(&m);
	tell(&m, "stopped, checked, started", begun);
#if !defined(__SANITIZE_ADDRESS__)
	assert_true(memory(&m) < empty + (uint64_t)m.count * MEMORY_A_NAME + MIB);
#endif
	beside(&m, &thread);
	assert_int_equal(list_all(&m, NULL), m.count);
	read_some(&m);
	begun = time_now_ns();
	by_all(&m, true);
	tell(&m, "removed", begun);
	assert_int_equal(list_all(&m, NULL), 0);
	alone(&m, thread);
	restart(&m);
	tell(&m, "all gone", begun);
	assert_int_equal(list_all(&m, NULL), 0);
	tier_close(m.t);
	daemon_stop(&m.d);
	nftw(m.d.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_many_objects) };

	/* It is about names, not about the disk. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
