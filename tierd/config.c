/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsing of the configuration; see config.h. inih splits the lines, our reader counts them (the
 * packaged inih does not) and refuses lines that inih would cut or misread.
 */
#include "tierd/config.h"

#include <assert.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "tierd/core/core.h"
#include "tierd/core/unit/store.h"

enum key_type {
	KEY_PATH,    /* absolute; max = bytes of the field */
	KEY_WORD,    /* [a-z0-9_-]; max = bytes of the field */
	KEY_SIZE,    /* struct units_size */
	KEY_BYTES,   /* uint64_t */
	KEY_NS,      /* uint64_t */
	KEY_COUNT,   /* uint32_t; "auto" = 0 when min is 0 */
	KEY_MODE,    /* uint32_t, octal */
	KEY_BOOL,    /* bool */
	KEY_SWITCH,  /* uint32_t, enum config_switch */
	KEY_LEVEL,   /* uint32_t, enum log_level */
	KEY_NODES,   /* uint64_t, a bit a node; "auto" = 0 */
	KEY_TYPES,
};

struct key {
	const char *name;
	enum key_type type;
	size_t offset;
	uint64_t min, max;
	const char *value; /* the default; "" = depends on who starts the daemon */
	const char *help;
};

#define FIELD(f) offsetof(struct config, f)
#define TIB (UINT64_C(1) << 40)
#define MIB (UINT64_C(1) << 20)
/*
 * Of a new store's segments. One of these has 63 records; with fewer these run out long before the
 * room for data does, and in a full store every few deletions wait for the cleaner.
 */
#define SEGMENT_BYTES_MIN (1ull << 20)

/* One limit for each tier. */
#define QUOTA_KEYS(who, what, help)                                                                \
	{ #who "." #what ".hbm", KEY_SIZE, FIELD(who##_##what[0]), 0, 1024 * TIB, "auto", help },  \
	{ #who "." #what ".cxl", KEY_SIZE, FIELD(who##_##what[1]), 0, 1024 * TIB, "auto", help },  \
	{ #who "." #what ".nvme", KEY_SIZE, FIELD(who##_##what[2]), 0, 1024 * TIB, "auto", help }

#define PIN_KEYS(who, help)                                                                        \
	{ #who ".pinned.hbm", KEY_SIZE, FIELD(who##_pinned[0]), 0, 1024 * TIB, "auto", help },     \
	{ #who ".pinned.cxl", KEY_SIZE, FIELD(who##_pinned[1]), 0, 1024 * TIB, "auto", help }

static const struct key keys[] = {
	{ "socket", KEY_PATH, FIELD(socket), 0, CONFIG_SOCKET_BYTES, "",
	  "where clients connect: $XDG_RUNTIME_DIR/tier.sock, as a service /run/tier/tier.sock" },
	{ "socket.mode", KEY_MODE, FIELD(socket_mode), 0, 0777, "",
	  "who may connect: 0600, as a service 0666 (contexts have their own permissions)" },
	{ "store.path", KEY_PATH, FIELD(store_path), 0, CONFIG_PATH_BYTES, "",
	  "file or block device of the NVMe tier: ~/.local/share/tier/store, as a service "
	  "/var/lib/tier/store; several: /one, /two" },
	{ "hbm.size", KEY_SIZE, FIELD(hbm_size), 0, 1024 * TIB, "auto",
	  "bytes of the HBM tier; 0 = no such tier" },
	{ "cxl.size", KEY_SIZE, FIELD(cxl_size), 0, 1024 * TIB, "auto",
	  "bytes of the CXL tier, where puts land; not 0" },
	{ "nvme.size", KEY_SIZE, FIELD(nvme_size), 0, 1024 * TIB, "auto",
	  "bytes of a new store; 0 = no store: memory only, nothing survives a restart" },
	{ "hbm.backend", KEY_WORD, FIELD(hbm_backend), 0, CONFIG_WORD_BYTES, "auto",
	  "what gives HBM its memory; auto = the best that is here" },
	{ "hbm.direct", KEY_BOOL, FIELD(hbm_direct), 0, 0, "no",
	  "read from the store straight into HBM, beside copies from CXL, where its memory can" },
	{ "cxl.backend", KEY_WORD, FIELD(cxl_backend), 0, CONFIG_WORD_BYTES, "auto",
	  "what gives CXL its memory; auto = the best that is here; sim = a simulated device" },
	{ "cxl.node", KEY_NODES, FIELD(cxl_node), 0, 64, "auto",
	  "NUMA nodes that CXL's memory lies on: 2, 3; auto = one, without processors" },
	{ "meta.memory", KEY_WORD, FIELD(meta_memory), 0, CONFIG_WORD_BYTES, "dram",
	  "where cold tables of the daemon lie: dram; by memkind: capacity, dax-kmem" },
	{ "nvme.backend", KEY_WORD, FIELD(nvme_backend), 0, CONFIG_WORD_BYTES, "auto",
	  "how the store is read and written: auto = file; passthrough = by commands of NVMe" },
	{ "nvme.buffered", KEY_BOOL, FIELD(nvme_buffered), 0, 0, "no",
	  "use the page cache where the file system refuses O_DIRECT (tests on tmpfs)" },
	{ "nvme.segment", KEY_BYTES, FIELD(nvme_segment), 0, 16384 * MIB, "0",
	  "bytes of a segment of a new store; 0 = from its size" },
	{ "nvme.discard", KEY_SWITCH, FIELD(nvme_discard), 0, 0, "auto",
	  "discard what dead segments held; auto = on block devices that can, not in files" },
	{ "nvme.depth", KEY_COUNT, FIELD(nvme_depth), 1, CORE_DEPTH_MAX, "64",
	  "operations that the device is given at a time" },
	{ "object.cxl", KEY_SIZE, FIELD(object_cxl), 0, 1024 * TIB, "0",
	  "memory for objects in use, taken out of cxl.size; 0 = no objects" },
	{ "object.nvme", KEY_SIZE, FIELD(object_nvme), 0, 1024 * TIB, "auto",
	  "disk for objects, beside the store; auto = 10% of the file system" },
	{ "object.path", KEY_PATH, FIELD(object_path), 0, CONFIG_PATH_BYTES, "",
	  "folder of the objects' files: the store's path with .objects" },
	{ "object.direct", KEY_BOOL, FIELD(object_direct), 0, 0, "no",
	  "open objects that find no memory as their file: unverified, by the page cache" },
	{ "staging.max", KEY_BYTES, FIELD(staging_max), MIB, TIB, "1GiB",
	  "most staging memory that one client is granted" },
	{ "clients.max", KEY_COUNT, FIELD(clients_max), 1, CORE_CLIENTS_MAX, "1024",
	  "most connections at a time" },
	{ "workers", KEY_COUNT, FIELD(workers), 0, 256, "auto",
	  "threads that copy and verify; auto = half the processors, at least one" },
	{ "log.level", KEY_LEVEL, FIELD(log_level), 0, 0, "",
	  "error, warn, info or debug; default info with --foreground, else warn" },
	{ "metrics.port", KEY_COUNT, FIELD(metrics_port), 0, 65535, "0",
	  "serve metrics for Prometheus on this port of 127.0.0.1, for all users; 0 = do not" },
	{ "metrics.socket", KEY_PATH, FIELD(metrics_socket), 0, CONFIG_SOCKET_BYTES, "",
	  "serve them on this UNIX socket, with contexts' names, for the daemon's user alone" },
	{ "writeback.age", KEY_NS, FIELD(writeback_age), NS_PER_MS, 600 * NS_PER_S, "200ms",
	  "how long a new block may wait before it is written to the store" },
	{ "writeback.percent", KEY_COUNT, FIELD(writeback_percent), 1, 50, "10",
	  "share of the device's time that write-back gets beside reads, at least" },
	{ "dirty.percent", KEY_COUNT, FIELD(dirty_percent), 1, 80, "50",
	  "share of CXL that may wait to be written to the store" },
	{ "pin.percent", KEY_COUNT, FIELD(pin_percent), 1, 80, "50",
	  "share of a tier that may be pinned" },
	{ "quarantine.percent", KEY_COUNT, FIELD(quarantine_percent), 1, 80, "10",
	  "share of a tier that a client's leases may keep after eviction; its user: 4 times" },
	{ "client.requests", KEY_COUNT, FIELD(client_requests), 4, CORE_REQUESTS_MAX, "512",
	  "most requests of a client in progress; more wait in its ring" },
	{ "client.puts", KEY_COUNT, FIELD(client_puts), 1, CORE_REQUESTS_MAX, "256",
	  "most puts that a client has begun and not committed" },
	{ "client.pins", KEY_COUNT, FIELD(client_pins), 1, CORE_PINS_MAX, "4096",
	  "most pins of a client" },
	{ "user.connections", KEY_COUNT, FIELD(user_connections), 0, CORE_CLIENTS_MAX, "auto",
	  "most connections of one user but root and the daemon's; auto = 3/4 of clients.max" },
	{ "user.contexts", KEY_COUNT, FIELD(user_contexts), 1, ABI_CONTEXTS_MAX, "256",
	  "most contexts that one user but root and the daemon's owns" },
	{ "index.size", KEY_SIZE, FIELD(index_size), 0, 1024 * TIB, "auto",
	  "most memory that contexts' indexes take beside the tiers; of it a user: 3/4" },
	{ "stream.share", KEY_COUNT, FIELD(stream_share), 2, 64, "8",
	  "streams get at most one in so many bytes of a memory tier" },
	{ "stream.hold", KEY_NS, FIELD(stream_hold), NS_PER_MS, 600 * NS_PER_S, "10s",
	  "how long an ended stream's layers wait to be released" },
	{ "stream.again", KEY_NS, FIELD(stream_again), NS_PER_MS, 3600 * NS_PER_S, "10s",
	  "a block that is streamed twice within this time stays in memory" },
	QUOTA_KEYS(salt, soft, "a salt above it gives first; auto = an equal part of its context"),
	QUOTA_KEYS(salt, hard, "most that one salt of a context holds; auto = no limit"),
	QUOTA_KEYS(client, soft, "a connection that put more gives first; auto = no such share"),
	QUOTA_KEYS(client, hard, "most that one connection's puts hold; auto = no limit"),
	PIN_KEYS(salt, "most that pins of one salt's blocks claim; auto = what pin.percent allows"),
	PIN_KEYS(client, "most that one connection's pins claim; auto = what pin.percent allows"),
	{ "request.deadline", KEY_NS, FIELD(request_deadline), NS_PER_MS, 600 * NS_PER_S, "2s",
	  "when a request without a deadline of its own is answered LATE" },
	{ "nvme.admit_all", KEY_BOOL, FIELD(nvme_admit_all), 0, 0, "yes",
	  "write every block to NVMe; no: only those that the policy expects to be used" },
	{ "background.yield", KEY_BOOL, FIELD(background_yield), 0, 0, "no",
	  "prefetches, write-back and clean-up wait while there is demand" },
	{ "background.starve", KEY_NS, FIELD(background_starve), NS_PER_MS, 10 * NS_PER_S, "20ms",
	  "how long background waits for one unit, whatever else there is" },
	{ "put.deadline", KEY_NS, FIELD(put_deadline), NS_PER_MS, 3600 * NS_PER_S, "10s",
	  "when a put that was begun and not committed is dropped" },
};

#define KEY_COUNT_ALL (sizeof(keys) / sizeof(keys[0]))
_Static_assert(KEY_COUNT_ALL <= CONFIG_KEYS_MAX, "room for the line of each");
#define NAME_LETTERS 31 /* of a key, and of a word that may mean one */

/* What a value of each type looks like, for the text that refuses one. */
static const char *const looks[KEY_TYPES] = {
	[KEY_PATH] = "write an absolute path of at most %llu bytes",
	[KEY_WORD] = "write auto or a backend's name (tierctl status shows it)",
	[KEY_SIZE] = "write bytes with a unit (64MiB), a percentage (25%%) or auto",
	[KEY_BYTES] = "write bytes with a unit (64MiB), from %s to %s",
	[KEY_NS] = "write a time with its unit (200ms), from %s to %s",
	[KEY_COUNT] = "write a number from %llu to %llu",
	[KEY_MODE] = "write an octal mode such as 0660",
	[KEY_BOOL] = "write yes or no",
	[KEY_SWITCH] = "write auto, on or off",
	[KEY_LEVEL] = "write error, warn, info or debug",
	[KEY_NODES] = "write auto, or NUMA nodes below 64, each once: 2, 3",
};

static int explain(char *why, size_t why_bytes, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int explain(char *why, size_t why_bytes, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, why_bytes, format, args);
	va_end(args);
	return -EINVAL;
}

/* ---- values -------------------------------------------------------------------------------- */

static int put_path(const struct key *k, const char *text, char *out)
{
	size_t bytes = strlen(text) + 1;

	if (text[0] != '/' || bytes > k->max)
		return -EINVAL;
	memcpy(out, text, bytes);
	return 0;
}

static int put_word(const struct key *k, const char *text, char *out)
{
	size_t bytes = strlen(text) + 1;

	if (bytes == 1 || bytes > k->max)
		return -EINVAL;
	if (strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") != bytes - 1)
		return -EINVAL;
	memcpy(out, text, bytes);
	return 0;
}

static int put_size(const struct key *k, const char *text, struct units_size *out)
{
	struct units_size size;
	int rc = units_parse_size(text, &size);

	if (rc)
		return rc;
	if (size.kind == UNITS_BYTES && size.value > k->max)
		return -ERANGE;
	*out = size;
	return 0;
}

/* Digits only: strtoull would take signs and blanks. */
static int parse_digits(const char *text, int base, uint64_t *value)
{
	const char *digits = base == 8 ? "01234567" : "0123456789";
	size_t len = strlen(text);

	if (len == 0 || len > 19 || strspn(text, digits) != len)
		return -EINVAL;
	*value = strtoull(text, NULL, base);
	return 0;
}

static int put_u32(const struct key *k, const char *text, uint32_t *out)
{
	uint64_t value;
	int rc = 0;

	if (k->type == KEY_COUNT && k->min == 0 && strcmp(text, "auto") == 0)
		value = 0;
	else
		rc = parse_digits(text, k->type == KEY_MODE ? 8 : 10, &value);
	if (rc)
		return rc;
	if (value < k->min || value > k->max)
		return -ERANGE;
	*out = (uint32_t)value;
	return 0;
}

static int put_u64(const struct key *k, const char *text, uint64_t *out)
{
	uint64_t value;
	int rc = k->type == KEY_NS ? units_parse_ns(text, &value) :
				     units_parse_bytes(text, &value);

	if (rc)
		return rc;
	if (value < k->min || value > k->max)
		return -ERANGE;
	*out = value;
	return 0;
}

static int put_bool(const char *text, bool *out)
{
	bool yes = strcmp(text, "yes") == 0;

	if (!yes && strcmp(text, "no") != 0)
		return -EINVAL;
	*out = yes;
	return 0;
}

static int put_switch(const char *text, uint32_t *out)
{
	static const char *const word[] = { [CONFIG_AUTO] = "auto", [CONFIG_ON] = "on",
					    [CONFIG_OFF] = "off" };

	for (uint32_t i = 0; i < sizeof(word) / sizeof(word[0]); i++)
		if (strcmp(text, word[i]) == 0) {
			*out = i;
			return 0;
		}
	return -EINVAL;
}

static int put_level(const char *text, uint32_t *out)
{
	enum log_level level;
	int rc = log_level_parse(text, &level);

	if (rc == 0)
		*out = level;
	return rc;
}

/* Numbers with commas between them. */
static int put_nodes(const struct key *k, const char *text, uint64_t *out)
{
	uint64_t nodes = 0;

	if (!strcmp(text, "auto")) {
		*out = 0;
		return 0;
	}
	for (const char *at = text;; at++) {
		char digits[3] = "";
		uint64_t node;

		at += strspn(at, " \t");
		snprintf(digits, sizeof(digits), "%.*s", (int)strspn(at, "0123456789"), at);
		if (parse_digits(digits, 10, &node) || node >= k->max || nodes >> node & 1)
			return -EINVAL;
		nodes |= 1ull << node;
		at += strlen(digits);
		at += strspn(at, " \t");
		if (!*at)
			break;
		if (*at != ',')
			return -EINVAL;
	}
	*out = nodes;
	return 0;
}

static int put_value(struct config *config, const struct key *k, const char *text)
{
	void *field = (char *)config + k->offset;

	switch (k->type) {
	case KEY_PATH:
		return put_path(k, text, field);
	case KEY_WORD:
		return put_word(k, text, field);
	case KEY_SIZE:
		return put_size(k, text, field);
	case KEY_BYTES:
	case KEY_NS:
		return put_u64(k, text, field);
	case KEY_COUNT:
	case KEY_MODE:
		return put_u32(k, text, field);
	case KEY_BOOL:
		return put_bool(text, field);
	case KEY_SWITCH:
		return put_switch(text, field);
	case KEY_LEVEL:
		return put_level(text, field);
	case KEY_NODES:
		return put_nodes(k, text, field);
	case KEY_TYPES:
		break;
	}
	return -EINVAL;
}

/* ---- keys ---------------------------------------------------------------------------------- */

/* Keys by names that they had. */
static const char *const old_names[][2] = { { "user.sessions", "user.connections" } };

static const struct key *key_find(const char *name)
{
	for (size_t i = 0; i < sizeof(old_names) / sizeof(old_names[0]); i++)
		if (strcmp(old_names[i][0], name) == 0)
			name = old_names[i][1];
	for (size_t i = 0; i < KEY_COUNT_ALL; i++)
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

/* How many letters to put in, take out or change until one word is the other (Wagner, Fischer). */
static size_t letters_apart(const char *a, const char *b)
{
	size_t row[NAME_LETTERS + 1], length = strlen(b);

	assert(length <= NAME_LETTERS);
	for (size_t j = 0; j <= length; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t corner = row[0];

		row[0] = i + 1;
		for (size_t j = 0; j < length; j++) {
			size_t best = corner + (a[i] != b[j]);

			if (row[j + 1] + 1 < best)
				best = row[j + 1] + 1;
			if (row[j] + 1 < best)
				best = row[j] + 1;
			corner = row[j + 1];
			row[j + 1] = best;
		}
	}
	return row[length];
}

/* The key that somebody may have meant, or NULL. */
static const struct key *key_meant(const char *name)
{
	const struct key *meant = NULL;
	size_t least = 4;

	for (size_t i = 0; strlen(name) <= NAME_LETTERS && i < KEY_COUNT_ALL; i++) {
		size_t apart = letters_apart(name, keys[i].name);

		if (apart < least && apart * 2 < strlen(keys[i].name)) {
			least = apart;
			meant = &keys[i];
		}
	}
	return meant;
}

/* A hostile text, fit for a terminal and a log. */
static const char *disarm(char out[65], const char *text)
{
	size_t i;

	for (i = 0; text[i] && i < 64; i++) {
		unsigned char byte = (unsigned char)text[i];

		out[i] = byte < 0x20 || byte >= 0x7f || byte == '"' ? '?' : (char)byte;
	}
	out[i] = '\0';
	return out;
}

/* -Wformat cannot see through the table; each entry takes at most two numbers. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void look_print(char *out, size_t bytes, const struct key *k)
{
	char least[UNITS_TEXT_BYTES], most[UNITS_TEXT_BYTES];

	if (k->type == KEY_NS)
		snprintf(out, bytes, looks[k->type], units_print_ns(least, k->min),
			 units_print_ns(most, k->max));
	else if (k->type == KEY_BYTES)
		snprintf(out, bytes, looks[k->type], units_print_bytes(least, k->min),
			 units_print_bytes(most, k->max));
	else if (k->type == KEY_PATH)
		snprintf(out, bytes, looks[k->type], (unsigned long long)k->max - 1);
	else
		snprintf(out, bytes, looks[k->type], (unsigned long long)k->min,
			 (unsigned long long)k->max);
}
#pragma GCC diagnostic pop

int config_assign(struct config *config, const char *name, const char *value, char *why,
		  size_t why_bytes)
{
	const struct key *k = key_find(name), *meant = k ? k : key_meant(name);
	char shown[65], look[128];

	if (!k && meant)
		return explain(why, why_bytes, "\"%s\" is not a key; is %s meant?",
			       disarm(shown, name), meant->name);
	if (!k)
		return explain(why, why_bytes,
			       "\"%s\" is not a key; tierd --help lists the keys",
			       disarm(shown, name));
	if (put_value(config, k, value) == 0) {
		config->line[k - keys] = CONFIG_COMMAND_LINE;
		return 0;
	}
	look_print(look, sizeof(look), k);
	return explain(why, why_bytes, "%s = \"%s\" cannot be used; %s%s", k->name,
		       disarm(shown, value), look,
		       strchr(value, '#') ? "; a comment stands in a line of its own" : "");
}

int config_set(struct config *config, const char *assignment, char *why, size_t why_bytes)
{
	const char *equals = strchr(assignment, '=');
	char name[CONFIG_WORD_BYTES], shown[65];
	size_t len = equals ? (size_t)(equals - assignment) : 0;

	if (len == 0 || len >= sizeof(name))
		return explain(why, why_bytes, "\"%s\" is not an assignment; write key=value",
			       disarm(shown, assignment));
	memcpy(name, assignment, len);
	name[len] = '\0';
	return config_assign(config, name, equals + 1, why, why_bytes);
}

/* ---- files --------------------------------------------------------------------------------- */

struct load {
	struct config *config;
	const char *path;
	FILE *file;
	uint32_t line_number;
	int rc;                       /* of the first thing that is wrong */
	char *why;
	size_t why_bytes;
};

/* Keep the first complaint, with its place. */
static void complain(struct load *load, const char *what)
{
	if (load->rc)
		return;
	load->rc = explain(load->why, load->why_bytes, "%s:%u: %s", load->path,
			   load->line_number, what);
}

/* inih's reader: a line at a time, counted; what inih would cut in two ends the file. */
static char *read_line(char *to, int room, void *user)
{
	struct load *load = user;
	int len = 0, byte = 0;

	while (len < room - 1 && byte != '\n' && (byte = getc(load->file)) != EOF)
		to[len++] = (char)byte;
	if (len == 0 || load->rc)
		return NULL;
	to[len] = '\0';
	load->line_number++;
	if (memchr(to, '\0', (size_t)len)) {
		complain(load, "the line holds a NUL byte; is this a configuration file?");
		return NULL;
	}
	if (byte != '\n' && byte != EOF && getc(load->file) != EOF) {
		complain(load, "the line is too long; at most 197 characters are read");
		return NULL;
	}
	return to;
}

/* inih's handler; "[store] path = x" and "store.path = x" say the same. */
static int take_value(void *user, const char *section, const char *name, const char *value)
{
	struct load *load = user;
	char full[2 * CONFIG_WORD_BYTES], what[CONFIG_WHY_BYTES / 2], shown[65];
	const struct key *k;
	uint32_t *line;

	if (load->rc)
		return 0;
	snprintf(full, sizeof(full), "%.31s%s%.31s", section, *section ? "." : "", name);
	k = key_find(full);
	line = k ? &load->config->line[k - keys] : NULL;
	if (k && *line) {
		snprintf(what, sizeof(what),
			 "%s is set a second time (first in line %u); keep one of them", k->name,
			 *line);
		complain(load, what);
		return 0;
	}
	if (strlen(section) > 31 || strlen(name) > 31) {
		snprintf(what, sizeof(what), "\"%s\" is not a key; tierd --help lists the keys",
			 disarm(shown, name));
		complain(load, what);
		return 0;
	}
	if (config_assign(load->config, full, value, what, sizeof(what))) {
		complain(load, what);
		return 0;
	}
	if (k)
		*line = load->line_number;
	return 1;
}

int config_load(struct config *config, const char *path, char *why, size_t why_bytes)
{
	FILE *file CLEANUP_FCLOSE = fopen(path, "re");
	struct load load = { .config = config, .path = path, .file = file,
			     .why = why, .why_bytes = why_bytes };
	int line;

	if (!file) {
		int rc = -errno;

		explain(why, why_bytes, "%s: %s; give the path of a readable file", path,
			strerror(-rc));
		return rc;
	}
	snprintf(config->file, sizeof(config->file), "%s", path);
	memset(config->line, 0, sizeof(config->line));
	line = ini_parse_stream(read_line, &load, take_value, &load);
	if (!load.rc && ferror(file))
		load.rc = explain(why, why_bytes, "%s: cannot be read; is it a file?", path);
	if (!load.rc && line > 0) {
		load.line_number = (uint32_t)line;
		complain(&load, "this is not \"key = value\"; comments begin with #");
	}
	return load.rc;
}

const char *config_where(const struct config *config, const char *name, char *out, size_t bytes)
{
	const struct key *k = key_find(name);
	uint32_t line = k ? config->line[k - keys] : 0;

	if (line == CONFIG_COMMAND_LINE)
		snprintf(out, bytes, "--set %s", name);
	else if (line)
		snprintf(out, bytes, "%s:%u: %s", config->file, line, name);
	else
		snprintf(out, bytes, "%s", name);
	return out;
}

/* ---- the whole ----------------------------------------------------------------------------- */

bool config_is_service(void)
{
	return geteuid() == 0 || getenv("RUNTIME_DIRECTORY") != NULL;
}

/* dir + tail, or nothing when dir is unset or the path would not fit. */
static void join(char *out, size_t out_bytes, const char *dir, const char *tail)
{
	size_t dir_bytes = dir ? strlen(dir) : 0;

	out[0] = '\0';
	if (dir_bytes == 0 || dir[0] != '/' || dir_bytes + strlen(tail) >= out_bytes)
		return;
	memcpy(out, dir, dir_bytes);
	memcpy(out + dir_bytes, tail, strlen(tail) + 1);
}

static void default_paths(struct config *config, bool service)
{
	const char *data = getenv("XDG_DATA_HOME");

	if (service) {
		join(config->socket, sizeof(config->socket), "/run/tier", "/tier.sock");
		join(config->store_path, sizeof(config->store_path), "/var/lib/tier", "/store");
		return;
	}
	join(config->socket, sizeof(config->socket), getenv("XDG_RUNTIME_DIR"), "/tier.sock");
	join(config->store_path, sizeof(config->store_path), data, "/tier/store");
	if (!config->store_path[0])
		join(config->store_path, sizeof(config->store_path), getenv("HOME"),
		     "/.local/share/tier/store");
}

void config_defaults(struct config *config, bool service, bool quiet)
{
	memset(config, 0, sizeof(*config));
	for (size_t i = 0; i < KEY_COUNT_ALL; i++) {
		int rc = keys[i].value[0] ? put_value(config, &keys[i], keys[i].value) : 0;

		assert(rc == 0);
	}
	config->socket_mode = service ? 0666 : 0600;
	config->log_level = quiet ? LOG_LEVEL_WARN : LOG_LEVEL_INFO;
	default_paths(config, service);
}

static bool is_zero(const struct units_size *size)
{
	return size->kind != UNITS_AUTO && size->value == 0;
}

uint32_t config_paths(char *list, const char **path, uint32_t max)
{
	uint32_t n = 0;

	if (list[0])
		path[n++] = list;
	for (char *at = strchr(list, ','); at && n < max; at = strchr(at + 1, ',')) {
		char *next = at + 1 + strspn(at + 1, " \t");

		if (*next != '/')
			continue;
		while (at > list && (at[-1] == ' ' || at[-1] == '\t'))
			at--;
		*at = '\0';
		path[n++] = at = next;
	}
	return n;
}

static int check_paths(const struct config *config, char *why, size_t why_bytes)
{
	const char *path[CORE_DRIVES_MAX + 1];
	char list[CONFIG_PATH_BYTES], where[CONFIG_PATH_BYTES + 64];
	uint32_t n;

	memcpy(list, config->store_path, sizeof(list));
	n = config_paths(list, path, CORE_DRIVES_MAX + 1);
	config_where(config, "store.path", where, sizeof(where));
	if (n > CORE_DRIVES_MAX)
		return explain(why, why_bytes, "%s: more than %u drives; name fewer", where,
			       CORE_DRIVES_MAX);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < i; k++)
			if (!strcmp(path[i], path[k]))
				return explain(why, why_bytes,
					       "%s: %s is named twice; name each drive once",
					       where, path[i]);
	return 0;
}

int config_check(const struct config *config, char *why, size_t why_bytes)
{
	if (!config->socket[0])
		return explain(why, why_bytes, "no place for the socket: XDG_RUNTIME_DIR is not "
			       "set; give --socket PATH");
	if (!config->store_path[0] && !is_zero(&config->nvme_size))
		return explain(why, why_bytes, "no place for the store: HOME is not set; give "
			       "--store FILE, or nvme.size = 0 to go without");
	if (is_zero(&config->cxl_size))
		return explain(why, why_bytes, "cxl.size = 0 cannot be used: puts land in CXL; "
			       "give it memory or write auto");
	if (config->cxl_node && strcmp(config->cxl_backend, "auto") &&
	    strcmp(config->cxl_backend, "numa"))
		return explain(why, why_bytes, "cxl.node names NUMA nodes, which cxl.backend = %s "
			       "does not take; write cxl.backend = numa, or no cxl.node",
			       config->cxl_backend);
	if (config->nvme_segment % 4096 ||
	    (config->nvme_segment && config->nvme_segment < SEGMENT_BYTES_MIN))
		return explain(why, why_bytes, "nvme.segment = %llu cannot be used; write a "
			       "multiple of 4096, at least %llu, or 0",
			       (unsigned long long)config->nvme_segment, SEGMENT_BYTES_MIN);
	return check_paths(config, why, why_bytes);
}

/* Looked at anew at each use, and no table was made for them (core_reload). */
static bool is_live(const char *name)
{
	static const char *const live[] = {
		"log.level",	   "writeback.age", "background.yield", "background.starve",
		"nvme.admit_all",  "put.deadline",  "request.deadline", "stream.hold",
		"stream.again",	   "user.connections",
	};

	for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++)
		if (strcmp(live[i], name) == 0)
			return true;
	return false;
}

static bool is_same(const struct key *k, const void *a, const void *b)
{
	const struct units_size *x = a, *y = b;

	switch (k->type) {
	case KEY_PATH:
	case KEY_WORD:
		return strcmp(a, b) == 0;
	case KEY_SIZE:
		return x->kind == y->kind && x->value == y->value;
	case KEY_BYTES:
	case KEY_NODES:
	case KEY_NS:
		return memcmp(a, b, sizeof(uint64_t)) == 0;
	case KEY_BOOL:
		return memcmp(a, b, sizeof(bool)) == 0;
	default:
		return memcmp(a, b, sizeof(uint32_t)) == 0;
	}
}

void config_reload(struct config *config, const struct config *anew,
		   void (*tell)(void *arg, const char *name, bool taken), void *arg)
{
	for (size_t i = 0; i < KEY_COUNT_ALL; i++) {
		const struct key *k = &keys[i];
		char *to = (char *)config + k->offset;
		const char *from = (const char *)anew + k->offset;
		bool live = is_live(k->name);

		if (is_same(k, to, from))
			continue;
		if (live) /* a number, all of them */
			memcpy(to, from, k->type == KEY_NS   ? sizeof(uint64_t) :
					 k->type == KEY_BOOL ? sizeof(bool) :
							       sizeof(uint32_t));
		tell(arg, k->name, live);
	}
}

bool config_key(uint32_t i, struct config_help *out)
{
	if (i >= KEY_COUNT_ALL)
		return false;
	*out = (struct config_help){ keys[i].name, keys[i].value, keys[i].help };
	return true;
}
