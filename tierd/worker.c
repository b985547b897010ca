/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of copy threads; see worker.h. No lock is held anywhere:
 *
 *   loop -> workers   one ring a class; one producer, a consumer takes by compare-and-swap. A ring
 *                     holds as many entries as there are jobs, so it is never full.
 *   workers -> loop   one stack, taken whole by an exchange: no ABA.
 *
 * Either side sleeps by the same rule: announce it, full fence, look once more, sleep; the other
 * side: publish, full fence, read the announcement.
 */
#include "tierd/worker.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/crc32c.h"
#include "libtier/base/time.h"
#include "tierd/fault.h"

#define BRIEF_QUEUE 0u /* the others are those of the classes, */
#define PATIENT_QUEUE (ABI_CLASS_COUNT + 1u) /* ... and this one */
#define QUEUES (PATIENT_QUEUE + 1u)
#define THREADS_OWN 2u /* beside those that copy */
#define SLICE_NS (100 * NS_PER_US) /* the shortest that the kernel knows */
#define SMALL_PAGE 4096u
#define SPINS 64u /* looks at the queues before a worker sleeps: a few microseconds */

struct queue {
	uint64_t head __attribute__((aligned(64))); /* taken by compare-and-swap */
	uint64_t tail __attribute__((aligned(64))); /* the loop's */
	uint32_t slot[WORKER_JOBS_MAX];
};

struct worker_pool {
	struct queue queue[QUEUES]; /* in order of urgency */
	/* shared by loop and workers */
	uint32_t done __attribute__((aligned(64))); /* 1 + index of the last finished job */
	uint32_t loop_sleeps;
	uint32_t sleepers __attribute__((aligned(64)));
	uint32_t wake; /* futex word: raised to wake copy threads */
	uint32_t brief_sleeps;
	uint32_t brief_wake; /* likewise, for the one that does what is brief, */
	uint32_t patient_sleeps;
	uint32_t patient_wake; /* ... and for the one with patience */
	uint32_t stop;
	/* the loop's */
	uint32_t reaped __attribute__((aligned(64))); /* finished jobs in order: 1 + index */
	uint32_t submitted, brief, patient;           /* since the last kick */
	uint32_t free_count;
	uint64_t number;
	struct list free;
	struct list in_flight; /* by number */
	int wake_fd;
	uint32_t thread_count;
	pthread_t *thread; /* the first one does what is brief, the second has patience */
	struct job job[WORKER_JOBS_MAX];
};

/* Where a thread looks, and how it sleeps. */
struct seat {
	uint32_t first, end; /* queues */
	uint32_t spins;
	uint32_t *sleepers, *wake;
};

static void futex_wait(uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(uint32_t *word, uint32_t count)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* ---- the workers' side --------------------------------------------------------------------- */

static struct job *pop(struct worker_pool *p, const struct seat *seat)
{
	for (uint32_t k = seat->first; k < seat->end; k++) {
		struct queue *q = &p->queue[k];
		uint64_t head = atomic_load_acquire_u64(&q->head);

		while (head != atomic_load_acquire_u64(&q->tail)) {
			uint32_t *slot = &q->slot[head % WORKER_JOBS_MAX];
			uint32_t index = atomic_load_relaxed_u32(slot);

			if (atomic_cas_u64(&q->head, &head, head + 1))
				return &p->job[index];
		}
	}
	return NULL;
}

/* The next job; NULL when the pool closes and nothing is left. */
static struct job *next_job(struct worker_pool *p, const struct seat *seat)
{
	for (;;) {
		struct job *job = pop(p, seat);
		uint32_t wake;

		for (uint32_t i = 0; !job && i < seat->spins; i++) {
			cpu_relax();
			job = pop(p, seat);
		}
		if (job)
			return job;
		wake = atomic_load_acquire_u32(seat->wake);
		atomic_add_u32(seat->sleepers, 1);
		full_fence(); /* the announcement before the last look: pairs with worker_kick */
		job = pop(p, seat);
		if (!job && !atomic_load_acquire_u32(&p->stop))
			futex_wait(seat->wake, wake);
		atomic_sub_u32(seat->sleepers, 1);
		if (job)
			return job;
		if (atomic_load_acquire_u32(&p->stop))
			return pop(p, seat);
	}
}

static void verify(void *arg)
{
	struct core_io *io = arg;
	uint64_t bad = 0;

	for (uint32_t i = 0; i < io->piece_count; i++) {
		const struct core_io_piece *piece = &io->piece[i];

		if (crc32c(piece->seed, piece->addr, piece->bytes) != piece->crc)
			bad |= 1ull << i;
	}
	io->bad_mask = bad;
}

/* Memory that has gone is no fault of the device that was read, and its block stays there. */
void worker_verify(struct core_io *io)
{
	if (!fault_guard(verify, io))
		return;
	io->bad_mask = 0;
	io->res = -EFAULT;
}

static void touch(void *arg)
{
	const struct core_io_piece *piece = arg;

	for (uint32_t i = 0; i < piece->bytes; i += SMALL_PAGE)
		(void)*((const volatile uint8_t *)piece->addr + i);
}

void worker_find_gone(struct core_io *io)
{
	for (uint32_t i = 0; i < io->piece_count; i++)
		if (fault_guard(touch, &io->piece[i]))
			io->bad_mask |= 1ull << i;
}

/*
 * What has poison gets another page, where that is in a memfd: its bytes are not wanted any more.
 * One that reaches beyond these is left alone, for others would read zeros there.
 */
static void replace_page(void *addr, uint64_t bytes)
{
	uintptr_t at = ((uintptr_t)addr + SMALL_PAGE - 1) & ~(SMALL_PAGE - 1ul);
	uintptr_t end = (uintptr_t)addr + bytes;

	for (; at + SMALL_PAGE <= end; at += SMALL_PAGE) {
		struct core_io_piece page = { .addr = (void *)at, .bytes = 1 };

		if (fault_guard(touch, &page) && madvise(page.addr, SMALL_PAGE, MADV_REMOVE))
			return;
	}
}

void worker_mend(struct core_io *io)
{
	for (uint32_t i = 0; i < io->piece_count; i++)
		replace_page(io->piece[i].addr, io->piece[i].bytes);
}

static void copy(void *arg)
{
	struct job *job = arg;

	job->ops->copy(job->ops, job->copy);
}

/* Padding is no part of what a client wrote. */
static void sum(void *arg)
{
	struct core_copy *c = arg;

	for (uint32_t i = 0; i < c->count; i++) {
		struct core_copy_item *item = &c->item[i];

		memset((uint8_t *)item->dst + item->bytes - item->pad, 0, item->pad);
		item->crc = crc32c(item->seed, item->dst, item->bytes);
	}
}

/* All of them, whatever becomes of one: nobody may store there afterwards. */
static void do_in_place(struct job *job)
{
	struct core_copy *c = job->copy;

	c->res = 0;
	for (uint32_t i = 0; i < c->count; i++) {
		uint64_t offset = (uint64_t)((uint8_t *)c->item[i].dst -
					     (uint8_t *)job->region->addr);
		int rc = job->ops->commit(job->region, offset, c->item[i].bytes);

		c->res = rc ? rc : c->res;
	}
	if (!c->res && c->checksum && fault_guard(sum, c))
		c->res = -EIO;
}

/* Once more where the memory that was to be written can be mended. */
static void do_copy(struct job *job)
{
	struct core_copy *c = job->copy;

	if (!fault_guard(copy, job))
		return;
	/* HBM may be a device's, where no processor looks. */
	for (uint32_t i = 0; i < c->count && c->dst_tier == ABI_TIER_CXL; i++)
		replace_page(c->item[i].dst, c->item[i].bytes);
	if (fault_guard(copy, job))
		c->res = -EIO;
}

static void carry_out(struct job *job)
{
	const struct core_range *range = &job->range;

	switch (job->kind) {
	case JOB_COPY:
		if (job->copy->in_place)
			do_in_place(job);
		else
			do_copy(job);
		break;
	case JOB_VERIFY:
		worker_verify(job->io);
		break;
	case JOB_PREPARE:
		job->res = job->ops->prepare(job->region, range->offset, range->bytes);
		break;
	case JOB_PUNCH:
		job->res = job->ops->punch(job->region, range->offset, range->bytes);
		break;
	case JOB_DISCARD:
		job->res = job->drive->discard(job->device, range->offset, range->bytes);
		break;
	}
}

static void finish(struct worker_pool *p, struct job *job)
{
	uint32_t index = (uint32_t)(job - p->job) + 1;
	uint64_t one = 1;

	job->next = atomic_load_relaxed_u32(&p->done);
	while (!atomic_cas_u32(&p->done, &job->next, index))
		;
	full_fence(); /* the job before the look at who sleeps: pairs with worker_sleep */
	if (atomic_load_relaxed_u32(&p->loop_sleeps) && atomic_exchange_u32(&p->loop_sleeps, 0))
		while (write(p->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
}

static void work(struct worker_pool *p, const struct seat *seat)
{
	struct job *job;

	while ((job = next_job(p, seat))) {
		carry_out(job);
		finish(p, job);
		if (seat->end == PATIENT_QUEUE)
			sched_yield();
	}
}

/* As sched_setattr(2) has it: the kernel's header and older C libraries' do not go together. */
struct slice_attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
};

/*
 * Short turns: a copy thread's is over when it gives way, and what is brief goes before threads
 * with longer ones when it wakes up. A kernel that will not have it is no harm.
 */
static void take_short_turns(int policy)
{
	const struct slice_attr attr = { .size = sizeof(attr),
					 .policy = (uint32_t)policy,
					 .nice = getpriority(PRIO_PROCESS, 0),
					 .runtime_ns = SLICE_NS };

	syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *work_on(void *arg)
{
	struct worker_pool *p = arg;
	const struct seat seat = { BRIEF_QUEUE, PATIENT_QUEUE, SPINS, &p->sleepers, &p->wake };

	take_short_turns(SCHED_BATCH);
	work(p, &seat);
	return NULL;
}

static void *work_brief(void *arg)
{
	struct worker_pool *p = arg;
	const struct seat seat = { BRIEF_QUEUE, BRIEF_QUEUE + 1, 0, &p->brief_sleeps,
				   &p->brief_wake };

	take_short_turns(SCHED_OTHER);
	work(p, &seat);
	return NULL;
}

static void *work_patient(void *arg)
{
	struct worker_pool *p = arg;
	const struct seat seat = { PATIENT_QUEUE, QUEUES, 0, &p->patient_sleeps, &p->patient_wake };

	work(p, &seat);
	return NULL;
}

/* ---- the loop's side ----------------------------------------------------------------------- */

static void stop_threads(struct worker_pool *p)
{
	atomic_store_release_u32(&p->stop, 1);
	full_fence();
	atomic_add_u32(&p->wake, 1);
	futex_wake(&p->wake, INT32_MAX);
	atomic_add_u32(&p->brief_wake, 1);
	futex_wake(&p->brief_wake, INT32_MAX);
	atomic_add_u32(&p->patient_wake, 1);
	futex_wake(&p->patient_wake, INT32_MAX);
	for (uint32_t i = 0; i < p->thread_count; i++)
		pthread_join(p->thread[i], NULL);
}

int worker_open(struct worker_pool **out, uint32_t threads, int wake_fd)
{
	static void *(*const own[THREADS_OWN])(void *arg) = { work_brief, work_patient };
	struct worker_pool *p = aligned_alloc(64, (sizeof(*p) + 63) / 64 * 64);
	int rc = -ENOMEM;

	if (!p)
		return rc;
	__builtin_memset(p, 0, sizeof(*p));
	p->wake_fd = wake_fd;
	list_init(&p->free);
	list_init(&p->in_flight);
	for (uint32_t i = 0; i < WORKER_JOBS_MAX; i++)
		list_push_back(&p->free, &p->job[i].link);
	p->free_count = WORKER_JOBS_MAX;
	p->thread = calloc(threads + THREADS_OWN, sizeof(*p->thread));
	if (!p->thread)
		goto free_pool;
	for (; p->thread_count < threads + THREADS_OWN; p->thread_count++) {
		uint32_t i = p->thread_count;

		rc = -pthread_create(&p->thread[i], NULL, i < THREADS_OWN ? own[i] : work_on, p);
		if (rc)
			goto stop;
		pthread_setname_np(p->thread[i], "tierd-worker");
	}
	*out = p;
	return 0;

stop:
	stop_threads(p);
	free(p->thread);
free_pool:
	free(p);
	return rc;
}

void worker_close(struct worker_pool *p)
{
	stop_threads(p);
	free(p->thread);
	free(p);
}

uint32_t worker_threads(const struct worker_pool *p)
{
	return p->thread_count - THREADS_OWN;
}

struct job *worker_job(struct worker_pool *p)
{
	struct list *link = list_pop_front(&p->free);
	struct job *job = link ? list_entry(link, struct job, link) : NULL;

	if (!job)
		return NULL;
	p->free_count--;
	job->patient = false;
	return job;
}

uint32_t worker_jobs_free(const struct worker_pool *p)
{
	return p->free_count;
}

static uint32_t queue_of(const struct job *job)
{
	assert(job->klass < ABI_CLASS_COUNT && !(job->brief && job->patient));
	if (job->patient)
		return PATIENT_QUEUE;
	return job->brief ? BRIEF_QUEUE : 1u + job->klass;
}

void worker_submit(struct worker_pool *p, struct job *job)
{
	struct queue *q = &p->queue[queue_of(job)];
	uint64_t tail = q->tail;

	assert(tail - atomic_load_relaxed_u64(&q->head) < WORKER_JOBS_MAX);
	job->begun_ns = time_now_ns();
	job->number = ++p->number;
	list_push_back(&p->in_flight, &job->link);
	atomic_store_relaxed_u32(&q->slot[tail % WORKER_JOBS_MAX], (uint32_t)(job - p->job));
	atomic_store_release_u64(&q->tail, tail + 1);
	p->submitted++;
	p->brief += job->brief;
	p->patient += job->patient;
}

void worker_kick(struct worker_pool *p)
{
	uint32_t count = p->submitted - p->patient, brief = p->brief, patient = p->patient;

	if (p->submitted == 0)
		return;
	p->submitted = p->brief = p->patient = 0;
	full_fence(); /* the jobs before the look at who sleeps: pairs with next_job */
	if (patient && atomic_load_relaxed_u32(&p->patient_sleeps)) {
		atomic_add_u32(&p->patient_wake, 1);
		futex_wake(&p->patient_wake, 1);
	}
	if (brief && atomic_load_relaxed_u32(&p->brief_sleeps)) {
		atomic_add_u32(&p->brief_wake, 1);
		futex_wake(&p->brief_wake, 1);
		count -= 1;
	}
	if (!count || atomic_load_relaxed_u32(&p->sleepers) == 0)
		return;
	atomic_add_u32(&p->wake, 1);
	futex_wake(&p->wake, count);
}

struct job *worker_reap(struct worker_pool *p)
{
	struct job *job;

	if (p->reaped == 0 && atomic_load_relaxed_u32(&p->done)) {
		uint32_t index = atomic_exchange_u32(&p->done, 0);

		/* The stack has the last one on top: turn it over. */
		while (index) {
			uint32_t next = p->job[index - 1].next;

			p->job[index - 1].next = p->reaped;
			p->reaped = index;
			index = next;
		}
	}
	if (p->reaped == 0)
		return NULL;
	job = &p->job[p->reaped - 1];
	p->reaped = job->next;
	return job;
}

void worker_put(struct worker_pool *p, struct job *job)
{
	list_remove(&job->link);
	list_push_front(&p->free, &job->link);
	p->free_count++;
}

bool worker_sleep(struct worker_pool *p)
{
	atomic_store_relaxed_u32(&p->loop_sleeps, 1);
	full_fence(); /* the announcement before the last look: pairs with finish */
	if (p->reaped == 0 && atomic_load_relaxed_u32(&p->done) == 0)
		return true;
	atomic_store_relaxed_u32(&p->loop_sleeps, 0);
	return false;
}

void worker_awake(struct worker_pool *p)
{
	atomic_store_relaxed_u32(&p->loop_sleeps, 0);
}

uint64_t worker_mark(const struct worker_pool *p)
{
	return p->number;
}

bool worker_passed(const struct worker_pool *p, uint64_t mark)
{
	const struct list *first = list_first(&p->in_flight);

	return !first || list_entry(first, const struct job, link)->number > mark;
}
