/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of objects, of two users: what each asks, and whether the answer may be true. A client
 * has one question under way, as a connection has, one upload, and some objects open. For
 * test_object_clients.c.
 */
#ifndef TIER_TESTS_OBJECT_CLIENTS_H
#define TIER_TESTS_OBJECT_CLIENTS_H

#include <sys/mman.h>

#include "tests/unit/object_oracle.h"

/* ---- questions ----------------------------------------------------------------------------- */

static struct name *name_of(const struct question *q)
{
	return &w.context[q->context].name[q->name];
}

static void ask(struct client *c, uint32_t context)
{
	struct question *q = &c->q;
	struct object_ask a = {
		.who = { (uint32_t)(c - w.client) + 1, c->generation, 0 },
		.uid = c == &w.client[CLIENTS] ? 7 : 1000 + (uint32_t)(c - w.client) % 2,
		.context = daemon_context[context].uid, .epoch = w.context[context].epoch,
		.quota = { w.context[context].quota[0], w.context[context].quota[1] },
		.writable = true, .message = &q->m,
	};

	q->context = context;
	q->begun = ++w.tick;
	q->on = true;
	q->m.wait_ns = WAIT_NS;
	if (q->name <= EXTRA)
		q->m.name[0] = (char)('a' + q->name);
	if (q->other < EXTRA)
		q->m.other[0] = (char)('a' + q->other);
	q->seq = daemon_ask(&a);
}

static struct question *question(struct client *c, uint16_t type, uint32_t name)
{
	c->q = (struct question){ .m.header.type = type, .name = name, .other = UINT32_MAX };
	return &c->q;
}

static bool failed(enum disk_call call)
{
	return disk.failed[call] > 0;
}

/* Errors that have a reason, whatever was asked. */
static bool explained(const struct question *q, int rc)
{
	const struct context *x = &w.context[q->context];
	uint64_t quota = x->quota[OBJECT_CXL] < CXL ? x->quota[OBJECT_CXL] : CXL;
	bool fits = q->m.header.type == WIRE_OBJ_OPEN && x->quota_tick < q->begun;

	for (uint32_t i = 0; i < name_of(q)->states && fits; i++)
		fits = charge_of(name_of(q)->state[i].content) <= quota;
	switch (rc) {
	case -EIO:
		return failed(DISK_READ) || failed(DISK_PUT) || failed(DISK_FLUSH) ||
		       failed(DISK_NAME);
	case -EFBIG:
		return !fits;
	case -ENOSPC:
	case -EDQUOT:
		return true;
	default:
		return rc == -ETIMEDOUT && w.jumped > q->begun;
	}
}

/* A read that went wrong takes the name away, sooner or later. */
static bool flipped(struct name *n)
{
	if (w.flips >= disk.failed[DISK_FLIP])
		return false;
	w.flips++;
	begin(n, 0, false)->asked_event = w.phase_event;
	return true;
}

static void opened(struct client *c, struct object_answer *a)
{
	struct question *q = &c->q;
	struct name *n = name_of(q);
	uint32_t content = 0, i = (uint32_t)rng_below(&w.rng, KEPT);

	if (a->error && a->error != -ENOENT) {
		if (!explained(q, a->error))
			WRONG("open says %d\n", a->error);
		return;
	}
	if (!a->error)
		content = content_of(n, a->fd);
	if (content == UINT32_MAX || (!allowed(n, content, q->begun) && (content || !flipped(n))))
		WRONG("%u.%u: open gives %d\n", q->context, q->name, (int)content);
	if (!content)
		return;
	if (a->info.size != size_of(content))
		WRONG("a size that it has not\n");
	if (c->kept[i].fd >= 0) {
		look_at_kept(c->kept[i].fd, c->kept[i].content);
		close(c->kept[i].fd);
	}
	c->kept[i].fd = a->fd;
	c->kept[i].content = content;
	a->fd = -1;
}

static void told(const struct question *q, const struct object_answer *a)
{
	const struct name *n = name_of(q);
	bool right = a->error == -ENOENT && allowed(n, 0, q->begun);

	for (uint32_t i = 0; i < n->states && !a->error && !right; i++)
		right = n->state[i].content && size_of(n->state[i].content) == a->info.size &&
			allowed(n, n->state[i].content, q->begun);
	if (!right && !(a->info.flags & WIRE_OBJ_PENDING) && !explained(q, a->error) &&
	    !(a->error && flipped(&w.context[q->context].name[q->name])))
		WRONG("stat says %d, %llu bytes\n", a->error, (unsigned long long)a->info.size);
}

static void write_bytes(int fd, uint32_t content)
{
	static uint8_t bytes[CONTENT_MAX + 1];
	size_t n = size_of(content);

	daemon_bytes(content, bytes, n);
	assert_int_equal(syscall(SYS_ftruncate, fd, 0), 0);
	assert_int_equal(syscall(SYS_pwrite64, fd, bytes, n, 0), n);
}

static void created(struct client *c, struct object_answer *a)
{
	const struct question *q = &c->q;
	struct name *n = name_of(q);
	bool shared = q->m.flags & WIRE_OBJ_SHARED;

	if (a->error) {
		if (!explained(q, a->error) &&
		    !(a->error == -EEXIST && q->m.flags & WIRE_OBJ_EXCLUSIVE))
			WRONG("create says %d\n", a->error);
		n->shared = n->shared && !shared;
		return;
	}
	c->up.id = a->info.upload;
	c->up.boot = w.boot;
	c->up.epoch = w.context[q->context].epoch;
	c->up.context = q->context;
	c->up.name = q->name;
	c->up.shared = shared;
	c->up.exclusive = q->m.flags & WIRE_OBJ_EXCLUSIVE;
	c->up.ttl = q->m.ttl_ms;
	c->up.fd = a->fd;
	a->fd = -1;
	c->up.content = c->up.ttl ? ++w.content : new_content();
	write_bytes(c->up.fd, c->up.content);
	if (!shared && size_of(c->up.content) && rng_below(&w.rng, 4) == 0)
		c->up.map = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, c->up.fd, 0);
}

/* Its client has no upload any more. */
static void let_upload(struct client *c)
{
	if (c->up.map)
		munmap(c->up.map, 1);
	if (c->up.fd >= 0)
		close(c->up.fd);
	if (c->up.shared && c->up.boot == w.boot)
		w.context[c->up.context].name[c->up.name].shared = false;
	memset(&c->up, 0, sizeof(c->up));
	c->up.fd = -1;
}

static void committed(struct client *c, struct object_answer *a)
{
	const struct question *q = &c->q;
	bool taken = a->error == -EEXIST && c->up.exclusive;
	bool stale = c->up.boot != w.boot || c->up.epoch != w.context[c->up.context].epoch;

	if (a->error ? !taken && !(stale && a->error == -ESTALE) && !explained(q, a->error) : stale)
		WRONG("commit or sync says %d, stale %d\n", a->error, stale);
	if (!a->error && c->up.exclusive && !allowed(name_of(q), 0, q->begun) &&
	    !flipped(name_of(q)))
		WRONG("it was there\n");
	if (a->info.flags & WIRE_OBJ_PENDING)
		WRONG("a commit of what nobody has open waits\n");
	end(q->a, !a->error ? DONE : failed(DISK_FLUSH) ? UNSURE : NOT_DONE, false);
	if (c->up.map)
		c->up.map[0] ^= 0xff; /* by then it must be a copy */
	else if (c->up.fd >= 0 && !a->error && q->m.header.type == WIRE_OBJ_COMMIT &&
		 syscall(SYS_pwrite64, c->up.fd, "", 1, 0) == 1)
		WRONG("what is committed can be written\n");
	if (q->m.header.type == WIRE_OBJ_COMMIT)
		let_upload(c);
	else
		write_bytes(c->up.fd, c->up.content = new_content());
}

static void changed(struct client *c, const struct object_answer *a)
{
	struct question *q = &c->q;
	enum fate fate = !a->error ? DONE : failed(DISK_FLUSH) ? UNSURE : NOT_DONE;
	bool absent = a->error == -ENOENT && allowed(name_of(q), 0, q->begun);

	if (a->error && !absent && !explained(q, a->error) && !flipped(name_of(q)))
		WRONG("a change of a name says %d\n", a->error);
	if (q->a)
		end(q->a, fate, q->m.flags & WIRE_OBJ_LAZY);
	if (q->b) {
		end(q->b, fate, q->m.flags & WIRE_OBJ_LAZY);
		w.context[q->context].name[q->other].renaming = false;
		name_of(q)->renaming = false;
	}
}

static void answered(struct client *c, struct object_answer *a)
{
	c->q.on = false;
	switch (c->q.m.header.type) {
	case WIRE_OBJ_OPEN:
		opened(c, a);
		break;
	case WIRE_OBJ_STAT:
		told(&c->q, a);
		break;
	case WIRE_OBJ_CREATE:
		created(c, a);
		break;
	case WIRE_OBJ_ABORT:
		if (a->error && a->error != -ESTALE)
			WRONG("abort says %d\n", a->error);
		let_upload(c);
		break;
	case WIRE_OBJ_COMMIT:
	case WIRE_OBJ_SYNC:
		committed(c, a);
		break;
	default:
		changed(c, a);
	}
	objects_answered(a);
}

/* To the dead. */
static void drop_answers(void)
{
	daemon_take(0);
	for (struct list *at; (at = list_pop_front(&tierd.answers));)
		objects_answered(list_entry(at, struct object_answer, link));
}

static void take_answers(void)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct object_answer *a = w.client[i].q.on ? daemon_take(w.client[i].q.seq) : NULL;

		if (a)
			answered(&w.client[i], a);
	}
	drop_answers();
}

/* ---- what clients do ----------------------------------------------------------------------- */

static void do_create(struct client *c, uint32_t context, uint32_t name)
{
	struct question *q = question(c, WIRE_OBJ_CREATE, name);
	struct name *n = &w.context[context].name[name];

	if (name >= PLAIN) {
		if (n->shared)
			return;
		n->shared = true;
		q->m.flags = WIRE_OBJ_SHARED | WIRE_OBJ_AT_CLOSE | WIRE_OBJ_COPY;
	} else if (rng_below(&w.rng, 4) == 0) {
		q->m.flags = WIRE_OBJ_EXCLUSIVE;
	}
	q->m.ttl_ms = name < PLAIN && rng_below(&w.rng, 4) == 0 ? TTL_MS : 0;
	q->m.priority = (uint32_t)rng_below(&w.rng, 4);
	ask(c, context);
}

static void go_on_writing(struct client *c)
{
	struct name *n = &w.context[c->up.context].name[c->up.name];
	uint64_t what = rng_below(&w.rng, 6);
	struct question *q;

	if (n->states + 8 > STATES || n->renaming)
		return;
	if (what == 0) {
		q = question(c, WIRE_OBJ_ABORT, EXTRA + 1);
	} else if (what == 1 && c->up.shared) {
		q = question(c, WIRE_OBJ_SYNC, EXTRA + 1);
	} else {
		q = question(c, WIRE_OBJ_COMMIT, EXTRA + 1);
		q->m.flags = c->up.shared ? WIRE_OBJ_AT_CLOSE : 0;
		if (c->up.shared || rng_below(&w.rng, 2)) {
			close(c->up.fd);
			c->up.fd = -1;
		}
	}
	q->m.upload = c->up.id;
	if (what)
		q->a = begin(n, c->up.content, c->up.ttl);
	ask(c, c->up.context);
	q->name = c->up.name;
}

static void do_rename(struct client *c, uint32_t context, uint32_t name)
{
	uint32_t other = (name + 1 + (uint32_t)rng_below(&w.rng, PLAIN - 1)) % PLAIN;
	struct name *from = &w.context[context].name[name], *to = &w.context[context].name[other];
	uint32_t content = certain(from);
	struct question *q;
	bool ttl = false;

	/* What others change meanwhile may be what is renamed: only one thing is. */
	if (content == UINT32_MAX || certain(to) == UINT32_MAX)
		return;
	for (uint32_t i = 0; i < from->states; i++)
		ttl = ttl || (from->state[i].content == content && from->state[i].ttl);
	q = question(c, WIRE_OBJ_RENAME, name);
	q->other = other;
	q->m.flags = rng_below(&w.rng, 4) ? WIRE_OBJ_LAZY : 0;
	if (content) {
		q->b = begin(to, content, ttl);
		q->a = begin(from, 0, false);
		from->renaming = to->renaming = true;
	}
	ask(c, context);
}

static void do_change(struct client *c, uint32_t context, uint32_t name)
{
	struct name *n = &w.context[context].name[name];
	struct question *q;

	if (name >= PLAIN || n->renaming || n->states + 8 > STATES)
		return;
	switch (rng_below(&w.rng, 4)) {
	case 0:
		q = question(c, WIRE_OBJ_SET, name);
		q->m.flags = WIRE_OBJ_MODE | WIRE_OBJ_LAZY;
		q->m.mode = 0600;
		ask(c, context);
		break;
	case 1:
		q = question(c, WIRE_OBJ_REMOVE, name);
		q->m.flags = rng_below(&w.rng, 2) ? WIRE_OBJ_LAZY : 0;
		q->a = begin(n, 0, false);
		ask(c, context);
		break;
	default:
		do_rename(c, context, name);
	}
}

/* Killed: what it asked may be done or not. */
static void die(struct client *c)
{
	uint32_t number = (uint32_t)(c - w.client) + 1;

	for (uint32_t i = 0; i < KEPT; i++) {
		if (c->kept[i].fd >= 0)
			close(c->kept[i].fd);
		c->kept[i].fd = -1;
	}
	if (c->q.on && c->q.m.flags & WIRE_OBJ_SHARED)
		name_of(&c->q)->shared = false;
	c->q.on = false;
	let_upload(c);
	objects_connection_gone(tierd.o, number, c->generation);
	objects_process_dead(tierd.o, number, c->generation++);
}

static void do_hint(struct client *c, uint32_t context, uint32_t name)
{
	struct wire_object m = { .header.type = WIRE_OBJ_HINT, .name = { (char)('a' + name) },
				 .flags = rng_below(&w.rng, 2) ? WIRE_OBJ_LAST : 0 };
	const struct object_ask a = {
		.context = daemon_context[context].uid, .epoch = w.context[context].epoch,
		.quota = { w.context[context].quota[0], w.context[context].quota[1] },
		.message = &m,
	};

	(void)c;
	objects_hint(tierd.o, &a);
}

static void step_client(struct client *c)
{
	uint32_t context = (uint32_t)rng_below(&w.rng, DAEMON_CONTEXTS);
	uint32_t name = (uint32_t)rng_below(&w.rng, NAMES);
	uint64_t what = rng_below(&w.rng, 16);

	if (what == 0 && rng_below(&w.rng, 3) == 0)
		die(c);
	else if (c->q.on)
		return;
	else if (c->up.id && what < 6)
		go_on_writing(c);
	else if (what < 10 && !c->up.id)
		do_create(c, context, name);
	else if (what < 12 && !c->up.id)
		do_change(c, context, name);
	else if (what == 12)
		do_hint(c, context, name);
	else {
		question(c, what == 13 && !c->up.id ? WIRE_OBJ_STAT : WIRE_OBJ_OPEN, name);
		ask(c, context);
	}
}

#endif
