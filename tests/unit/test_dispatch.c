/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the core and a device that is full, refuses or lies: operations that found no room go in
 * their order, each of them ends once, whatever becomes of it, and what it ended with is what the
 * core is told. The device is a queue here, its bytes and the core are real.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/backend/mem_common.h"
#include "tierd/core/state.h"
#include "tierd/shell.h"

#define BLOCKS 40u
#define QUEUE 256u
#define SHORT_BYTES 512

/* What the device was given, and what it says to more. */
static struct {
	struct core_io *io[QUEUE]; /* NULL: a flush */
	uint64_t token[QUEUE];
	uint32_t count, done;
	uint32_t room; /* operations until it is full */
	uint32_t full; /* so many times it says that it is, and has room */
	int refuses;   /* instead of taking one; 0 = it does not */
} device;

static struct shell *s;
static char socket_path[108];

static int give(struct core_io *io, uint64_t token)
{
	if (!device.room || device.full) {
		device.full -= device.full > 0;
		return -EAGAIN;
	}
	if (device.refuses)
		return device.refuses;
	assert_true(device.count < QUEUE);
	device.room--;
	device.io[device.count] = io;
	device.token[device.count++] = token;
	return 0;
}

static int queue_submit(struct drive *d, struct io_uring *ring, struct core_io *io)
{
	(void)d;
	(void)ring;
	return give(io, 0);
}

static int queue_submit_flush(struct drive *d, struct io_uring *ring, uint64_t token)
{
	(void)d;
	(void)ring;
	return give(NULL, token);
}

/* data: which of them; a read or write is carried out on the host's device. */
static struct core_io *queue_complete(struct drive *d, struct io_uring *ring, uint64_t data,
				      int *res, uint64_t *token)
{
	struct core_io *io = device.io[data];
	uint8_t *at = io ? host.disk + io->offset : NULL;

	(void)d;
	(void)ring;
	*token = device.token[data];
	for (uint32_t i = 0; io && *res >= 0 && i < io->piece_count; i++) {
		struct core_io_piece *p = &io->piece[i];

		memcpy(io->write ? at : (uint8_t *)p->addr,
		       io->write ? (uint8_t *)p->addr : at, p->bytes);
		at += p->bytes;
	}
	if (io)
		io->res = *res < 0 ? *res : (int32_t)io->bytes - *res;
	return io;
}

static bool queue_owns(const struct drive *d, uint64_t data)
{
	(void)d;
	(void)data;
	return true;
}

static struct drive_ops queue;

/* A host whose core has blocks on its device alone, in the hands of a shell. */
static int begin(void **state)
{
	const struct abi_put_args args = { .count = BLOCKS };
	struct front_config front = { .socket = socket_path, .socket_mode = 0600,
				      .clients_max = 4, .staging_max = HOST_STAGING };
	const char *tmp = getenv("TMPDIR");
	struct disk_context spec;

	(void)state;
	memset(&device, 0, sizeof(device));
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 1);
	assert_int_equal(host_reserve(&host, &args, 0, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_true(host_settle(&host, 60));
	core_evict(host.core, host.context[0].id, ABI_TIER_CXL, 1u << 30, 0);
	host_look(&host);
	assert_true(host_settle(&host, 60));
	s = calloc(1, sizeof(*s));
	assert_non_null(s);
	queue = *drive_backend(NULL);
	queue.submit = queue_submit;
	queue.submit_flush = queue_submit_flush;
	queue.owns = queue_owns;
	queue.complete = queue_complete;
	s->drive_ops = &queue;
	s->core = s->obs.core = front.core = host.core;
	s->mem[ABI_TIER_HBM] = &mem_host;
	s->mem[ABI_TIER_CXL] = &mem_cxl_memfd;
	s->log.level = LOG_LEVEL_ERROR;
	s->log.fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	s->loop.turn = (struct turn){ .core = host.core, .now_ns = host.now_ns };
	assert_int_equal(io_uring_queue_init(4, &s->loop.ring, 0), 0);
	assert_int_equal(worker_open(&s->workers, 1, s->loop.fd[0] = eventfd(0, EFD_CLOEXEC)), 0);
	assert_int_equal(memory_open(&s->memory, s->mem), 0);
	snprintf(socket_path, sizeof(socket_path), "%s/tier-dispatch-%d", tmp ? tmp : "/tmp",
		 (int)getpid());
	front.obs = &s->obs;
	front.log = &s->log;
	front.ops = &shell_front_ops;
	front.shell = s;
	assert_int_equal(front_open(&s->front, &front), 0);
	return 0;
}

/* One turn of the loop, so long after the one before. */
static void turn_after(uint64_t ns)
{
	s->loop.turn.now_ns += ns;
	s->loop.turn.ticked = false;
	s->dispatch.verify_bytes = 0;
	turn_tick(&s->loop.turn);
	dispatch_landed(s);
	dispatch_jobs(s);
	dispatch_actions(s);
}

static void turn(void)
{
	turn_after(MS);
}

/* Ends all that the device has: 0, an error, or so many bytes short. */
static void complete_all(int res)
{
	while (device.done < device.count)
		dispatch_completion(s, device.done++, res);
	turn();
}

#define CALM 200u          /* turns in which nothing is under way */
#define PATIENCE 60000u    /* looks, a millisecond apart, at jobs that are */

/* Until nothing is under way and the device is asked for nothing more. While a worker is at it the
 * clock stands: however long that takes here, no deadline passes. */
static void settle(void)
{
	uint32_t calm = 0;

	device.room = QUEUE;
	device.refuses = 0;
	for (uint32_t i = 0; calm < CALM && i < PATIENCE; i++) {
		bool idle;

		while (device.done < device.count)
			dispatch_completion(s, device.done++, 0);
		idle = dispatch_idle(s);
		turn_after(idle ? MS : 0);
		calm += idle;
		usleep(idle ? 0 : 1000);
	}
	host.now_ns = s->loop.turn.now_ns;
}

static int end(void **state)
{
	settle(); /* also after a failure */
	front_close(s->front);
	memory_close(s->memory);
	worker_close(s->workers);
	io_uring_queue_exit(&s->loop.ring);
	close(s->loop.fd[0]);
	close(s->log.fd);
	unlink(socket_path);
	free(s);
	return one_host_off(state);
}

static void fetch(uint32_t first, uint32_t count)
{
	struct core_event e = { .kind = CORE_EV_REQUEST };

	for (uint32_t i = 0; i < count; i++)
		host_key(first + i, host.client[0].staging + (size_t)i * ABI_KEY_BYTES);
	e.request.sqe = (struct abi_sqe){ .op = ABI_OP_FETCH, .flags = ABI_SQE_KEYS,
					  .tier = ABI_TIER_CXL, .count = count,
					  .context_id = host.context[0].id,
					  .arg_bytes = count * ABI_KEY_BYTES };
	turn_feed(&s->loop.turn, &e);
	dispatch_actions(s);
}

static uint32_t there(void)
{
	const struct context *x = core_context(host.core, host.context[0].id);

	return (uint32_t)x->pages_resident[ABI_TIER_CXL];
}

static void test_a_full_ring_keeps_the_order(void **state)
{
	uint32_t waiting;

	(void)state;
	for (uint32_t n = 0; n < 4; n++)
		fetch(8 * n, 4); /* apart: no operation is for two of them */
	assert_int_equal(device.count, 0);
	waiting = s->dispatch.deferred_tail - s->dispatch.deferred_head;
	assert_true(waiting >= 4);
	/* There is room again, just after who waits has asked for it: he goes first still. */
	device.room = waiting / 2;
	device.full = 2;
	fetch(36, 2);
	assert_int_equal(device.count, 0);
	turn();
	assert_int_equal(device.count, waiting / 2);
	device.room = QUEUE;
	turn();
	assert_true(device.count > waiting);
	for (uint32_t i = 0; i < waiting; i++)
		assert_ptr_equal(device.io[i], s->dispatch.deferred[i].io);
	settle();
	assert_int_equal(there(), 18 * 4);
	assert_int_equal(s->dispatch.ios, 0);
}

/* At once, or after it had waited: the core is told, and nothing is counted as under way. */
static void test_what_is_refused_ends(void **state)
{
	(void)state;
	for (uint32_t late = 0; late < 2; late++) {
		device.room = late ? 0 : QUEUE;
		device.refuses = -EIO;
		fetch(0, 8);
		assert_int_equal(s->dispatch.ios > 0, late);
		device.room = QUEUE;
		turn();
		assert_int_equal(s->dispatch.ios, 0);
		assert_int_equal(host.core->actions.ios, 0);
		assert_true(dispatch_idle(s));
		assert_int_equal(there(), 0);
	}
	settle();
	fetch(0, 8);
	settle();
	assert_int_equal(there(), 8 * 4);
}

/* Too little of a good block: it is not there, and not rotten either. */
static void test_a_short_read_is_no_rot(void **state)
{
	uint8_t key[ABI_KEY_BYTES];

	(void)state;
	device.room = QUEUE;
	fetch(0, 8);
	assert_true(device.count > 0);
	complete_all(SHORT_BYTES);
	assert_int_equal(there(), 0);
	for (uint32_t n = 0; n < 8; n++) {
		host_key(n, key);
		assert_true(index_find(&core_context(host.core, host.context[0].id)->ix, key) !=
			    ABI_SLOT_NONE);
	}
	fetch(0, 8);
	settle();
	assert_int_equal(there(), 8 * 4);
}

#define DEVICE_MS 20u

/* The device takes so long, at least; returns the time that it took here. */
static uint64_t let_it_take(void)
{
	uint64_t from = time_now_ns();

	usleep(DEVICE_MS * 1000);
	return time_now_ns() - from;
}

static const struct hist *latency_of(const char *name, const char *klass)
{
	for (uint32_t i = 0; i < s->obs.latencies; i++)
		if (!strcmp(s->obs.latency[i].name, name) &&
		    (klass ? s->obs.latency[i].klass && !strcmp(s->obs.latency[i].klass, klass)
			   : !s->obs.latency[i].klass))
			return s->obs.latency[i].hist;
	fail_msg("no latency of %s", name);
	return NULL;
}

/* What the operator is told a read or a flush took is what it took, under the name that it has. */
static void test_what_takes_how_long(void **state)
{
	uint64_t begun = time_now_ns(), waited;
	const struct hist *h;

	(void)state;
	dispatch_describe(s);
	device.room = QUEUE;
	fetch(0, 4);
	assert_true(device.count > 0);
	waited = let_it_take();
	complete_all(0);
	h = latency_of("read", "demand");
	assert_int_equal(h->count, 1);
	assert_true(h->max >= waited && h->max <= time_now_ns() - begun);
	assert_int_equal(latency_of("read", "speculative")->count, 0);
	assert_int_equal(latency_of("copy", "demand")->count, 0);
	settle();
	device.count = device.done = 0;
	sync_want(host.core->drive[0]);
	turn();
	waited = let_it_take();
	complete_all(0);
	h = latency_of("flush", NULL);
	assert_true(h->count > 0);
	assert_true(h->max >= waited && h->max <= time_now_ns() - begun);
}

/* The core hears of a flush that failed, and of one that was refused. */
static void test_a_flush_that_fails(void **state)
{
	(void)state;
	for (uint32_t refused = 0; refused < 2; refused++) {
		uint32_t flushes = 0;

		settle();
		assert_int_equal(host.core->drive[0]->flush_failures, 0);
		device.count = device.done = 0;
		sync_want(host.core->drive[0]);
		device.refuses = refused ? -EIO : 0;
		turn();
		for (uint32_t i = 0; i < device.count; i++)
			flushes += device.token[i] != 0;
		assert_int_equal(flushes, !refused);
		complete_all(-EIO);
		assert_int_equal(host.core->drive[0]->flush_failures, 1);
		assert_int_equal(s->dispatch.ios, 0);
		device.count = device.done = 0;
	}
	settle();
}

/* A region of the shell's for the context, of the size of the core's, and all of it resident. */
static const struct mem_region *back(void)
{
	struct core_context_plan plan = {
		.index_bytes = ABI_HUGE,
		.mem_bytes[ABI_TIER_CXL] = host.context[0].mem_bytes[ABI_TIER_CXL],
	};
	const struct disk_context spec = { .name = "dispatch" };
	struct context_memory *made;

	assert_int_equal(memory_make(s->memory, &spec, &plan, &made), 0);
	memory_adopt(s->memory, host.context[0].id, made, s->workers);
	memset(made->mem[ABI_TIER_CXL].addr, 1, made->mem[ABI_TIER_CXL].bytes);
	return &made->mem[ABI_TIER_CXL];
}

/* All blocks leave, and their memory with them, in ten seconds. */
static void give_all_back(void)
{
	core_evict(host.core, host.context[0].id, ABI_TIER_CXL, 1u << 30, 0);
	for (uint32_t i = 0; i < 100; i++) {
		s->loop.turn.now_ns += 1000 * MS;
		turn();
	}
}

/* However much is given back at a time: copies and reads find their jobs, and it is given back. */
static void test_punches_leave_jobs_to_copies(void **state)
{
	const uint32_t kept = CORE_IO_MAX + CORE_COPIES_MAX;
	struct job *held[WORKER_JOBS_MAX];
	const struct mem_region *region;
	uint32_t count = 0;
	int64_t full;

	(void)state;
	fetch(0, BLOCKS);
	settle();
	region = back();
	full = mem_cxl_memfd.resident(region);
	while (worker_jobs_free(s->workers) > kept)
		held[count++] = worker_job(s->workers);
	give_all_back();
	assert_int_equal(worker_jobs_free(s->workers), kept);
	assert_true(mem_cxl_memfd.resident(region) < full);
	assert_int_equal(host.core->evict.punching[ABI_TIER_CXL], 0);
	while (count > 0)
		worker_put(s->workers, held[--count]);
}

/* Huge pages of an index are not urgent: while jobs are short the core is told to ask again. */
static void test_an_index_waits_for_jobs(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);
	struct index_area area = index_area(&x->ix, 1);
	struct job *held[WORKER_JOBS_MAX];
	struct core_action *a;
	uint32_t count = 0;

	(void)state;
	back();
	while (worker_jobs_free(s->workers) > 0)
		held[count++] = worker_job(s->workers);
	x->index_ready[1] = area.end;
	a = core_push(host.core, CORE_AC_PREPARE);
	a->range = (struct core_range){ .context_id = x->id, .tier = CORE_RANGE_INDEX,
					.offset = area.begin, .bytes = ABI_HUGE };
	dispatch_actions(s);
	assert_int_equal(x->index_ready[1], area.begin);
	x->index_ready[1] = 0;
	while (count > 0)
		worker_put(s->workers, held[--count]);
}

static void prepare_job(const struct mem_region *region, uint64_t offset)
{
	struct job *job = worker_job(s->workers);

	assert_non_null(job);
	job->kind = JOB_PREPARE;
	job->klass = ABI_CLASS_DEMAND;
	job->brief = true;
	job->ops = &mem_cxl_memfd;
	job->region = region;
	job->range = (struct core_range){ .context_id = host.context[0].id,
					  .tier = ABI_TIER_CXL,
					  .offset = offset,
					  .bytes = PREPARE_AREA };
	worker_submit(s->workers, job);
}

/* Backed late, given back early: nothing is left that belongs to nobody. */
static void test_a_punch_waits_for_what_is_being_backed(void **state)
{
	const uint32_t *punching = &host.core->evict.punching[ABI_TIER_CXL];
	const struct mem_region *region;
	int64_t full;

	(void)state;
	fetch(0, BLOCKS);
	settle();
	region = back();
	full = mem_cxl_memfd.resident(region);
	for (uint64_t at = 0; at < region->bytes; at += PREPARE_AREA)
		assert_true(prepare_begin(&s->dispatch.prepare,
					  (uint8_t *)region->addr + at)); /* taking long */
	give_all_back();
	for (uint32_t i = 0; i < 60000 && !dispatch_idle(s); i++) { /* all but what is held */
		turn();
		usleep(1000);
	}
	assert_true(*punching > 0);
	assert_true(mem_cxl_memfd.resident(region) == full);
	for (uint64_t at = 0; at < region->bytes; at += PREPARE_AREA)
		prepare_job(region, at);
	for (uint32_t i = 0; i < 60000 && (*punching || !dispatch_idle(s)); i++) {
		turn();
		usleep(1000);
	}
	assert_int_equal(*punching, 0);
	assert_true(mem_cxl_memfd.resident(region) < full);
}

static uint32_t open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* What the core does not take is not mapped, and nothing of it is left open. */
static void test_memory_of_a_context_that_is_refused(void **state)
{
	uint32_t before = open_descriptors(), id;
	char why[FRONT_WHY_BYTES] = "";
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0); /* that one is there */
	assert_int_equal(shell_context_make(s, &spec, 1, &id, why), -EEXIST);
	assert_int_not_equal(strlen(why), 0);
	assert_int_equal(open_descriptors(), before);
}

struct look {
	struct obs_recount out;
	char told[1024];
};

static void take(void *told, const char *what)
{
	size_t used = strlen(told);

	snprintf((char *)told + used, sizeof(((struct look *)0)->told) - used, "%s\n", what);
}

static const struct look *recount(void)
{
	static struct look look;

	look.told[0] = '\0';
	recount_host(s, &look.out, take, look.told);
	return &look;
}

/* Memory that carries a context's name and is no context's: open for writing, then mapped, too. */
static void test_stray_memory_is_found(void **state)
{
	static const char *const open_ones = "0 memory regions of contexts, and 1 descriptors";
	static const char *const mapped = "have 0 bytes of address space, and 2097152 are mapped";
	const struct look *look = recount();
	void *map;
	int fd;

	(void)state;
	assert_int_equal(look->out.regions + look->out.descriptors + look->out.mapped, 0);
	fd = memfd_create("tier-cxl-stray", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, ABI_HUGE), 0);
	look = recount();
	assert_non_null(strstr(look->told, open_ones));
	assert_null(strstr(look->told, mapped));
	map = mmap(NULL, ABI_HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	close(fd);
	look = recount();
	assert_null(strstr(look->told, open_ones));
	assert_non_null(strstr(look->told, mapped));
	munmap(map, ABI_HUGE);
	assert_null(strstr(recount()->told, mapped));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		CASE(test_a_full_ring_keeps_the_order),
		CASE(test_what_is_refused_ends),
		CASE(test_a_short_read_is_no_rot),
		CASE(test_what_takes_how_long),
		CASE(test_a_flush_that_fails),
		CASE(test_punches_leave_jobs_to_copies),
		CASE(test_a_punch_waits_for_what_is_being_backed),
		CASE(test_memory_of_a_context_that_is_refused),
		CASE(test_stray_memory_is_found),
		CASE(test_an_index_waits_for_jobs),
	};

	return cmocka_run_group_tests_name("dispatch", tests, one_host, NULL);
}
