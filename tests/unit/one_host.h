/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host that all tests of a file share: its memory is reserved once, each test boots a core of
 * its own on it.
 */
#ifndef TIER_TESTS_ONE_HOST_H
#define TIER_TESTS_ONE_HOST_H

#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/host.h"
#include "tests/lib/unit.h"
#include "tierd/core/state.h"

static struct host host;

/* Group setup of cmocka. */
static int one_host(void **state)
{
	(void)state;
	host_init(&host);
	return 0;
}

/* A core with one context as spec says, and so many clients attached to it. */
static inline void one_host_boot(const struct disk_context *spec, uint32_t clients)
{
	host_boot(&host, NULL);
	assert_int_equal(host_context_make(&host, 0, spec), 0);
	for (uint32_t i = 0; i < clients; i++) {
		host_client_open(&host, i);
		host_client_attach(&host, i);
	}
}

static inline struct context *context(void)
{
	return core_context(host.core, host.context[0].id);
}

static inline uint32_t slot_of(uint32_t n)
{
	uint8_t key[ABI_KEY_BYTES];

	host_key(n, key);
	return index_find(&context()->ix, key);
}

static inline bool is_there(uint32_t n)
{
	return slot_of(n) != ABI_SLOT_NONE;
}

/* Client i is of another user than all before it. */
static inline void one_host_other_user(uint32_t i)
{
	host.uid = HOST_OWNER + 1;
	host_client_open(&host, i);
	host.uid = 0;
	host_client_attach(&host, i);
}

/* Of any key there may be a record that nobody has seen: each deletion leaves a tombstone. */
static inline void one_host_suspect(void)
{
	for (uint32_t i = 0; i < host.super.segment_count; i++)
		core_recover_unread(host.core, 0, i);
}

static inline void one_host_catalog(struct disk_catalog *catalog, struct disk_context *spec)
{
	const struct disk_super *p = &host.super;
	const struct disk_catalog *head;
	const struct disk_context *list;
	uint64_t newest = 0;

	for (uint32_t i = 0; i < 2; i++) {
		const uint8_t *at = host.disk + p->catalog_offset + i * p->catalog_bytes;

		if (disk_catalog_open(at, p->catalog_bytes, p->store_id, &head, &list) ||
		    head->sequence < newest)
			continue;
		newest = head->sequence;
		*catalog = *head;
		*spec = list[0];
	}
	assert_true(newest && catalog->count == 1);
}

/*
 * Stop without a word, start on what the device holds; its segments in or against their order. No
 * client yet.
 */
static inline struct core_recovery one_host_restart(bool backwards)
{
	const struct disk_super *p = &host.super;
	uint32_t segments = (uint32_t)p->segment_count;
	struct core_recovery out;
	struct disk_catalog catalog;
	struct disk_context spec;

	one_host_catalog(&catalog, &spec);
	host_halt(&host);
	host_boot(&host, &catalog);
	assert_int_equal(host_context_make(&host, 0, &spec), 0);
	for (uint32_t i = 0; i < segments; i++) {
		uint32_t segment = backwards ? segments - 1 - i : i;

		core_recover_segment(host.core, 0, segment,
				     host.disk + p->segment_offset + segment * p->segment_bytes,
				     p->summary_bytes);
	}
	assert_int_equal(core_recover_finish(host.core, &out), 0);
	return out;
}

static uint8_t *one_host_small; /* the host's own disk, while a test has another */

/* A larger store than the host's own, for one test. */
static inline void one_host_disk(uint64_t bytes, uint64_t segments, uint64_t segment_bytes,
				 uint64_t summary_bytes)
{
	one_host_small = host.disk;
	host.disk = calloc(1, bytes);
	assert_non_null(host.disk);
	host.disk_bytes = bytes;
	host.super.segment_count = segments;
	host.super.segment_bytes = segment_bytes;
	host.super.summary_bytes = summary_bytes;
	disk_super_seal(&host.super);
}

/* The host's own again, when the core is off. */
static inline void one_host_disk_back(void)
{
	free(host.disk);
	host.disk = one_host_small;
	host.disk_bytes = HOST_NVME;
	host.super.segment_count = HOST_SEGMENTS;
	host.super.segment_bytes = HOST_SEGMENT;
	host.super.summary_bytes = HOST_SUMMARY;
	disk_super_seal(&host.super);
}

/* The answer to what was asked last; the cleaner may go on long after it. */
static inline int32_t one_host_answer(void)
{
	host.held = false;
	for (uint32_t i = 0; i < 20000 && host.answer.res > 0; i++) {
		host_carry_all(&host);
		if (host.answer.res > 0)
			host_tick(&host, MS);
	}
	return host.answer.res;
}

/* A put of blocks that are not like each other; it is committed, and nothing carried out of it. */
static inline int32_t one_host_put_begin(uint32_t first, uint32_t count, uint16_t flags)
{
	const struct abi_put_args args = { .count = count };
	size_t bytes = host.context[0].spec.geometry.block_bytes;
	int32_t res = host_reserve(&host, &args, first, flags);

	if (res)
		return res;
	for (uint32_t i = 0; i < count; i++)
		memset(host.client[0].staging + HOST_PUT_DATA + i * bytes, (int)(first + i),
		       bytes);
	host.answer.res = 1;
	host.held = true;
	assert_true(host_commit(&host, flags));
	return 0;
}

static inline int32_t one_host_put(uint32_t first, uint32_t count, uint16_t flags)
{
	int32_t res = one_host_put_begin(first, count, flags);

	return res ? res : one_host_answer();
}

/* Three durable blocks: half of a segment. All that it takes is done. */
static inline void one_host_put_half(uint32_t first)
{
	assert_int_equal(one_host_put(first, 3, ABI_SQE_DURABLE), 0);
	assert_true(host_settle(&host, 100));
}

static inline void one_host_delete_begin(uint32_t first, uint32_t count)
{
	const struct abi_sqe sqe = { .op = ABI_OP_DELETE };

	host.answer.res = 1;
	assert_true(host_request_keys(&host, 0, sqe, first, count));
}

static inline int32_t one_host_delete(uint32_t first, uint32_t count)
{
	one_host_delete_begin(first, count);
	return one_host_answer();
}

static inline void one_host_pause(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i++)
		host_tick(&host, MS);
}

/* ---- a device that knows what was flushed -------------------------------------------------- */

static uint8_t *one_host_stable; /* what was written before the last flush began */
static uint8_t *one_host_began;  /* what had been written when the flush under way began */

/* Setup of cmocka: an empty device, one context with a store, one client. */
static inline int one_host_stable_boot(void **state)
{
	struct disk_context spec;

	(void)state;
	one_host_stable = calloc(1, HOST_NVME);
	one_host_began = calloc(1, HOST_NVME);
	assert_true(one_host_stable && one_host_began);
	memset(host.disk, 0, HOST_NVME);
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 1);
	assert_true(host_settle(&host, 60));
	return 0;
}

/* The first such action's place in the bag, from 1 on; 0 = there is none. */
static inline uint32_t one_host_waits(enum core_action_kind kind)
{
	for (uint32_t i = 0; i < host.bag_count; i++)
		if (host.bag[i].kind == kind)
			return i + 1;
	return 0;
}

/*
 * One action, or time passes. A flush only when there is no other, so that as much as can be lies
 * in the device's cache; a discard after that, too.
 */
static inline void one_host_step(void)
{
	uint32_t i = 0, sync = one_host_waits(CORE_AC_SYNC);

	while (i < host.bag_count && (host.bag[i].kind == CORE_AC_SYNC ||
				      host.bag[i].kind == CORE_AC_DISCARD))
		i++;
	if (i < host.bag_count) {
		host_carry(&host, i);
	} else if (sync) {
		memcpy(one_host_began, host.disk, HOST_NVME);
		host_carry(&host, sync - 1);
		memcpy(one_host_stable, one_host_began, HOST_NVME);
	} else if (host.bag_count) {
		host_carry(&host, 0);
	} else {
		host_tick(&host, MS);
	}
}

/* Teardown of cmocka, of a test or of a group. */
static inline int one_host_off(void **state)
{
	(void)state;
	host_empty(&host);
	host_halt(&host);
	free(one_host_stable);
	free(one_host_began);
	one_host_stable = one_host_began = NULL;
	return 0;
}

#endif
