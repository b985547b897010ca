/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a trace, and the document that hands them out; see trace.h. */
#include "tierd/obs/trace.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "libtier/base/time.h"
#include "tierd/obs/obs_priv.h"

#define KEPT_NS (60 * NS_PER_S) /* after its end, for who is to read it */
#define BYTES (TRACE_RECORDS_MAX * sizeof(struct trace_record))

int trace_begin(struct trace *t, const struct core *core, uint32_t seconds, uint64_t now_ns)
{
	const struct core_metrics *m = core_metrics(core);
	void *memory;

	if (t->on)
		return -EBUSY;
	trace_drop(t);
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	*t = (struct trace){ .on = true, .record = memory, .hbm = m->evicted_hbm,
			     .cxl = m->evicted_cxl,
			     .until_ns = now_ns + seconds * NS_PER_S };
	return 0;
}

void trace_drop(struct trace *t)
{
	if (t->record)
		munmap(t->record, BYTES);
	*t = (struct trace){ .on = false };
}

void trace_add(struct trace *t, struct trace_record r)
{
	assert(t->record && r.kind < TRACE_KINDS);
	if (!r.now_ns)
		r.now_ns = time_now_ns();
	if (r.now_ns < t->last_ns) /* a look at the clock that others have had meanwhile */
		r.now_ns = t->last_ns;
	t->last_ns = r.now_ns;
	if (r.now_ns >= t->until_ns)
		t->on = false;
	else if (t->count == TRACE_RECORDS_MAX)
		t->lost++;
	else
		t->record[t->count++] = r;
}

void trace_turn(struct trace *t, const struct core *core, uint64_t now_ns)
{
	const struct core_metrics *m = core_metrics(core);

	if (!t->record)
		return;
	if (t->on && (m->evicted_hbm != t->hbm || m->evicted_cxl != t->cxl)) {
		trace_add(t, (struct trace_record){ .kind = TRACE_EVICT, .phase = TRACE_MARK,
						    .id = m->evicted_hbm - t->hbm,
						    .bytes = m->evicted_cxl - t->cxl });
		t->hbm = m->evicted_hbm;
		t->cxl = m->evicted_cxl;
	}
	if (now_ns >= t->until_ns)
		t->on = false;
	if (now_ns >= t->until_ns + KEPT_NS)
		trace_drop(t);
}

/* ---- the document -------------------------------------------------------------------------- */

static json_t *ops(void)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < ABI_OP_COUNT; i++)
		json_array_append_new(all, json_string(core_op_name(i)));
	return all;
}

/* As hex: the loop waits for this, and numbers take ten times as long. */
static json_t *records(const struct trace *t, uint32_t from)
{
	static const char digit[16] = "0123456789abcdef";
	uint32_t left = from < t->count ? t->count - from : 0;
	size_t bytes = (left < TRACE_READ_MAX ? left : TRACE_READ_MAX) * sizeof(*t->record);
	const uint8_t *at = (const uint8_t *)(t->record + (left ? from : 0));
	char *text = malloc(2 * bytes + 1);
	json_t *hex;

	if (!text)
		return NULL;
	for (size_t i = 0; i < bytes; i++) {
		text[2 * i] = digit[at[i] >> 4];
		text[2 * i + 1] = digit[at[i] & 15];
	}
	hex = json_stringn_nocheck(text, 2 * bytes);
	free(text);
	return hex;
}

json_t *obs_trace(const struct obs_args *a)
{
	struct trace *t = a->o->trace;

	if (a->trace == OBS_TRACE_END) {
		trace_drop(t);
		return json_pack("{s:b}", "ended", 1);
	}
	if (a->trace == OBS_TRACE_BEGIN)
		return json_pack("{s:o, s:o}", "until_ns", obs_number(t->until_ns), "ops", ops());
	return json_pack("{s:b, s:o, s:o, s:o}", "on", t->on, "count", obs_number(t->count),
			 "lost", obs_number(t->lost), "records", records(t, a->trace_from));
}

int obs_take_trace(struct obs_args *a, const json_t *given, const char **why)
{
	const json_t *seconds = json_object_get(given, "seconds");
	const json_t *from = json_object_get(given, "from");
	json_int_t value = json_integer_value(seconds ? seconds : from);
	int rc = 0;

	*why = "say \"seconds\" (1 to 600), or \"from\" which record of it, or \"end\"";
	if (!a->o->trace || value < (seconds ? 1 : 0) ||
	    value > (seconds ? TRACE_SECONDS_MAX : TRACE_RECORDS_MAX))
		return -EINVAL;
	a->trace = seconds ? OBS_TRACE_BEGIN : from ? OBS_TRACE_READ : OBS_TRACE_END;
	a->trace_from = (uint32_t)value;
	if (seconds) {
		rc = trace_begin(a->o->trace, a->o->core, (uint32_t)value, a->question->now_ns);
		*why = rc == -EBUSY ? "one is being taken; ask again when its time is over" :
				      "there is no memory for the records: 32 MiB";
	} else if (from && !a->o->trace->record) {
		rc = -ENOENT;
		*why = "there is none: begin one, and read it within a minute of its end";
	} else if (!from && !json_is_true(json_object_get(given, "end"))) {
		rc = -EINVAL;
	}
	return rc;
}
