/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects under several clients. The module runs on a recorded folder whose device fails now and
 * then (crash_disk.h), its clock is ours, memory and quotas are small. Clients of two users put,
 * open, rename, remove, and die in between; the daemon is killed, or the power cut, at any event of
 * the phase. Each answer is compared with what may be true: of a name the bytes that some put
 * wrote, if no later one was answered before who asks began. SEED= and SEEDS= choose.
 *
 * Checked after each step: the accounts add up (objects_audit), and no tier has more than its own.
 * Whenever all is answered: names and index tell the same, NVMe is charged to the byte, memory that
 * is there is charged, no descriptor and no file is left over, eviction goes by priority and last
 * use and no further than it must, a quota lets in what fits it to the byte and nothing more.
 */
#include "tests/unit/object_clients.h"
#include "libtier/base/names.h"

/* ---- what happens to them ------------------------------------------------------------------ */

static void hold(bool held)
{
	pthread_mutex_lock(&disk.lock);
	disk.held = held;
	pthread_cond_broadcast(&disk.release);
	pthread_mutex_unlock(&disk.lock);
}

/* Time passes: names lapse, and whoever waits for one to be opened is answered. */
static void jump(void)
{
	w.jumped = ++w.tick;
	skew_ns += JUMP_NS;
	for (uint32_t i = 0; i < DAEMON_CONTEXTS * NAMES; i++) {
		struct name *n = &w.context[i / NAMES].name[i % NAMES];

		for (uint32_t k = 0; k < n->states; k++) {
			struct state *s = &n->state[k];

			if (!s->ttl)
				continue;
			s->for_sure = s->for_sure || (s->fate == DONE && !s->lapsed);
			s->lapsed = w.tick;
		}
	}
	daemon_turn(false);
	take_answers();
	for (uint32_t i = 0; i < CLIENTS; i++)
		if (w.client[i].q.on && w.client[i].q.m.header.type == WIRE_OBJ_OPEN)
			WRONG("an open has no answer though its time has passed\n");
}

static void set_quotas(struct context *x, uint64_t cxl, uint64_t nvme)
{
	x->quota[OBJECT_CXL] = cxl;
	x->quota[OBJECT_NVME] = nvme;
	x->quota_tick = ++w.tick;
}

/* All that the context has is void, whatever happens. */
static void raise_epoch(uint32_t context)
{
	struct context *x = &w.context[context];

	for (uint32_t i = 0; i < CLIENTS; i++)
		if (w.client[i].q.on && w.client[i].q.context == context)
			return;
	x->epoch++;
	for (uint32_t i = 0; i < NAMES; i++) {
		struct state *s = begin(&x->name[i], 0, false);

		end(s, DONE, false);
		s->asked_event = s->durable = 0;
	}
	objects_context_changed(tierd.o, daemon_context[context].uid, x->epoch);
}

static void fault(void)
{
	enum disk_call call = (enum disk_call)rng_below(&w.rng, DISK_CALLS);

	if (call == DISK_FLUSH && rng_below(&w.rng, 4))
		return; /* behind that no change is taken any more */
	pthread_mutex_lock(&disk.lock);
	disk.error[call] = call == DISK_PUT && rng_below(&w.rng, 2) ? ENOSPC : EIO;
	disk.fails[call] = 1 + (uint32_t)rng_below(&w.rng, 8);
	pthread_mutex_unlock(&disk.lock);
}

static void step_world(void)
{
	static const uint64_t cxl[] = { UINT64_MAX, 300 << 10, 120 << 10 };
	static const uint64_t nvme[] = { UINT64_MAX, 500 << 10, 200 << 10 };
	uint32_t context = (uint32_t)rng_below(&w.rng, DAEMON_CONTEXTS);

	switch (rng_below(&w.rng, 24)) {
	case 0:
		jump();
		break;
	case 1:
	case 2:
		hold(!disk.held);
		break;
	case 3:
		set_quotas(&w.context[context], cxl[rng_below(&w.rng, 3)],
			   nvme[rng_below(&w.rng, 3)]);
		break;
	case 4:
		if (rng_below(&w.rng, 4) == 0)
			raise_epoch(context);
		break;
	case 5:
	case 6:
		fault();
		break;
	default:
		break;
	}
}

/* What holds at any time. */
static void look_at_sums(void)
{
	struct objects_stats s;

	if (objects_audit(tierd.o, daemon_tell, NULL))
		WRONG("the accounts disagree\n");
	objects_stats(tierd.o, &s);
	if (s.used[OBJECT_CXL] > CXL || s.used[OBJECT_NVME] > NVME)
		WRONG("a tier has more than its own\n");
}

/* ---- when all is quiet --------------------------------------------------------------------- */

/* Behind a flush that failed no change is taken any more, and files stay. */
static bool broken(void)
{
	return failed(DISK_FLUSH);
}

static void drain(void)
{
	bool busy = true;

	memset(disk.fails, 0, sizeof(disk.fails));
	hold(false);
	for (uint32_t i = 0; i < 20000 && busy; i++) {
		daemon_turn(i > 1);
		take_answers();
		busy = !objects_idle(tierd.o) && !broken();
		for (uint32_t k = 0; k < CLIENTS; k++)
			busy = busy || w.client[k].q.on;
	}
	if (busy)
		WRONG("it does not come to an end\n");
}

/* A question of who looks, and its answer: its error, what it tells, its descriptor. */
static int looker(uint16_t type, uint32_t context, uint32_t name, uint64_t upload,
		  struct wire_object_info *info, int *fd)
{
	struct client *c = &w.client[CLIENTS];
	struct question *q = question(c, type, name);

	q->m.upload = upload;
	q->m.ttl_ms = c->ttl_ms;
	q->m.flags = c->flags;
	ask(c, context);
	c->q.on = false;
	return daemon_answered(q->seq, info, fd);
}

static void look_at_name(uint32_t context, uint32_t name, bool alone)
{
	struct name *n = &w.context[context].name[name];
	struct wire_object_info info;
	uint64_t begun = w.tick + 1;
	int rc = looker(WIRE_OBJ_STAT, context, name, 0, &info, NULL), fd = -1;
	uint32_t content = 0;

	n->found = rc == 0 ? (uint32_t)info.size : UINT32_MAX;
	n->priority = info.priority;
	n->resident = rc == 0 && info.flags & WIRE_OBJ_RESIDENT;
	if (!alone)
		return;
	if (rc == 0 && looker(WIRE_OBJ_OPEN, context, name, 0, &info, &fd) == 0)
		content = content_of(n, fd);
	if (fd >= 0)
		close(fd);
	if (content ? size_of(content) != n->found || !allowed(n, content, begun) :
		      !allowed(n, 0, begun) && !flipped(n))
		WRONG("%u.%u: all is quiet, and it has %d\n", context, name, (int)content);
}

/* Sets what is found of each name. */
static void look_at_names(bool alone)
{
	for (uint32_t i = 0; i < DAEMON_CONTEXTS * NAMES; i++)
		look_at_name(i / NAMES, i % NAMES, alone);
}

static uint64_t charged(uint32_t context)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < NAMES; i++)
		if (w.context[context].name[i].found != UINT32_MAX)
			bytes += charge_of_bytes(w.context[context].name[i].found);
	return bytes;
}

/* What is left of the quota, and of the tier, to the byte. */
static void look_at_room(uint32_t context)
{
	uint64_t used = charged(context), left = NVME - charged(0) - charged(1);
	struct wire_object_info info;

	set_quotas(&w.context[context], UINT64_MAX, used + 12345);
	assert_int_equal(looker(WIRE_OBJ_STAT, context, EXTRA + 1, 0, &info, NULL), 0);
	if (info.free != (left < 12345 ? left : 12345))
		WRONG("%llu bytes are free, not %llu\n", (unsigned long long)info.free,
		      (unsigned long long)(left < 12345 ? left : 12345));
	set_quotas(&w.context[context], UINT64_MAX, UINT64_MAX);
}

/* Memory of objects that the process has: the kernel's word. */
static uint32_t memory_of_process(uint64_t *bytes)
{
	DIR *dir = opendir("/proc/self/fd");
	ino_t seen[256];
	uint32_t count = 0;

	*bytes = 0;
	for (const struct dirent *e; (e = readdir(dir));) {
		char to[64] = "";
		struct stat st;
		int fd = atoi(e->d_name);

		if (readlinkat(dirfd(dir), e->d_name, to, sizeof(to) - 1) < 0 ||
		    strncmp(to, "/memfd:tier-object", 18) || fstat(fd, &st))
			continue;
		if ((fcntl(fd, F_GET_SEALS) & (F_SEAL_SEAL | F_SEAL_WRITE)) == F_SEAL_SEAL)
			continue; /* an index */
		assert_true(count < COUNT(seen));
		seen[count++] = st.st_ino;
		for (uint32_t i = 0; i + 1 < count; i++)
			st.st_blocks = seen[i] == st.st_ino ? 0 : st.st_blocks;
		*bytes += (uint64_t)st.st_blocks * 512;
	}
	closedir(dir);
	return count;
}

/* The daemon gave up what would not fit: then it is its writer's alone. */
static bool is_there(struct client *c)
{
	struct question *q = question(c, WIRE_OBJ_SET, EXTRA + 1);

	if (c->up.boot != w.boot)
		return false;
	q->m.upload = c->up.id;
	ask(c, c->up.context);
	q->on = false;
	return daemon_answered(q->seq, NULL, NULL) == 0;
}

static void look_at_memory(void)
{
	uint32_t descriptors, mine = 0;
	struct objects_stats s;
	uint64_t bytes;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct client *c = &w.client[i];

		if (c->up.id && !is_there(c))
			let_upload(c);
		for (uint32_t k = 0; k < KEPT; k++)
			mine += c->kept[k].fd >= 0;
		mine += c->up.fd >= 0;
	}
	objects_stats(tierd.o, &s);
	descriptors = memory_of_process(&bytes);
	if (descriptors != s.resident + s.uploads + mine)
		WRONG("%u descriptors, of them %u are clients'; %llu in memory, %llu written\n",
		      descriptors, mine, (unsigned long long)s.resident,
		      (unsigned long long)s.uploads);
	if (bytes > s.used[OBJECT_CXL])
		WRONG("%llu bytes in memory, %llu charged\n", (unsigned long long)bytes,
		      (unsigned long long)s.used[OBJECT_CXL]);
}

/* What is no name's is not on the disk. */
static void look_at_files(void)
{
	DIR *dir = fdopendir(dup(disk.folder));
	uint64_t bytes = 0, wanted = 0;

	for (uint32_t i = 0; i < DAEMON_CONTEXTS * NAMES; i++) {
		uint32_t found = w.context[i / NAMES].name[i % NAMES].found;

		wanted += found == UINT32_MAX ? 0 : found;
	}
	rewinddir(dir);
	for (const struct dirent *e; (e = readdir(dir));) {
		struct stat st;

		if (strlen(e->d_name) == 16 && fstatat(disk.folder, e->d_name, &st, 0) == 0)
			bytes += (uint64_t)st.st_size;
	}
	closedir(dir);
	if (bytes != wanted)
		WRONG("%llu bytes in files, %llu in objects\n", (unsigned long long)bytes,
		      (unsigned long long)wanted);
}

static void look_at_index(uint32_t context)
{
	struct wire_object_info info;
	const struct abi_names *names;
	int fd, rc = looker(WIRE_OBJ_INDEX, context, EXTRA + 1, 0, &info, &fd);

	if (rc) /* what is open leaves no memory for it */
		return;
	names = mmap(NULL, info.size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	assert_true(names != MAP_FAILED);
	for (uint32_t i = 0; i < 8; i++)
		daemon_turn(false);
	for (uint32_t i = 0; i < NAMES; i++) {
		const char name = (char)('a' + i);
		struct abi_names_slot s;
		uint32_t found, slot;

		rc = names_look(names, names_judge(names, info.size), &name, 1, &s, &slot);
		found = rc == 0 && !(s.expires_ms && s.expires_ms <= time_wall_ms()) ?
				(uint32_t)s.size : UINT32_MAX;
		if (rc != -EAGAIN && found != w.context[context].name[i].found)
			WRONG("%u.%u: the index says %d, %d bytes\n", context, i, rc, (int)found);
	}
	munmap((void *)(uintptr_t)names, info.size);
}

static int put_extra(uint32_t context, uint32_t content)
{
	struct wire_object_info info;
	int fd;

	assert_int_equal(looker(WIRE_OBJ_CREATE, context, EXTRA, 0, &info, &fd), 0);
	write_bytes(fd, content);
	close(fd);
	return looker(WIRE_OBJ_COMMIT, context, EXTRA + 1, info.upload, NULL, NULL);
}

/* One byte too few, and just enough. */
static void try_quota(uint32_t context)
{
	uint32_t content = ++w.content;
	uint64_t need = charged(context) + charge_of(content);
	bool full = charged(0) + charged(1) + charge_of(content) > NVME;
	int rc;

	set_quotas(&w.context[context], UINT64_MAX, need - 1);
	rc = put_extra(context, content);
	if (rc != -EDQUOT && !(rc == -ENOSPC && need > NVME))
		WRONG("a quota of a byte too few says %d\n", rc);
	set_quotas(&w.context[context], UINT64_MAX, need);
	rc = put_extra(context, content);
	if (rc != (full ? -ENOSPC : 0))
		WRONG("a quota of just enough says %d\n", rc);
	if (rc == 0)
		assert_int_equal(looker(WIRE_OBJ_REMOVE, context, EXTRA, 0, NULL, NULL), 0);
	set_quotas(&w.context[context], UINT64_MAX, UINT64_MAX);
}

/* Names of all contexts, opened one behind the other; then room is wanted. */
static void try_eviction(uint32_t context)
{
	uint32_t order[DAEMON_CONTEXTS * NAMES], left = 0, last = 0, i;
	uint64_t last_charge = 0, first_kept = UINT64_MAX;
	struct objects_stats s;
	bool was[COUNT(order)];

	for (i = 0; i < COUNT(order); i++) {
		uint32_t k = (uint32_t)rng_below(&w.rng, i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	for (i = 0; i < COUNT(order); i++)
		look_at_name(order[i] / NAMES, order[i] % NAMES, true);
	look_at_names(false);
	for (i = 0; i < COUNT(order); i++)
		was[i] = w.context[i / NAMES].name[i % NAMES].resident;
	while (size_of(++w.content) < CONTENT_MAX / 2)
		;
	if (put_extra(context, w.content))
		return; /* NVMe is full */
	objects_stats(tierd.o, &s);
	look_at_names(false);
	for (i = 0; i < COUNT(order); i++) {
		const struct name *n = &w.context[order[i] / NAMES].name[order[i] % NAMES];
		uint64_t place = n->priority * 100ull + i + 1;

		if (!was[order[i]])
			continue;
		if (n->resident && place < first_kept)
			first_kept = place;
		if (!n->resident && place > last) {
			last = (uint32_t)place;
			last_charge = charge_of_bytes(n->found);
			left++;
		}
	}
	if (last > first_kept || (left && s.used[OBJECT_CXL] + last_charge <= CXL))
		WRONG("the wrong ones left memory: the last is %u, one that stayed %d\n", last,
		      (int)first_kept);
	assert_int_equal(looker(WIRE_OBJ_REMOVE, context, EXTRA, 0, NULL, NULL), 0);
}

static void close_kept(struct client *c)
{
	for (uint32_t i = 0; i < KEPT; i++) {
		if (c->kept[i].fd < 0)
			continue;
		look_at_kept(c->kept[i].fd, c->kept[i].content);
		close(c->kept[i].fd);
		c->kept[i].fd = -1;
	}
}

static void do_what_is_due(void)
{
	for (uint32_t i = 0; i < 3; i++) {
		skew_ns += 300 * NS_PER_MS;
		drain();
	}
}

/* ... and what of it was written is flushed. */
static void settle(void)
{
	do_what_is_due();
	if (!broken())
		assert_int_equal(looker(WIRE_OBJ_SYNC, 0, EXTRA + 1, 0, NULL, NULL), 0);
	drain();
}

/* What the dead asked is done or not, and there is nobody who would know. */
static void nobody_asks(struct name *n)
{
	n->renaming = false;
	for (uint32_t i = 0; i < n->states; i++)
		if (!n->state[i].answered)
			n->state[i].answered = ++w.tick;
}

static void quiet(void)
{
	bool alone = rng_below(&w.rng, 2);

	drain();
	for (uint32_t i = 0; i < CLIENTS && alone; i++) {
		close_kept(&w.client[i]);
		die(&w.client[i]);
	}
	for (uint32_t i = 0; i < DAEMON_CONTEXTS; i++)
		set_quotas(&w.context[i], UINT64_MAX, UINT64_MAX);
	settle();
	for (uint32_t i = 0; i < DAEMON_CONTEXTS * NAMES; i++)
		nobody_asks(&w.context[i / NAMES].name[i % NAMES]);
	look_at_names(alone);
	for (uint32_t i = 0; i < DAEMON_CONTEXTS; i++) {
		look_at_index(i);
		if (!broken())
			look_at_room(i);
	}
	if (!broken()) {
		look_at_memory();
		look_at_files();
	}
	if (alone && !broken()) {
		try_quota((uint32_t)rng_below(&w.rng, DAEMON_CONTEXTS));
		try_eviction((uint32_t)rng_below(&w.rng, DAEMON_CONTEXTS));
	}
	look_at_sums();
}

/* ---- crashes ------------------------------------------------------------------------------- */

static void start(void)
{
	memset(disk.fails, 0, sizeof(disk.fails));
	memset(disk.failed, 0, sizeof(disk.failed));
	w.boot++;
	for (uint32_t i = 0; i < DAEMON_CONTEXTS; i++)
		daemon_context[i].epoch = w.context[i].epoch;
	daemon_start(CXL, NVME, rng_next(&w.rng), WAIT_NS);
}

static void stop(void)
{
	memset(disk.fails, 0, sizeof(disk.fails));
	hold(false);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		close_kept(&w.client[i]);
		w.client[i].q.on = false;
	}
	take_answers();
	daemon_stop();
}

/* From now on that is all that is known of the name. */
static void forget_but(struct name *n, uint32_t content)
{
	struct state was = { .content = content };

	for (uint32_t i = 0; i < n->states; i++)
		if (n->state[i].content == content)
			was = n->state[i];
	n->states = 0;
	n->renaming = n->shared = false;
	end(begin(n, content, content && was.ttl), DONE, false);
	n->state[0].asked_event = n->state[0].answered_event = 0;
	n->state[0].lapsed = content ? was.lapsed : 0;
}

static void look_behind_crash(uint32_t crash)
{
	for (uint32_t i = 0; i < DAEMON_CONTEXTS * NAMES; i++) {
		struct name *n = &w.context[i / NAMES].name[i % NAMES];
		uint32_t content = 0;
		int fd, rc = looker(WIRE_OBJ_OPEN, i / NAMES, i % NAMES, 0, NULL, &fd);

		if (rc && rc != -ENOENT)
			WRONG("%u.%u: behind a crash open says %d\n", i / NAMES, i % NAMES, rc);
		if (rc == 0) {
			content = content_of(n, fd);
			close(fd);
		}
		if (content ? !survives(n, content, crash) :
			      !survives(n, 0, crash) && !flipped(n))
			WRONG("%u.%u: behind a crash it has %d\n", i / NAMES, i % NAMES,
			      (int)content);
		forget_but(n, content);
	}
	for (uint32_t i = 0; i < DAEMON_CONTEXTS; i++) /* of what was tried before */
		looker(WIRE_OBJ_REMOVE, i, EXTRA, 0, NULL, NULL);
}

/* The daemon is killed, or the power cut, right behind that event. */
static void crash_at(uint32_t event)
{
	static struct disk_image image;

	disk_crash(&image, event, w.cut.power ? &w.rng : NULL);
	disk.events = event;
	disk_become(&image, w.cut.power);
	start();
	look_at_sums();
}

static void crash(void)
{
	uint32_t flips, at;

	stop();
	memcpy(w.cut.failed, disk.failed, sizeof(w.cut.failed));
	w.cut.power = rng_below(&w.rng, 2);
	at = w.phase_event + (uint32_t)rng_below(&w.rng, disk.events - w.phase_event + 1);
	flips = disk.failed[DISK_FLIP];
	crash_at(at);
	disk.failed[DISK_FLIP] = flips;
	for (uint32_t i = 0; i < DAEMON_CONTEXTS; i++)
		set_quotas(&w.context[i], UINT64_MAX, UINT64_MAX);
	look_behind_crash(at);
	look_at_sums();
	disk.failed[DISK_FLIP] = w.flips = 0;
	w.phase_event = disk.events;
}

static void world(uint32_t seed)
{
	memset(&w, 0, sizeof(w));
	w.seed = seed;
	w.content = EMPTY;
	w.rng.state = seed;
	daemon_world("object-clients", LOG_LEVEL_ERROR);
	for (uint32_t i = 0; i < CLIENTS * KEPT; i++)
		w.client[i / KEPT].kept[i % KEPT].fd = w.client[i / KEPT].up.fd = -1;
	start();
	for (uint32_t i = 0; i < DAEMON_CONTEXTS; i++)
		set_quotas(&w.context[i], UINT64_MAX, UINT64_MAX);
	for (uint32_t i = 0; i < DAEMON_CONTEXTS * NAMES; i++)
		forget_but(&w.context[i / NAMES].name[i % NAMES], 0);
}

static void world_end(void)
{
	for (uint32_t i = 0; i < CLIENTS; i++)
		let_upload(&w.client[i]);
	stop();
	daemon_world_end();
}

static void run(uint32_t seed)
{
	world(seed);
	for (uint32_t i = 1; i <= PHASES * STEPS; i++) {
		step_client(&w.client[rng_below(&w.rng, CLIENTS)]);
		step_world();
		daemon_turn(rng_below(&w.rng, 4) == 0);
		take_answers();
		look_at_sums();
		if (i % (STEPS / 3) == 0)
			quiet();
		if (i % STEPS == 0)
			crash();
	}
	world_end();
}

/* It lapsed, and its file went, before any record told that it had been flushed. */
static void test_what_lapsed_was_there(void **state)
{
	uint32_t at;

	(void)state;
	world(1);
	assert_int_equal(put_extra(0, ++w.content), 0);
	w.client[CLIENTS].ttl_ms = TTL_MS;
	assert_int_equal(put_extra(0, ++w.content), 0);
	skew_ns += JUMP_NS;
	do_what_is_due();
	at = disk.events;
	stop();
	crash_at(at);
	assert_int_equal(looker(WIRE_OBJ_STAT, 0, EXTRA, 0, NULL, NULL), -ENOENT);
	look_at_sums();
	world_end();
}

/* Of two that are written as new ones, one is. */
static void test_exclusive_is_one(void **state)
{
	struct wire_object_info info[2];
	int fd[2];

	(void)state;
	world(1);
	w.client[CLIENTS].flags = WIRE_OBJ_EXCLUSIVE;
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(looker(WIRE_OBJ_CREATE, 0, EXTRA, 0, &info[i], &fd[i]), 0);
		close(fd[i]);
	}
	w.client[CLIENTS].flags = 0;
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(looker(WIRE_OBJ_COMMIT, 0, EXTRA + 1, info[i].upload, NULL, NULL),
				 i ? -EEXIST : 0);
	world_end();
}

/* Who writes a name after an epoch was raised does not share what was written before. */
static void test_a_raised_epoch_parts_who_writes(void **state)
{
	struct wire_object_info info[2];
	int fd[2];

	(void)state;
	world(1);
	w.client[CLIENTS].flags = WIRE_OBJ_SHARED;
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(looker(WIRE_OBJ_CREATE, 0, EXTRA, 0, &info[i], &fd[i]), 0);
		raise_epoch(i);
	}
	w.client[CLIENTS].flags = 0;
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(looker(WIRE_OBJ_COMMIT, 0, EXTRA + 1, info[i].upload, NULL, NULL),
				 i ? 0 : -ESTALE);
		close(fd[i]);
	}
	world_end();
}

/* A read that failed says so, and takes nothing away. */
static void test_a_failed_read_may_be_asked_again(void **state)
{
	int fd;

	(void)state;
	world(1);
	assert_int_equal(put_extra(0, ++w.content), 0);
	stop();
	start();
	disk.error[DISK_READ] = EIO;
	disk.fails[DISK_READ] = 1;
	assert_int_equal(looker(WIRE_OBJ_OPEN, 0, EXTRA, 0, NULL, &fd), -EIO);
	drain();
	assert_int_equal(looker(WIRE_OBJ_OPEN, 0, EXTRA, 0, NULL, &fd), 0);
	close(fd);
	world_end();
}

/* What an epoch made void is charged to nobody, though nobody asks about its context again. */
static void test_a_raised_epoch_gives_room_back(void **state)
{
	struct objects_stats s;

	(void)state;
	world(1);
	assert_int_equal(put_extra(0, ++w.content), 0);
	raise_epoch(0);
	do_what_is_due();
	objects_stats(tierd.o, &s);
	assert_int_equal(s.used[OBJECT_CXL] + s.used[OBJECT_NVME], 0);
	world_end();
}

/* Contexts come and go, more at a time than a turn deletes objects: nothing is left of them. */
static void test_contexts_that_are_gone_leave_nothing(void **state)
{
	struct wire_object m = { .header.type = WIRE_OBJ_STAT, .name = "a" };
	struct object_ask a = { .who = { 1, 0, 0 }, .writable = true, .message = &m };
	struct objects_stats s;

	(void)state;
	world(1);
	assert_int_equal(put_extra(0, ++w.content), 0);
	for (uint32_t i = 0; i < 200; i++) {
		a.context = 1000 + i;
		assert_int_equal(daemon_answered(daemon_ask(&a), NULL, NULL), -ENOENT);
	}
	objects_stats(tierd.o, &s);
	assert_in_range(s.accounts, 201, 202);
	objects_context_gone(tierd.o, daemon_context[0].uid);
	for (uint32_t i = 0; i < 300; i++)
		objects_context_gone(tierd.o, 1000 + i);
	for (uint32_t i = 0; i < 300 && s.accounts > 1; i++) {
		skew_ns += 10 * NS_PER_MS;
		drain();
		objects_stats(tierd.o, &s);
	}
	assert_in_range(s.accounts, 0, 1);
	assert_int_equal(s.used[OBJECT_CXL] + s.used[OBJECT_NVME], 0);
	world_end();
}

static void test_clients_see_what_may_be_true(void **state)
{
	uint32_t seed = getenv("SEED") && *getenv("SEED") ? (uint32_t)atoi(getenv("SEED")) : 1;
	uint32_t seeds = getenv("SEEDS") ? (uint32_t)atoi(getenv("SEEDS")) : 12;

	(void)state;
	for (uint32_t i = 0; i < seeds; i++)
		run(seed + i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_lapsed_was_there),
		cmocka_unit_test(test_exclusive_is_one),
		cmocka_unit_test(test_a_raised_epoch_parts_who_writes),
		cmocka_unit_test(test_a_failed_read_may_be_asked_again),
		cmocka_unit_test(test_a_raised_epoch_gives_room_back),
		cmocka_unit_test(test_contexts_that_are_gone_leave_nothing),
		cmocka_unit_test(test_clients_see_what_may_be_true),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
