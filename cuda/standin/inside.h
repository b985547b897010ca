/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the stand-in and what its files ask of each other. One lock guards all but the
 * queues, whose one reader is the device process.
 */
#ifndef CUDA_STANDIN_INSIDE_H
#define CUDA_STANDIN_INSIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cuda/standin/standin.h"

#define OPS_MAX 4096u

struct memory {
	int fd;
	size_t bytes;
	uint32_t refs;         /* handles and ranges */
	unsigned char *window; /* where the device reads and writes it */
	struct memory *next;
};

struct range {
	uint64_t at;
	size_t bytes;
	struct memory *memory;
	int32_t access; /* 0 = none yet */
	struct range *next;
};

struct reservation {
	uint64_t at;
	size_t bytes;
	void *raw;
	struct reservation *next;
};

struct cuda_event {
	uint32_t asked, done; /* atomic */
};

struct op {
	uint64_t dst, src;
	size_t bytes;
	struct cuda_event *event;     /* NULL: a copy, */
	void (*kernel)(const void *); /* or this */
	unsigned char param[STANDIN_PARAM_BYTES] __attribute__((aligned(16)));
};

struct cuda_stream {
	uint32_t head, tail; /* atomic: taken by the device, given by clients */
	uint32_t done;       /* atomic */
	struct op op[OPS_MAX];
	struct cuda_stream *next, *buried;
};

struct standin {
	pthread_mutex_t api; /* one call at a time */
	uint32_t lock;       /* of the lists, also for the device; a spin lock */
	bool ready;
	pid_t client;
	uint32_t contexts;
	struct memory *memories;
	struct range *ranges;
	struct reservation *reservations;
	struct cuda_stream *streams, *buried; /* the device may look at these yet */
	struct standin_left left;
	size_t used;
	int32_t sticky;      /* atomic */
	uint32_t copies;     /* by the device */
	uint32_t bad_copy;   /* the one that fails, 0 = none */
	int32_t bad_answer;
	/* the device process */
	pid_t device;
	pthread_t parent;    /* its thread, whose stack and thread-locals the device has */
	uint32_t work, progress, stop; /* futex words */
	uint32_t copy_us;
};

extern struct standin standin;

/* Of a call: counted, perhaps told to fail. context: it needs one, which is current. */
cuda_result enter(size_t offset, bool context);
#define ENTER(field, context)                                                                      \
	do {                                                                                       \
		cuda_result told = enter(offsetof(struct cuda_driver, field), context);            \
		if (told)                                                                          \
			return told;                                                               \
	} while (0)

void list_lock(void);
void list_unlock(void);
/* The range that has all of it; NULL. The list is locked. */
struct range *range_find(uint64_t at, size_t bytes);

int device_begin(void);
void device_end(void);
/* Wait until *word is wanted or the device is dead. */
cuda_result device_wait(const uint32_t *word, uint32_t wanted);

/* Of a call of launch.c, which cannot be told to fail. */
cuda_result enter_launch(void);
cuda_result do_version(int32_t *version);
bool is_stream(const struct cuda_stream *stream);
void fail_for_good(cuda_result error);
cuda_result device_wait_stream(struct cuda_stream *stream);
/* A call that starts kernels; NULL: it is none. */
void *launch_call(const char *name);

/* memory.c, stream.c: their calls */
void fill_memory_calls(struct cuda_driver *calls);
void fill_stream_calls(struct cuda_driver *calls);

#endif
