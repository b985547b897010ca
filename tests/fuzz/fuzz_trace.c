/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace files, plain and compressed: trace_open over the input as a file.
 *
 * Must hold: a refusal says why; what is accepted refers to its own ids only, and its sums agree.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "bench/trace/trace.h"
#include "tests/fuzz/fuzz.h"

static int file = -1;
static char path[32];

void fuzz_open(void)
{
	file = memfd_create("trace", MFD_CLOEXEC);
	FUZZ_CHECK(file >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
}

static void check_trace(const struct trace *t, size_t most)
{
	uint64_t references = 0;

	FUZZ_CHECK(!most || t->request_count <= most);
	for (size_t i = 0; i < t->request_count; i++) {
		const struct trace_request *r = &t->request[i];

		FUZZ_CHECK(r->id_first <= t->id_count && r->id_count <= t->id_count - r->id_first);
		FUZZ_CHECK(r->id_count <= TRACE_REQUEST_IDS_MAX);
		FUZZ_CHECK(r->id_first == references);
		references += r->id_count;
	}
	FUZZ_CHECK(references == t->id_count);
	FUZZ_CHECK(t->distinct <= t->id_count && t->distinct + t->reusable <= t->id_count);
}

void fuzz_one(struct fuzz_input *in)
{
	size_t most = fuzz_u8(in) & 3;
	struct trace *t = NULL;
	char why[200] = "";
	int rc;

	FUZZ_CHECK(ftruncate(file, 0) == 0 &&
		   pwrite(file, in->at, in->left, 0) == (ssize_t)in->left);
	rc = trace_open(&t, path, most, why, sizeof(why));
	FUZZ_CHECK(rc == 0 || rc == -EBADMSG || rc == -E2BIG);
	if (rc) {
		FUZZ_CHECK(why[0] && memchr(why, 0, sizeof(why)));
		return;
	}
	check_trace(t, most);
	trace_close(t);
}

/* ---- seeds -------------------------------------------------------------------------------- */

#define LINE(when, input, output, ids)                                                             \
	"{\"timestamp\": " when ", \"input_length\": " input ", "                                 \
	"\"output_length\": " output ", \"hash_ids\": [" ids "]}\n"

static const char lines[] =
	LINE("0", "1030", "5", "0, 1, 2")
	LINE("27", "2000", "9", "0, 1, 3, 7")
	"\n"
	LINE("31", "7", "0", "");

void fuzz_seeds(void)
{
	static struct fuzz_seed s;
	static uint8_t packed[4096];
	z_stream z = { .next_in = (Bytef *)(uintptr_t)lines, .avail_in = sizeof(lines) - 1,
		       .next_out = packed, .avail_out = sizeof(packed) };

	fuzz_put_u8(&s, 0);
	fuzz_put(&s, lines, sizeof(lines) - 1);
	fuzz_seed_end(&s, "plain");
	FUZZ_CHECK(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
	FUZZ_CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
	fuzz_put_u8(&s, 2);
	fuzz_put(&s, packed, z.total_out);
	fuzz_seed_end(&s, "packed");
	fuzz_put_u8(&s, 0);
	fuzz_put(&s, packed, z.total_out - 9);
	fuzz_seed_end(&s, "cut-off");
	deflateEnd(&z);
	fuzz_put_u8(&s, 0);
	for (uint32_t i = 0; i < 3; i++) {
		static const char head[] = LINE("1", "1", "1", "0");

		fuzz_put(&s, head, sizeof(head) - 4);
		for (uint32_t k = 0; k < 600; k++)
			fuzz_put(&s, ",7", 2);
		fuzz_put(&s, "]}\n", 3);
	}
	fuzz_seed_end(&s, "many-ids");
}
