/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several queues of completions, and pages loaded into a list of places, through the API and
 * against a live daemon: each completion comes in its queue and makes its descriptor readable, and
 * says for each piece whether its bytes are there.
 */
#include <poll.h>

#include "tests/integration/kv_world.h"

#define BLOCKS 8u
#define QUEUE(n) ((uint64_t)(n) << 60)
#define QUEUE_BITS QUEUE(7)

static const char *const settings[] = { "hbm.size=0", NULL };

static int setup(void **state)
{
	*state = world_begin(settings);
	return 0;
}

static uint8_t byte_of(uint32_t block, uint32_t page, uint32_t at)
{
	return (uint8_t)(block * 31 + page * 7 + at);
}

/* Puts BLOCKS blocks with bytes that tell where they belong, and finds them. */
static void store(struct world *w, tier_block block[BLOCKS])
{
	uint8_t *data = malloc(BLOCKS * BLOCK_BYTES);
	struct tier_found found[BLOCKS];
	tier_key key[BLOCKS];

	assert_non_null(data);
	for (uint32_t i = 0; i < BLOCKS * BLOCK_BYTES; i++)
		data[i] = byte_of(i / BLOCK_BYTES, i % BLOCK_BYTES / 4096, i % 4096);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_int_equal(tier_key_opaque(&key[i], &i, sizeof(i), NULL), 0);
	assert_int_equal(tier_put_copy(w->c, key, BLOCKS, data, NULL), BLOCKS);
	assert_int_equal(tier_match(w->c, key, BLOCKS, found), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		block[i] = found[i].block;
	free(data);
}

static void to_nvme(struct world *w, const tier_block block[BLOCKS])
{
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_NVME, .user_data = 1 };
	struct tier_completion done;

	assert_int_equal(tier_migrate(w->c, block, BLOCKS, &ask), 0);
	assert_int_equal(tier_wait(w->t, &done, 1, 1, LONG_NS), 1);
	assert_int_equal(done.value, BLOCKS);
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

/* Begins a fetch of a block that is there. */
static void ask_for(struct world *w, tier_block block, uint64_t user_data)
{
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL,
				      .user_data = user_data };

	assert_int_equal(tier_fetch_start(w->c, &block, 1, &ask), 0);
}

static void test_each_in_its_queue(void **state)
{
	struct world *w = *state;
	struct tier_completion done[4];
	tier_queue *q[3];
	tier_block block[BLOCKS];
	int fd[3];

	store(w, block);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(tier_queue_open(w->t, QUEUE_BITS, QUEUE(i + 1), &q[i]), 0);
		fd[i] = tier_queue_fd(q[i]);
		assert_true(fd[i] >= 0);
		assert_int_equal(tier_queue_fd(q[i]), fd[i]);
		assert_int_equal(tier_queue_poll(q[i], done, 4), 0);
	}
	for (uint32_t i = 0; i < 4; i++)
		ask_for(w, block[i], QUEUE(i) | (100 + i));
	/* Whoever collects the completions, each hears of its own. */
	assert_int_equal(tier_wait(w->t, done, 1, 4, LONG_NS), 1);
	assert_int_equal(done[0].user_data, 100);
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(readable(fd[i], 10000));
		assert_int_equal(tier_queue_wait(q[i], done, 1, 4, LONG_NS), 1);
		assert_int_equal(done[0].user_data, QUEUE(i + 1) | (101 + i));
		assert_int_equal(done[0].status, TIER_READY);
		/* What comes for others wakes, too: a look ends that. */
		assert_int_equal(tier_queue_poll(q[i], done, 4), 0);
		for (uint32_t n = 0; n < 4 && readable(fd[i], 0); n++)
			assert_int_equal(tier_queue_poll(q[i], done, 4), 0);
		assert_false(readable(fd[i], 0));
	}
	/* Asleep on its descriptor alone; the daemon wakes it. */
	ask_for(w, block[0], QUEUE(2));
	assert_true(readable(fd[1], 10000));
	assert_int_equal(tier_queue_wait(q[1], done, 1, 1, LONG_NS), 1);
	/* What a closed queue would have had comes from the connection's own. */
	ask_for(w, block[0], QUEUE(3) | 7);
	assert_int_equal(tier_drain(w->t), 0);
	tier_queue_close(q[2]);
	assert_int_equal(tier_wait(w->t, done, 1, 4, LONG_NS), 1);
	assert_int_equal(done[0].user_data, QUEUE(3) | 7);
	ask_for(w, block[0], QUEUE(3) | 8);
	assert_int_equal(tier_wait(w->t, done, 1, 4, LONG_NS), 1);
	assert_int_equal(done[0].user_data, QUEUE(3) | 8);
	assert_int_equal(tier_queue_open(w->t, 1, 2, &q[2]), -EINVAL);
	assert_int_equal(tier_queue_open(w->t, 1ull << 63, 0, &q[2]), -EINVAL);
	assert_int_equal(tier_queue_poll(NULL, done, 1), -EINVAL);
	tier_queue_close(q[0]);
	tier_queue_close(NULL); /* q[1] goes with the connection */
}

/* Every other page of the blocks, the last one first, with bytes cut off at both ends. */
static void pieces_make(struct tier_piece piece[BLOCKS], const tier_block block[BLOCKS],
			uint8_t *room)
{
	for (uint32_t i = 0; i < BLOCKS; i++)
		piece[i] = (struct tier_piece){ .to = room + (BLOCKS - 1 - i) * 4096,
						.page = { block[i], i % BLOCK_PAGES },
						.offset = i, .bytes = i % 2 ? 1000 + i : 0 };
}

static void pieces_check(const struct tier_piece piece[BLOCKS])
{
	for (uint32_t i = 0; i < BLOCKS; i++) {
		uint32_t bytes = piece[i].bytes ? piece[i].bytes : 4096 - i;
		const uint8_t *at = piece[i].to;

		for (uint32_t k = 0; k < bytes; k++)
			assert_int_equal(at[k], byte_of(i, i % BLOCK_PAGES, i + k));
		assert_int_equal(bytes < 4096 ? at[bytes] : 0xee, 0xee);
	}
}

static void test_pieces_are_copied(void **state)
{
	struct world *w = *state;
	struct tier_piece piece[BLOCKS];
	tier_block block[BLOCKS];
	int32_t error[BLOCKS];
	uint8_t *room = malloc(BLOCKS * 4096);

	assert_non_null(room);
	store(w, block);
	memset(room, 0xee, BLOCKS * 4096);
	pieces_make(piece, block, room);
	assert_int_equal(tier_scatter(w->r, w->c, piece, BLOCKS, error), BLOCKS);
	pieces_check(piece);
	piece[1].offset = 4096 - 5;
	piece[1].bytes = 6;
	piece[2].page.block.generation++;
	assert_int_equal(tier_scatter(w->r, w->c, piece, BLOCKS, error), BLOCKS - 2);
	assert_int_equal(error[0], 0);
	assert_int_equal(error[1], -EINVAL);
	assert_int_equal(error[2], -ESTALE);
	assert_int_equal(tier_scatter(w->r, w->c, piece, 0, NULL), 0);
	piece[0].to = NULL;
	assert_int_equal(tier_scatter(w->r, w->c, piece, 1, NULL), -EINVAL);
	free(room);
}

static void test_a_load_fetches_and_copies(void **state)
{
	struct world *w = *state;
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL, .user_data = QUEUE(5) | 9 };
	struct tier_piece piece[BLOCKS];
	struct tier_completion done;
	tier_block block[BLOCKS];
	int32_t error[BLOCKS];
	uint8_t *room = malloc(BLOCKS * 4096);
	tier_queue *q;

	assert_non_null(room);
	store(w, block);
	to_nvme(w, block);
	memset(room, 0xee, BLOCKS * 4096);
	pieces_make(piece, block, room);
	assert_int_equal(tier_scatter(w->r, w->c, piece, BLOCKS, error), 0);
	assert_int_equal(error[0], -ENODATA);
	assert_int_equal(tier_queue_open(w->t, QUEUE_BITS, QUEUE(5), &q), 0);
	assert_int_equal(tier_load_start(w->c, piece, BLOCKS, &ask, error), 0);
	assert_int_equal(tier_queue_wait(q, &done, 1, 1, LONG_NS), 1);
	assert_int_equal(done.user_data, QUEUE(5) | 9);
	assert_int_equal(done.result, 0);
	assert_int_equal(done.status, TIER_READY);
	assert_int_equal(done.value, BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_int_equal(error[i], 0);
	pieces_check(piece);
	tier_queue_close(q);
	/* One has gone: the others are there all the same, and it is told which. */
	piece[3].page.block.generation++;
	memset(room, 0xee, BLOCKS * 4096);
	assert_int_equal(tier_load_start(w->c, piece, BLOCKS, &ask, error), 0);
	assert_int_equal(tier_wait(w->t, &done, 1, 1, LONG_NS), 1);
	assert_int_equal(done.status, TIER_MISSED);
	assert_int_equal(done.value, BLOCKS - 1);
	assert_int_equal(error[3], -ESTALE);
	assert_int_equal(tier_load_start(w->c, piece, BLOCKS, &ask, NULL), -EINVAL);
	free(room);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_in_its_queue),
		cmocka_unit_test(test_pieces_are_copied),
		cmocka_unit_test(test_a_load_fetches_and_copies),
	};

	return cmocka_run_group_tests(tests, setup, world_end);
}
