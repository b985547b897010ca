/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What no schedule of Belady's loads can better: the wait of a reader whose blocks are loaded one
 * after the other by a device without latency, each as early as there is a place for it.
 *
 * Given which accesses load (Belady's misses with the whole tier) and which blocks stay from one
 * access to the next (he keeps them), a place is taken at a time by each block that stays across
 * it, and by each that was loaded and is still to be read. A load may start when fewer than all are
 * taken. No later one finds fewer because of it: the reader's next access turns a block that was
 * loaded ahead into one that stays, or into a free place, and takes none more. So starting at once
 * is never worse than starting later. Nor is the order of the accesses: loads are alike, any place
 * does for any of them, and were a later access's load before an earlier one's, the two could
 * change places and the reader would wait no longer. It is the least for these loads; with others
 * (more of them, say, for more room ahead) one could wait for less.
 */
#include "bench/model/least.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/unit/belady.h"

struct run {
	const struct least_spec *spec;
	uint8_t *loads; /* by access: its block is loaded */
	uint8_t *stays; /* by access: its block stays until the next access of it */
	double *end_ns; /* by load */
	double now_ns, device_ns;
	uint32_t begun, read; /* loads; the latter's blocks were read */
	uint32_t staying;
};

static int decide(struct run *r)
{
	const struct least_spec *s = r->spec;
	void *memory = malloc(belady_bytes(s->count));
	struct belady_op op;
	struct belady b;

	if (!memory)
		return -ENOMEM;
	belady_init(&b, memory, s->count, s->capacity);
	for (uint32_t i = 0; i < s->count; i++)
		belady_add(&b, (struct abi_block_ref){ s->seq[i], 1 });
	for (uint32_t i = 0; i < s->count; i++)
		r->stays[i] = b.access[i].next != BELADY_NEVER;
	while (b.cursor < b.count) {
		if (!belady_step(&b, &op))
			continue;
		r->loads[op.access] = 1;
		if (op.victim != BELADY_NONE)
			r->stays[op.after] = 0;
	}
	free(memory);
	return 0;
}

static void begin_what_may(struct run *r, uint32_t loads)
{
	while (r->begun < loads && r->staying + (r->begun - r->read) < r->spec->capacity) {
		r->device_ns = r->device_ns > r->now_ns ? r->device_ns : r->now_ns;
		r->device_ns += (double)r->spec->block_ns;
		r->end_ns[r->begun++] = r->device_ns;
	}
}

static double read_all(struct run *r, uint32_t loads)
{
	double stall_ns = 0, wait_ns;

	begin_what_may(r, loads);
	for (uint32_t i = 0; i < r->spec->count; i++) {
		if (r->loads[i]) {
			wait_ns = r->end_ns[r->read++] - r->now_ns;
			stall_ns += wait_ns > 0 ? wait_ns : 0;
			r->now_ns += wait_ns > 0 ? wait_ns : 0;
			r->staying += r->stays[i];
		} else {
			r->staying -= !r->stays[i];
		}
		begin_what_may(r, loads);
		r->now_ns += (double)r->spec->compute_ns;
	}
	return stall_ns;
}

int least_stall(const struct least_spec *spec, struct least *out)
{
	struct run r = { .spec = spec };
	int err = -ENOMEM;

	*out = (struct least){ .loads = 0 };
	r.loads = calloc(spec->count, 1);
	r.stays = calloc(spec->count, 1);
	r.end_ns = calloc(spec->count, sizeof(*r.end_ns));
	if (r.loads && r.stays && r.end_ns)
		err = decide(&r);
	for (uint32_t i = 0; !err && i < spec->count; i++)
		out->loads += r.loads[i];
	if (!err)
		out->stall_ns = read_all(&r, out->loads);
	free(r.loads);
	free(r.stays);
	free(r.end_ns);
	return err;
}
