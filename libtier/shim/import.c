/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tier import FILE...`: the tensors of safetensors and gguf files as objects that
 * tier_object_stream gives in the order of layers. docs/man/tier.1 is its manual.
 *
 *   NAME/0000, NAME/0001 ...   a layer's tensors, an expert's, or those that a part has room for,
 *                              64-aligned
 *   NAME/tensors               last, so that what was imported half is nothing:
 *                                tier weights 1 PARTS
 *                                part NUMBER LAYER BYTES
 *                                tensor NAME TYPE SHAPE PART OFFSET BYTES
 */
#include "libtier/shim/import.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tier.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/file.h"
#include "libtier/base/units.h"
#include "libtier/shim/weights.h"

#define USAGE 125
#define PART_BYTES (256ull << 20)
#define ALIGN 64u
#define NAME_BYTES 240u /* of an object's, a part's number left out */

struct place {
	uint32_t part;
	uint64_t at;
};

struct import {
	tier *t;
	const char *socket, *context;
	char name[NAME_BYTES];
	uint64_t part_bytes;
	struct weights weights;
	struct place *place; /* of each tensor */
	uint32_t parts, files;
	uint64_t bytes;
	struct {
		const uint8_t *at;
		uint64_t bytes;
	} *file;
};

static int usage(FILE *to, int status)
{
	fputs("usage: tier import [--socket PATH] [--context NAME] [--name NAME]\n"
	      "                   [--part SIZE] FILE...\n\n"
	      "  Makes objects of the weights in FILE (safetensors, gguf; several: one model).\n\n"
	      "  -c, --context NAME  of objects (default weights); made if it is not there\n"
	      "  -n, --name NAME     of the weights (default: the first file's)\n"
	      "  -p, --part SIZE     of an object at most (default 256MiB)\n"
	      "  -s, --socket PATH   the daemon's socket\n", to);
	return status;
}

static int wrong(const char *what, const char *which)
{
	fprintf(stderr, "tier import: %s%s%s\n", which, *which ? ": " : "", what);
	return 1;
}

/* ---- files --------------------------------------------------------------------------------- */

static int take_file(struct import *m, const char *path)
{
	int fd CLEANUP_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
	const char *why;
	struct stat st;
	void *at;

	if (fd < 0 || fstat(fd, &st))
		return wrong(strerror(errno), path);
	if (!S_ISREG(st.st_mode) || st.st_size == 0)
		return wrong("it is no file of weights", path);
	at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (at == MAP_FAILED)
		return wrong(strerror(errno), path);
	m->file[m->files].at = at;
	m->file[m->files].bytes = (uint64_t)st.st_size;
	if (weights_parse(&m->weights, at, (uint64_t)st.st_size, m->files++, &why))
		return wrong(why, path);
	return 0;
}

/* Which part each tensor goes to: a layer's together, an expert's apart, if there is room. */
static int lay_out(struct import *m)
{
	uint64_t at = 0;

	weights_sort(&m->weights);
	m->place = calloc(m->weights.count + 1, sizeof(*m->place));
	if (!m->place)
		return wrong("out of memory", "");
	for (uint32_t i = 0; i < m->weights.count; i++) {
		const struct weight *w = &m->weights.list[i];

		at = (at + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
		if (i && (w->layer != w[-1].layer || w->expert != w[-1].expert ||
			  at + w->bytes > m->part_bytes)) {
			m->parts++;
			at = 0;
		}
		m->place[i] = (struct place){ m->parts, at };
		at += w->bytes;
		m->bytes += w->bytes;
	}
	m->parts += m->weights.count > 0;
	if (m->parts && m->parts <= TIER_OBJECT_PARTS_MAX)
		return 0;
	return wrong(m->parts ? "more parts than there may be; make them larger (--part)" :
				"there is no tensor in it", m->name);
}

/* ---- objects ------------------------------------------------------------------------------- */

static int failed(const char *name)
{
	return wrong(tier_error_text(), name);
}

/* The tensors from `first` that are of its part; the one behind them. */
static uint32_t behind_part(const struct import *m, uint32_t first)
{
	uint32_t i = first;

	while (i < m->weights.count && m->place[i].part == m->place[first].part)
		i++;
	return i;
}

static uint64_t part_bytes(const struct import *m, uint32_t last)
{
	return m->place[last].at + m->weights.list[last].bytes;
}

static int put_part(const struct import *m, uint32_t first, uint32_t end)
{
	char name[NAME_BYTES + 16];
	tier_object *o;
	int rc = 0;

	snprintf(name, sizeof(name), "%s/%04" PRIu32, m->name, m->place[first].part);
	if (tier_object_create(m->t, m->context, name, NULL, &o))
		return failed(name);
	for (uint32_t i = first; i < end && rc == 0; i++) {
		const struct weight *w = &m->weights.list[i];

		rc = file_write(tier_object_fd(o), m->file[w->file].at + w->at, w->bytes,
				m->place[i].at);
	}
	if (rc == 0 && ftruncate(tier_object_fd(o), (off_t)part_bytes(m, end - 1)))
		rc = -errno;
	if (rc) {
		tier_object_abort(o);
		return wrong(strerror(-rc), name);
	}
	return tier_object_commit(o) ? failed(name) : 0;
}

static void print_table(const struct import *m, FILE *to)
{
	fprintf(to, "tier weights 1 %" PRIu32 "\n", m->parts);
	for (uint32_t i = 0, end; i < m->weights.count; i = end) {
		end = behind_part(m, i);
		fprintf(to, "part %" PRIu32 " %" PRIu32 " %" PRIu64 "\n", m->place[i].part,
			m->weights.list[i].layer, part_bytes(m, end - 1));
	}
	for (uint32_t i = 0; i < m->weights.count; i++) {
		const struct weight *w = &m->weights.list[i];

		fprintf(to, "tensor %s %s %s %" PRIu32 " %" PRIu64 " %" PRIu64 "\n", w->name,
			w->type, *w->shape ? w->shape : "1", m->place[i].part, m->place[i].at,
			w->bytes);
	}
}

static int put_table(const struct import *m)
{
	char name[NAME_BYTES + 16];
	tier_object *o;
	FILE *to;
	int fd, bad;

	snprintf(name, sizeof(name), "%s/tensors", m->name);
	if (tier_object_create(m->t, m->context, name, NULL, &o))
		return failed(name);
	fd = dup(tier_object_fd(o));
	to = fd < 0 ? NULL : fdopen(fd, "w");
	if (to)
		print_table(m, to);
	bad = !to || ferror(to);
	if (to)
		bad |= fclose(to) != 0;
	if (bad) {
		tier_object_abort(o);
		return wrong(strerror(errno), name);
	}
	return tier_object_commit(o) ? failed(name) : 0;
}

static int import(struct import *m)
{
	struct tier_connect_options options = { .size = sizeof(options), .socket = m->socket,
						.name = "tier import", .staging_bytes = 1 << 16,
						.requests = 8, .readers = 1 };
	char table[NAME_BYTES + 16], text[UNITS_TEXT_BYTES];
	int rc = 0;

	if (tier_connect(&m->t, &options) || tier_object_context(m->t, m->context, NULL))
		return failed("");
	/* Until all is there, nobody takes old and new parts for one. */
	snprintf(table, sizeof(table), "%s/tensors", m->name);
	rc = tier_object_remove(m->t, m->context, table);
	if (rc && rc != -ENOENT)
		return failed(table);
	rc = 0;
	for (uint32_t i = 0, end; i < m->weights.count && rc == 0; i = end) {
		end = behind_part(m, i);
		rc = put_part(m, i, end);
	}
	if (rc == 0)
		rc = put_table(m);
	if (rc == 0)
		printf("%s: %" PRIu32 " tensors, %s, in %" PRIu32 " parts\n", m->name,
		       m->weights.count, units_print_bytes(text, m->bytes), m->parts);
	return rc;
}

/* ---- the command --------------------------------------------------------------------------- */

/* "model-00001-of-00002.safetensors" is called model-00001-of-00002, if nobody says otherwise. */
static int name_weights(struct import *m, const char *given, const char *path)
{
	char copy[4096], *base;

	if ((size_t)snprintf(copy, sizeof(copy), "%s", given ? given : path) >= sizeof(copy))
		return wrong("its name is too long", path);
	base = given ? copy : basename(copy);
	if (!given && strrchr(base, '.') > base)
		*strrchr(base, '.') = '\0';
	return !*base || (size_t)snprintf(m->name, sizeof(m->name), "%s", base) >= sizeof(m->name) ?
		       wrong("a name of 1 to 239 bytes, please", path) : 0;
}

static int take_files(struct import *m, int count, char **path)
{
	int rc = 0;

	m->file = calloc((size_t)count, sizeof(*m->file));
	if (!m->file)
		return wrong("out of memory", "");
	for (int i = 0; i < count && rc == 0; i++)
		rc = take_file(m, path[i]);
	return rc ? rc : lay_out(m);
}

static void end_import(struct import *m)
{
	for (uint32_t i = 0; i < m->files; i++)
		munmap((void *)(uintptr_t)m->file[i].at, m->file[i].bytes);
	free(m->file);
	free(m->place);
	weights_free(&m->weights);
	tier_close(m->t);
}

int import_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "context", 1, NULL, 'c' }, { "name", 1, NULL, 'n' }, { "part", 1, NULL, 'p' },
		{ "socket", 1, NULL, 's' },  { "help", 0, NULL, 'h' }, { 0 },
	};
	struct import m = { .context = "weights", .part_bytes = PART_BYTES };
	const char *name = NULL;
	int c, rc;

	while ((c = getopt_long(argc, argv, "c:n:p:s:h", options, NULL)) != -1) {
		if (c == 'c')
			m.context = optarg;
		else if (c == 'n')
			name = optarg;
		else if (c == 's')
			m.socket = optarg;
		else if (c != 'p' || units_parse_bytes(optarg, &m.part_bytes))
			return usage(c == 'h' ? stdout : stderr, c == 'h' ? 0 : USAGE);
	}
	if (optind == argc)
		return usage(stderr, USAGE);
	rc = name_weights(&m, name, argv[optind]);
	if (rc == 0)
		rc = take_files(&m, argc - optind, argv + optind);
	if (rc == 0)
		rc = import(&m);
	end_import(&m);
	return rc;
}
