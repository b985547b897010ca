/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a store and reading one back: what reaches the device before what, what a device that
 * cannot read or write single sectors costs, or is slow, and what is refused though its checksums
 * are right.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/lock.h"
#include "libtier/base/time.h"
#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/backend/mem_common.h"
#include "tierd/recover.h"

#define STORE_BYTES (64ull << 20)
#define NOWHERE UINT64_MAX
#define OPS 512u
#define SLOW_NS (30 * NS_PER_S)
#define BLOCKS 40u /* of the store that a host has made; several segments of it */

/* The file backend, with sectors that have died, and what it was asked for, by several threads. */
static struct {
	struct lock lock;
	uint64_t unread, unwritten;
	uint64_t slow, slow_ns; /* to read this takes SLOW_NS; what of that has passed */
	struct {
		char kind; /* read, write, flush; d, s, F: a folder, a file, its data were synced */
		uint64_t offset, bytes;
	} op[OPS];
	uint32_t ops;
} bad = { .lock = LOCK_INIT };

static void tell_bytes(char kind, uint64_t offset, uint64_t bytes)
{
	LOCK_SCOPE(&bad.lock);
	if (bad.ops == OPS)
		return;
	bad.op[bad.ops].kind = kind;
	bad.op[bad.ops].bytes = bytes;
	bad.op[bad.ops++].offset = offset;
}

static void tell(char kind, uint64_t offset)
{
	tell_bytes(kind, offset, 0);
}

static int bad_pread(struct drive *d, void *buf, size_t bytes, uint64_t offset)
{
	tell_bytes('r', offset, bytes);
	if (offset == bad.slow)
		atomic_add_relaxed_u64(&bad.slow_ns, SLOW_NS);
	if (offset <= bad.unread && bad.unread < offset + bytes)
		return -EIO;
	return drive_backend(NULL)->pread(d, buf, bytes, offset);
}

static int bad_pwrite(struct drive *d, const void *buf, size_t bytes, uint64_t offset)
{
	tell('w', offset);
	if (offset <= bad.unwritten && bad.unwritten < offset + bytes)
		return -EIO;
	return drive_backend(NULL)->pwrite(d, buf, bytes, offset);
}

static int bad_flush(struct drive *d)
{
	tell('f', 0);
	return drive_backend(NULL)->flush(d);
}

/* In the place of the library's, to see when a file, its name and its data are made durable. */
int fsync(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0)
		tell(S_ISDIR(st.st_mode) ? 'd' : 's', 0);
	return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	tell('F', 0);
	return (int)syscall(SYS_fdatasync, fd);
}

/* ... and for a slow device without waiting for it. */
int clock_gettime(clockid_t id, struct timespec *t)
{
	int rc = (int)syscall(SYS_clock_gettime, id, t);

	if (id == CLOCK_MONOTONIC)
		t->tv_sec += (time_t)(atomic_load_relaxed_u64(&bad.slow_ns) / NS_PER_S);
	return rc;
}

static struct drive_ops ops;

static struct shell *shell_bare(void)
{
	const char *tmp = getenv("TMPDIR");
	struct shell *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	bad.unread = bad.unwritten = bad.slow = NOWHERE;
	bad.ops = 0;
	ops = *drive_backend(NULL);
	ops.pread = bad_pread;
	ops.pwrite = bad_pwrite;
	ops.flush = bad_flush;
	s->drive_ops = &ops;
	s->log.level = LOG_LEVEL_ERROR;
	s->log.fd = open("/dev/null", O_WRONLY | O_CLOEXEC); /* much is wrong here */
	s->config.nvme_buffered = true;
	snprintf(s->config.store_path, sizeof(s->config.store_path), "%.200s/recover-%d",
		 tmp ? tmp : "/tmp", (int)getpid());
	s->drive[0].path = s->config.store_path;
	return s;
}

static struct shell *shell_new(void)
{
	struct shell *s = shell_bare();

	assert_int_equal(recover_store(s, STORE_BYTES), 0);
	recover_store_close(s);
	return s;
}

static int again(struct shell *s)
{
	int rc;

	bad.ops = 0;
	rc = recover_store(s, STORE_BYTES);
	if (rc == 0)
		recover_store_close(s);
	return rc;
}

static void shell_free(struct shell *s)
{
	unlink(s->config.store_path);
	close(s->log.fd);
	free(s);
}

static void test_a_super_block_that_cannot_be_read(void **state)
{
	struct shell *s = shell_new();

	(void)state;
	bad.unread = 0;
	assert_int_equal(again(s), 0);
	/* Not to be written again either: the copy alone will do. */
	bad.unwritten = 0;
	assert_int_equal(again(s), 0);
	bad.unread = DISK_SECTOR;
	assert_int_equal(again(s), 0);
	shell_free(s);
}

/* The newer one may be the one that cannot be read just now: nothing is built upon the older. */
static void test_a_catalog_that_cannot_be_read(void **state)
{
	struct shell *s = shell_new();

	(void)state;
	for (uint32_t slot = 0; slot < 2; slot++) {
		bad.unread = s->core_config.super.catalog_offset +
			     slot * s->core_config.super.catalog_bytes;
		assert_int_equal(again(s), -EIO);
	}
	bad.unread = NOWHERE;
	assert_int_equal(again(s), 0);
	shell_free(s);
}

static void sector_at(const struct shell *s, uint64_t at, void *sector, bool write)
{
	int fd = open(s->config.store_path, O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(write ? pwrite(fd, sector, DISK_SECTOR, (off_t)at) :
				 pread(fd, sector, DISK_SECTOR, (off_t)at), DISK_SECTOR);
	close(fd);
}

static void slot_at(const struct shell *s, uint32_t slot, void *sector, bool write)
{
	sector_at(s, s->core_config.super.catalog_offset +
			     slot * s->core_config.super.catalog_bytes, sector, write);
}

/* A slot has room for many contexts; what those in it take is read, and no more. */
static uint64_t catalog_read(const struct shell *s)
{
	const struct disk_super *super = &s->core_config.super;
	uint64_t end = super->catalog_offset + 2 * super->catalog_bytes, bytes = 0;

	for (uint32_t i = 0; i < bad.ops; i++)
		if (bad.op[i].kind == 'r' && bad.op[i].offset >= super->catalog_offset &&
		    bad.op[i].offset < end)
			bytes += bad.op[i].bytes;
	return bytes;
}

/* D6: a catalog is taken only from the slot that its number belongs into; of one of which a crash
 * left a part the head is voided, before the next one is written there. */
static void test_slots_of_the_catalog(void **state)
{
	uint8_t good[DISK_SECTOR], torn[DISK_SECTOR], zero[DISK_SECTOR] = { 0 };
	struct shell *s = shell_new();

	(void)state;
	slot_at(s, 1, good, false);
	memcpy(torn, good, sizeof(torn));
	torn[100] ^= 1;
	slot_at(s, 0, torn, true);
	assert_int_equal(again(s), 0);
	/* For good: that it has gone is flushed before anything is built upon it. */
	assert_int_equal(bad.op[bad.ops - 3].kind, 'w');
	assert_int_equal(bad.op[bad.ops - 3].offset, s->core_config.super.catalog_offset);
	assert_true(bad.op[bad.ops - 2].kind == 'f' && bad.op[bad.ops - 1].kind == 'F');
	slot_at(s, 0, torn, false);
	assert_memory_equal(torn, zero, sizeof(zero));
	slot_at(s, 0, good, true);
	slot_at(s, 1, zero, true);
	assert_int_equal(again(s), -EBADMSG);
	slot_at(s, 1, good, true);
	assert_int_equal(again(s), 0);
	assert_int_equal(catalog_read(s), 2 * DISK_SECTOR);
	shell_free(s);
}

static void catalog_put(const struct shell *s, struct disk_catalog head)
{
	uint8_t *sector = aligned_alloc(DISK_SECTOR, DISK_SECTOR);

	assert_int_equal(disk_catalog_seal(sector, DISK_SECTOR, &head, NULL, NULL), DISK_SECTOR);
	slot_at(s, head.sequence & 1, sector, true);
	free(sector);
}

/* The newer one's numbers go on; one of another store says nothing, however new it is. */
static void test_which_catalog_counts(void **state)
{
	struct shell *s = shell_new();
	struct disk_catalog head = { .magic = DISK_CATALOG_MAGIC, .version = DISK_VERSION,
				     .store_id = s->core_config.super.store_id, .sequence = 2,
				     .next_uid = 7 };

	(void)state;
	assert_int_equal(again(s), 0);
	assert_int_equal(s->core_config.catalog_sequence, 1);
	assert_int_equal(s->core_config.next_uid, 1);
	catalog_put(s, head);
	assert_int_equal(again(s), 0);
	assert_int_equal(s->core_config.catalog_sequence, 2);
	assert_int_equal(s->core_config.next_uid, 7);
	head.store_id++;
	head.sequence = 3;
	head.next_uid = 9;
	catalog_put(s, head);
	assert_int_equal(again(s), 0);
	assert_int_equal(s->core_config.catalog_sequence, 2);
	assert_int_equal(s->core_config.next_uid, 7);
	shell_free(s);
}

/* Whoever sealed it: numbers that fit nothing are refused, in both copies. */
static void test_super_blocks_that_contradict_themselves(void **state)
{
	struct shell *s = shell_new();
	const struct disk_super good = s->core_config.super;
	uint8_t sector[DISK_SECTOR];

	(void)state;
	sector_at(s, 0, sector, false);
	for (uint32_t i = 0; i < 4; i++) {
		struct disk_super wrong = good;

		wrong.summary_bytes = i == 0 ? wrong.segment_bytes : wrong.summary_bytes;
		wrong.segment_bytes -= i == 1 ? DISK_SECTOR / 2 : 0;
		wrong.catalog_offset = i == 2 ? DISK_SECTOR : wrong.catalog_offset;
		wrong.segment_offset = i == 3 ? wrong.catalog_offset : wrong.segment_offset;
		disk_super_seal(&wrong);
		memcpy(sector, &wrong, sizeof(wrong));
		sector_at(s, 0, sector, true);
		sector_at(s, DISK_SECTOR, sector, true);
		assert_true(again(s) < 0);
	}
	memcpy(sector, &good, sizeof(good));
	sector_at(s, 0, sector, true);
	assert_int_equal(again(s), 0);
	assert_int_equal(s->core_config.capacity[ABI_TIER_NVME],
			 good.segment_count * (good.segment_bytes - good.summary_bytes));
	shell_free(s);
}

/* ---- a new one ------------------------------------------------------------------------------- */

/* The first write to one of the super blocks, the last of anything before it, and the last one. */
static void super_writes(uint32_t *before, uint32_t *first, uint32_t *last)
{
	*before = *first = *last = OPS;
	for (uint32_t i = 0; i < bad.ops; i++) {
		if (bad.op[i].kind != 'w')
			continue;
		if (bad.op[i].offset > DISK_SECTOR) {
			*before = *first == OPS ? i : *before;
			continue;
		}
		*first = *first == OPS ? i : *first;
		*last = i;
	}
}

static bool has(char kind, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to && i < bad.ops; i++)
		if (bad.op[i].kind == kind)
			return true;
	return false;
}

/* The super block speaks of what is there, and the file has its name when that is on the medium. */
static void test_a_new_store_is_made_in_order(void **state)
{
	struct shell *s = shell_new();
	uint64_t id = s->core_config.super.store_id;
	uint32_t before, first, last;

	(void)state;
	super_writes(&before, &first, &last);
	assert_true(before < first && first < last && last < OPS);
	assert_true(has('s', 0, before)); /* its size is its own */
	assert_true(has('f', before, first) && has('F', before, first));
	assert_true(bad.op[last + 1].kind == 'f' && bad.op[last + 2].kind == 'F');
	assert_true(has('d', last, bad.ops));
	assert_true(id != 0);
	unlink(s->config.store_path);
	assert_int_equal(again(s), 0); /* another one, at the same place */
	assert_true(s->core_config.super.store_id != id);
	shell_free(s);
}

static int open_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* Nothing is left of a store that could not be made; that there was one before is no matter. */
static void test_a_failed_format_leaves_nothing(void **state)
{
	struct shell *s = shell_new();
	uint64_t id = s->core_config.super.store_id;
	char path[CONFIG_PATH_BYTES + 8];
	int fds = open_fds();

	(void)state;
	s->options.format = true;
	snprintf(path, sizeof(path), "%s.new", s->config.store_path);
	bad.unwritten = 0;
	assert_int_equal(again(s), -EIO);
	assert_int_not_equal(access(path, F_OK), 0);
	s->options.format = false;
	bad.unwritten = NOWHERE;
	assert_int_equal(again(s), 0);
	assert_int_equal(s->core_config.super.store_id, id);
	s->options.format = true;
	assert_int_equal(again(s), 0);
	assert_true(s->core_config.super.store_id != id);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(open_fds(), fds);
	shell_free(s);
}

/* The size that is asked for now counts; one that is at it is not disturbed. */
static void test_what_a_killed_format_left(void **state)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct shell *s = shell_new();
	char path[CONFIG_PATH_BYTES + 8];
	struct stat st;
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s.new", s->config.store_path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 2 * STORE_BYTES), 0);
	s->options.format = true;
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &whole), 0);
	assert_int_equal(again(s), -EBUSY);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 2 * STORE_BYTES);
	close(fd);
	assert_int_equal(again(s), 0);
	assert_int_equal(stat(s->config.store_path, &st), 0);
	assert_int_equal(st.st_size, STORE_BYTES);
	assert_int_not_equal(access(path, F_OK), 0);
	shell_free(s);
}

/* ---- what a daemon has stored ---------------------------------------------------------------- */

/* A host's store, as a file. */
static void image_write(const char *path)
{
	const struct abi_put_args args = { .count = 1 };
	struct disk_context spec;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	memset(host.disk, 0, HOST_NVME);
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 1);
	for (uint32_t n = 0; n < BLOCKS; n++) {
		assert_int_equal(host_reserve(&host, &args, n, ABI_SQE_DURABLE), 0);
		assert_true(host_commit(&host, ABI_SQE_DURABLE));
		assert_true(host_settle(&host, 60));
	}
	memcpy(host.disk, &host.super, sizeof(host.super));
	memcpy(host.disk + DISK_SECTOR, &host.super, sizeof(host.super));
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, host.disk, HOST_NVME, 0), HOST_NVME);
	close(fd);
	host_empty(&host);
	host_halt(&host);
}

/* A shell as startup.c has it before the contexts of the store are made. */
static struct shell *shell_of_image(void)
{
	struct shell *s = shell_bare();

	image_write(s->config.store_path);
	s->mem[ABI_TIER_HBM] = &mem_host;
	s->mem[ABI_TIER_CXL] = &mem_cxl_memfd;
	return s;
}

static void shell_open(struct shell *s)
{
	bad.ops = 0;
	assert_int_equal(recover_store(s, HOST_NVME), 0);
	s->core_config.capacity[ABI_TIER_HBM] = HOST_HBM;
	s->core_config.capacity[ABI_TIER_CXL] = HOST_CXL;
	assert_int_equal(memory_open(&s->memory, s->mem), 0);
	assert_int_equal(core_open(&s->core, &s->core_config), 0);
	memset(&s->obs.recovery, 0, sizeof(s->obs.recovery));
}

static void shell_close(struct shell *s)
{
	core_close(s->core);
	memory_close(s->memory);
	recover_store_close(s);
}

static uint64_t segment_at(const struct shell *s, uint32_t segment)
{
	const struct disk_super *super = &s->core_config.super;

	return super->segment_offset + segment * super->segment_bytes;
}

/* Each summary is read, once, and not before what was written is on the medium for sure. */
static void test_what_was_stored_comes_back(void **state)
{
	struct shell *s = shell_of_image();
	uint32_t reads = 0, first = OPS;

	(void)state;
	shell_open(s);
	assert_int_equal(recover_contexts(s), 0);
	bad.ops = 0;
	assert_int_equal(recover_segments(s), 0);
	assert_int_equal(s->obs.recovery.blocks, BLOCKS);
	assert_int_equal(bad.op[0].kind, 'f');
	for (uint32_t segment = 0; segment < HOST_SEGMENTS; segment++)
		for (uint32_t i = 0; i < bad.ops; i++)
			if (bad.op[i].kind == 'r' && bad.op[i].offset == segment_at(s, segment)) {
				first = i < first ? i : first;
				reads++;
			}
	assert_int_equal(reads, HOST_SEGMENTS);
	assert_true(has('f', 0, first));
	shell_close(s);
	shell_free(s);
}

/* Its blocks are a loss, those of others are not, and no other's are taken for its own. */
static void test_a_segment_that_cannot_be_read(void **state)
{
	struct shell *s = shell_of_image();
	uint64_t segments, lost = 0, without = 0;

	(void)state;
	shell_open(s);
	assert_int_equal(recover_contexts(s), 0);
	assert_int_equal(recover_segments(s), 0);
	segments = s->obs.recovery.segments;
	assert_true(segments > 2);
	shell_close(s);
	for (uint32_t i = 0; i < HOST_SEGMENTS; i++) {
		shell_open(s);
		assert_int_equal(recover_contexts(s), 0);
		bad.unread = segment_at(s, i);
		assert_int_equal(recover_segments(s), 0);
		bad.unread = NOWHERE;
		lost += BLOCKS - s->obs.recovery.blocks;
		without += segments - s->obs.recovery.segments;
		shell_close(s);
	}
	assert_int_equal(lost, BLOCKS);
	assert_int_equal(without, segments);
	shell_free(s);
}

/* One sector costs what lies in it: of the records of a segment none that is elsewhere. */
static void test_a_sector_that_cannot_be_read(void **state)
{
	struct shell *s = shell_of_image();
	uint64_t sectors, lost = 0;

	(void)state;
	shell_open(s);
	sectors = s->core_config.super.summary_bytes / DISK_SECTOR;
	shell_close(s);
	for (uint64_t i = 1; i < sectors; i++) { /* the first is the segment's header */
		shell_open(s);
		assert_int_equal(recover_contexts(s), 0);
		bad.unread = segment_at(s, 0) + i * DISK_SECTOR;
		assert_int_equal(recover_segments(s), 0);
		bad.unread = NOWHERE;
		assert_in_range(BLOCKS - s->obs.recovery.blocks, 0, 1);
		lost += BLOCKS - s->obs.recovery.blocks;
		shell_close(s);
	}
	assert_true(lost > 0);
	shell_free(s);
}

/* A service manager, by a name that needs no file. */
static int manager_open(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), n;

	n = snprintf(at.sun_path, sizeof(at.sun_path), "@tier-recover-%d", (int)getpid());
	setenv("NOTIFY_SOCKET", at.sun_path, 1);
	at.sun_path[0] = '\0';
	assert_int_equal(bind(fd, (struct sockaddr *)&at,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)), 0);
	return fd;
}

static void manager_close(int fd)
{
	unsetenv("NOTIFY_SOCKET");
	close(fd);
}

/* It would end a daemon that does not come up: told that it goes on, and asked for time. */
static void test_a_long_recovery_asks_for_time(void **state)
{
	struct shell *s;
	char text[512];
	const char *more;
	ssize_t n;
	int manager;

	(void)state;
	if (!TIER_HAVE_SYSTEMD)
		skip();
	s = shell_of_image();
	manager = manager_open();
	shell_open(s);
	assert_int_equal(recover_contexts(s), 0);
	bad.slow = segment_at(s, HOST_SEGMENTS / 2);
	assert_int_equal(recover_segments(s), 0);
	n = recv(manager, text, sizeof(text) - 1, 0);
	assert_true(n > 0);
	text[n] = '\0';
	assert_non_null(strstr(text, "STATUS=recovering: segment"));
	more = strstr(text, "EXTEND_TIMEOUT_USEC=");
	assert_non_null(more);
	/* It is told each second; a segment that takes as long as this one must not be the end. */
	assert_true(strtoull(strchr(more, '=') + 1, NULL, 10) >= SLOW_NS / NS_PER_US);
	shell_close(s);
	shell_free(s);
	manager_close(manager);
}

/* The next catalog names it as it was, and the others serve. */
static void test_a_context_that_cannot_be_made_is_set_aside(void **state)
{
	struct shell *s = shell_of_image();
	struct disk_context broken[2], kept;
	struct core_context_stats stats;
	int64_t id;

	(void)state;
	for (uint32_t which = 0; which < 3; which++) {
		shell_open(s);
		assert_int_equal(s->catalog.count, 1);
		broken[0] = broken[1] = s->catalog.context[0];
		broken[1].uid++;
		snprintf(broken[1].name, sizeof(broken[1].name), "another");
		if (which == 0)
			broken[0].geometry.pages_per_block++;
		else if (which == 1)
			broken[0].geometry.part[0].reserved[0] = 1;
		else
			snprintf(broken[0].policy, sizeof(broken[0].policy), "nobody's");
		s->catalog.context = broken;
		s->catalog.count = 2;
		assert_int_equal(recover_contexts(s), 0);
		id = core_context_next(s->core, UINT32_MAX);
		assert_true(id >= 0);
		assert_int_equal(core_context_stats(s->core, (uint32_t)id, &stats), 0);
		assert_string_equal(stats.spec.name, "another");
		assert_int_equal(core_context_next(s->core, (uint32_t)id), -ENOENT);
		assert_int_equal(s->obs.asides, 1);
		assert_string_equal(s->obs.aside[0].name, broken[0].name);
		assert_true(s->obs.aside[0].error < 0 && s->obs.aside[0].why[0]);
		assert_int_equal(core_aside_at(s->core, 0, &kept), 0);
		assert_memory_equal(&kept, &broken[0], sizeof(kept));
		assert_int_equal(core_aside_at(s->core, 1, &kept), -ENOENT);
		free(s->obs.aside);
		s->obs.aside = NULL;
		s->obs.asides = 0;
		shell_close(s);
	}
	shell_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_super_block_that_cannot_be_read),
		cmocka_unit_test(test_a_catalog_that_cannot_be_read),
		cmocka_unit_test(test_slots_of_the_catalog),
		cmocka_unit_test(test_which_catalog_counts),
		cmocka_unit_test(test_super_blocks_that_contradict_themselves),
		cmocka_unit_test(test_a_new_store_is_made_in_order),
		cmocka_unit_test(test_a_failed_format_leaves_nothing),
		cmocka_unit_test(test_what_a_killed_format_left),
		cmocka_unit_test(test_what_was_stored_comes_back),
		cmocka_unit_test(test_a_segment_that_cannot_be_read),
		cmocka_unit_test(test_a_sector_that_cannot_be_read),
		cmocka_unit_test(test_a_long_recovery_asks_for_time),
		cmocka_unit_test(test_a_context_that_cannot_be_made_is_set_aside),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
