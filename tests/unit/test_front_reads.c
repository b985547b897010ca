/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client can write is read once (I3, R3): a second read may find something else than what
 * was judged. The daemon's side of a region and of staging traps each access (reads.h), while the
 * front takes entries, posts answers and parks, and while the core is asked for everything that a
 * ring can ask for.
 */

#include <errno.h>
#include <stdlib.h>

#include "libtier/base/atomic.h"
#include "tests/unit/front_turns.h"
#include "tests/unit/reads.h"
#include "tierd/front/front_priv.h"

/* ---- the front ----------------------------------------------------------------------------- */

static void push(struct peer *p, uint32_t op)
{
	struct abi_sqe *sq = (void *)((uint8_t *)p->region + p->region->sq_offset);
	uint32_t tail = p->region->sq_tail;

	sq[tail & (p->region->sq_entries - 1)] =
		(struct abi_sqe){ .op = (uint8_t)op, .klass = (uint8_t)op % ABI_CLASS_COUNT,
				  .user_data = tail };
	atomic_store_release_u32(&p->region->sq_tail, tail + 1);
}

#define WORD(name) offsetof(struct abi_region_header, name), sizeof(uint32_t)

/* Of the header nothing else is read at all: what is the daemon's it keeps apart. */
static void other_words(const struct reads *r, uint32_t looks)
{
	static const size_t words[] = {
		offsetof(struct abi_region_header, sq_tail),
		offsetof(struct abi_region_header, cq_head),
		offsetof(struct abi_region_header, cq_wait),
		offsetof(struct abi_region_header, goodbye),
		sizeof(struct abi_region_header),
	};
	size_t at = 0;

	reads_check(r, WORD(sq_tail), looks, "sq_tail");
	for (uint32_t i = 1; i < COUNT(words) - 1; i++)
		reads_check(r, words[i], sizeof(uint32_t), 1, "a word of the client");
	for (uint32_t i = 0; i < COUNT(words); at = words[i++] + sizeof(uint32_t))
		reads_check(r, at, words[i] - at, 0, "another word of the header");
}

/* The last look before a connection is parked is at sq_tail once more, which is only compared. */
static void front_words(const struct reads *r, const struct peer *p)
{
	const struct abi_region_header *h = p->region;

	other_words(r, h->sq_wake ? 2 : 1);
	reads_check(r, h->sq_offset, h->sq_entries * sizeof(struct abi_sqe), 1, "an entry");
	reads_check(r, h->cq_offset, h->cq_entries * sizeof(struct abi_cqe), 0, "an answer");
	/* Whether a reader is open, and what it reads, when the socket has been closed. */
	reads_check(r, h->reader_offset, h->readers_max * sizeof(struct abi_reader), 1, "a reader");
}

static void watched_turn(struct reads *r, const struct peer *p, uint64_t later)
{
	reads_forget(r, 0, r->bytes);
	reads_begin(r);
	turn(later);
	reads_end(r);
	front_words(r, p);
}

/* Entries one by one and many at a time, answers that wake, parking, and the goodbye. */
static void test_the_front_reads_once(void **state)
{
	uint64_t one = 1;
	struct reads r;
	struct peer p;

	(void)state;
	if (!READS_WORK)
		skip();
	greet(&p);
	turn(0);
	reads_open(&r, fx.front->connection[p.client].region.addr, p.bytes);
	for (uint32_t round = 0; round < 40; round++) {
		for (uint32_t k = 0; k <= round % 8; k++)
			push(&p, (round + k) % (ABI_OP_COUNT + 1));
		p.region->cq_wait = round % 2;
		assert_int_equal(write(p.fd[2], &one, sizeof(one)), 8);
		watched_turn(&r, &p, MS / 4);
		assert_int_equal(p.region->sq_head, p.region->sq_tail);
		p.region->cq_head = p.region->cq_tail;
		if (round % 4 == 3) /* it parks */
			watched_turn(&r, &p, 2 * MS);
	}
	assert_true(r.reads > 0);
	atomic_store_release_u32(&p.region->sq_tail, p.region->sq_tail + 100); /* nonsense */
	assert_int_equal(write(p.fd[2], &one, sizeof(one)), 8);
	watched_turn(&r, &p, 0);
	leave(&p);
	reads_close(&r);
	turn(0);
}

/* A connection ends with and without a goodbye, its readers open or closed. */
static void test_an_end_reads_once(void **state)
{
	uint64_t one = 1;
	struct reads r;
	struct peer p;

	(void)state;
	if (!READS_WORK)
		skip();
	for (uint32_t i = 0; i < 3; i++) {
		struct abi_reader *reader;

		greet(&p);
		push(&p, ABI_OP_NOP);
		assert_int_equal(write(p.fd[2], &one, sizeof(one)), 8);
		turn(0);
		reader = (void *)((uint8_t *)p.region + p.region->reader_offset);
		reader[0].high_water = i == 1 ? UINT32_MAX : 4;
		reader[0].slot[2] = i == 2;
		p.region->goodbye = 1;
		reads_open(&r, fx.front->connection[p.client].region.addr, p.bytes);
		shutdown(p.sock, SHUT_RDWR);
		reads_begin(&r);
		turn(0); /* jobs are under way, so its memory stays */
		reads_end(&r);
		front_words(&r, &p);
		assert_true(r.reads > 0);
		reads_close(&r);
		memset(reader, 0, sizeof(*reader));
		leave(&p);
		fx.shell.passed = fx.shell.mark;
		turn(0);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_the_front_reads_once),
		T(test_an_end_reads_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
