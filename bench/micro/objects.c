/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects. Under `tier run`, beside the same calls in a plain directory of the same disk (or of
 * tmpfs, for what is in memory): look-up of names, open and read, a durable replace. And weights of
 * 3.3 times the memory that they get, read pass after pass by tier_object_stream, with a stated
 * wait for each layer's compute, beside all of them in memory (ITME's experiment, scaled) and
 * beside the page cache in a memory cgroup of that size.
 *
 * This program is its own child: `tierbench objects-calls WHAT FOLDER` prints one figure.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"

#define NAME_BYTES 1024u
#define READS 50u
#define REPLACES 20u
#define MIB (1ull << 20)
#define LARGE_BYTES (32 * MIB)
#define LARGE_COUNT 12u /* 384 MiB: each has left the 256 MiB of memory when its turn is again */
#define DIRECT_BYTES MIB
#define LAYERS 33u
#define LAYER_BYTES (4 * MIB)
#define CACHE_BYTES (40 * MIB) /* what weights get */
#define OWN_BYTES (8 * MIB)    /* of a process that reads them through the page cache */

/* ---- the child: calls that know nothing of tier -------------------------------------------- */

static int put_file(const char *path, const void *data, size_t bytes, bool flush)
{
	int fd CLEANUP_CLOSE = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || (flush && fsync(fd)))
		return -EIO;
	return close(take_fd(&fd)) ? -errno : 0;
}

/* Microseconds for each of so many names; behind a pass that connects, and is not counted. */
static double look_up(const char *folder, uint32_t names, bool make)
{
	char path[NAME_BYTES];
	uint32_t found = 0;
	uint64_t from = 0;

	for (uint32_t i = 0; i < 2 * names; i++) {
		uint32_t name = i % names;

		if (i == names) {
			usleep(50000);
			from = time_now_ns();
		}
		snprintf(path, sizeof(path), "%s/%08x-%u-block.bin", folder, name * 2654435761u,
			 name);
		if (make && i < names && put_file(path, &i, sizeof(i), false))
			return -1;
		found += access(path, R_OK) == 0;
	}
	return found == 2 * names ? (double)(time_now_ns() - from) / NS_PER_US / names : -1;
}

static double open_and_read(const char *folder, size_t bytes)
{
	uint8_t *data CLEANUP_FREE = malloc(bytes);
	double took[READS];
	char path[NAME_BYTES];

	snprintf(path, sizeof(path), "%s/whole-%zu", folder, bytes);
	memset(data, 7, bytes);
	if (access(path, R_OK) && put_file(path, data, bytes, false))
		return -1;
	for (uint32_t i = 0; i < READS; i++) {
		uint64_t from = time_now_ns();
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		bool good = fd >= 0 && read(fd, data, bytes) == (ssize_t)bytes;

		close(fd);
		if (!good)
			return -1;
		took[i] = (double)(time_now_ns() - from) / NS_PER_US;
	}
	return sample_quantile(took, READS, 0.5);
}

static bool read_all(int fd, uint8_t *to, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		size_t most = bytes - at < DIRECT_BYTES ? bytes - at : DIRECT_BYTES;
		ssize_t n = read(fd, to + at, most);

		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

/* One behind the other, in a circle; direct: O_DIRECT reads of 1 MiB. */
static double read_large(const char *folder, bool direct)
{
	void *room;
	uint8_t *data CLEANUP_FREE = NULL;
	double took[2 * LARGE_COUNT];
	char path[NAME_BYTES];

	if (posix_memalign(&room, 4096, LARGE_BYTES))
		return -1;
	data = room;
	memset(data, 7, LARGE_BYTES);
	for (uint32_t i = 0; i < LARGE_COUNT; i++) {
		snprintf(path, sizeof(path), "%s/large-%u", folder, i);
		if (access(path, R_OK) && put_file(path, data, LARGE_BYTES, true))
			return -1;
	}
	for (uint32_t i = 0; i < 2 * LARGE_COUNT; i++) {
		uint64_t from = time_now_ns();
		bool good;
		int fd;

		snprintf(path, sizeof(path), "%s/large-%u", folder, i % LARGE_COUNT);
		fd = open(path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
		good = fd >= 0 && read_all(fd, data, LARGE_BYTES);
		close(fd);
		if (!good)
			return -1;
		took[i] = (double)(time_now_ns() - from) / NS_PER_US;
	}
	return sample_quantile(took, 2 * LARGE_COUNT, 0.5);
}

/* The wait that stands for compute: the processor is the transfer's meanwhile, as beside a GPU. */
static void compute(uint64_t ns)
{
	struct timespec t = time_to_timespec(ns);

	if (ns)
		nanosleep(&t, NULL);
}

/* Microseconds a pass over the weights in the page cache, with so much compute for each layer. */
static double read_cached(const char *folder, uint64_t compute_ns)
{
	uint8_t *data CLEANUP_FREE = malloc(LAYER_BYTES);
	uint32_t passes = 4;
	char path[NAME_BYTES];
	int fd CLEANUP_CLOSE = -1;
	uint64_t from = 0;

	snprintf(path, sizeof(path), "%s/weights", folder);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	for (uint32_t i = 0; i < passes * LAYERS; i++) {
		if (i == LAYERS)
			from = time_now_ns();
		if (pread(fd, data, LAYER_BYTES, (off_t)(i % LAYERS * LAYER_BYTES)) !=
		    (ssize_t)LAYER_BYTES)
			return -1;
		compute(compute_ns);
	}
	return (double)(time_now_ns() - from) / NS_PER_US / (passes - 1);
}

/* flush: a plain directory keeps what was flushed; an object is durable when it is closed. */
static double replace(const char *folder, size_t bytes, bool flush)
{
	uint8_t *data CLEANUP_FREE = malloc(bytes);
	char path[NAME_BYTES], to[NAME_BYTES];
	double took[REPLACES];

	snprintf(path, sizeof(path), "%s/new.tmp", folder);
	snprintf(to, sizeof(to), "%s/replaced-%zu", folder, bytes);
	for (uint32_t i = 0; i < REPLACES; i++) {
		uint64_t from = time_now_ns();

		memset(data, (int)i, bytes);
		if (put_file(path, data, bytes, flush) || rename(path, to))
			return -1;
		took[i] = (double)(time_now_ns() - from) / NS_PER_US;
	}
	return sample_quantile(took, REPLACES, 0.5);
}

int bench_objects_calls(int argc, char **argv)
{
	unsigned long n;
	double us = -1;
	char what;

	if (argc == 3 && sscanf(argv[1], "%c%lu", &what, &n) == 2)
		us = what == 'm' ? look_up(argv[2], (uint32_t)n, true) :
		     what == 'a' ? look_up(argv[2], (uint32_t)n, false) :
		     what == 'o' ? open_and_read(argv[2], n) :
		     what == 'n' || what == 'd' ? read_large(argv[2], what == 'd') :
		     what == 'c' ? read_cached(argv[2], n) :
		     what == 'f' ? replace(argv[2], n, true) : replace(argv[2], n, false);
	printf("%f\n", us);
	return us < 0;
}

/* ---- the parent ---------------------------------------------------------------------------- */

struct objects {
	struct bench *bench;
	struct service service;
	tier *t;
	char *dir;
	char there[SERVICE_PATH_BYTES], plain[SERVICE_PATH_BYTES], shm[SERVICE_PATH_BYTES];
};

/* One figure, under tier run (folder = NULL) or in a plain folder. */
static int call(struct objects *o, const char *what, const char *folder, double *us)
{
	char command[6 * SERVICE_PATH_BYTES], line[64] = "";
	FILE *from;
	int status;

	if (folder)
		snprintf(command, sizeof(command), "/proc/%d/exe objects-calls %s '%s'", getpid(),
			 what, folder);
	else
		snprintf(command, sizeof(command),
			 "'%.*s/tier' run --socket '%s' --map '%s=bench' -- /proc/%d/exe "
			 "objects-calls %s '%s'",
			 (int)(strrchr(o->bench->tierd, '/') - o->bench->tierd), o->bench->tierd,
			 o->service.socket, o->there, getpid(), what, o->there);
	from = popen(command, "re");
	if (!from)
		return -errno;
	if (!fgets(line, sizeof(line), from))
		line[0] = '\0';
	status = pclose(from);
	*us = strtod(line, NULL);
	return status || *us <= 0 ? bench_failed(what, -EIO) : 0;
}

struct calls {
	const char *what, *peer_what, *figure, *against;
	bool memory, rate; /* beside tmpfs; judged as calls a second, not as us */
	struct bench_goal goal;
};

static int measure_calls(struct objects *o, const struct calls *c)
{
	const struct bench_figure figure = { "objects", c->figure, c->rate ? "1/s" : "us",
					     c->against, c->goal };
	struct sample value = { .count = 0 }, peer = { .count = 0 };
	const char *folder = c->memory ? o->shm : o->plain;
	double ours, theirs;
	int error = 0;

	for (uint32_t i = 0; i < o->bench->rounds && !error; i++) {
		error = i & 1 ? call(o, c->peer_what, folder, &theirs) : 0;
		if (!error)
			error = call(o, c->what, NULL, &ours);
		if (!error && !(i & 1))
			error = call(o, c->peer_what, folder, &theirs);
		sample_add(&value, c->rate ? 1e6 / ours : ours);
		sample_add(&peer, c->rate ? 1e6 / theirs : theirs);
	}
	return error ? error : bench_judge(o->bench->results, &figure, &value, &peer);
}

static int all_calls(struct objects *o)
{
	uint32_t names = o->bench->quick ? 1000 : 10000;
	char make[16], look[16];
	const struct calls calls[] = {
		{ look, look, "access of names that are there", "the disk's file system", false,
		  false, { BENCH_VALUE_AT_MOST, 1.0 } },
		{ "o4194304", "o4194304", "open + read of 4 MiB in memory", "tmpfs", true, true,
		  { BENCH_RATIO_AT_LEAST, 0.95 } },
		{ "o65536", "o65536", "open + read of 64 KiB in memory", "tmpfs", true, true,
		  { BENCH_RATIO_AT_LEAST, 0 } },
		{ "n0", "d0", "open + read of 32 MiB on NVMe", "O_DIRECT reads of 1 MiB", false,
		  true, { BENCH_RATIO_AT_LEAST, 0.9 } },
		{ "r4096", "f4096", "durable replace, 4 KiB", "write, fsync, rename", false, true,
		  { BENCH_RATIO_AT_LEAST, 1.0 } },
		{ "r1048576", "f1048576", "durable replace, 1 MiB", "write, fsync, rename", false,
		  true, { BENCH_RATIO_AT_LEAST, 1.0 } },
	};
	double us;
	int error;

	snprintf(make, sizeof(make), "m%u", names);
	snprintf(look, sizeof(look), "a%u", names);
	bench_say("objects: %u names", names);
	error = call(o, make, NULL, &us);
	if (!error)
		error = call(o, make, o->plain, &us);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]) && !error; i++)
		error = measure_calls(o, &calls[i]);
	return error;
}

/* ---- weights ------------------------------------------------------------------------------- */

#define WINDOW_BYTES (6 * LAYER_BYTES)
#define PASSES 20u

static int put_bytes(tier *t, const char *name, const void *data, size_t bytes)
{
	tier_object *o;
	int rc = tier_object_create(t, "weights", name, NULL, &o);

	if (rc == 0 && write(tier_object_fd(o), data, bytes) != (ssize_t)bytes) {
		tier_object_abort(o);
		rc = -EIO;
	} else if (rc == 0) {
		rc = tier_object_commit(o);
	}
	return rc ? bench_failed(name, rc) : 0;
}

static int put_weights(tier *t)
{
	uint64_t *data CLEANUP_FREE = malloc(LAYER_BYTES), x = 88172645463325252ull;
	char text[8192], name[64];
	size_t used = (size_t)snprintf(text, sizeof(text), "tier weights 1 %u\n", LAYERS);
	int rc = data ? tier_object_context(t, "weights", NULL) : -ENOMEM;

	for (uint32_t i = 0; i < LAYERS && rc == 0; i++) {
		for (size_t k = 0; k < LAYER_BYTES / sizeof(*data); k++)
			data[k] = bench_random(&x);
		data[0] = i;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "part %u %u %llu\n", i,
					 i + 1, LAYER_BYTES);
		snprintf(name, sizeof(name), "model/%04u", i);
		rc = put_bytes(t, name, data, LAYER_BYTES);
	}
	return rc ? rc : put_bytes(t, "model/tensors", text, used);
}

/* Nanoseconds a pass over all layers, with so much compute for each. */
static int run_passes(tier *t, uint32_t passes, uint64_t compute_ns, double *pass_ns)
{
	const struct tier_object_stream_options options = {
		.size = sizeof(options), .window_bytes = WINDOW_BYTES,
		.flags = TIER_OBJECT_STREAM_AGAIN,
	};
	struct tier_object_part part;
	tier_object_stream *s;
	uint64_t from = 0;
	int rc = tier_object_stream_open(t, "weights", "model", &options, &s);

	if (rc)
		return bench_failed("tier_object_stream_open", rc);
	/* The first pass is not counted: it finds what was put last. */
	for (uint32_t i = 0; i < (passes + 1) * LAYERS && rc == 0; i++) {
		if (i == LAYERS)
			from = time_now_ns();
		rc = tier_object_stream_next(s, time_now_ns() + 60 * NS_PER_S, &part);
		if (rc == 0 && *(const uint64_t *)part.data != i % LAYERS)
			rc = -EBADMSG;
		compute(compute_ns);
	}
	*pass_ns = (double)(time_now_ns() - from) / passes;
	tier_object_stream_close(s);
	return rc ? bench_failed("tier_object_stream_next", rc) : 0;
}

static int start(struct bench *b, const char *dir, const char *cxl, struct service *s, tier **t)
{
	const char *const set[] = { cxl, "object.nvme=2GiB", NULL };
	const struct service_options options = { .tierd = b->tierd, .dir = dir,
						 .cxl_bytes = 512 * MIB, .nvme_bytes = 256 * MIB,
						 .set = set };
	struct tier_connect_options connect = { .size = sizeof(connect), .socket = s->socket,
						.staging_bytes = MIB, .requests = 8, .readers = 1 };
	int error = service_start(s, &options, NULL);

	if (error)
		return error;
	error = tier_connect(t, &connect);
	if (error)
		service_stop(s);
	return error ? bench_failed("connect", error) : 0;
}

/* ---- beside the page cache ----------------------------------------------------------------- */

/* A memory cgroup for the page cache of one process; its folder, or "" where none can be made. */
static void make_group(char group[SERVICE_PATH_BYTES])
{
	static const char *const kinds[][2] = {
		{ "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
		{ "/sys/fs/cgroup", "memory.max" },
	};
	char path[SERVICE_PATH_BYTES + 32], limit[24];

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		int fd CLEANUP_CLOSE = -1;

		snprintf(group, SERVICE_PATH_BYTES, "%s/tierbench-%d", kinds[i][0], getpid());
		snprintf(path, sizeof(path), "%s/%s", group, kinds[i][1]);
		snprintf(limit, sizeof(limit), "%llu", CACHE_BYTES + OWN_BYTES);
		if (mkdir(group, 0700))
			continue;
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd >= 0 && write(fd, limit, strlen(limit)) == (ssize_t)strlen(limit))
			return;
		rmdir(group);
	}
	group[0] = '\0';
}

static int make_cached(const char *folder)
{
	uint8_t *data CLEANUP_FREE = calloc(LAYERS, LAYER_BYTES);
	char path[NAME_BYTES];
	int fd CLEANUP_CLOSE = -1, rc;

	snprintf(path, sizeof(path), "%s/weights", folder);
	rc = put_file(path, data, LAYERS * LAYER_BYTES, true);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (rc == 0) /* or its pages stay whose they are: ours */
		rc = -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return rc;
}

/* Nanoseconds a pass. */
static int run_cached(const char *group, const char *folder, uint64_t compute_ns, double *pass_ns)
{
	char command[4 * SERVICE_PATH_BYTES], line[64] = "";
	FILE *from;

	snprintf(command, sizeof(command),
		 "echo $$ >'%s/cgroup.procs' && exec /proc/%d/exe objects-calls c%llu '%s'", group,
		 getpid(), (unsigned long long)compute_ns, folder);
	from = popen(command, "re");
	if (!from)
		return -errno;
	if (!fgets(line, sizeof(line), from))
		line[0] = '\0';
	*pass_ns = strtod(line, NULL) * NS_PER_US;
	return pclose(from) || *pass_ns <= 0 ? bench_failed("page cache", -EIO) : 0;
}

static int measure_cached(struct bench *b, tier *small, const char *folder, double transfer)
{
	const struct bench_figure figure = {
		"objects", "weights, compute 1.10 of the transfer, beside a cache", "passes/s",
		"the page cache, 48 MiB in all", { BENCH_RATIO_AT_LEAST, 1.0 },
	};
	struct sample value = { .count = 0 }, peer = { .count = 0 };
	uint64_t ns = (uint64_t)(transfer * 1.1 / LAYERS);
	char group[SERVICE_PATH_BYTES];
	double streamed = 0, cached = 0;
	int error;

	make_group(group);
	if (!group[0])
		return bench_note(b->results, "objects", "weights through the page cache: not run, "
							 "no memory cgroup can be made here");
	error = make_cached(folder);
	for (uint32_t k = 0; k < SAMPLE_ROUNDS_MIN && !error; k++) {
		error = run_passes(small, 3, ns, &streamed);
		if (!error)
			error = run_cached(group, folder, ns, &cached);
		sample_add(&value, 1e9 / streamed);
		sample_add(&peer, 1e9 / cached);
	}
	rmdir(group);
	return error ? error : bench_judge(b->results, &figure, &value, &peer);
}

/* In memory of 1/3.3 (and what an object costs beside), then with all of it in memory. */
static int measure_weights(struct bench *b, tier *small, tier *large, const char *folder)
{
	static const double share[] = { 0.25, 0.5, 1, 1.1, 2 };
	uint32_t passes = b->quick ? 3 : PASSES;
	double transfer, memory = 0, streamed = 0;
	int error = run_passes(small, passes, 0, &transfer);

	if (!error)
		error = bench_note(b->results, "objects",
				   "weights: %u layers of 4 MiB, 40 MiB of memory, %u passes; "
				   "without compute a pass takes %.1f ms (%.2f GB/s)", LAYERS,
				   passes, transfer / 1e6, LAYERS * LAYER_BYTES / transfer);
	if (!error)
		error = measure_cached(b, small, folder, transfer);
	for (size_t i = 0; i < sizeof(share) / sizeof(share[0]) && !error; i++) {
		struct sample value = { .count = 0 }, peer = { .count = 0 };
		uint64_t ns = (uint64_t)(transfer * share[i] / LAYERS);
		char name[BENCH_TEXT];
		const struct bench_figure figure = {
			"objects", name, "passes/s", "all in memory",
			{ BENCH_RATIO_AT_LEAST, share[i] == 1.1 ? 0.95 : 0 },
		};

		snprintf(name, sizeof(name), "weights, compute %.2f of the transfer", share[i]);
		for (uint32_t k = 0; k < SAMPLE_ROUNDS_MIN && !error; k++) {
			error = run_passes(large, (passes + 2) / 3, ns, &memory);
			if (!error)
				error = run_passes(small, (passes + 2) / 3, ns, &streamed);
			sample_add(&value, 1e9 / streamed);
			sample_add(&peer, 1e9 / memory);
		}
		if (!error)
			error = bench_judge(b->results, &figure, &value, &peer);
	}
	return error;
}

static int weights(struct bench *b, const char *dir)
{
	struct service service[2];
	tier *t[2] = { NULL, NULL };
	char sub[2][SERVICE_PATH_BYTES];
	int error = 0;

	for (uint32_t i = 0; i < 2 && !error; i++) {
		snprintf(sub[i], sizeof(sub[i]), "%s/w%u", dir, i);
		error = mkdir(sub[i], 0700) ? -errno : 0;
		if (!error)
			error = start(b, sub[i], i ? "object.cxl=192MiB" : "object.cxl=40MiB",
				      &service[i], &t[i]);
		if (!error)
			error = put_weights(t[i]);
	}
	if (!error)
		error = measure_weights(b, t[0], t[1], dir);
	for (uint32_t i = 0; i < 2; i++)
		if (t[i]) {
			tier_close(t[i]);
			service_stop(&service[i]);
		}
	return error;
}

int bench_objects(struct bench *b)
{
	struct objects o = { .bench = b };
	int error = service_dir_make(&o.dir, b->dir);

	if (error)
		return error;
	snprintf(o.there, sizeof(o.there), "%s/there", o.dir);
	snprintf(o.plain, sizeof(o.plain), "%s/plain", o.dir);
	snprintf(o.shm, sizeof(o.shm), "%s", b->shm ? b->shm : o.plain);
	error = mkdir(o.there, 0700) || mkdir(o.plain, 0700) ? -errno : 0;
	if (!error)
		error = start(b, o.dir, "object.cxl=256MiB", &o.service, &o.t);
	if (!error) {
		error = all_calls(&o);
		tier_close(o.t);
		service_stop(&o.service);
	}
	if (!error)
		error = weights(b, o.dir);
	service_dir_remove(o.dir);
	return error;
}
