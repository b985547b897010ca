/*
 * The index of names under readers: one hand changes it as the daemon does, puts, removes, fills
 * dead slots again, gives up a full index for the next one in the same place; readers look names
 * up. Names that are never removed must be found, with fields that belong together and never of an
 * older version than was told before; names that never were must not. A look during which nothing
 * changed must tell, and just what is there. The writer stops now and then until there were some.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/names.h"
#include "tests/lib/unit.h"

#define READERS 3u
#define SLOTS 256u
#define STABLE 4u   /* there at all times, in versions that rise */
#define PASSING 100u /* there at times */
#define PAUSES 100u
#define CHANGES 4000u /* between two of them */
#define CALM 300u     /* looks that it waits for */

static struct {
	struct abi_names *at; /* where the present one lies */
	uint32_t end;	      /* atomic */
	uint64_t told[STABLE]; /* atomic: versions that the writer has put */
	uint64_t passing[PASSING]; /* atomic: versions, 0 = it is not there */
	uint64_t turn; /* atomic: odd while the writer changes something */
	uint64_t calm; /* atomic: looks without a change */
	uint64_t found, absent, asked, wrong; /* atomic */
	uint32_t indexes;
} t;

static uint32_t name_of(char out[32], char kind, uint32_t n)
{
	return (uint32_t)snprintf(out, 32, "%c/%u-of-names", kind, n);
}

/* ---- the one who writes -------------------------------------------------------------------- */

struct writer {
	uint32_t used;
	uint64_t generation, version;
};

/* False: it is full. */
static bool write_name(struct writer *w, char kind, uint32_t n, uint64_t version)
{
	struct abi_names_slot s = { .inode = version, .size = version * 3,
				    .mtime_ns = version * 5, .word = version & 0777 };
	char name[32];
	bool new, dead;
	uint32_t slot;

	names_key(t.at, name, name_of(name, kind, n), s.key);
	slot = names_place(t.at, s.key, &new, &dead);
	if (!version && new)
		return true;
	if (!version)
		s = (struct abi_names_slot){ .key = { ABI_NAMES_DEAD } };
	if (new && !dead && w->used + 1 > SLOTS * 3 / 4)
		return false;
	w->used += new && !dead;
	names_put(t.at, slot, &s);
	return true;
}

/* The next index takes the place of this one, as a client maps it. */
static void next_index(struct writer *w)
{
	int fd = memfd_create("names", MFD_CLOEXEC);
	void *own;

	assert_true(fd >= 0 && ftruncate(fd, (off_t)names_bytes(SLOTS)) == 0);
	own = mmap(NULL, names_bytes(SLOTS), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(own != MAP_FAILED);
	names_begin(own, SLOTS, ++w->generation, 0x5eed);
	munmap(own, names_bytes(SLOTS));
	if (t.indexes++)
		names_state(t.at, ABI_NAMES_GONE);
	for (uint32_t i = 0; i < PASSING; i++)
		atomic_store_relaxed_u64(&t.passing[i], 0);
	/* Not by mmap(), which the thread sanitizer takes for a write of all of it. */
	assert_true(syscall(SYS_mmap, t.at, names_bytes(SLOTS), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_FIXED, fd, 0l) == (long)t.at);
	close(fd);
	w->used = 0;
	for (uint32_t i = 0; i < STABLE; i++)
		assert_true(write_name(w, 's', i, t.told[i]));
	names_state(t.at, ABI_NAMES_READY);
}

static void change(struct writer *w, uint32_t n)
{
	uint32_t name = (n / 4 % PASSING + (uint32_t)(w->version / 50)) % (4 * PASSING);
	uint64_t version = n & 32 ? w->version : 0;

	if (n % 1024 == 0) {
		next_index(w);
	} else if (n % 4) {
		assert_true(write_name(w, 's', n / 4 % STABLE, ++w->version));
		atomic_store_release_u64(&t.told[n / 4 % STABLE], w->version);
	} else if (!write_name(w, 'p', name, version)) {
		next_index(w);
	} else if (name < PASSING) {
		atomic_store_relaxed_u64(&t.passing[name], version);
	}
}

static void *write_names(void *arg)
{
	struct writer w = { .version = STABLE };
	uint64_t x = 88172645463325252ull;

	(void)arg;
	for (uint32_t i = 0; i < STABLE; i++)
		t.told[i] = i + 1;
	next_index(&w);
	atomic_store_release_u32(&t.end, 1);
	for (uint32_t i = 0; i < PAUSES; i++) {
		uint64_t calm = atomic_load_acquire_u64(&t.calm);

		while (atomic_load_acquire_u64(&t.calm) < calm + CALM)
			sched_yield();
		for (uint32_t k = 0; k < CHANGES; k++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			atomic_add_u64(&t.turn, 1);
			change(&w, (uint32_t)(x >> 40));
			atomic_add_u64(&t.turn, 1);
		}
	}
	atomic_store_release_u32(&t.end, 2);
	return NULL;
}

/* ---- those who read ------------------------------------------------------------------------ */

/* What no change was made beside. there: the version that is there, 0 = none is. */
static void look_calmly(int rc, uint64_t there, const struct abi_names_slot *s)
{
	atomic_add_relaxed_u64(&t.calm, 1);
	if (rc != (there ? 0 : -ENOENT) || (rc == 0 && s->inode != there))
		atomic_add_relaxed_u64(&t.wrong, 1);
}

/* at: where the version is told that is there; NULL = it never is. */
static int look(char kind, uint32_t n, const uint64_t *at, struct abi_names_slot *s)
{
	uint64_t turn = atomic_load_acquire_u64(&t.turn);
	uint64_t there = at ? atomic_load_acquire_u64(at) : 0;
	char name[32];
	uint32_t slot, bytes = name_of(name, kind, n);
	int rc = names_look(t.at, SLOTS, name, bytes, s, &slot);

	acquire_fence();
	if (!(turn & 1) && atomic_load_relaxed_u64(&t.turn) == turn)
		look_calmly(rc, there, s);
	if (rc == -EAGAIN || rc == -ESTALE)
		atomic_add_relaxed_u64(&t.asked, 1);
	else
		atomic_add_relaxed_u64(rc ? &t.absent : &t.found, 1);
	if (rc == 0 && (s->size != s->inode * 3 || s->mtime_ns != s->inode * 5 ||
			s->word != (s->inode & 0777)))
		atomic_add_relaxed_u64(&t.wrong, 1);
	return rc;
}

static void *read_names(void *arg)
{
	struct abi_names_slot s;

	(void)arg;
	while (!atomic_load_acquire_u32(&t.end))
		;
	for (uint32_t n = 0; atomic_load_acquire_u32(&t.end) == 1; n++) {
		uint64_t told = atomic_load_acquire_u64(&t.told[n % STABLE]);
		int rc = look('s', n % STABLE, &t.told[n % STABLE], &s);

		/* There, and not older than what was told before it was looked up. */
		if (rc == -ENOENT || (rc == 0 && s.inode < told))
			atomic_add_relaxed_u64(&t.wrong, 1);
		look('p', n % PASSING, &t.passing[n % PASSING], &s);
		if (look('n', n, NULL, &s) == 0)
			atomic_add_relaxed_u64(&t.wrong, 1);
	}
	return NULL;
}

static void test_readers(void **state)
{
	pthread_t thread[1 + READERS];

	(void)state;
	t.at = mmap(NULL, names_bytes(SLOTS), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(t.at != MAP_FAILED);
	for (uint32_t i = 0; i <= READERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, i ? read_names : write_names,
						NULL), 0);
	for (uint32_t i = 0; i <= READERS; i++)
		pthread_join(thread[i], NULL);
	print_message("%llu found, %llu absent, %llu to be asked, %llu calmly, %u indexes\n",
		      (unsigned long long)t.found, (unsigned long long)t.absent,
		      (unsigned long long)t.asked, (unsigned long long)t.calm, t.indexes);
	assert_int_equal(t.wrong, 0);
	assert_true(t.found > 10000 && t.absent > 10000 && t.indexes > 2);
	munmap(t.at, names_bytes(SLOTS));
}

/* What a daemon could not have made is not looked into. */
static void test_judge(void **state)
{
	static union {
		struct abi_names n;
		uint8_t bytes[sizeof(struct abi_names) + 8 * sizeof(struct abi_names_slot)];
	} m;

	(void)state;
	assert_int_equal(names_judge(&m.n, sizeof(m)), 0);
	names_begin(&m.n, 8, 1, 1);
	assert_int_equal(names_judge(&m.n, sizeof(m)), 8);
	assert_int_equal(names_judge(&m.n, sizeof(m) - 1), 0);
	for (uint32_t slots = 0; slots < 40; slots++) {
		m.n.slots = slots;
		assert_int_equal(names_judge(&m.n, sizeof(m)),
				 slots == 1 || slots == 2 || slots == 4 || slots == 8 ? slots : 0);
	}
	m.n.slots = ABI_NAMES_SLOTS_MAX * 2;
	assert_int_equal(names_judge(&m.n, UINT64_MAX), 0);
}

/* Whose slot is being written all the time is asked of the daemon. */
static void test_a_slot_that_is_being_written(void **state)
{
	static union {
		struct abi_names n;
		uint8_t bytes[sizeof(struct abi_names) + 8 * sizeof(struct abi_names_slot)];
	} m;
	struct abi_names_slot s = { .inode = 5 };
	uint32_t slot;
	bool new, dead;

	(void)state;
	names_begin(&m.n, 8, 1, 1);
	names_state(&m.n, ABI_NAMES_READY);
	names_key(&m.n, "name", 4, s.key);
	names_put(&m.n, names_place(&m.n, s.key, &new, &dead), &s);
	assert_int_equal(names_look(&m.n, 8, "name", 4, &s, &slot), 0);
	assert_int_equal(s.inode, 5);
	m.n.slot[slot].sequence++;
	assert_int_equal(names_look(&m.n, 8, "name", 4, &s, &slot), -EAGAIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_judge),
		cmocka_unit_test(test_a_slot_that_is_being_written),
		cmocka_unit_test(test_readers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
