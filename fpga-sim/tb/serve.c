/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RTL as a device of the daemon's (port/ring.h), in lock-step with the model all the time: a
 * line, a prefetch or a release at a time, each until the device is at rest. A difference between
 * RTL and model is an error to the daemon, and ends this.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"
#include "fpga-sim/port/ring.h"

#define DRAM_CYCLES 40u
#define FLASH_CYCLES 200u /* not a drive's: waiting shows nothing here, and takes its time */

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

void serve_ask(struct bench *b)
{
	struct serve *s = b->serve;
	struct ask *a;
	uint16_t id;

	if (b->ar_id >= 0 || b->aw_id >= 0 || b->w_id >= 0 || s->at == s->end)
		return;
	id = line_get(&b->free_ids);
	a = &b->ask[id];
	*a = (struct ask){ .state = ASK_NEW,
			   .request = { .address = s->at, .write = s->write, .data = a->data } };
	if (s->write) {
		memcpy(a->data, s->data + (s->at - s->begin), DEVICE_FLIT);
		b->aw_id = b->w_id = id;
	} else {
		b->ar_id = id;
	}
	b->asked++;
	s->at += DEVICE_FLIT;
}

void serve_answer(struct bench *b, const struct ask *a, const struct answer *got)
{
	struct serve *s = b->serve;

	s->failed |= got->error || got->poison;
	if (!s->write)
		memcpy(s->data + (a->request.address - s->begin), got->data, DEVICE_FLIT);
}

static int move(struct bench *b, struct sim_slot *slot)
{
	struct serve *s = b->serve;

	if (slot->bytes > SIM_LINE || slot->bytes % DEVICE_FLIT)
		return -EINVAL;
	s->begin = s->at = slot->address;
	s->end = slot->address + slot->bytes;
	s->data = slot->data;
	s->write = slot->op == SIM_WRITE;
	s->failed = false;
	while ((b->serve->at < b->serve->end || b->answered < b->asked) && b->differences == 0)
		bench_cycle(b);
	return b->serve->failed ? -EIO : 0;
}

static uint64_t unit_bytes(const struct bench *b)
{
	return (uint64_t)DEVICE_FLIT << (b->shape.line_log + b->shape.unit_log);
}

static int stage(struct bench *b, const struct sim_slot *slot)
{
	uint32_t units = (uint32_t)(slot->length / unit_bytes(b)), held = 0, i = DEVICE_WINDOWS;
	struct device_prefetch *p;

	for (uint32_t w = 0; w < DEVICE_WINDOWS; w++) {
		held += b->window[w].open ? b->window[w].asked.length : 0;
		i = b->window[w].open || i < DEVICE_WINDOWS ? i : w;
	}
	if (i == DEVICE_WINDOWS || units == 0 || held + units > b->shape.units)
		return -EBUSY;
	p = &b->window[i].asked;
	*p = (struct device_prefetch){ .address = slot->address, .length = units,
				       .limit = b->shape.units, .class = slot->class & 3,
				       .deadline = b->cycle + slot->cycles, .lead = UINT64_MAX };
	bench_prefetch(b, i);
	b->window[i].open = true;
	while (b->differences == 0 && !(bench_register(b, DEVICE_REG_WIN_STATE(i)) & DEVICE_ALL))
		;
	return 0;
}

static int release(struct bench *b, const struct sim_slot *slot)
{
	for (uint32_t i = 0; i < DEVICE_WINDOWS; i++) {
		if (!b->window[i].open || b->window[i].asked.address != slot->address)
			continue;
		bench_set_register(b, DEVICE_REG_WIN_GO(i), 3);
		while (b->differences == 0 &&
		       bench_register(b, DEVICE_REG_WIN_STATE(i)) & DEVICE_OPEN)
			;
		b->window[i].open = false;
		return 0;
	}
	return -ENOENT;
}

static int answer(struct bench *b, struct sim_slot *slot)
{
	int rc = -EINVAL;

	if (slot->op == SIM_READ || slot->op == SIM_WRITE)
		rc = move(b, slot);
	else if (slot->op == SIM_STAGE)
		rc = stage(b, slot);
	else if (slot->op == SIM_RELEASE)
		rc = release(b, slot);
	return b->differences ? -EIO : rc;
}

/* Under another name until it serves: who finds it finds all of it. */
static int make_ring(struct bench *b, struct sim_ring **out, const char *path)
{
	char early[PATH_MAX];
	struct sim_ring *ring = MAP_FAILED;
	int fd;

	snprintf(early, sizeof(early), "%s.early", path);
	fd = open(early, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (!ftruncate(fd, sizeof(*ring)))
		ring = mmap(NULL, sizeof(*ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (ring == MAP_FAILED)
		return -errno;
	*ring = (struct sim_ring){ .magic = SIM_RING_MAGIC, .server = (int32_t)getpid(),
				   .unit_bytes = (uint32_t)unit_bytes(b),
				   .capacity = device_capacity(b->model) };
	*out = ring;
	return rename(early, path) ? -errno : 0;
}

/* Until a signal, or a difference. */
static void serve_ring(struct bench *b, struct sim_ring *ring)
{
	while (!stopped && b->differences == 0) {
		uint32_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
		struct sim_slot *slot = &ring->slot[ring->tail % SIM_RING_SLOTS];

		if (head == ring->tail) {
			sim_ring_wait(&ring->head, head);
			continue;
		}
		slot->res = answer(b, slot);
		ring->flash = b->serve->flash;
		sim_ring_raise(&ring->tail);
	}
}

int serve_run(struct bench *b, const char *path)
{
	struct serve serve = { 0 };
	struct sim_ring *ring;
	int rc;

	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	b->serve = &serve;
	b->phase = (struct phase){ .name = "serve", .dram_cycles = DRAM_CYCLES,
				   .flash_least = FLASH_CYCLES, .flash_most = FLASH_CYCLES,
				   .drive_room = BENCH_FLASH / 2, .dram_room = BENCH_DRAM };
	b->asked = b->answered = 0;
	rc = make_ring(b, &ring, path);
	if (rc) {
		fprintf(stderr, "fpga: no ring at %s: %s\n", path, strerror(-rc));
		return 2;
	}
	serve_ring(b, ring);
	unlink(path);
	if (b->differences == 0)
		lockstep_end(b);
	printf("fpga: served %llu transactions, %llu cycles, %llu flash reads, %llu writes, %u "
	       "mismatches\n", (unsigned long long)b->answered, (unsigned long long)b->cycle,
	       (unsigned long long)ring->flash.reads, (unsigned long long)ring->flash.writes,
	       b->differences);
	return b->differences > 0;
}
