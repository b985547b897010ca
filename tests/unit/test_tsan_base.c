/*
 * The parts of libtier/base that several threads share, under ThreadSanitizer: counters, release
 * and acquire, the annotated lock, the log's limit, a histogram that is merged while recorded to.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/atomic.h"
#include "libtier/base/hist.h"
#include "libtier/base/lock.h"
#include "libtier/base/log.h"
#include "tests/lib/unit.h"

#include <stdlib.h>

#define THREADS 3
#define ROUNDS 20000

struct shared {
	struct lock lock;
	uint64_t guarded GUARDED_BY(lock);
	uint64_t counter;
	uint64_t payload; /* plain: published by ready */
	uint32_t ready;
	struct log_limit limit;
	uint64_t passed;
	struct hist hist;
};

static void add_guarded(struct shared *s, uint64_t n) REQUIRES(s->lock);

static void add_guarded(struct shared *s, uint64_t n)
{
	s->guarded += n;
}

static void *work(void *arg)
{
	struct shared *s = arg;
	uint64_t dropped;

	for (int i = 0; i < ROUNDS; i++) {
		atomic_add_relaxed_u64(&s->counter, 1);
		if (i % 2) {
			LOCK_SCOPE(&s->lock);
			add_guarded(s, 1);
		} else {
			lock_acquire(&s->lock);
			s->guarded++;
			lock_release(&s->lock);
		}
		if (log_limit_pass(&s->limit, 10, 0, &dropped))
			atomic_add_relaxed_u64(&s->passed, 1);
	}
	return NULL;
}

static void *record(void *arg)
{
	struct shared *s = arg;

	for (uint64_t i = 0; i < ROUNDS; i++)
		hist_record(&s->hist, i);
	return NULL;
}

static void *publish(void *arg)
{
	struct shared *s = arg;

	s->payload = 42;
	atomic_store_release_u32(&s->ready, 1);
	return NULL;
}

static struct shared *shared_new(void)
{
	struct shared *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	assert_int_equal(lock_init(&s->lock), 0);
	return s;
}

static void shared_free(struct shared *s)
{
	lock_fini(&s->lock);
	free(s);
}

static uint64_t read_guarded(struct shared *s)
{
	LOCK_SCOPE(&s->lock);
	return s->guarded;
}

static void test_counters_and_lock(void **state)
{
	struct shared *s = shared_new();
	pthread_t threads[THREADS];

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, s), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(s->counter, THREADS * ROUNDS);
	assert_int_equal(read_guarded(s), THREADS * ROUNDS);
	/* Threads that began the second together may each have reset the count once. */
	assert_in_range(s->passed, 10, 10 * THREADS);
	shared_free(s);
}

static void test_release_publishes(void **state)
{
	struct shared *s = shared_new();
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, publish, s), 0);
	while (!atomic_load_acquire_u32(&s->ready))
		cpu_relax();
	assert_int_equal(s->payload, 42);
	pthread_join(thread, NULL);
	shared_free(s);
}

static void test_hist_is_read_while_recorded(void **state)
{
	struct shared *s = shared_new();
	struct hist *sum = calloc(1, sizeof(*sum));
	pthread_t thread;

	(void)state;
	assert_non_null(sum);
	assert_int_equal(pthread_create(&thread, NULL, record, s), 0);
	for (int i = 0; i < 20; i++) {
		hist_init(sum);
		hist_merge(sum, &s->hist);
		assert_in_range(sum->count, 0, ROUNDS);
		assert_true(hist_quantile(&s->hist, 0.5) < ROUNDS);
	}
	pthread_join(thread, NULL);
	assert_int_equal(s->hist.count, ROUNDS);
	free(sum);
	shared_free(s);
}

/* Dekker: with a full fence between each store and load, both threads cannot read zero. */
struct dekker {
	uint32_t x, y, seen[2], go;
};

static void *dekker_left(void *arg)
{
	struct dekker *d = arg;

	while (!atomic_load_acquire_u32(&d->go))
		cpu_relax();
	atomic_store_relaxed_u32(&d->x, 1);
	full_fence();
	d->seen[0] = atomic_load_relaxed_u32(&d->y);
	return NULL;
}

static void *dekker_right(void *arg)
{
	struct dekker *d = arg;

	while (!atomic_load_acquire_u32(&d->go))
		cpu_relax();
	atomic_store_relaxed_u32(&d->y, 1);
	full_fence();
	d->seen[1] = atomic_load_relaxed_u32(&d->x);
	return NULL;
}

static void test_full_fence_orders_store_and_load(void **state)
{
	(void)state;
	for (int i = 0; i < 200; i++) {
		struct dekker d = { 0 };
		pthread_t a, b;

		assert_int_equal(pthread_create(&a, NULL, dekker_left, &d), 0);
		assert_int_equal(pthread_create(&b, NULL, dekker_right, &d), 0);
		atomic_store_release_u32(&d.go, 1);
		pthread_join(a, NULL);
		pthread_join(b, NULL);
		assert_int_not_equal(d.seen[0] + d.seen[1], 0);
	}
}

static void test_operations(void **state)
{
	uint64_t word = 5, expected = 5;

	(void)state;
	assert_int_equal(atomic_add_u64(&word, 3), 5);
	assert_int_equal(atomic_sub_u64(&word, 2), 8);
	assert_int_equal(atomic_or_u64(&word, 8), 6);
	assert_int_equal(atomic_and_u64(&word, 12), 14);
	assert_false(atomic_cas_u64(&word, &expected, 1));
	assert_int_equal(expected, 12);
	assert_true(atomic_cas_u64(&word, &expected, 1));
	assert_int_equal(atomic_exchange_u64(&word, 9), 1);
	compiler_fence();
	acquire_fence();
	release_fence();
	asymmetric_light_fence();
	prefetch_read(&word);
	assert_int_equal(atomic_load_acquire_u64(&word), 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counters_and_lock),
		cmocka_unit_test(test_release_publishes),
		cmocka_unit_test(test_hist_is_read_while_recorded),
		cmocka_unit_test(test_full_fence_orders_store_and_load),
		cmocka_unit_test(test_operations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
