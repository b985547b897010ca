/*
 * Pages for kernels; see tier_device.h, and wire.h W5 for what the daemon is told. A launch is
 * announced before a word is read here, so the place that it names is kept until the launch has
 * ended (libtier/abi/hazard.h H4), and with it the slab, however long it takes to map that.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/reader.h"

#define GROUP 64u

/* ---- questions ------------------------------------------------------------------------------- */

/* The answer is in t->message, whose descriptors the caller drops. */
static int ask(struct tier *t, const tier_device *d, struct wire_slab *q) REQUIRES(t->wire)
{
	if (connection_attachment(t)->number != d->number)
		return error_note(-ESTALE, "device: the daemon was replaced");
	return attach_ask(t, &q->header, sizeof(*q), WIRE_SLAB);
}

static struct wire_slab question(const tier_device *d, uint16_t type, uint32_t level,
				 uint64_t offset)
{
	return (struct wire_slab){ .header.type = type, .tier = level, .offset = offset,
				   .context_id = context_map(d->c)->context_id };
}

/* Tell that it is not mapped any more. *next: the next one that is wanted back; bytes 0 = none. */
static int tell_left(tier_device *d, struct wire_slab *q, struct wire_slab *next)
{
	struct tier *t = d->c->t;
	int rc;

	LOCK_SCOPE(&t->wire);
	rc = ask(t, d, q);
	if (rc == 0)
		*next = t->message->slab;
	if (rc == 0)
		message_drop(t->message);
	return rc;
}

/* ---- a slab ---------------------------------------------------------------------------------- */

static int driver_refuses(const char *what, cuda_result result)
{
	return error_set(cuda_errno(result), "device: the driver refuses to %s (error %d)", what,
			 result);
}

static int import_piece(tier_device *d, uint64_t at, uint64_t bytes, int fd)
{
	uint64_t handle;
	cuda_result result = d->cu.import_fd(&handle, (void *)(intptr_t)fd, CUDA_HANDLE_FD);

	if (result)
		return driver_refuses("import a piece of HBM", result);
	result = d->cu.map(at, bytes, 0, handle, 0);
	d->cu.release(handle); /* the mapping keeps it */
	return result ? driver_refuses("map a piece of HBM", result) : 0;
}

static void unmap_pieces(tier_device *d, uint64_t at, uint64_t bytes, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		d->cu.unmap(at + i * bytes, bytes);
}

/* HBM: for reading, whatever the descriptors would allow. */
static int map_pieces(tier_device *d, struct device_tier *t, struct device_slab *s,
		      const struct message *m)
{
	const struct cuda_access access = { .location = { CUDA_AT_DEVICE, d->ordinal },
					    .flags = CUDA_ACCESS_READ };
	uint64_t at = t->base + m->slab.offset, bytes = t->slab_bytes / m->fd_count;
	uint32_t made = 0;
	cuda_result result;
	int rc = 0;

	for (; made < m->fd_count && rc == 0; made += rc == 0)
		rc = import_piece(d, at + made * bytes, bytes, m->fd[made]);
	result = rc ? 0 : d->cu.set_access(at, t->slab_bytes, &access, 1);
	if (result)
		rc = driver_refuses("map HBM for reading", result);
	if (rc) {
		unmap_pieces(d, at, bytes, made);
		return rc;
	}
	s->address = at;
	s->pieces = m->fd_count;
	return 0;
}

/* Host memory, as this process has it mapped: read-only. */
static int register_slab(tier_device *d, struct device_slab *s, uint32_t level, uint64_t offset,
			 uint64_t bytes)
{
	const struct map *m = context_map(d->c);
	const uint8_t *base = level == DEVICE_INDEX ? m->index_base : m->mem[level];
	void *at = (void *)(uintptr_t)(base + offset);
	cuda_result result;

	if (!base || (level < DEVICE_INDEX && offset + bytes > m->mem_bytes[level]))
		return -ENODATA;
	if (!d->read_only)
		return error_note(-EOPNOTSUPP, "device: it registers no read-only memory");
	result = d->cu.host_register(at, bytes, CUDA_REGISTER_READ_ONLY);
	if (result)
		return driver_refuses("register memory", result);
	result = d->cu.host_address(&s->address, at, 0);
	if (result) {
		d->cu.host_unregister(at);
		s->address = 0;
		return driver_refuses("tell the address of registered memory", result);
	}
	s->host = at;
	return 0;
}

/* What kernels find there from now on. */
static void publish(tier_device *d, uint32_t level, uint64_t number)
{
	const struct device_tier *t = &d->tier[level];
	const struct device_slab *s = &t->slab[number];
	uint64_t address = s->leaves ? 0 : s->address, *chunk;

	if (!d->view)
		return;
	if (level == DEVICE_INDEX) {
		atomic_store_release_u64(&d->view->index, address);
		return;
	}
	chunk = (uint64_t *)(d->view + 1) + (level == ABI_TIER_CXL ? d->view->chunks[0] : 0);
	chunk += number * (t->slab_bytes / TIER_VIEW_CHUNK);
	for (uint64_t i = 0; i < t->slab_bytes / TIER_VIEW_CHUNK; i++)
		atomic_store_release_u64(&chunk[i], address ? address + i * TIER_VIEW_CHUNK : 0);
}

static void let_go(tier_device *d, uint32_t level, uint64_t number)
{
	struct device_tier *t = &d->tier[level];
	struct device_slab *s = &t->slab[number];

	if (s->host)
		d->cu.host_unregister(s->host);
	else
		unmap_pieces(d, s->address, t->slab_bytes / s->pieces, s->pieces);
	d->leaving -= s->leaves;
	*s = (struct device_slab){ .address = 0 };
}

/* The first slab tells how large they are. The driver's addresses for HBM are reserved then. */
static int begin_tier(tier_device *d, uint32_t level, const struct message *m)
{
	struct device_tier *t = &d->tier[level];
	const struct map *map = context_map(d->c);
	uint64_t room, bytes = level == DEVICE_INDEX ? map->index_bytes : map->tier_bytes[level];
	cuda_result result;

	if (!m->slab.bytes || (level < DEVICE_INDEX && m->slab.bytes % ABI_HUGE))
		return error_note(-EPROTO, "device: a slab of no size");
	t->slab_bytes = m->slab.bytes;
	t->slabs = bytes / t->slab_bytes;
	room = t->slabs * t->slab_bytes;
	if (m->fd_count && !t->base) {
		result = d->cu.reserve(&t->base, room, ABI_HUGE, 0, 0);
		if (result)
			return driver_refuses("reserve addresses", result);
	}
	t->slab = calloc(t->slabs, sizeof(*t->slab));
	return t->slab ? 0 : error_note(-ENOMEM, "device: out of memory");
}

static bool answer_fits(const struct device_tier *t, const struct message *m, uint64_t offset)
{
	const struct wire_slab *a = &m->slab;

	return a->bytes == t->slab_bytes && a->offset % a->bytes == 0 && a->offset <= offset &&
	       offset - a->offset < a->bytes && a->offset / a->bytes < t->slabs &&
	       a->pieces == m->fd_count && (!a->pieces || a->bytes / ABI_HUGE % a->pieces == 0);
}

/* What was taken, by the answer; *number = its slab. */
static int map_answer(tier_device *d, uint32_t level, uint64_t offset, const struct message *m)
{
	struct device_tier *t = &d->tier[level];
	int rc = t->slab ? 0 : begin_tier(d, level, m);
	uint64_t number;

	if (rc)
		return rc;
	if (!answer_fits(t, m, offset))
		return error_note(-EPROTO, "device: the daemon's slab is not the one asked for");
	number = m->slab.offset / t->slab_bytes;
	rc = m->fd_count ? map_pieces(d, t, &t->slab[number], m)
			 : register_slab(d, &t->slab[number], level, m->slab.offset, m->slab.bytes);
	if (rc == 0)
		publish(d, level, number);
	return rc;
}

/* It is not for now, but may be later; all other refusals are for good. */
static bool may_come(int error)
{
	return error == -EAGAIN || error == -EDQUOT || error == -ENOMEM || error == -EMFILE ||
	       error == -ESTALE || error == -ENOTCONN || error == -ETIMEDOUT;
}

/* The slab of that byte, for the device. */
static int take(tier_device *d, uint32_t level, uint64_t offset)
{
	struct wire_slab q = question(d, WIRE_SLAB_TAKE, level, offset);
	struct tier *t = d->c->t;
	int rc;

	LOCK_SCOPE(&t->wire);
	rc = ask(t, d, &q);
	if (rc)
		return rc;
	rc = map_answer(d, level, offset, t->message);
	if (rc == 0) {
		message_drop(t->message);
		return 0;
	}
	q = t->message->slab;
	message_drop(t->message);
	q.header.type = WIRE_SLAB_LEAVE;
	q.pieces = 0;
	if (ask(t, d, &q) == 0)
		message_drop(t->message);
	return rc;
}

/* Where the byte is on the device; 0: this device does not have it now. */
static uint64_t address_of(tier_device *d, uint32_t level, uint64_t offset)
{
	struct device_tier *t = &d->tier[level];
	struct device_slab *s = t->slab ? &t->slab[offset / t->slab_bytes] : NULL;
	int rc;

	if (t->refused || (t->slab && offset / t->slab_bytes >= t->slabs) || (s && s->leaves))
		return 0;
	if (!s || (!s->address && s->asked != d->calls)) {
		rc = take(d, level, offset);
		t->refused = rc && !may_come(rc);
		s = t->slab ? &t->slab[offset / t->slab_bytes] : NULL;
		if (rc && s)
			s->asked = d->calls;
	}
	if (!s || !s->address)
		return 0;
	s->era = d->r->era_begin;
	return s->address + offset % t->slab_bytes;
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* Those that no launch reads any more. */
static int leave_some(tier_device *d)
{
	uint64_t done = atomic_load_acquire_u64(&d->r->era_area->era_done);
	int rc = 0;

	for (uint32_t level = 0; level < DEVICE_LEVELS && d->leaving && rc == 0; level++) {
		struct device_tier *t = &d->tier[level];

		for (uint64_t i = 0; t->slab && i < t->slabs && rc == 0; i++) {
			struct wire_slab q = question(d, WIRE_SLAB_LEAVE, level, i * t->slab_bytes);

			if (!t->slab[i].leaves || t->slab[i].era > done)
				continue;
			q.bytes = t->slab_bytes;
			let_go(d, level, i);
			rc = tell_left(d, &q, &q);
		}
	}
	return rc;
}

/* No launch to come uses it; those that have begun may have found it in the view. */
static void mark_leaving(tier_device *d, uint32_t level, uint64_t number)
{
	struct device_slab *s = &d->tier[level].slab[number];

	if (!s->address || s->leaves)
		return;
	s->leaves = true;
	d->leaving++;
	if (d->view)
		s->era = d->r->era_begin;
	publish(d, level, number);
}

/* What the daemon wants of this context is not used any more. */
static int look_at_wanted(tier_device *d)
{
	struct wire_slab at = question(d, WIRE_SLAB_LEAVE, 0, 0), q;
	int rc;

	do {
		q = question(d, WIRE_SLAB_LEAVE, at.tier, at.offset);
		rc = tell_left(d, &q, &at);
		if (rc || !at.bytes)
			return rc;
		if (at.tier < DEVICE_LEVELS && d->tier[at.tier].slab &&
		    at.offset / at.bytes < d->tier[at.tier].slabs)
			mark_leaving(d, at.tier, at.offset / at.bytes);
		at.offset += at.bytes;
	} while (at.offset);
	return 0;
}

static int check(const tier_device *d)
{
	int rc;

	if (!d)
		return error_note(-EINVAL, "device: it is NULL");
	rc = connection_check(d->c->t);
	if (rc)
		return rc;
	if (!d->r->era_area)
		return error_note(-EINVAL, "device: its reader's era was closed");
	if (connection_attachment(d->c->t)->number != d->number ||
	    context_map(d->c)->number != d->number)
		return error_note(-ESTALE, "device: the daemon was replaced; end the stream, close "
					   "device and era, and open them anew");
	return 0;
}

int tier_device_give_back(tier_device *d)
{
	const struct abi_region_header *h;
	uint64_t wanted;
	int rc = check(d);

	if (rc)
		return rc;
	h = connection_attachment(d->c->t)->region;
	wanted = atomic_load_acquire_u64(&h->slabs_wanted);
	if (wanted != d->wanted)
		rc = look_at_wanted(d);
	if (rc)
		return rc;
	d->wanted = wanted;
	rc = d->leaving ? leave_some(d) : 0;
	return rc ? rc : (int)d->leaving;
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Places of a page in each tier, as its words say; UINT64_MAX = none. */
struct places {
	uint64_t at[ABI_MEM_TIERS];
	uint32_t bytes;
	int error;
};

/* The words, and the block's generation last: what it was of is what is read. */
static void find_places(const struct map *m, struct tier_page page, struct places *out)
{
	const struct abi_block *b = &m->block[page.block.slot];
	const struct abi_page *p;
	uint32_t generation = page.block.generation ^ m->salt;

	*out = (struct places){ .at = { UINT64_MAX, UINT64_MAX } };
	out->error = page.page >= m->pages_per_block ? -EINVAL :
		     page.block.slot >= m->blocks_max ? -ESTALE : 0;
	if (out->error)
		return;
	p = &m->page[(uint64_t)page.block.slot * m->pages_per_block + page.page];
	out->bytes = m->part[map_part_of(m, page.page)].page_bytes;
	if (atomic_load_acquire_u32(&b->state) == ABI_BLOCK_PENDING)
		out->error = -ENODATA;
	else if (map_closed(m) || atomic_load_acquire_u32(&b->state) != ABI_BLOCK_COMMITTED ||
		 atomic_load_relaxed_u32(&b->epoch) != map_epoch(m))
		out->error = -ESTALE;
	for (uint32_t t = 0; t < ABI_MEM_TIERS && !out->error; t++) {
		uint64_t word = atomic_load_acquire_u64(&p->word[t]);

		if (abi_word_state(word) == ABI_PAGE_READY &&
		    abi_word_addr(word) + out->bytes <= m->tier_bytes[t])
			out->at[t] = abi_word_addr(word);
	}
	if (atomic_load_acquire_u32(&b->generation) != generation)
		out->error = -ESTALE;
}

static bool fill(tier_device *d, const struct places *from, struct tier_device_page *out)
{
	*out = (struct tier_device_page){ .bytes = from->bytes, .error = from->error };
	if (from->error)
		return false;
	for (uint32_t t = 0; t < ABI_MEM_TIERS && !out->address; t++) {
		out->tier = (uint16_t)t;
		out->address = from->at[t] == UINT64_MAX ? 0 : address_of(d, t, from->at[t]);
	}
	out->error = out->address ? 0 : -ENODATA;
	return out->address != 0;
}

int tier_device_pages(tier_device *d, const struct tier_page *pages, uint32_t count,
		      struct tier_device_page *out)
{
	struct places places[GROUP];
	uint32_t found = 0, n;
	int rc;

	if (count && (!pages || !out))
		return error_note(-EINVAL, "tier_device_pages: pages or out is NULL");
	rc = tier_device_give_back(d);
	if (rc < 0)
		return rc;
	if (atomic_load_acquire_u64(&d->r->era_area->era_done) >= d->r->era_begin)
		return error_note(-EINVAL, "tier_device_pages: no launch is announced; "
					   "tier_era_begin comes first");
	d->calls++;
	for (uint32_t at = 0; at < count; at += n) {
		const struct map *m = reader_enter(d->r, d->c, &rc);

		if (!m)
			return rc;
		if (m->number != d->number) {
			reader_leave(d->r);
			return check(d);
		}
		n = count - at < GROUP ? count - at : GROUP;
		for (uint32_t i = 0; i < n; i++)
			find_places(m, pages[at + i], &places[i]);
		reader_leave(d->r);
		for (uint32_t i = 0; i < n; i++)
			found += fill(d, &places[i], &out[at + i]);
	}
	return (int)found;
}

/* ---- for kernels that look by themselves ----------------------------------------------------- */

static int make_view(tier_device *d)
{
	const struct map *m = context_map(d->c);
	struct tier_device_view *v;
	uint64_t bytes = sizeof(*v), chunks[2];
	cuda_result result;

	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		chunks[t] = m->tier_bytes[t] / TIER_VIEW_CHUNK;
		bytes += chunks[t] * sizeof(uint64_t);
	}
	v = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (v == MAP_FAILED)
		return error_note(-ENOMEM, "device: out of memory");
	result = d->cu.host_register(v, bytes, CUDA_REGISTER_READ_ONLY);
	if (!result) {
		result = d->cu.host_address(&d->view_address, v, 0);
		if (result)
			d->cu.host_unregister(v);
	}
	if (result) {
		munmap(v, bytes);
		return driver_refuses("register the view", result);
	}
	v->chunk[0] = d->view_address + sizeof(*v);
	v->chunk[1] = v->chunk[0] + chunks[0] * sizeof(uint64_t);
	memcpy(v->chunks, chunks, sizeof(chunks));
	v->block_offset = (uint64_t)((const uint8_t *)m->block - (const uint8_t *)m->index_base);
	v->page_offset = (uint64_t)((const uint8_t *)m->page - (const uint8_t *)m->index_base);
	v->blocks = m->blocks_max;
	v->pages = m->pages_per_block;
	v->salt = m->salt;
	d->view = v;
	d->view_bytes = bytes;
	return 0;
}

int tier_device_view(tier_device *d, uint64_t *address)
{
	struct device_tier *t;
	int rc;

	if (!address)
		return error_note(-EINVAL, "tier_device_view: address is NULL");
	rc = tier_device_give_back(d);
	if (rc < 0)
		return rc;
	if (!d->read_only)
		return error_note(-ENOTSUP, "device: it registers no read-only memory");
	if (!d->view) {
		rc = make_view(d);
		for (uint32_t level = 0; level < ABI_MEM_TIERS && rc == 0; level++)
			for (uint64_t i = 0; d->tier[level].slab && i < d->tier[level].slabs; i++)
				publish(d, level, i);
		if (rc)
			return rc;
	}
	*address = d->view_address;
	t = &d->tier[DEVICE_INDEX];
	if (t->slab && t->slab[0].address)
		return t->slab[0].leaves ? error_note(-EAGAIN, "device: the index is wanted back")
					 : 0;
	rc = take(d, DEVICE_INDEX, 0);
	return rc == -EINVAL ? error_note(-ENOTSUP, "tier_device_view: the daemon is older") : rc;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int begin_driver(tier_device *d)
{
	struct cuda_context *context = NULL;
	int32_t read_only = 0;
	int rc = cuda_driver_load(&d->cu, NULL);

	if (rc)
		return error_set(rc, "tier_device_open: %s", rc == -ENODEV ?
				 "there is no libcuda.so.1" : "the CUDA driver is too old");
	if (d->cu.context_get(&context) || !context || d->cu.context_device(&d->ordinal))
		return error_note(-ENODEV, "tier_device_open: the thread has no CUDA context");
	d->read_only = !d->cu.device_attribute(&read_only, CUDA_ATTRIBUTE_REGISTER_READ_ONLY,
					       d->ordinal) && read_only;
	return 0;
}

int tier_device_open(tier_context *c, tier_reader *r, tier_device **out)
{
	struct tier_device *d;
	int rc = context_check(c);

	if (rc)
		return rc;
	if (!out || !r || r->t != c->t || !r->era_area)
		return error_note(-EINVAL, "tier_device_open: the reader has no era, or is of "
					   "another connection");
	*out = NULL;
	if (!connection_attachment(c->t)->slabs)
		return error_note(-ENOTSUP, "tier_device_open: the daemon is older; update it");
	d = calloc(1, sizeof(*d));
	if (!d)
		return error_note(-ENOMEM, "device: out of memory");
	d->c = c;
	d->r = r;
	d->number = r->era_number;
	rc = begin_driver(d);
	if (rc == 0)
		rc = check(d);
	if (rc) {
		free(d);
		return rc;
	}
	LOCK_SCOPE(&c->t->lock);
	list_push_back(&c->t->devices, &d->link);
	*out = d;
	return 0;
}

void tier_device_close(tier_device *d)
{
	if (!d || connection_check(d->c->t))
		return;
	for (uint32_t level = 0; level < DEVICE_LEVELS; level++) {
		struct device_tier *t = &d->tier[level];

		for (uint64_t i = 0; t->slab && i < t->slabs; i++) {
			struct wire_slab q = question(d, WIRE_SLAB_LEAVE, level, i * t->slab_bytes);

			if (!t->slab[i].address)
				continue;
			q.bytes = t->slab_bytes;
			let_go(d, level, i);
			tell_left(d, &q, &q); /* a daemon that was replaced does not want it */
		}
		if (t->base)
			d->cu.unreserve(t->base, t->slabs * t->slab_bytes);
		free(t->slab);
	}
	if (d->view) {
		d->cu.host_unregister(d->view);
		munmap(d->view, d->view_bytes);
	}
	{
		LOCK_SCOPE(&d->c->t->lock);
		list_remove(&d->link);
	}
	free(d);
}
