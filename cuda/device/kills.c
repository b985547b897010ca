/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes: one has memory of the device, as the daemon has, and exports it; the other maps it
 * for reading and runs kernels on it, the last of which counts launches for the host to see
 * (kernels/era.cu), and is killed. Seen is: whether all it read was right, how far the count goes
 * on after its death, whether the memory is as it was, and what the device has not given back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/device/figures.h"
#include "cuda/kernels/era.h"
#include "cuda/test/outside.h"
#include "libtier/base/time.h"

#define LIVES 10u
#define LIVES_SMALL 3u
#define LAUNCHES 3u    /* that a life has at least */
#define AHEAD 8u       /* launches under way when it is killed */
#define STILL_MS 100u  /* the count does not move so long: nothing runs any more */
#define RETURNS_MS 5000u
#define CHUNK ((size_t)2 << 20)
#define MIB (1u << 20)

#define must figures_must

/* In a file that both map; the first word is the kernels'. */
struct shared {
	uint64_t done;
	uint64_t launched, right, wrong;
	uint32_t pages, tokens;
};

/* ---- who is killed --------------------------------------------------------------------------- */

static struct shared *map_shared(int fd)
{
	struct shared *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (s != MAP_FAILED)
		return s;
	perror("figures: shared memory");
	exit(1);
}

/* The exported pages, for reading. */
static uint64_t import(struct door *d, int fd, uint64_t bytes)
{
	const struct cuda_access read = { { .type = CUDA_AT_DEVICE }, CUDA_ACCESS_READ };
	const size_t all = (bytes + CHUNK - 1) / CHUNK * CHUNK;
	uint64_t handle, at;

	must(d, d->cu.import_fd(&handle, (void *)(intptr_t)fd, CUDA_HANDLE_FD), "import");
	must(d, d->cu.reserve(&at, all, CHUNK, 0, 0), "addresses");
	must(d, d->cu.map(at, all, 0, handle, 0), "map");
	must(d, d->cu.release(handle), "release");
	must(d, d->cu.set_access(at, all, &read, 1), "access");
	if (d->window)
		at = (uintptr_t)d->window(at, bytes, false);
	outside_allow((const void *)(uintptr_t)at, bytes, false);
	return at;
}

static void launch_once(struct door *d, struct cuda_run *run, const struct msa_era *era,
			struct shared *s)
{
	must(d, d->starts.graph_launch(run, d->stream), "launch");
	must(d, door_launch(d, "msa_era_end", 1, 32, 0, era), "the count");
	__atomic_add_fetch(&s->launched, 1, __ATOMIC_ACQ_REL);
}

_Noreturn void figures_victim(int memory, int shared)
{
	float want[LAYER_OUT], got[LAYER_OUT];
	struct shared *s = map_shared(shared);
	struct cuda_run *run;
	struct msa_era era;
	struct layer l;
	struct door d;
	uint64_t at;

	if (door_open(&d, figures_model))
		exit(1);
	must(&d, layer_open(&l, &d, s->tokens), "a layer");
	must(&d, layer_main_graph(&l, &run), "a graph of own pages");
	must(&d, d.starts.graph_launch(run, d.stream), "own pages");
	must(&d, layer_out(&l, want), "their answer");
	must(&d, layer_pages_at(&l, import(&d, memory, l.page_bytes)), "the other's pages");
	must(&d, layer_main_graph(&l, &run), "a graph of the other's pages");
	must(&d, d.cu.host_register(s, 4096, 0), "register");
	must(&d, d.cu.host_address(&at, s, 0), "its address");
	era.done = (uint64_t *)(uintptr_t)at;
	outside_allow(era.done, sizeof(*era.done), true);
	for (;;) {
		for (uint32_t i = 0; i < AHEAD; i++)
			launch_once(&d, run, &era, s);
		must(&d, layer_out(&l, got), "the answer");
		if (memcmp(got, want, sizeof(got)) != 0)
			__atomic_add_fetch(&s->wrong, 1, __ATOMIC_ACQ_REL);
		else
			__atomic_add_fetch(&s->right, 1, __ATOMIC_ACQ_REL);
	}
}

/* ---- who has the memory ---------------------------------------------------------------------- */

/* A process of its own, not a copy of this one: that would have a context that it cannot use. */
static pid_t begin_victim(int memory, int shared)
{
	char first[12], second[12];
	pid_t pid = fork();

	if (pid)
		return pid;
	snprintf(first, sizeof(first), "%d", dup(memory));
	snprintf(second, sizeof(second), "%d", dup(shared));
	execl("/proc/self/exe", "figures", "victim", first, second, (char *)NULL);
	_exit(127);
}

/* Launches that were counted after its death. */
static uint64_t one_life(const struct door *d, int memory, int shared, struct shared *s, uint32_t n)
{
	uint64_t wanted = __atomic_load_n(&s->launched, __ATOMIC_ACQUIRE) + LAUNCHES + n % AHEAD;
	uint64_t right = s->right, at_death, count, since;
	pid_t pid = begin_victim(memory, shared);

	while (__atomic_load_n(&s->launched, __ATOMIC_ACQUIRE) < wanted ||
	       __atomic_load_n(&s->right, __ATOMIC_ACQUIRE) == right) {
		if (waitpid(pid, NULL, WNOHANG) == pid) {
			printf("# life %u of %s ended by itself\n", n, d->device);
			exit(1);
		}
		if (__atomic_load_n(&s->wrong, __ATOMIC_ACQUIRE))
			break;
		usleep(n * 37 % 1000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	at_death = count = __atomic_load_n(&s->done, __ATOMIC_ACQUIRE);
	since = time_now_ns();
	while (time_now_ns() - since < STILL_MS * NS_PER_MS) {
		if (__atomic_load_n(&s->done, __ATOMIC_ACQUIRE) != count) {
			count = __atomic_load_n(&s->done, __ATOMIC_ACQUIRE);
			since = time_now_ns();
		}
		usleep(1000);
	}
	return count - at_death;
}

static size_t free_bytes(const struct door *d)
{
	size_t is_free = 0, all;

	must(d, d->cu.memory_info(&is_free, &all), "memory");
	return is_free;
}

/* What the device has still of the dead ones; teardown may take a while. */
static double left_mib(const struct door *d, size_t before)
{
	const uint64_t since = time_now_ns();
	size_t now = free_bytes(d);

	while (now < before && time_now_ns() - since < RETURNS_MS * NS_PER_MS) {
		usleep(10000);
		now = free_bytes(d);
	}
	return now < before ? (double)(before - now) / MIB : 0;
}

static void check_pages(const struct layer *l)
{
	unsigned char *want = malloc(l->page_bytes), *got = malloc(l->page_bytes);
	const struct door *d = l->d;

	if (!want || !got)
		exit(1);
	layer_fill_pages(l, want);
	must(d, d->cu.copy((uintptr_t)got, l->pages.at, l->page_bytes, d->stream), "copy");
	must(d, d->cu.stream_wait(d->stream), "wait");
	if (memcmp(want, got, l->page_bytes) != 0) {
		printf("# the memory is not as it was\n");
		exit(1);
	}
	free(want);
	free(got);
}

void figures_kills(struct door *d, uint32_t tokens)
{
	const uint32_t lives = d->window ? LIVES_SMALL : LIVES;
	int shared = memfd_create("kills", MFD_CLOEXEC), memory = -1;
	uint64_t after, most = 0;
	struct shared *s;
	struct layer l;
	size_t before;

	if (shared < 0 || ftruncate(shared, 4096))
		exit(1);
	s = map_shared(shared);
	s->tokens = tokens;
	must(d, layer_open(&l, d, tokens), "a layer");
	must(d, d->cu.export_fd(&memory, l.pages.handle, CUDA_HANDLE_FD, 0), "export");
	before = free_bytes(d);
	for (uint32_t n = 0; n < lives; n++) {
		after = one_life(d, memory, shared, s, n);
		most = after > most ? after : most;
	}
	check_pages(&l);
	printf("# %u kills, %lu launches, %lu answers right, %lu wrong; %lu launches counted after "
	       "a death\n", lives, (unsigned long)s->launched, (unsigned long)s->right,
	       (unsigned long)s->wrong, (unsigned long)most);
	printf("figure wrong_answers %lu\n", (unsigned long)s->wrong);
	printf("figure done_after_death %lu\n", (unsigned long)most);
	printf("figure left_after_kills_mib %.1f\n", left_mib(d, before));
	layer_close(&l);
	if (s->wrong)
		exit(1);
}
