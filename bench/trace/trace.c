/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace reader; see trace.h. zlib unpacks (and passes plain text through), jansson parses one line
 * at a time, so that memory is bounded by the longest line however large the file claims to be.
 */
#include "bench/trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "libtier/base/cleanup.h"

#define CHUNK_BYTES 65536u
#define PIPE_WAIT_MS 5000 /* for the first byte of a pipe */
#define SECONDS_MAX 1e12
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

struct reader {
	gzFile file;
	const char *path;
	char *line; /* the line so far */
	size_t line_bytes, line_room;
	uint64_t line_number;
	size_t requests_room, ids_room;
	char *why;
	size_t why_bytes;
};

static int complain(struct reader *r, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int complain(struct reader *r, int error, const char *format, ...)
{
	va_list args;
	int used = 0;

	if (!r->why || !r->why_bytes)
		return error;
	if (r->line_number)
		used = snprintf(r->why, r->why_bytes, "%s, line %llu: ", r->path,
				(unsigned long long)r->line_number);
	else
		used = snprintf(r->why, r->why_bytes, "%s: ", r->path);
	if (used < 0 || (size_t)used >= r->why_bytes)
		return error;
	va_start(args, format);
	vsnprintf(r->why + used, r->why_bytes - (size_t)used, format, args);
	va_end(args);
	return error;
}

/* An integer member within 0 ... max. */
static int member(struct reader *r, const json_t *object, const char *name, uint64_t max,
		  uint64_t *out)
{
	const json_t *value = json_object_get(object, name);

	if (!json_is_integer(value))
		return complain(r, -EBADMSG, "\"%s\" is not an integer", name);
	if (json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > max)
		return complain(r, -EBADMSG, "\"%s\" is out of range", name);
	*out = (uint64_t)json_integer_value(value);
	return 0;
}

/* Arrival: an integer is milliseconds; a number with a point seconds, as other traces have it. */
static int arrival(struct reader *r, const json_t *object, uint64_t *out)
{
	const json_t *value = json_object_get(object, "timestamp");
	double s = json_is_real(value) ? json_real_value(value) : -1;

	if (!json_is_real(value))
		return member(r, object, "timestamp", INT64_MAX, out);
	if (!(s >= 0 && s < SECONDS_MAX))
		return complain(r, -EBADMSG, "\"timestamp\" is out of range");
	*out = (uint64_t)(s * 1000);
	return 0;
}

/* Room for `more` elements after count; doubles. */
static int grow(void **array, size_t *room, size_t count, size_t more, size_t element)
{
	size_t want = *room ? *room : 1024;
	void *bigger;

	if (count + more <= *room)
		return 0;
	while (want < count + more)
		want *= 2;
	bigger = reallocarray(*array, want, element);
	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	*room = want;
	return 0;
}

static int take_ids(struct reader *r, struct trace *t, const json_t *ids, uint32_t count)
{
	void *array = t->id;
	int error;

	if (t->id_count + count > TRACE_IDS_MAX)
		return complain(r, -E2BIG, "more than %u ids in all", TRACE_IDS_MAX);
	error = grow(&array, &r->ids_room, t->id_count, count, sizeof(*t->id));
	t->id = array;
	if (error)
		return error;
	for (uint32_t i = 0; i < count; i++) {
		const json_t *id = json_array_get(ids, i);

		/* A hash may be negative: it is a name. Tables keep id + 1, so -1 is none. */
		if (!json_is_integer(id) || json_integer_value(id) == -1)
			return complain(r, -EBADMSG, "\"hash_ids\"[%u] is -1, or no integer", i);
		t->id[t->id_count + i] = (uint64_t)json_integer_value(id);
	}
	return 0;
}

static int take_object(struct reader *r, struct trace *t, const json_t *object)
{
	const json_t *ids = json_object_get(object, "hash_ids");
	struct trace_request *request;
	uint64_t input = 0, output = 0, when = 0;
	void *array = t->request;
	int error;

	if (!json_is_object(object))
		return complain(r, -EBADMSG, "not a JSON object");
	error = arrival(r, object, &when);
	if (!error)
		error = member(r, object, "input_length", UINT32_MAX, &input);
	if (!error)
		error = member(r, object, "output_length", UINT32_MAX, &output);
	if (error)
		return error;
	if (!json_is_array(ids))
		return complain(r, -EBADMSG, "\"hash_ids\" is not an array");
	if (json_array_size(ids) > TRACE_REQUEST_IDS_MAX)
		return complain(r, -E2BIG, "more than %u ids", TRACE_REQUEST_IDS_MAX);
	error = grow(&array, &r->requests_room, t->request_count, 1, sizeof(*t->request));
	t->request = array;
	if (!error)
		error = take_ids(r, t, ids, (uint32_t)json_array_size(ids));
	if (error)
		return error;
	request = &t->request[t->request_count++];
	request->timestamp_ms = when;
	request->input_tokens = (uint32_t)input;
	request->output_tokens = (uint32_t)output;
	request->id_first = t->id_count;
	request->id_count = (uint32_t)json_array_size(ids);
	t->id_count += request->id_count;
	return 0;
}

static int take_line(struct reader *r, struct trace *t)
{
	json_error_t what;
	json_t *object;
	size_t blank = 0;
	int error;

	/* What some editors put before the first line of a file. */
	if (r->line_number == 1 && r->line_bytes >= strlen(BYTE_ORDER_MARK) &&
	    memcmp(r->line, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
		blank = strlen(BYTE_ORDER_MARK);
	while (blank < r->line_bytes && strchr(" \t\r", r->line[blank]) && r->line[blank])
		blank++;
	if (blank == r->line_bytes)
		return 0;
	object = json_loadb(r->line + blank, r->line_bytes - blank, JSON_REJECT_DUPLICATES, &what);
	if (!object)
		return complain(r, -EBADMSG, "%s", what.text);
	error = take_object(r, t, object);
	json_decref(object);
	return error;
}

static int line_add(struct reader *r, const char *from, size_t bytes)
{
	void *line = r->line;
	int error = grow(&line, &r->line_room, r->line_bytes, bytes + 1, 1);

	r->line = line;
	if (error)
		return error;
	memcpy(r->line + r->line_bytes, from, bytes);
	r->line_bytes += bytes;
	return 0;
}

/* Take the bytes of a chunk, line by line. Returns 1 when requests_max have been read. */
static int take_chunk(struct reader *r, struct trace *t, const char *chunk, size_t bytes,
		      size_t requests_max)
{
	while (bytes) {
		const char *end = memchr(chunk, '\n', bytes);
		size_t part = end ? (size_t)(end - chunk) : bytes;
		int error;

		if (r->line_bytes + part > TRACE_LINE_BYTES_MAX)
			return complain(r, -E2BIG, "longer than %u bytes", TRACE_LINE_BYTES_MAX);
		error = line_add(r, chunk, part);
		if (error)
			return error;
		if (!end)
			return 0;
		error = take_line(r, t);
		if (error)
			return error;
		if (t->request_count >= requests_max)
			return 1;
		chunk = end + 1;
		bytes -= part + 1;
		r->line_bytes = 0;
		r->line_number++;
	}
	return 0;
}

static int take_file(struct reader *r, struct trace *t, size_t requests_max)
{
	char chunk[CHUNK_BYTES];
	int error = 0;

	r->line_number = 1;
	for (;;) {
		int got = gzread(r->file, chunk, sizeof(chunk));
		int zlib = Z_OK;

		if (got < 0) {
			const char *text = gzerror(r->file, &zlib);

			return complain(r, -EBADMSG, "it cannot be read: %s",
					zlib == Z_ERRNO ? strerror(errno) : text);
		}
		if (got == 0)
			break;
		error = take_chunk(r, t, chunk, (size_t)got, requests_max);
		if (error)
			return error < 0 ? error : 0;
	}
	/* A truncated stream is told only at its end. */
	if (gzclose_r(r->file) == Z_BUF_ERROR) {
		r->file = NULL;
		return complain(r, -EBADMSG, "the compressed file is cut off");
	}
	r->file = NULL;
	return take_line(r, t);
}

/* Open it without waiting for whoever writes into a pipe: for the first byte, not for ever. */
static int open_file(struct reader *r)
{
	int fd CLEANUP_CLOSE = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct pollfd first = { .fd = fd, .events = POLLIN };
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return complain(r, -errno, "%s", strerror(errno));
	if (S_ISDIR(st.st_mode))
		return complain(r, -EISDIR, "a folder; name the file");
	if (S_ISFIFO(st.st_mode) && poll(&first, 1, PIPE_WAIT_MS) == 0)
		return complain(r, -ETIMEDOUT, "nobody writes into this pipe");
	if (fcntl(fd, F_SETFL, 0))
		return complain(r, -errno, "%s", strerror(errno));
	r->file = gzdopen(fd, "rb");
	if (!r->file)
		return complain(r, -ENOMEM, "out of memory");
	take_fd(&fd);
	return 0;
}

/* One without a block has nothing to replay: it is a mistake, and is told as one. */
static int check_whole(struct reader *r, const struct trace *t)
{
	r->line_number = 0;
	if (t->id_count)
		return 0;
	return complain(r, -EBADMSG, "%zu requests, and none of them names a block in "
				     "\"hash_ids\": there is nothing to replay", t->request_count);
}

/* Which ids were seen: an open hash table of id + 1, at most half full. */
struct seen {
	uint64_t *slot;
	size_t mask;
};

static bool seen_add(struct seen *s, uint64_t id)
{
	size_t i = (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 20) & s->mask;

	while (s->slot[i] && s->slot[i] != id + 1)
		i = (i + 1) & s->mask;
	if (s->slot[i])
		return false;
	s->slot[i] = id + 1;
	return true;
}

int trace_count(struct trace *t)
{
	struct seen s = { .mask = 1023 };

	while (s.mask < 2 * t->id_count)
		s.mask = 2 * s.mask + 1;
	s.slot = calloc(s.mask + 1, sizeof(*s.slot));
	if (!s.slot)
		return -ENOMEM;
	t->distinct = t->reusable = 0;
	for (size_t i = 0; i < t->request_count; i++) {
		const struct trace_request *r = &t->request[i];
		bool prefix = true;

		for (uint32_t k = 0; k < r->id_count; k++) {
			bool fresh = seen_add(&s, t->id[r->id_first + k]);

			prefix = prefix && !fresh;
			t->distinct += fresh;
			t->reusable += prefix;
		}
	}
	free(s.slot);
	return 0;
}

/* Does a block of so many tokens explain the length, the last block partly filled or left out? */
static bool explains(const struct trace_request *r, uint64_t tokens)
{
	uint64_t blocks = r->id_count, length = r->input_tokens;

	return blocks && (blocks - 1) * tokens < length && length < (blocks + 1) * tokens;
}

static size_t explained(const struct trace *t, uint64_t tokens)
{
	size_t prompts = 0;

	for (size_t i = 0; i < t->request_count; i++)
		prompts += explains(&t->request[i], tokens);
	return prompts;
}

/* The file does not say it, and what a hit saves hangs on it. */
static uint32_t block_tokens_of(const struct trace *t)
{
	size_t prompts = 0, most = explained(t, TRACE_BLOCK_TOKENS);
	uint32_t best = TRACE_BLOCK_TOKENS;

	for (size_t i = 0; i < t->request_count; i++)
		prompts += t->request[i].id_count != 0;
	for (uint32_t tokens = 1; tokens <= TRACE_BLOCK_TOKENS_MAX; tokens *= 2) {
		size_t those = explained(t, tokens);

		if (those > most && those >= prompts - prompts / 4) {
			most = those;
			best = tokens;
		}
	}
	return best;
}

int trace_open(struct trace **out, const char *path, size_t requests_max, char *why,
	       size_t why_bytes)
{
	struct reader r = { .path = path, .why = why, .why_bytes = why_bytes };
	struct trace *t = calloc(1, sizeof(*t));
	int error = -ENOMEM;

	*out = NULL;
	if (why_bytes && why)
		why[0] = '\0';
	if (!requests_max || requests_max > TRACE_REQUESTS_MAX)
		requests_max = TRACE_REQUESTS_MAX;
	if (!t)
		goto fail;
	error = open_file(&r);
	if (error)
		goto fail;
	error = take_file(&r, t, requests_max);
	if (r.file)
		gzclose_r(r.file);
	if (!error)
		error = check_whole(&r, t);
	if (!error)
		error = trace_count(t);
	if (error)
		goto fail;
	t->block_tokens = block_tokens_of(t);
	free(r.line);
	*out = t;
	return 0;

fail:
	free(r.line);
	trace_close(t);
	return error;
}

void trace_close(struct trace *t)
{
	if (!t)
		return;
	free(t->request);
	free(t->id);
	free(t);
}

uint64_t trace_tokens(const struct trace *t, const struct trace_request *r, uint64_t blocks)
{
	uint64_t tokens = blocks * t->block_tokens;

	return tokens < r->input_tokens ? tokens : r->input_tokens;
}

int trace_key(tier_key *out, uint64_t id)
{
	static const char text[] = "mooncake-trace-1";
	const struct tier_salt salt = { .bytes = text, .count = sizeof(text) - 1 };
	uint8_t name[8];

	for (int i = 0; i < 8; i++)
		name[i] = (uint8_t)(id >> (8 * i));
	return tier_key_opaque(out, name, sizeof(name), &salt);
}

int trace_keys(tier_key *out, const struct trace *t, const struct trace_request *r)
{
	for (uint32_t i = 0; i < r->id_count; i++) {
		int error = trace_key(&out[i], t->id[r->id_first + i]);

		if (error)
			return error;
	}
	return 0;
}
