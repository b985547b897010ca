/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's own user where that is not root: contexts of others are hidden from it as from
 * anybody, and it may remove them and raise their epoch all the same. (Root is every context's
 * owner, so a daemon of root's cannot show this.)
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "tests/unit/front_turns.h"

#define OPERATOR 4321u

static uid_t was;
static char folder[108]; /* for the socket: tests' own are root's */

/* From root to another user, with a folder that is its own. False: none can be had here. */
static bool become_operator(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(folder, sizeof(folder), "%s/op.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(folder));
	if (chown(folder, OPERATOR, (gid_t)-1) || seteuid(OPERATOR))
		return false;
	if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) == 0)
		return setenv("TMPDIR", folder, 1) == 0;
	assert_int_equal(seteuid(0), 0);
	return false;
}

/* The daemon's own user, which is not root: such a one has no way to others' contexts but this. */
static int setup_as_operator(void **state)
{
	was = geteuid();
	if (was == 0 && !become_operator())
		return 0; /* the test skips */
	return setup(state);
}

static int teardown_as_operator(void **state)
{
	if (geteuid() != 0)
		teardown(state);
	if (was == 0 && (seteuid(0) || rmdir(folder)))
		return -1;
	return 0;
}

/* Another user's, which nobody else may open. Returns its memory. */
static void *make_hidden(uint32_t *id)
{
	struct disk_context spec = { .name = "theirs", .mode = 0600, .kind = 1,
				     .owner_uid = geteuid() + 1, .owner_gid = getegid() + 1 };
	struct abi_geometry *g = &spec.geometry;
	struct core_context_memory memory = { .index = NULL };
	struct core_context_plan plan;
	char why[FRONT_WHY_BYTES];

	g->block_tokens = 128;
	g->page_align = 4096;
	g->part_count = g->pages_per_block = 1;
	g->block_bytes = 4096;
	g->part[0] = (struct abi_part){ .name = "kv", .kind = ABI_KIND_SPARSE, .layers = 1,
					.groups = 1, .page_bytes = 4096, .page_stride = 4096 };
	assert_int_equal(core_context_plan(fx.core, &spec, &plan, why, sizeof(why)), 0);
	memory.index = calloc(1, plan.index_bytes + plan.mem_bytes[ABI_TIER_CXL]);
	assert_non_null(memory.index);
	memory.mem[ABI_TIER_CXL] = (uint8_t *)memory.index + plan.index_bytes;
	assert_int_equal(core_context_create(fx.core, &spec, &memory, 0, id), 0);
	return memory.index;
}

/* Returns the error, 0 and *value, or -EPROTO for another answer. */
static int ask_about(struct peer *p, uint32_t type, struct wire_ctx m, uint64_t *value)
{
	union {
		struct wire_header header;
		struct wire_error error;
		struct wire_done done;
	} a;

	m.header = (struct wire_header){ WIRE_MAGIC, ABI_VERSION, type, sizeof(m), 2 };
	assert_int_equal(send(p->sock, &m, sizeof(m), 0), (ssize_t)sizeof(m));
	for (uint32_t i = 0; i < 4; i++)
		turn(MS);
	assert_true(recv(p->sock, &a, sizeof(a), MSG_DONTWAIT) >= (ssize_t)sizeof(a.header));
	*value = a.header.type == WIRE_DONE ? a.done.value : 0;
	return a.header.type == WIRE_DONE ? 0 :
	       a.header.type == WIRE_ERROR ? a.error.error : -EPROTO;
}

static void test_an_operator_that_is_not_root(void **state)
{
	struct wire_ctx m = { .name = "theirs" };
	struct core_context_stats stats;
	struct peer p;
	uint64_t value;
	uint32_t id;
	void *memory;

	(void)state;
	if (geteuid() == 0)
		skip(); /* no other user can be had here */
	memory = make_hidden(&id);
	greet(&p);
	assert_int_equal(ask_about(&p, WIRE_CTX_OPEN, m, &value), -ENOENT);
	m.epoch = 7;
	assert_int_equal(ask_about(&p, WIRE_CTX_EPOCH, m, &value), 0);
	assert_int_equal(value, 7);
	m.epoch = 0;
	assert_int_equal(ask_about(&p, WIRE_CTX_REMOVE, m, &value), 0);
	assert_int_equal(core_context_stats(fx.core, id, &stats), -ENOENT);
	assert_int_equal(fx.shell.contexts_gone, 1);
	assert_int_equal(ask_about(&p, WIRE_CTX_REMOVE, m, &value), -ENOENT);
	leave(&p);
	turn(MS);
	free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_an_operator_that_is_not_root,
						setup_as_operator, teardown_as_operator),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("front operator", tests, NULL, NULL);
}
