/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors and gguf files; see weights.h. */
#include "libtier/shim/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX (100u << 20) /* what the format's own reader takes */
#define GGUF_MAGIC 0x46554747u
#define GGUF_STRING 8u
#define GGUF_ARRAY 9u
#define DIMENSIONS_MAX 8u

/* ---- tensors ------------------------------------------------------------------------------- */

/* 1 + the number that is a word from here on; 0: none is. */
static uint32_t number_in(const char *name)
{
	for (const char *at = name; at; at = strchr(at, '.')) {
		size_t digits;

		at += *at == '.';
		digits = strspn(at, "0123456789");
		if (digits && digits < 5 && (at[digits] == '.' || !at[digits]))
			return 1 + (uint32_t)strtoul(at, NULL, 10);
	}
	return 0;
}

/* "model.layers.12.mlp" is of layer 12: the first word that is a number. */
static uint32_t layer_of(const char *name)
{
	uint32_t layer = number_in(name);

	if (layer)
		return layer;
	return strstr(name, "emb") || strstr(name, "wte") || strstr(name, "wpe") ?
		       0 : WEIGHTS_LAYER_LAST;
}

static struct weight *append(struct weights *w)
{
	if (w->count == w->room) {
		uint32_t room = w->room ? 2 * w->room : 256;
		struct weight *list = room > WEIGHTS_MAX ? NULL :
						realloc(w->list, room * sizeof(*list));

		if (!list)
			return NULL;
		w->list = list;
		w->room = room;
	}
	memset(&w->list[w->count], 0, sizeof(w->list[0]));
	return &w->list[w->count++];
}

static bool set_name(struct weight *t, const char *name, size_t bytes)
{
	const char *experts;

	if (bytes == 0 || bytes >= sizeof(t->name))
		return false;
	for (size_t i = 0; i < bytes; i++)
		if ((unsigned char)name[i] <= ' ' || (unsigned char)name[i] == 0x7f)
			return false;
	memcpy(t->name, name, bytes);
	t->layer = layer_of(t->name);
	experts = strstr(t->name, ".experts.");
	t->expert = experts ? number_in(experts + strlen(".experts")) : 0;
	return true;
}

static void add_dimension(struct weight *t, uint64_t n)
{
	size_t used = strlen(t->shape);

	snprintf(t->shape + used, sizeof(t->shape) - used, "%s%" PRIu64, used ? "x" : "", n);
}

static int by_place(const void *a, const void *b)
{
	const struct weight *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

static int by_layer(const void *a, const void *b)
{
	const struct weight *x = a, *y = b;

	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	if (x->expert != y->expert)
		return x->expert < y->expert ? -1 : 1;
	return by_place(a, b);
}

/* The last `count` lie within [from, end) and apart from each other. */
static const char *judge_places(struct weights *w, uint32_t count, uint64_t from, uint64_t end)
{
	struct weight *t;

	if (!count)
		return NULL;
	t = w->list + w->count - count;
	qsort(t, count, sizeof(*t), by_place);
	for (uint32_t i = 0; i < count; i++) {
		if (t[i].at < from || t[i].at > end || t[i].bytes > end - t[i].at)
			return "a tensor lies outside of the file";
		from = t[i].at + t[i].bytes;
	}
	return NULL;
}

/* ---- safetensors --------------------------------------------------------------------------- */

static uint32_t bits_of(const char *type)
{
	static const struct {
		const char *name;
		uint32_t bits;
	} types[] = {
		{ "BOOL", 8 }, { "U8", 8 },   { "I8", 8 },   { "F8_E5M2", 8 }, { "F8_E4M3", 8 },
		{ "I16", 16 }, { "U16", 16 }, { "F16", 16 }, { "BF16", 16 },   { "I32", 32 },
		{ "U32", 32 }, { "F32", 32 }, { "F64", 64 }, { "I64", 64 },    { "U64", 64 },
		{ "F4", 4 },   { "F6_E2M3", 6 }, { "F6_E3M2", 6 }, { "F8_E8M0", 8 }, { "C64", 64 },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(types[i].name, type) == 0)
			return types[i].bits;
	return 0;
}

/* Bytes that shape and type come to. False: no shape, or more than there can be. */
static bool shape_bytes(struct weight *t, const json_t *shape, uint64_t *bytes)
{
	uint64_t bits = bits_of(t->type);
	const json_t *one;
	size_t i;

	if (!json_is_array(shape) || !bits || json_array_size(shape) > DIMENSIONS_MAX)
		return false;
	json_array_foreach (shape, i, one) {
		if (!json_is_integer(one) || json_integer_value(one) < 0 ||
		    __builtin_mul_overflow(bits, (uint64_t)json_integer_value(one), &bits))
			return false;
		add_dimension(t, (uint64_t)json_integer_value(one));
	}
	*bytes = bits / 8;
	return bits % 8 == 0;
}

static const char *take_tensor(struct weights *w, const char *name, const json_t *value,
			       uint64_t data)
{
	const char *type = json_string_value(json_object_get(value, "dtype"));
	const json_t *offsets = json_object_get(value, "data_offsets");
	const json_t *from = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
	struct weight *t = append(w);
	uint64_t bytes;

	if (!t)
		return "too many tensors, or out of memory";
	if (!set_name(t, name, strlen(name)))
		return "a tensor's name is empty, too long, or has bytes that names have not";
	if (!type || strlen(type) >= sizeof(t->type))
		return "a tensor has no type";
	memcpy(t->type, type, strlen(type));
	if (!shape_bytes(t, json_object_get(value, "shape"), &bytes))
		return "a tensor's shape or type is none";
	if (!json_is_integer(from) || !json_is_integer(end) || json_integer_value(from) < 0 ||
	    json_integer_value(end) < json_integer_value(from) ||
	    (uint64_t)(json_integer_value(end) - json_integer_value(from)) != bytes)
		return "a tensor's bytes are not what its shape and type say";
	t->at = data + (uint64_t)json_integer_value(from);
	t->bytes = bytes;
	return NULL;
}

static const char *parse_safetensors(struct weights *w, const uint8_t *bytes, uint64_t count)
{
	uint32_t before = w->count;
	const char *wrong = NULL, *name;
	json_t *head, *value;
	uint64_t header;

	memcpy(&header, bytes, sizeof(header));
	if (header > HEADER_MAX || header > count - sizeof(header))
		return "it is neither safetensors nor gguf: the header would be longer than it is";
	head = json_loadb((const char *)bytes + sizeof(header), header,
			  JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(head)) {
		json_decref(head);
		return "it is neither safetensors nor gguf: its header is no JSON object";
	}
	json_object_foreach (head, name, value) {
		if (strcmp(name, "__metadata__") == 0)
			continue;
		wrong = take_tensor(w, name, value, sizeof(header) + header);
		if (wrong)
			break;
	}
	json_decref(head);
	return wrong ? wrong : judge_places(w, w->count - before, sizeof(header) + header, count);
}

/* ---- gguf ---------------------------------------------------------------------------------- */

/* What is left of the header; once something did not fit, nothing does. */
struct reader {
	const uint8_t *at;
	uint64_t left;
	bool bad;
};

static const uint8_t *take(struct reader *r, uint64_t bytes)
{
	const uint8_t *at = r->at;

	if (r->bad || bytes > r->left) {
		r->bad = true;
		return NULL;
	}
	r->at += bytes;
	r->left -= bytes;
	return at;
}

static uint64_t number(struct reader *r, uint32_t bytes)
{
	const uint8_t *at = take(r, bytes);
	uint64_t n = 0;

	if (at)
		memcpy(&n, at, bytes);
	return n;
}

static const char *string(struct reader *r, uint64_t *bytes)
{
	*bytes = number(r, 8);
	return (const char *)take(r, *bytes);
}

/* Bytes of a value of fixed size; 0: it has none. */
static uint32_t value_bytes(uint32_t type)
{
	static const uint8_t bytes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

	return type < sizeof(bytes) ? bytes[type] : 0;
}

static void skip_value(struct reader *r, uint32_t type)
{
	uint64_t count = 1, bytes;

	if (type == GGUF_ARRAY) { /* of values or strings; of arrays no writer makes */
		type = (uint32_t)number(r, 4);
		count = number(r, 8);
	}
	if (value_bytes(type) && count <= r->left / value_bytes(type)) {
		take(r, count * value_bytes(type));
		return;
	}
	if (type != GGUF_STRING)
		r->bad = true;
	while (!r->bad && count--)
		string(r, &bytes);
}

static void skip_values(struct reader *r, uint64_t count, uint64_t *alignment)
{
	static const char key[] = "general.alignment";

	while (!r->bad && count--) {
		uint64_t bytes;
		const char *name = string(r, &bytes);
		uint32_t type = (uint32_t)number(r, 4);

		if (name && bytes == strlen(key) && memcmp(name, key, bytes) == 0 &&
		    value_bytes(type) == 4)
			*alignment = number(r, 4);
		else
			skip_value(r, type);
	}
}

static const char *take_info(struct weights *w, struct reader *r)
{
	struct weight *t = append(w);
	uint64_t bytes;
	uint32_t dimensions;
	const char *name = string(r, &bytes);

	if (!t)
		return "too many tensors, or out of memory";
	if (!name || !set_name(t, name, bytes))
		return "a tensor's name is empty, too long, or has bytes that names have not";
	dimensions = (uint32_t)number(r, 4);
	if (dimensions > DIMENSIONS_MAX)
		return "a tensor has too many dimensions";
	for (uint32_t i = 0; i < dimensions; i++)
		add_dimension(t, number(r, 8));
	snprintf(t->type, sizeof(t->type), "ggml-%" PRIu32, (uint32_t)number(r, 4));
	t->at = number(r, 8); /* behind the header, whose end is not known yet */
	return r->bad ? "its header is cut short" : NULL;
}

/* Types come and go: a tensor's bytes end where the next one begins. */
static const char *place(struct weights *w, uint32_t count, uint64_t data, uint64_t end,
			 uint64_t alignment)
{
	struct weight *t;

	if (!count)
		return NULL;
	t = w->list + w->count - count;
	qsort(t, count, sizeof(*t), by_place);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t next = i + 1 < count ? t[i + 1].at : end - data;

		if (t[i].at % alignment || t[i].at > end - data || next < t[i].at)
			return "a tensor lies outside of the file, or is not aligned";
		t[i].bytes = next - t[i].at;
	}
	for (uint32_t i = 0; i < count; i++)
		t[i].at += data;
	return judge_places(w, count, data, end);
}

static const char *parse_gguf(struct weights *w, const uint8_t *bytes, uint64_t count)
{
	struct reader r = { .at = bytes + 4, .left = count - 4 };
	uint64_t version = number(&r, 4), tensors = number(&r, 8), values = number(&r, 8);
	uint64_t alignment = 32, data;
	const char *wrong = NULL;

	if (r.bad || version < 2 || version > 3 || tensors > WEIGHTS_MAX)
		return "a gguf file of another version, or one that is cut short";
	skip_values(&r, values, &alignment);
	for (uint64_t i = 0; i < tensors && !r.bad && !wrong; i++)
		wrong = take_info(w, &r);
	if (wrong || r.bad || !alignment || alignment > 1 << 20 || alignment & (alignment - 1))
		return wrong ? wrong : "its header is cut short, or its alignment is none";
	data = (count - r.left + alignment - 1) & ~(alignment - 1);
	if (data > count)
		return tensors ? "its data is cut off" : NULL;
	return place(w, (uint32_t)tensors, data, count, alignment);
}

/* -------------------------------------------------------------------------------------------- */

int weights_parse(struct weights *w, const uint8_t *bytes, uint64_t count, uint32_t file,
		  const char **why)
{
	uint32_t before = w->count, magic = 0;

	*why = "it is too short for a file of weights";
	if (count >= 8) {
		memcpy(&magic, bytes, sizeof(magic));
		*why = magic == GGUF_MAGIC ? parse_gguf(w, bytes, count) :
					     parse_safetensors(w, bytes, count);
	}
	for (uint32_t i = before; i < w->count; i++)
		w->list[i].file = file;
	return *why ? -EBADMSG : 0;
}

void weights_sort(struct weights *w)
{
	if (w->count)
		qsort(w->list, w->count, sizeof(w->list[0]), by_layer);
}

void weights_free(struct weights *w)
{
	free(w->list);
	memset(w, 0, sizeof(*w));
}
