/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVMe drives behind the device, one or two: they are told by doorbells, read entries and lists of
 * pages where the device says, move data at any time before they answer, and answer in any order,
 * with an error now and then, sometimes twice, sometimes not before they are asked. All that they
 * read is compared with what the model of the queues (model/nvme.h) has there.
 */
#include <assert.h>
#include <string.h>

#include "bench.h"

#define DOORBELLS 0x1000u
#define CSTS 0x1cu
#define CSTS_READY 1u
#define CSTS_FATAL 2u
#define READ_FAILED 0x281u  /* status: media error, unrecovered read */
#define WRITE_FAILED 0x280u /* ... write fault */
#define WITHDRAWN 7u
#define NOT_ABORTED 1u

/* How the last drive fails at its start. */
enum sick { SOUND, SICK_FATAL, SICK_CQ, SICK_SQ, SICKEST = SICK_SQ };
enum { ADMIN, IO };

uint32_t drives_sickest(void)
{
	return SICKEST;
}

void drives_open(struct bench *b, uint32_t sick)
{
	struct drives *s = &b->drives;

	s->sick = sick;
	for (uint32_t i = 0; i < NVME_DRIVES_MAX; i++)
		s->drive[i].polls = 2 + (uint8_t)i;
}

static bool is_sick(struct bench *b, uint32_t drive, enum sick how)
{
	return b->drives.sick == how && !(nvme_drives(b->nvme) > drive + 1);
}

static uint64_t field(const uint8_t *bytes, uint32_t at, uint32_t count)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < count; i++)
		value |= (uint64_t)bytes[at + i] << 8 * i;
	return value;
}

static void put(uint8_t *bytes, uint32_t at, uint64_t value, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		bytes[at + i] = (uint8_t)(value >> 8 * i);
}

/* --- data */

static uint64_t line_of(const struct bench *b, uint32_t drive, uint64_t block, uint32_t *part)
{
	uint32_t log = b->shape.line_log - 6, unit_log = b->shape.unit_log;
	uint64_t line = block >> log, unit = (line >> unit_log) * nvme_drives(b->nvme) + drive;

	*part = (uint32_t)(block & ((1u << log) - 1));
	return unit << unit_log | (line & ((1u << unit_log) - 1));
}

static void move_block(struct bench *b, const struct order *o, uint32_t i)
{
	uint32_t part;
	uint64_t line = line_of(b, o->drive, o->block + i, &part), *marks, *mark;
	uint64_t room = (b->stage_place + ((uint64_t)b->shape.units << b->shape.unit_log)) *
			(DEVICE_FLIT << b->shape.line_log);
	uint8_t *there, *here;

	if (o->page[i] > room - NVME_BLOCK || o->page[i] % NVME_BLOCK ||
	    line >= b->drives.media.lines ||
	    o->metadata != NVME_METADATA + o->page[0] / NVME_BLOCK * 8) {
		bench_differ(b, "a command that moves page %llx, block %llx, metadata %llx",
			     (unsigned long long)o->page[i], (unsigned long long)o->block + i,
			     (unsigned long long)o->metadata);
		return;
	}
	here = b->dram + o->page[i];
	if (o->error) {
		if (!o->write) /* part of it came */
			memset(here, 0xee, NVME_BLOCK / 2);
		return;
	}
	there = media_line(&b->drives.media, line, &marks) + (size_t)part * NVME_BLOCK;
	mark = &b->dram_poison[(o->metadata - NVME_METADATA) / 8 + i];
	if (o->write) {
		memcpy(there, here, NVME_BLOCK);
		marks[part] = *mark;
	} else {
		memcpy(here, there, NVME_BLOCK);
		*mark = marks[part];
	}
}

static void move_blocks(struct bench *b, struct order *o)
{
	for (uint32_t i = 0; !o->moved && i < o->blocks; i++)
		move_block(b, o, i);
	o->moved = true;
}

/* --- commands */

static uint64_t flash_cycles(struct bench *b)
{
	uint64_t cycles = b->phase.flash_least +
			  bench_random(b) % (b->phase.flash_most - b->phase.flash_least + 1);

	return bench_chance(b, b->phase.slow) ? 32 * cycles : cycles;
}

static struct order *free_order(struct bench *b)
{
	struct order *o = b->drives.order;

	while (o->used)
		o++;
	assert(o < b->drives.order + BENCH_FLASH);
	b->drives.orders++;
	return o;
}

static void forget(struct bench *b, struct order *o)
{
	o->used = false;
	b->drives.orders--;
}

/* An entry of the admin queue. */
static void take_admin(struct bench *b, uint32_t drive, const uint8_t *entry)
{
	struct queue_pair *pair = &b->drives.drive[drive].pair[IO];
	struct order *o = free_order(b);

	*o = (struct order){ .used = true, .abort = true, .drive = (uint8_t)drive,
			     .cid = (uint16_t)field(entry, 2, 2), .due = b->cycle + 1 +
			     bench_random(b) % 32 };
	if (entry[0] == 5) {
		o->error = is_sick(b, drive, SICK_CQ);
		pair->cq = field(entry, 24, 8);
		pair->cq_entries = (uint32_t)field(entry, 42, 2) + 1;
		pair->phase = 1;
	} else if (entry[0] == 1) {
		o->error = is_sick(b, drive, SICK_SQ);
		pair->sq = field(entry, 24, 8);
		pair->sq_entries = (uint32_t)field(entry, 42, 2) + 1;
	} else {
		o->twice = bench_chance(b, b->phase.doubles);
		o->target = (uint16_t)field(entry, 42, 2);
		o->withdrawn = true;
	}
}

/* Its pages are known. */
static void begin_order(struct bench *b, struct order *o)
{
	uint32_t lines = o->blocks >> (b->shape.line_log - 6);

	o->due = b->readers ? drive_due(&b->drives.exp, b->readers->set, b->cycle, lines) :
			      b->cycle + 1 + flash_cycles(b);
	if (o->lost)
		cover_hit(b, COVER_answer_lost);
	if (bench_chance(b, 500))
		move_blocks(b, o);
}

/* An entry of the I/O queue. True: its list is to be read. */
static bool take_command(struct bench *b, uint32_t drive, const uint8_t *entry)
{
	struct order *o = free_order(b);

	*o = (struct order){ .used = true, .drive = (uint8_t)drive, .write = entry[0] == 1,
			     .cid = (uint16_t)field(entry, 2, 2),
			     .metadata = field(entry, 16, 8), .block = field(entry, 40, 8),
			     .blocks = (uint32_t)field(entry, 48, 2) + 1,
			     .error = bench_chance(b, b->phase.errors),
			     .twice = bench_chance(b, b->phase.doubles),
			     .lost = bench_chance(b, b->phase.losts), .due = UINT64_MAX };
	if (o->blocks > BENCH_BLOCKS) {
		bench_differ(b, "a command of %u blocks", o->blocks);
		o->blocks = 1;
	}
	o->page[0] = field(entry, 24, 8);
	o->page[1] = field(entry, 32, 8); /* of two; else the list of the others */
	b->drives.dma.order = o;
	b->drives.dma.list = o->page[1];
	b->drives.dma.listed = 0;
	if (o->blocks > 2)
		return true;
	begin_order(b, o);
	return false;
}

static void take_list(struct bench *b, const uint8_t *bytes)
{
	struct dma *d = &b->drives.dma;
	struct order *o = d->order;

	cover_hit(b, COVER_list_read);
	for (uint32_t i = 0; i < 8 && d->listed + 1 < o->blocks; i++)
		o->page[1 + d->listed++] = field(bytes, 8 * i, 8);
	d->what = d->listed + 1 < o->blocks ? DMA_LIST : DMA_NONE;
	if (d->what == DMA_NONE)
		begin_order(b, o);
}

/* --- the port on which they read and write */

static void ask_read(struct bench *b, uint64_t address)
{
	b->in.dma_valid = true;
	b->in.dma_write = false;
	b->in.dma_addr = address;
}

static bool may_post(struct bench *b, const struct order *o)
{
	const struct queue_pair *p = &b->drives.drive[o->drive].pair[o->abort ? ADMIN : IO];

	return (p->cq_tail + 1) % p->cq_entries != p->cq_head;
}

/* The command that an abort withdraws is answered first. True: there is one. */
static bool withdraw(struct bench *b, struct order *o)
{
	for (struct order *t = b->drives.order; o->withdrawn && t < b->drives.order + BENCH_FLASH;
	     t++) {
		if (!t->used || t->abort || t->drive != o->drive || t->cid != o->target)
			continue;
		t->lost = false;
		t->due = b->cycle;
		if (!t->moved && bench_chance(b, 300))
			move_blocks(b, t);
		t->withdrawn |= !t->moved;
		t->moved = true;
		return true;
	}
	return false;
}

static struct order *due_order(struct bench *b)
{
	for (uint32_t i = 0, left = b->drives.orders; i < BENCH_FLASH && left > 0; i++) {
		struct order *o = &b->drives.order[i];

		left -= o->used;
		if (!o->used || o->lost || o->due > b->cycle || !may_post(b, o))
			continue;
		if (o->abort && withdraw(b, o))
			continue;
		return o;
	}
	return NULL;
}

static uint32_t status_of(const struct order *o)
{
	if (!o->abort && o->withdrawn)
		return WITHDRAWN;
	return !o->error ? 0 : o->write ? WRITE_FAILED : READ_FAILED;
}

static void ask_post(struct bench *b, struct order *o)
{
	struct queue_pair *p = &b->drives.drive[o->drive].pair[o->abort ? ADMIN : IO];
	uint8_t *entry = b->in.dma_wdata;
	bool garbled = bench_chance(b, b->phase.doubles / 4);

	move_blocks(b, o);
	b->in.dma_valid = b->in.dma_write = true;
	b->in.dma_addr = p->cq + 16ull * p->cq_tail;
	put(entry, 0, NOT_ABORTED, 8);
	put(entry, 8, garbled ? nvme_no_head(b->nvme, o->drive, !o->abort, bench_random(b)) :
				p->sq_head, 2);
	put(entry, 10, !o->abort, 2);
	put(entry, 12, o->cid, 2);
	put(entry, 14, status_of(o) << 1 | p->phase, 2);
	b->drives.dma.what = DMA_POST;
	b->drives.dma.order = o;
	if (garbled)
		cover_hit(b, COVER_taken_garbled);
}

/* Reads and writes that have no sense. */
static void ask_wild(struct bench *b)
{
	const struct queue_pair *p = &b->drives.drive[0].pair[IO];
	uint64_t address[] = { NVME_QUEUES | 1 << 19, NVME_QUEUES + 32, NVME_METADATA,
			       NVME_QUEUES | 1 << 15, bench_random(b) & 0xfff000 };

	ask_read(b, address[bench_random(b) % 5]);
	b->drives.dma.what = DMA_WILD;
	if (!bench_chance(b, 500))
		return;
	/* an entry of the last round, or a later one */
	b->in.dma_write = true;
	b->in.dma_addr = p->cq + 16ull * (bench_chance(b, 500) ? p->cq_tail :
					   (p->cq_tail + 1) % p->cq_entries);
	put(b->in.dma_wdata, 0, bench_random(b), 8);
	put(b->in.dma_wdata, 8, bench_random(b), 8);
	put(b->in.dma_wdata, 14, (field(b->in.dma_wdata, 14, 2) & ~1ull) | !p->phase, 2);
}

static bool waits(const struct queue_pair *p)
{
	return p->sq_head != p->sq_tail;
}

/* All commands that it knows of are read before an abort, however many that are. */
static bool ask_entry(struct bench *b, uint32_t drive)
{
	struct nvme_drive *d = &b->drives.drive[drive];
	uint32_t q = waits(&d->pair[IO]) ? IO : ADMIN;

	if (!waits(&d->pair[q]) ||
	    (b->drives.orders >= b->phase.drive_room && !waits(&d->pair[ADMIN])))
		return false;
	b->drives.dma.drive = (uint8_t)drive;
	b->drives.dma.queue = (uint8_t)q;
	b->drives.dma.what = DMA_ENTRY;
	ask_read(b, (q == IO ? d->pair[IO].sq : d->asq) + 64ull * d->pair[q].sq_head);
	return true;
}

static void ask_something(struct bench *b)
{
	struct dma *d = &b->drives.dma;
	uint32_t first = (uint32_t)(b->cycle & 1);
	struct order *o;

	if (d->what == DMA_LIST) {
		ask_read(b, d->list + 8ull * d->listed);
		return;
	}
	o = due_order(b);
	if (o && (first || !ask_entry(b, 0)))
		ask_post(b, o);
	else if (!o && !ask_entry(b, first) && !ask_entry(b, !first) && b->answered < b->asked &&
		 bench_chance(b, b->phase.doubles / 8))
		ask_wild(b); /* not at rest, where counters are compared */
}

void drives_drive(struct bench *b)
{
	struct drives *s = &b->drives;

	if (!b->nvme)
		return;
	b->in.mmio_ready = !bench_chance(b, b->phase.stalls) &&
			   (b->out.mmio_valid || !b->phase.late_ready);
	b->in.mmio_rvalid = s->reads_csts && s->drive[s->csts_drive].csts_due <= b->cycle;
	b->in.mmio_rdata = s->drive[s->csts_drive].csts;
	b->in.dma_rready = !bench_chance(b, b->phase.stalls) &&
			   (b->out.dma_rvalid || !b->phase.late_ready);
	if (!b->in.dma_valid && !s->dma.asked && !bench_chance(b, b->phase.stalls))
		ask_something(b);
}

/* --- what they are told */

static void ring(struct bench *b, struct nvme_drive *d, uint32_t offset, uint32_t value)
{
	struct queue_pair *p = &d->pair[(offset - DOORBELLS) / 8 % 2];
	uint32_t entries = nvme_entries(b->nvme);

	if (offset & 4) {
		p->cq_head = value % entries;
		return;
	}
	if ((value - p->sq_tail) % entries > 1)
		cover_hit(b, COVER_bell_for_many);
	p->sq_tail = value % entries;
}

static void set_register(struct bench *b, uint32_t drive, uint32_t offset, uint64_t value)
{
	struct nvme_drive *d = &b->drives.drive[drive];

	if (!nvme_register(b->nvme, drive, offset, value))
		bench_differ(b, "drive %u: register %x is written with %llx", drive, offset,
			     (unsigned long long)value);
	if (offset >= DOORBELLS)
		ring(b, d, offset, (uint32_t)value);
	else if (offset == 0x24)
		d->pair[ADMIN].sq_entries = d->pair[ADMIN].cq_entries = (value & 0xfff) + 1;
	else if (offset == 0x28)
		d->asq = value;
	else if (offset == 0x30)
		d->pair[ADMIN].cq = value;
	else if (offset == 0x14)
		d->pair[ADMIN].phase = 1;
}

static void read_csts(struct bench *b, uint32_t drive)
{
	struct nvme_drive *d = &b->drives.drive[drive];

	b->drives.reads_csts = true;
	b->drives.csts_drive = (uint8_t)drive;
	d->csts_due = b->cycle + 2 + bench_random(b) % 8;
	d->polls--;
	d->csts = d->polls ? 0 : is_sick(b, drive, SICK_FATAL) ? CSTS_FATAL : CSTS_READY;
}

static void mmio_sample(struct bench *b)
{
	struct drives *s = &b->drives;
	const struct pins_out *out = &b->out;

	if (b->in.mmio_rvalid && out->mmio_rready) {
		s->reads_csts = false;
		if (b->in.mmio_rdata)
			nvme_ready(b->nvme, s->csts_drive, b->in.mmio_rdata & CSTS_FATAL);
	}
	if (!out->mmio_valid || !b->in.mmio_ready)
		return;
	if (out->mmio_write)
		set_register(b, out->mmio_drive, out->mmio_addr, out->mmio_wdata);
	else if (out->mmio_addr != CSTS || s->reads_csts)
		bench_differ(b, "drive %u: register %x is read", out->mmio_drive, out->mmio_addr);
	else
		read_csts(b, out->mmio_drive);
}

static void posted(struct bench *b, struct order *o)
{
	struct queue_pair *p = &b->drives.drive[o->drive].pair[o->abort ? ADMIN : IO];

	p->cq_tail = (p->cq_tail + 1) % p->cq_entries;
	p->phase ^= p->cq_tail == 0;
	if (!o->twice) {
		forget(b, o);
		return;
	}
	o->twice = false;
	o->due = b->cycle + 1 + bench_random(b) % 8;
}

static void write_taken(struct bench *b)
{
	struct drives *s = &b->drives;
	enum nvme_taken taken = nvme_write(b->nvme, b->in.dma_addr, b->in.dma_wdata,
					   &s->answer_cid, &s->answer_error);

	s->answer_due = taken == NVME_ANSWER;
	if (taken == NVME_IGNORED)
		cover_hit(b, COVER_entry_ignored);
	if (s->dma.what == DMA_POST) {
		if (taken == NVME_IGNORED)
			bench_differ(b, "an entry that the model ignores");
		posted(b, s->dma.order);
	}
	s->dma.what = DMA_NONE;
}

static void read_came(struct bench *b)
{
	struct dma *d = &b->drives.dma;
	const uint8_t *got = b->out.dma_rdata;
	struct queue_pair *p;

	if (b->out.dma_rerror == d->good || memcmp(got, d->want, NVME_ENTRY))
		bench_differ(b, "what drive %u reads at %llx", d->drive,
			     (unsigned long long)b->in.dma_addr);
	d->asked = false;
	if (d->what == DMA_LIST) {
		take_list(b, got);
		return;
	}
	if (d->what == DMA_WILD)
		cover_hit(b, COVER_read_refused);
	if (d->what == DMA_ENTRY) {
		p = &b->drives.drive[d->drive].pair[d->queue];
		p->sq_head = (p->sq_head + 1) % p->sq_entries;
		d->what = DMA_NONE;
		if (d->queue == ADMIN)
			take_admin(b, d->drive, got);
		else if (take_command(b, d->drive, got))
			d->what = DMA_LIST;
		return;
	}
	d->what = DMA_NONE;
}

static void dma_sample(struct bench *b)
{
	struct dma *d = &b->drives.dma;

	if (d->asked && b->out.dma_rvalid && b->in.dma_rready)
		read_came(b);
	if (!b->in.dma_valid || !b->out.dma_ready)
		return;
	b->in.dma_valid = false;
	if (b->in.dma_write) {
		write_taken(b);
		return;
	}
	d->asked = true;
	d->good = nvme_read(b->nvme, b->in.dma_addr, d->want);
}

static void answer_sample(struct bench *b)
{
	struct drives *s = &b->drives;
	const struct pins_out *out = &b->out;

	if (out->cpl_valid != s->answer_due ||
	    (s->answer_due && (out->cpl_cid != s->answer_cid || out->cpl_error != s->answer_error)))
		bench_differ(b, "answer: RTL %u number %x error %u, model %u number %x error %u",
			     out->cpl_valid, out->cpl_cid, out->cpl_error, s->answer_due,
			     s->answer_cid, s->answer_error);
	if (s->answer_due)
		lockstep_completion(b, (uint16_t)s->answer_cid, s->answer_error);
	s->answer_due = false;
}

void drives_sample(struct bench *b)
{
	if (!b->nvme)
		return;
	answer_sample(b); /* of the cycle before */
	dma_sample(b);
	mmio_sample(b);
	if (b->out.abort_valid && b->out.abort_ready)
		lockstep_abort(b);
	if (b->out.cmd)
		lockstep_command(b);
}
