/* SPDX-License-Identifier: Apache-2.0 */
/* The golden model as a port (port.h): flash answers each command at once, in memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fpga-sim/model/device.h"
#include "fpga-sim/model/media.h"
#include "fpga-sim/port/port.h"

/* Of the RTL (rtl/device.sv), which gives flash the same commands therefore. */
#define SETS_LOG 10u
#define TAG_BITS 9u
#define LINE_LOG 6u
#define UNITS 16u
#define UNIT_LOG 2u

/* A clock for deadlines: what the RTL takes for a hit, and 70 us (docs/fpga-experiments.md). */
#define FLIT_CYCLES 5u
#define FLASH_CYCLES 28000u
#define TRIES 4u /* a request: a miss, and a hit when it has ended */

struct model {
	struct sim_port port; /* first */
	struct device *d;
	struct media media;
	struct sim_flash flash;
	uint64_t clock;
	uint64_t address[DEVICE_WINDOWS];
	uint32_t units[DEVICE_WINDOWS]; /* 0: it is free */
};

/* The next command of a register, and what comes of it. False: it has none to give. */
static bool serve_flash(struct model *m, uint32_t id)
{
	struct device_command c;
	struct device_verdict v;
	bool failed;

	if (!device_next(m->d, id, &c))
		return false;
	device_give(m->d, id);
	sim_flash_note(&m->flash, c.write, c.line, c.lines);
	m->clock += FLASH_CYCLES;
	device_answer(m->d, c.cid, false);
	if (device_at_end(m->d, id, &failed))
		device_fill(m->d, id, &v);
	return true;
}

static int move_flit(struct model *m, bool write, uint64_t address, uint8_t *data)
{
	const struct device_request r = { .address = address, .write = write, .data = data };
	struct device_verdict v;

	for (uint32_t i = 0; i < TRIES; i++) {
		m->clock += FLIT_CYCLES;
		device_request(m->d, &r, &v);
		if (v.what == DEVICE_REFUSED)
			return -EIO;
		if (v.what == DEVICE_HIT || v.what == DEVICE_STAGED) {
			if (!write)
				memcpy(data, v.data, SIM_FLIT);
			return v.poison ? -EIO : 0;
		}
		while (serve_flash(m, v.id))
			;
	}
	return -EIO;
}

static int model_move(struct sim_port *p, bool write, uint64_t address, uint8_t *data,
		      uint32_t bytes)
{
	struct model *m = (struct model *)p;
	int rc = 0;

	for (uint32_t at = 0; at < bytes && rc == 0; at += SIM_FLIT)
		rc = move_flit(m, write, address + at, data + at);
	return rc;
}

/* All that windows want now. */
static void run_windows(struct model *m)
{
	struct device_verdict v;
	uint32_t window;
	int what;

	while ((what = device_choose(m->d, &window, m->clock)) >= 0) {
		m->clock++;
		if (what == DEVICE_FREED)
			device_free(m->d, window, &v);
		else
			device_probe(m->d, window, &v);
		while (serve_flash(m, v.id))
			;
	}
}

static int model_stage(struct sim_port *p, const struct sim_stage *s)
{
	struct model *m = (struct model *)p;
	uint32_t units = (uint32_t)(s->bytes / p->unit_bytes), held = 0, window = DEVICE_WINDOWS;

	for (uint32_t i = 0; i < DEVICE_WINDOWS; i++) {
		held += m->units[i];
		window = m->units[i] || window < DEVICE_WINDOWS ? window : i;
	}
	if (window == DEVICE_WINDOWS || units == 0 || held + units > UNITS)
		return -EBUSY;
	device_prefetch(m->d, window, &(struct device_prefetch){
		.address = s->address, .length = units, .limit = UNITS, .class = s->class,
		.deadline = m->clock + s->cycles, .lead = UINT64_MAX });
	run_windows(m);
	m->units[window] = units;
	m->address[window] = s->address;
	return 0;
}

static int model_release(struct sim_port *p, uint64_t address)
{
	struct model *m = (struct model *)p;

	for (uint32_t i = 0; i < DEVICE_WINDOWS; i++) {
		if (!m->units[i] || m->address[i] != address)
			continue;
		device_cancel(m->d, i);
		run_windows(m);
		m->units[i] = 0;
		return 0;
	}
	return -ENOENT;
}

static struct sim_flash model_flash(const struct sim_port *p)
{
	return ((const struct model *)p)->flash;
}

static void model_close(struct sim_port *p)
{
	struct model *m = (struct model *)p;

	device_close(m->d);
	media_close(&m->media);
	free(m);
}

int sim_model_open(struct sim_port **out, uint64_t bytes)
{
	struct device_shape shape = { .sets_log = SETS_LOG, .tag_bits = TAG_BITS,
				      .line_log = LINE_LOG, .mshrs = 8, .units = UNITS,
				      .unit_log = UNIT_LOG, .cleans = 4 };
	struct model *m = calloc(1, sizeof(*m));
	struct device_store store;
	int rc;

	if (!m)
		return -ENOMEM;
	while ((uint64_t)SIM_LINE << (shape.sets_log + shape.tag_bits) < bytes)
		shape.sets_log++;
	m->port = (struct sim_port){ .name = "golden model in process", .move = model_move,
				     .stage = model_stage, .release = model_release,
				     .flash = model_flash, .close = model_close,
				     .unit_bytes = SIM_LINE << UNIT_LOG };
	store = (struct device_store){ .line = media_line, .arg = &m->media };
	rc = media_open(&m->media, 1ull << (shape.sets_log + shape.tag_bits), LINE_LOG);
	if (rc == 0)
		rc = device_open(&m->d, &shape, &store);
	if (rc) {
		model_close(&m->port);
		return rc;
	}
	m->port.capacity = device_capacity(m->d);
	*out = &m->port;
	return 0;
}
