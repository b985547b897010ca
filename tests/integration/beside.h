/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A victim under its own uid that reads, fetches, puts durably and connects beside an attack, and
 * what it waited. Included by the tests of the family only.
 */
#ifndef TIER_TESTS_BESIDE_H
#define TIER_TESTS_BESIDE_H

#include <stdlib.h>

#include "tests/integration/isolation.h"

#define SAMPLES 100000u
#define LIVE 64u     /* durable blocks of the victim at a time */

struct sampled {
	uint64_t count, ns[SAMPLES];
};

struct board {
	uint64_t stop, ready, until_ns;
	uint64_t wrong, refused;
	int64_t refused_by;
	uint64_t kept;     /* 1 + bytes in pipes */
	uint64_t policies; /* that the kernel let an attacker set */
	struct sampled read, fetch, durable, connect;
};

static struct board *board;
static pid_t measurer;

HELPER uint32_t attack_ms(void)
{
	const char *ms = getenv("TIER_ISOLATION_MS");

	return ms ? (uint32_t)strtoul(ms, NULL, 10) : 250;
}

HELPER bool going_on(void)
{
	return time_now_ns() < atomic_load_acquire_u64(&board->until_ns);
}

/* What an attacker makes: blocks of so many pages, none of them in HBM. */
struct shape {
	uint32_t pages, page_bytes, blocks_max;
	uint64_t cxl, nvme; /* its quota */
};

HELPER int create_shaped(tier *t, const char *name, const struct shape *s, tier_context **out)
{
	const struct tier_part part = { .name = "all", .kind = TIER_KIND_STATE, .layers = 1,
					.groups = s->pages, .page_bytes = s->page_bytes };
	const struct tier_geometry_options g = {
		.size = sizeof(g), .page_align = s->page_bytes < 4096 ? s->page_bytes : 4096,
		.part_count = 1, .part = &part,
	};
	struct tier_context_options o = { .size = sizeof(o), .mode = 0600,
					  .blocks_max = s->blocks_max };
	tier_geometry *geometry;
	int rc;

	o.quota[TIER_HBM] = TIER_QUOTA_NONE;
	o.quota[TIER_CXL] = s->cxl;
	o.quota[TIER_NVME] = s->nvme;
	CHECK(tier_geometry_new(&geometry, &g) == 0);
	rc = tier_context_create(t, name, geometry, &o, out);
	tier_geometry_free(geometry);
	return rc;
}

/* ---- the victim ------------------------------------------------------------------------------ */

HELPER void sample(struct sampled *s, uint64_t since_ns, int64_t rc)
{
	uint64_t n = s->count;

	if (rc == 0)
		board->wrong++;
	if (rc < 0) {
		board->refused++;
		board->refused_by = rc;
	}
	s->ns[n % SAMPLES] = time_now_ns() - since_ns;
	atomic_store_release_u64(&s->count, n + 1);
}

HELPER void put_durably(tier_context *c, uint32_t n)
{
	tier_key gone = secret_key(200000 + n - LIVE);
	uint64_t begun = time_now_ns();

	sample(&board->durable, begun,
	       put_secret_as(c, 200000 + n, TIER_PUT_DURABLE) == 1 ? 1 : -EIO);
	if (n >= LIVE && tier_delete(c, &gone, 1) < 0)
		board->refused++;
}

/* Asked of the daemon, whether it is in memory or not. */
HELPER void fetch_once(tier_context *c, uint32_t n)
{
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL };
	tier_key key = secret_key(n);
	uint64_t begun = time_now_ns();
	struct tier_found found;
	int64_t rc = tier_match(c, &key, 1, &found);

	if (rc == 1)
		rc = tier_fetch(c, &found.block, 1, &ask);
	sample(&board->fetch, begun, rc == 0 ? -ENOENT : rc);
}

HELPER void __attribute__((noreturn)) measure(struct isolation *w)
{
	tier_context *c;
	tier_reader *r;
	tier *t, *other;
	uint32_t n = 0;

	become(UID_VICTIM, UID_VICTIM);
	t = connect_to(&w->d);
	CHECK(tier_context_open(t, "private", NULL, &c) == 0);
	CHECK(tier_reader_open(t, &r) == 0);
	atomic_store_release_u64(&board->ready, 1);
	for (uint32_t i = 0; !atomic_load_acquire_u64(&board->stop); i++) {
		uint64_t begun = time_now_ns();

		sample(&board->read, begun,
		       read_secret(r, c, i * 7 % ATTACKED_BLOCKS, i % ATTACKED_PAGES));
		fetch_once(c, i * 5 % ATTACKED_BLOCKS);
		if (i % 16 == 0)
			put_durably(c, n++);
		if (i % 64 == 0) {
			begun = time_now_ns();
			other = connect_to(&w->d);
			sample(&board->connect, begun, 1);
			tier_close(other);
		}
		usleep(500);
	}
	tier_close(t);
	_exit(0);
}

/* ---- what it waited -------------------------------------------------------------------------- */

HELPER int by_size(const void *a, const void *b)
{
	const uint64_t *one = a, *other = b;

	return *one < *other ? -1 : *one > *other;
}

struct figures {
	double p50_ms, p99_ms, longest_ms;
	uint64_t count;
};

HELPER struct figures figures_of(const struct sampled *s)
{
	uint64_t n = atomic_load_acquire_u64(&s->count);
	struct figures f = { .count = n };
	uint64_t *ns;

	n = n < SAMPLES ? n : SAMPLES;
	if (!n)
		return f;
	ns = malloc(n * sizeof(*ns));
	assert_non_null(ns);
	memcpy(ns, s->ns, n * sizeof(*ns));
	qsort(ns, n, sizeof(*ns), by_size);
	f.p50_ms = (double)ns[n / 2] / 1e6;
	f.p99_ms = (double)ns[n * 99 / 100] / 1e6;
	f.longest_ms = (double)ns[n - 1] / 1e6;
	free(ns);
	return f;
}

HELPER void tell(const char *name, const char *what, const struct sampled *s)
{
	struct figures f = figures_of(s);

	printf("# %-44s %-8s p50 %7.3f p99 %8.3f longest %8.3f ms of %llu\n", name, what,
	       f.p50_ms, f.p99_ms, f.longest_ms, (unsigned long long)f.count);
}

HELPER void run_beside(struct isolation *w, const char *name, void (*body)(struct isolation *w))
{
	board->read.count = board->fetch.count = board->durable.count = board->connect.count = 0;
	atomic_store_release_u64(&board->until_ns, time_now_ns() + attack_ms() * 1000000ull);
	attack(w, name, body);
	for (uint32_t i = 0; i < PATIENCE_MS && !(atomic_load_acquire_u64(&board->read.count) &&
						  atomic_load_acquire_u64(&board->durable.count) &&
						  atomic_load_acquire_u64(&board->connect.count));
	     i++)
		usleep(1000);
	tell(name, "read", &board->read);
	tell(name, "fetch", &board->fetch);
	tell(name, "durable", &board->durable);
	tell(name, "connect", &board->connect);
	fflush(stdout);
	if (board->refused)
		printf("# refused: %lld\n", (long long)board->refused_by);
	assert_int_equal(board->wrong, 0);
	assert_int_equal(board->refused, 0);
	assert_true(board->read.count && board->durable.count && board->connect.count);
	assert_int_equal(waitpid(measurer, NULL, WNOHANG), 0);
}

/* And what is judged of it. */
HELPER void attack_beside(struct isolation *w, const char *name, void (*body)(struct isolation *w))
{
	uint64_t most;

	run_beside(w, name, body);
	most = tierctl_number(&w->d, "stat event_items_most", "metrics.0.value");
	printf("#   longest event: %llu items, %.2f ms; longest turn %.2f ms\n",
	       (unsigned long long)most,
	       (double)tierctl_number(&w->d, "stat", "loop.event_longest_ns") / 1e6,
	       (double)tierctl_number(&w->d, "stat", "loop.longest_ns") / 1e6);
	assert_in_range(most, 1, 4096);
}

HELPER void busy(struct isolation *w)
{
	(void)w;
	while (going_on())
		cpu_relax();
}

struct attack {
	const char *name;
	void (*body)(struct isolation *w);
};

/* Beside each of them, or of those whose name has TIER_ISOLATION_ONLY in it. */
HELPER void attack_each(struct isolation *w, const struct attack *attacks, size_t count)
{
	const char *only = getenv("TIER_ISOLATION_ONLY");

	run_beside(w, "a busy loop", busy);
	for (size_t i = 0; i < count; i++)
		if (!only || strstr(attacks[i].name, only))
			attack_beside(w, attacks[i].name, attacks[i].body);
	run_beside(w, "a busy loop", busy);
}

/* Stops the daemon beside clients that are there, and looks at what is left. */
HELPER void test_the_end_and_a_start(void **state)
{
	struct isolation *w = isolation_of(state);
	uint64_t begun;
	int status;

	if (!w)
		return;
	atomic_store_release_u64(&board->stop, 1);
	assert_int_equal(waitpid(measurer, &status, 0), measurer);
	assert_int_equal(status, 0);
	atomic_store_release_u64(&w->board->stop, 1);
	assert_int_equal(waitpid(w->victim, &status, 0), w->victim);
	begun = time_now_ns();
	daemon_stop(&w->d);
	printf("# told to end, it did in %.1f ms, its check included\n",
	       (double)(time_now_ns() - begun) / 1e6);
	begun = time_now_ns();
	daemon_start(&w->d, w->settings);
	printf("# and was there again after %.1f ms\n", (double)(time_now_ns() - begun) / 1e6);
	fflush(NULL);
	w->victim = fork();
	if (w->victim == 0) {
		tier_context *c;
		tier_reader *r;
		tier *t;

		become(UID_VICTIM, UID_VICTIM);
		t = connect_to(&w->d);
		CHECK(tier_context_open(t, "private", NULL, &c) == 0);
		CHECK(tier_reader_open(t, &r) == 0);
		for (uint32_t n = 0; n < ATTACKED_BLOCKS; n++)
			CHECK(read_secret(r, c, n, n % ATTACKED_PAGES) == 1);
		tier_close(t);
		_exit(0);
	}
}

HELPER int beside_begin(void **state, const char *const *settings)
{
	int rc = isolation_begin(state, settings);
	struct isolation *w = *state;

	if (rc || !w)
		return rc;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	assert_true(board != MAP_FAILED);
	fflush(NULL);
	measurer = fork();
	if (measurer == 0)
		measure(w);
	for (uint32_t i = 0; i < PATIENCE_MS && !atomic_load_acquire_u64(&board->ready); i++)
		usleep(1000);
	assert_int_equal(atomic_load_acquire_u64(&board->ready), 1);
	return 0;
}

#endif
