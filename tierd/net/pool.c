/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CXL pool that several hosts have mapped (pool.h): the device, its lines, its owners in etcd.
 * It is read through a mapping that cannot be stored to. `node.shares` holds its state together
 * with what etcd agreed on.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/json_at.h"
#include "libtier/base/time.h"
#include "tierd/net/etcd.h"

#define PLACE_BYTES (2u << 20) /* a frame ends with the page that reaches 1 MiB */

struct pool_map {
	struct pool pool; /* node.shares */
	const uint8_t *load;
	uint8_t *store;
	uint64_t bytes;
	uint64_t bytes_in, bytes_out; /* atomic */
	/* of the members' thread */
	struct pool_seen seen;
	struct pool_record *record;
	struct pool_member *member;
};

/* ---- lines ----------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <cpuid.h>

#define POOL_BUILT true

static bool unordered_flush(void)
{
	unsigned int a, b = 0, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_CLFLUSHOPT);
}

/* Write back what was stored, and keep nothing of these lines: both ends need just that. */
static void lines_out(const void *from, uint64_t bytes)
{
	const char *at = from, *end = at + bytes;
	bool unordered = unordered_flush();

	for (; at < end; at += POOL_LINE) {
		if (unordered)
			__asm__ volatile("clflushopt %0" : : "m"(*(volatile const char *)at)
					 : "memory");
		else
			__asm__ volatile("clflush %0" : : "m"(*(volatile const char *)at)
					 : "memory");
	}
	__asm__ volatile("mfence" : : : "memory");
}
#else
#define POOL_BUILT false

static void lines_out(const void *from, uint64_t bytes)
{
	(void)from;
	(void)bytes;
}
#endif

/* ---- the device ------------------------------------------------------------------------------ */

static uint64_t size_of(const struct stat *st)
{
	char path[96], text[32] = "";
	FILE *f CLEANUP_FCLOSE = NULL;

	if (S_ISREG(st->st_mode))
		return (uint64_t)st->st_size;
	if (!S_ISCHR(st->st_mode))
		return 0;
	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/size", major(st->st_rdev),
		 minor(st->st_rdev));
	f = fopen(path, "r");
	return f && fgets(text, sizeof(text), f) ? strtoull(text, NULL, 10) : 0;
}

/* Map all of it; NULL, or why not. */
static const char *map(const char *path, struct pool_map *m)
{
	int fd CLEANUP_CLOSE = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	void *load, *store;

	if (!POOL_BUILT)
		return "cache lines cannot be flushed on this processor: not built";
	if (fd < 0 || fstat(fd, &st))
		return strerror(errno);
	m->bytes = size_of(&st);
	if (m->bytes < POOL_FIRST)
		return "it is neither a device of dax nor a file of some size";
	load = mmap(NULL, m->bytes, PROT_READ, MAP_SHARED, fd, 0);
	store = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (load == MAP_FAILED || store == MAP_FAILED)
		return strerror(errno);
	m->load = load;
	m->store = store;
	return NULL;
}

static int wrong(const char *path, const char *why)
{
	fprintf(stderr, "tierd-net: no pool at %s: %s\n", path, why);
	return -EINVAL;
}

int pool_make(const char *path, uint64_t extent_bytes)
{
	struct pool_map m = { .bytes = 0 };
	const char *why = map(path, &m);
	struct pool_header h;
	uint64_t id = 0;

	if (why)
		return wrong(path, why);
	if (getrandom(&id, sizeof(id), 0) < 0 || !id)
		return wrong(path, "the kernel gives no random number");
	pool_format(&h, id, m.bytes, extent_bytes, PLACE_BYTES);
	why = pool_judge(&h, m.bytes);
	if (why)
		return wrong(path, "it is smaller than an extent");
	memcpy(m.store, &h, sizeof(h));
	lines_out(m.store, sizeof(h));
	printf("pool %016" PRIx64 ": %u extents of %" PRIu64 " bytes\n", h.id, h.extents,
	       h.extent_bytes);
	return 0;
}

static const char *open_map(struct node *n, struct pool_map *m)
{
	const char *why = map(n->config.pool, m);
	struct pool *p = &m->pool;

	if (why)
		return why;
	lines_out(m->load, sizeof(p->header));
	memcpy(&p->header, m->load, sizeof(p->header)); /* who changes it later, changes nothing */
	why = pool_judge(&p->header, m->bytes);
	if (why)
		return why;
	p->extent = calloc(p->header.extents, sizeof(*p->extent));
	m->record = calloc(p->header.extents, sizeof(*m->record));
	m->member = calloc(PEERS_MAX + 1, sizeof(*m->member));
	return p->extent && m->record && m->member ? NULL : strerror(ENOMEM);
}

int pool_open(struct node *n)
{
	struct pool_map *m;
	const char *why;

	if (!n->config.pool[0])
		return 0;
	m = calloc(1, sizeof(*m));
	why = m ? open_map(n, m) : strerror(ENOMEM);
	if (why) {
		log_error(&n->log, "no pool", n->config.pool,
			  "tierd-net --pool-format DEVICE makes one", "why=\"%s\"", why);
		return -EINVAL; /* the process ends */
	}
	m->pool.incarnation = n->self.incarnation;
	m->pool.grant_ns = n->config.pool_grant_ns;
	m->pool.rest_ns = n->config.pool_grant_ns + n->config.lease_ns;
	m->pool.first = homes_host(n->config.name) % m->pool.header.extents;
	n->cxl = m;
	LOCK_SCOPE(&n->shares);
	n->agree.pool = &m->pool;
	return 0;
}

uint64_t pool_id(const struct node *n, bool told)
{
	return told && n->cxl ? n->cxl->pool.header.id : 0;
}

json_t *pool_list(struct node *n)
{
	struct pool_map *m = n->cxl;
	uint64_t now = time_now_ns();
	uint32_t ready = 0;

	if (!m)
		return json_null();
	LOCK_SCOPE(&n->shares);
	for (uint32_t i = 0; i < m->pool.header.extents; i++)
		ready += pool_ours(&m->pool, POOL_FIRST + i * m->pool.header.extent_bytes, now,
				   n->agree.until_ns);
	return json_pack("{s:s, s:o, s:i, s:i, s:I, s:I}", "device", n->config.pool, "id",
			 json_sprintf("%016" PRIx64, m->pool.header.id), "extents",
			 m->pool.header.extents, "ours", ready,
			 "bytes_in", (json_int_t)atomic_load_relaxed_u64(&m->bytes_in),
			 "bytes_out", (json_int_t)atomic_load_relaxed_u64(&m->bytes_out));
}

/* ---- owners ---------------------------------------------------------------------------------- */

static uint64_t hex_in(const json_t *value, const char *name)
{
	const char *text = json_string_value(json_at(value, name));

	return text ? strtoull(text, NULL, 16) : 0;
}

/* What is no record is nobody's, and is overwritten. */
static void read_one(struct pool_map *m, const json_t *one, const char *prefix)
{
	const char *name = json_string_value(json_at(one, "name"));
	const json_t *value = json_at(one, "value");
	int64_t mod = json_integer_value(json_at(one, "mod"));
	json_int_t rest = json_integer_value(json_at(value, "rest_ms"));
	struct pool_seen *s = &m->seen;
	char *end;
	unsigned long extent;

	if (!name)
		return;
	if (strncmp(name, "member/", 7) == 0 && s->members <= PEERS_MAX) {
		m->member[s->members++] = (struct pool_member){
			.incarnation = hex_in(value, "incarnation"), .mod = mod };
		return;
	}
	if (strncmp(name, prefix, strlen(prefix)) != 0 || s->records == m->pool.header.extents)
		return;
	extent = strtoul(name + strlen(prefix), &end, 10);
	if (*end || extent >= m->pool.header.extents)
		return;
	m->record[s->records++] = (struct pool_record){
		.extent = (uint32_t)extent, .incarnation = hex_in(value, "incarnation"),
		.entered = json_integer_value(json_at(value, "entered")), .mod = mod,
		.rest_ns = rest > 0 && (uint64_t)rest < POOL_REST_MAX_NS / NS_PER_MS ?
				   (uint64_t)rest * NS_PER_MS : POOL_REST_MAX_NS };
}

/* member/ and pool/ID/ are neighbours: one range is of one moment. */
static int read_owners(struct etcd *e, struct pool_map *m)
{
	char prefix[32], end[33];
	json_t *list;

	snprintf(prefix, sizeof(prefix), "pool/%016" PRIx64 "/", m->pool.header.id);
	snprintf(end, sizeof(end), "%s~", prefix);
	list = etcd_between(e, "", "member/", end);
	m->seen = (struct pool_seen){ .record = m->record, .member = m->member };
	for (size_t i = 0; i < json_array_size(list); i++)
		read_one(m, json_array_get(list, i), prefix);
	json_decref(list);
	return list ? 0 : -EAGAIN;
}

static int claim(struct etcd *e, const struct node *n, const struct agree_call *c, int64_t *mod)
{
	const struct pool *p = &n->cxl->pool;
	char key[64];
	json_t *record = json_pack("{s:s, s:o, s:I, s:I}", "host", n->config.name, "incarnation",
				   json_sprintf("%016" PRIx64, p->incarnation), "entered",
				   (json_int_t)c->epoch, "rest_ms",
				   (json_int_t)(c->last / NS_PER_MS));

	snprintf(key, sizeof(key), "pool/%016" PRIx64 "/%04" PRIu64, p->header.id, c->first);
	return etcd_change(e, key, mod, json_pack("[o]", etcd_to_put(e, key, record, false)));
}

int pool_agree(struct etcd *e, struct node *n, const struct agree_call *c, struct agree_answer *out)
{
	struct pool_map *m = n->cxl;
	int rc;

	out->mod = c->mod;
	rc = c->what == AGREE_POOL_READ ? read_owners(e, m) : claim(e, n, c, &out->mod);
	m->seen.now_ns = time_now_ns();
	out->pool = &m->seen;
	return rc;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static void store(struct pool_map *m, const struct pool_frame *f, uint64_t offset)
{
	for (uint32_t i = 0; i < f->m->count; i++) {
		memcpy(m->store + offset, f->page[i].iov_base, f->page[i].iov_len);
		offset += f->page[i].iov_len;
	}
}

static int tell(struct node *n, struct conn *c, const struct pool_frame *f, uint64_t offset)
{
	struct pool *p = &n->cxl->pool;
	struct net_at at;
	struct iovec iov[2];
	{
		LOCK_SCOPE(&n->shares);
		if (!pool_ours(p, offset, time_now_ns(), n->agree.until_ns)) {
			pool_undo(p, offset);
			return -EAGAIN;
		}
	}
	serve_at(f->serve, f->m, offset, &at);
	iov[0] = (struct iovec){ &at, sizeof(at) };
	iov[1] = (struct iovec){ (void *)(uintptr_t)f->crc, f->m->count * sizeof(*f->crc) };
	atomic_add_relaxed_u64(&n->cxl->bytes_out, f->m->bytes);
	return conn_send(c, iov, 2, f->until_ns);
}

static uint64_t take(struct node *n, const struct pool_frame *f)
{
	struct pool *p = &n->cxl->pool;

	LOCK_SCOPE(&n->shares);
	if (!*f->grant)
		*f->grant = ++p->orders;
	return pool_take(p, f->serve, *f->grant, f->m->bytes, time_now_ns(), n->agree.until_ns);
}

int pool_send(struct node *n, struct conn *c, const struct pool_frame *f)
{
	uint64_t offset = n->cxl && c->pool == n->cxl->pool.header.id ? take(n, f) : 0;
	int rc = offset ? 0 : -EAGAIN;

	for (enum pool_step step = pool_holder(POOL_BEGIN); rc == 0 && step != POOL_END;
	     step = pool_holder(step)) {
		if (step == POOL_STORE)
			store(n->cxl, f, offset);
		else if (step == POOL_FLUSH)
			lines_out(n->cxl->store + offset, f->m->bytes);
		else
			rc = tell(n, c, f, offset);
	}
	return rc;
}

bool pool_was_kept(struct node *n, uint64_t grant)
{
	if (!n->cxl)
		return false;
	LOCK_SCOPE(&n->shares);
	return pool_kept(&n->cxl->pool, grant, time_now_ns(), n->agree.until_ns);
}

static int within(struct node *n, const struct conn *c, const struct net_at *m)
{
	if (!n->cxl)
		return -EPROTO;
	LOCK_SCOPE(&n->shares);
	return pool_within(&n->cxl->pool, c->incarnation, m->offset, m->pages.bytes);
}

int pool_receive(struct node *n, struct conn *c, struct pull *p, const struct net_at *m,
		 const struct iovec *to)
{
	struct net_word copied;
	uint64_t offset = m->offset;
	int rc = within(n, c, m);

	if (rc)
		return rc;
	for (enum pool_step step = pool_reader(POOL_BEGIN); step != POOL_END;
	     step = pool_reader(step)) {
		if (step == POOL_DROP) {
			lines_out(n->cxl->load + offset, m->pages.bytes);
			continue;
		}
		for (uint32_t i = 0; i < m->pages.count; i++) {
			memcpy(to[i].iov_base, n->cxl->load + offset, to[i].iov_len);
			offset += to[i].iov_len;
		}
	}
	atomic_add_relaxed_u64(&n->cxl->bytes_in, m->pages.bytes);
	pull_copied(p, &copied);
	return conn_send_message(c, &copied.header, p->deadline_ns);
}
