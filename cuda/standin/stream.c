/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the stand-in, and the process that carries them out. It has the client's memory and
 * outlives it, so it must not wait for a lock that a killed client held, nor use anything of the C
 * library but system calls: its thread-locals are those of a thread that does nothing else.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda/standin/inside.h"

#define STACK_BYTES ((size_t)64 << 10)
#define LOOK_NS 20000000  /* between looks at who has died */
#define SPINS_MAX 100000u /* for a lock whose holder may be dead */

static uint32_t load(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void store(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

static void sleep_on(const uint32_t *word, uint32_t value)
{
	const struct timespec wait = { .tv_nsec = LOOK_NS };

	syscall(SYS_futex, word, FUTEX_WAIT, value, &wait, NULL, 0);
}

static void raise_word(uint32_t *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_ACQ_REL);
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static bool try_lock(void)
{
	uint32_t none = 0;

	return __atomic_compare_exchange_n(&standin.lock, &none, 1, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

void list_lock(void)
{
	while (!try_lock())
		sched_yield();
}

void list_unlock(void)
{
	__atomic_store_n(&standin.lock, 0, __ATOMIC_RELEASE);
}

struct range *range_find(uint64_t at, size_t bytes)
{
	for (struct range *r = standin.ranges; r; r = r->next)
		if (at >= r->at && at + bytes <= r->at + r->bytes)
			return r;
	return NULL;
}

/* ---- the device process -------------------------------------------------------------------- */

static bool client_is_dead(void)
{
	return getppid() != standin.client;
}

/* Where the device has it; NULL: a fault. Addresses that no reservation has are the host's. */
static unsigned char *device_address(uint64_t at, size_t bytes, bool write)
{
	struct range *r = range_find(at, bytes);

	for (struct reservation *v = standin.reservations; v && !r; v = v->next)
		if (at < v->at + v->bytes && v->at < at + bytes)
			return NULL;
	if (!r)
		return (unsigned char *)(uintptr_t)at;
	if (!(r->access & (write ? 2 : 1)))
		return NULL;
	return r->memory->window + (at - r->at);
}

__attribute__((visibility("default"))) void *standin_window(uint64_t at, size_t bytes,
							    int32_t write);

void *standin_window(uint64_t at, size_t bytes, int32_t write)
{
	unsigned char *window;

	list_lock();
	window = device_address(at, bytes, write);
	list_unlock();
	return window;
}

/* By hand: the C library's may be intercepted by a sanitizer. */
static void copy_bytes(unsigned char *dst, const unsigned char *src, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((volatile unsigned char *)dst)[i] = src[i];
}

void fail_for_good(cuda_result error)
{
	__atomic_store_n(&standin.sticky, error, __ATOMIC_RELEASE);
}

static void carry_out(const struct op *op)
{
	unsigned char *dst, *src;
	bool locked = false;

	for (uint32_t i = 0; i < SPINS_MAX && !locked && !client_is_dead(); i++) {
		locked = try_lock();
		if (!locked)
			sched_yield();
	}
	dst = device_address(op->dst, op->bytes, true);
	src = device_address(op->src, op->bytes, false);
	if (locked)
		list_unlock();
	if (standin.copy_us) {
		const struct timespec wait = { .tv_sec = standin.copy_us / 1000000,
					       .tv_nsec = standin.copy_us % 1000000 * 1000 };

		nanosleep(&wait, NULL);
	}
	if (++standin.copies == standin.bad_copy)
		fail_for_good(standin.bad_answer);
	else if (!dst || !src)
		fail_for_good(CUDA_ILLEGAL_ADDRESS);
	else
		copy_bytes(dst, src, op->bytes);
}

/* One operation of a stream, if it has one. After an error nothing is done any more. */
static bool serve(struct cuda_stream *s)
{
	const uint32_t head = s->head;
	const struct op *op = &s->op[head % OPS_MAX];

	if (head == load(&s->tail))
		return false;
	if (op->kernel && !__atomic_load_n(&standin.sticky, __ATOMIC_ACQUIRE))
		op->kernel(op->param);
	else if (!op->event && !__atomic_load_n(&standin.sticky, __ATOMIC_ACQUIRE))
		carry_out(op);
	if (op->event)
		__atomic_add_fetch(&op->event->done, 1, __ATOMIC_ACQ_REL);
	s->head = head + 1;
	store(&s->done, s->head);
	raise_word(&standin.progress);
	return true;
}

static int device(void *arg)
{
	(void)arg;
	for (;;) {
		const uint32_t work = load(&standin.work);
		bool busy = false;

		for (struct cuda_stream *s = standin.streams; s; s = s->next)
			busy |= serve(s);
		if (busy)
			continue;
		if (load(&standin.stop) || client_is_dead())
			break;
		sleep_on(&standin.work, work);
	}
	syscall(SYS_exit_group, 0);
	return 0;
}

/* The device's stack and thread-locals are this thread's, which waits until it is cancelled. */
static void *parent(void *arg)
{
	char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	pid_t pid = stack == MAP_FAILED ? -1 : clone(device, stack + STACK_BYTES, CLONE_VM, NULL);

	(void)arg;
	__atomic_store_n(&standin.device, pid, __ATOMIC_RELEASE);
	raise_word(&standin.progress);
	for (;;)
		pause();
	return NULL;
}

int device_begin(void)
{
	int rc;

	store(&standin.stop, 0);
	standin.device = 0;
	rc = -pthread_create(&standin.parent, NULL, parent, NULL);
	while (rc == 0 && __atomic_load_n(&standin.device, __ATOMIC_ACQUIRE) == 0)
		sched_yield();
	return rc ? rc : standin.device < 0 ? -ENOMEM : 0;
}

void device_end(void)
{
	int status;

	store(&standin.stop, 1);
	raise_word(&standin.work);
	waitpid(standin.device, &status, __WCLONE);
	pthread_cancel(standin.parent);
	pthread_join(standin.parent, NULL);
	while (standin.buried) {
		struct cuda_stream *s = standin.buried;

		standin.buried = s->buried;
		free(s);
	}
}

cuda_result device_wait(const uint32_t *word, uint32_t wanted)
{
	int status;

	while ((int32_t)(load(word) - wanted) < 0) {
		const uint32_t progress = load(&standin.progress);

		if ((int32_t)(load(word) - wanted) >= 0)
			break;
		sleep_on(&standin.progress, progress);
		if (waitpid(standin.device, &status, __WCLONE | WNOHANG) == standin.device) {
			fail_for_good(CUDA_ILLEGAL_ADDRESS); /* it touched what is not there */
			break;
		}
	}
	return __atomic_load_n(&standin.sticky, __ATOMIC_ACQUIRE);
}

/* ---- calls --------------------------------------------------------------------------------- */

bool is_stream(const struct cuda_stream *stream)
{
	for (struct cuda_stream *s = standin.streams; s; s = s->next)
		if (s == stream)
			return true;
	return false;
}

static void push(struct cuda_stream *s, struct op op)
{
	pthread_mutex_lock(&standin.api);
	while (s->tail - load(&s->done) == OPS_MAX)
		sched_yield();
	s->op[s->tail % OPS_MAX] = op;
	store(&s->tail, s->tail + 1);
	pthread_mutex_unlock(&standin.api);
	raise_word(&standin.work);
}

static cuda_result do_stream_create(struct cuda_stream **stream, uint32_t flags, int32_t priority)
{
	struct cuda_stream *s;

	ENTER(stream_create, true);
	(void)priority;
	if (flags & ~CUDA_STREAM_NON_BLOCKING)
		return CUDA_INVALID_VALUE;
	s = calloc(1, sizeof(*s));
	if (!s)
		return CUDA_OUT_OF_MEMORY;
	list_lock();
	s->next = standin.streams;
	__atomic_store_n(&standin.streams, s, __ATOMIC_RELEASE);
	standin.left.streams++;
	list_unlock();
	*stream = s;
	return 0;
}

cuda_result device_wait_stream(struct cuda_stream *stream)
{
	if (!is_stream(stream))
		return CUDA_INVALID_HANDLE;
	return device_wait(&stream->done, stream->tail);
}

static cuda_result do_stream_wait(struct cuda_stream *stream)
{
	ENTER(stream_wait, true);
	return device_wait_stream(stream);
}

static cuda_result do_stream_destroy(struct cuda_stream *stream)
{
	struct cuda_stream **link = &standin.streams;

	ENTER(stream_destroy, false);
	if (!is_stream(stream))
		return CUDA_INVALID_HANDLE;
	device_wait(&stream->done, stream->tail);
	list_lock();
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	stream->buried = standin.buried;
	standin.buried = stream;
	standin.left.streams--;
	list_unlock();
	return 0;
}

static cuda_result do_event_create(struct cuda_event **event, uint32_t flags)
{
	ENTER(event_create, true);
	(void)flags;
	*event = calloc(1, sizeof(**event));
	if (!*event)
		return CUDA_OUT_OF_MEMORY;
	standin.left.events++;
	return 0;
}

static cuda_result do_event_destroy(struct cuda_event *event)
{
	ENTER(event_destroy, false);
	if (event->asked != load(&event->done))
		device_wait(&event->done, event->asked);
	free(event);
	standin.left.events--;
	return 0;
}

static cuda_result do_event_record(struct cuda_event *event, struct cuda_stream *stream)
{
	ENTER(event_record, true);
	if (!is_stream(stream))
		return CUDA_INVALID_HANDLE;
	event->asked++;
	push(stream, (struct op){ .event = event });
	return 0;
}

static cuda_result do_event_query(struct cuda_event *event)
{
	ENTER(event_query, true);
	return event->asked == load(&event->done) ? 0 : CUDA_NOT_READY;
}

static cuda_result do_event_wait(struct cuda_event *event)
{
	ENTER(event_wait, true);
	return device_wait(&event->done, event->asked);
}

static cuda_result do_copy(uint64_t dst, uint64_t src, size_t bytes, struct cuda_stream *stream)
{
	ENTER(copy, true);
	if (!is_stream(stream))
		return CUDA_INVALID_HANDLE;
	push(stream, (struct op){ .dst = dst, .src = src, .bytes = bytes });
	return 0;
}

/* How many parameters a call of the driver has is not ours to choose. */
#define CALL(name, parameters) cuda_result name parameters

/* In no order that a caller may rely on: the last one first. */
static CALL(do_copy_batch, (uint64_t *dst, uint64_t *src, size_t *bytes, size_t count,
			    struct cuda_copy_attributes *attributes, size_t *first,
			    size_t attribute_count, struct cuda_stream *stream))
{
	ENTER(copy_batch, true);
	if (!is_stream(stream))
		return CUDA_INVALID_HANDLE;
	if (!count || attribute_count != 1 || first[0] || attributes->order < 1 ||
	    attributes->order > 3)
		return CUDA_INVALID_VALUE;
	for (size_t i = count; i-- > 0;)
		push(stream, (struct op){ .dst = dst[i], .src = src[i], .bytes = bytes[i] });
	return 0;
}

__attribute__((visibility("default"))) cuda_result
standin_launch(struct cuda_stream *stream, void (*kernel)(const void *), const void *param,
	       size_t bytes);

cuda_result standin_launch(struct cuda_stream *stream, void (*kernel)(const void *),
			   const void *param, size_t bytes)
{
	struct op op = { .kernel = kernel };
	cuda_result told = __atomic_load_n(&standin.sticky, __ATOMIC_ACQUIRE);

	if (told || !is_stream(stream) || bytes > sizeof(op.param))
		return told ? told : CUDA_INVALID_VALUE;
	memcpy(op.param, param, bytes);
	push(stream, op);
	return 0;
}

void fill_stream_calls(struct cuda_driver *calls)
{
	calls->stream_create = do_stream_create;
	calls->stream_destroy = do_stream_destroy;
	calls->stream_wait = do_stream_wait;
	calls->event_create = do_event_create;
	calls->event_destroy = do_event_destroy;
	calls->event_record = do_event_record;
	calls->event_query = do_event_query;
	calls->event_wait = do_event_wait;
	calls->copy = do_copy;
	calls->copy_batch = do_copy_batch;
}
