/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of weights, safetensors and gguf, as `tier import` reads their headers.
 *
 * Must hold: a refusal says why; what is taken lies inside of the file, no tensor over another,
 * each with a name that a line of the table can hold.
 */
#include <errno.h>

#include "libtier/shim/weights.h"
#include "tests/fuzz/fuzz.h"

#define BYTES_MAX 65536u

void fuzz_open(void)
{
}

static void check_tensor(const struct weight *w, const uint8_t *bytes, size_t count)
{
	volatile uint8_t last = 0;

	FUZZ_CHECK(w->at <= count && w->bytes <= count - w->at);
	if (w->bytes)
		last = bytes[w->at + w->bytes - 1];
	(void)last;
	FUZZ_CHECK(w->name[0] && memchr(w->name, 0, sizeof(w->name)) &&
		   !strpbrk(w->name, " \n\t") && w->type[0]);
	FUZZ_CHECK(w->layer <= 10000 || w->layer == WEIGHTS_LAYER_LAST);
}

void fuzz_one(struct fuzz_input *in)
{
	size_t count = in->left < BYTES_MAX ? in->left : BYTES_MAX;
	uint8_t *bytes = malloc(count ? count : 1); /* reads beyond it are found */
	struct weights w = { 0 };
	const char *why = NULL;
	uint64_t end = 0;
	int rc;

	FUZZ_CHECK(bytes);
	fuzz_take(in, bytes, count);
	rc = weights_parse(&w, bytes, count, 3, &why);
	FUZZ_CHECK(rc == 0 ? !why : rc == -EBADMSG && why && why[0]);
	for (uint32_t i = 0; rc == 0 && i < w.count; i++) {
		check_tensor(&w.list[i], bytes, count);
		FUZZ_CHECK(w.list[i].file == 3 && w.list[i].at >= end);
		end = w.list[i].at + w.list[i].bytes;
	}
	weights_sort(&w);
	for (uint32_t i = 1; i < w.count; i++)
		FUZZ_CHECK(w.list[i - 1].layer <= w.list[i].layer);
	weights_free(&w);
	free(bytes);
}

/* ---- seeds -------------------------------------------------------------------------------- */

static void put_u64(struct fuzz_seed *s, uint64_t value)
{
	fuzz_put(s, &value, sizeof(value));
}

static void put_u32(struct fuzz_seed *s, uint32_t value)
{
	fuzz_put(s, &value, sizeof(value));
}

static void put_text(struct fuzz_seed *s, const char *text)
{
	put_u64(s, strlen(text));
	fuzz_put(s, text, strlen(text));
}

static void seed_safetensors(void)
{
	static const char head[] = "{\"__metadata__\":{\"a\":\"b\"},"
				   "\"layers.1.w\":{\"dtype\":\"U8\",\"shape\":[2,3],"
				   "\"data_offsets\":[0,6]},"
				   "\"embed\":{\"dtype\":\"F16\",\"shape\":[1],"
				   "\"data_offsets\":[6,8]}}";
	static struct fuzz_seed s;

	put_text(&s, head);
	put_u64(&s, 0);
	fuzz_seed_end(&s, "safetensors");
}

static void seed_gguf(void)
{
	static struct fuzz_seed s;

	fuzz_put(&s, "GGUF", 4);
	put_u32(&s, 3);
	put_u64(&s, 2); /* tensors */
	put_u64(&s, 3); /* values */
	put_text(&s, "general.alignment");
	put_u32(&s, 4);
	put_u32(&s, 32);
	put_text(&s, "words");
	put_u32(&s, 9);
	put_u32(&s, 8);
	put_u64(&s, 2);
	put_text(&s, "a");
	put_text(&s, "");
	put_text(&s, "flag");
	put_u32(&s, 7);
	fuzz_put(&s, "", 1);
	for (uint32_t i = 0; i < 2; i++) {
		put_text(&s, i ? "blk.0.w" : "output");
		put_u32(&s, 1);
		put_u64(&s, 8);
		put_u32(&s, 0);
		put_u64(&s, i * 32);
	}
	for (uint32_t i = 0; i < 12; i++)
		put_u64(&s, i);
	fuzz_seed_end(&s, "gguf");
}

void fuzz_seeds(void)
{
	seed_safetensors();
	seed_gguf();
}
