/* SPDX-License-Identifier: Apache-2.0 */
/* tierctl object: list, show, get, put, remove. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "tierd/ctl/ctl.h"

#define COUNT(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))
#define PIECE (1u << 20)
#define PAGE 1024u

/* ---- list, show ---------------------------------------------------------------------------- */

/* A name may hold any byte; people are shown those that a terminal takes. */
static const char *shown(char out[256], const char *name)
{
	size_t i = 0;

	for (; name[i]; i++) {
		unsigned char byte = (unsigned char)name[i];

		out[i] = byte < 0x20 || byte >= 0x7f ? '?' : (char)byte;
	}
	out[i] = '\0';
	return out;
}

/* As it is, where it is UTF-8. */
static json_t *name_json(const char *name)
{
	json_t *whole = json_string(name);
	char text[256];

	return whole ? whole : json_string(shown(text, name));
}

static json_t *entry(const struct tier_object_entry *e)
{
	return json_pack("{s:o, s:I, s:I, s:b}", "name", name_json(e->name), "size",
			 (json_int_t)e->size, "mtime_ns", (json_int_t)e->mtime_ns, "resident",
			 e->flags & TIER_OBJECT_RESIDENT);
}

static const char *when(char cell[CTL_CELL], uint64_t mtime_ns)
{
	time_t seconds = (time_t)(mtime_ns / 1000000000);
	struct tm tm;

	strftime(cell, CTL_CELL, "%F %T", localtime_r(&seconds, &tm));
	return cell;
}

static int show_list(const json_t *all, uint32_t terminal)
{
	static const char *const heads[] = { "~object", ">size", "written", "in memory" };
	struct grid *g = grid_new(heads, COUNT(heads));
	char cell[CTL_CELL];

	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *one = json_array_get(all, i);

		grid_add(g, json_string_value(json_object_get(one, "name")));
		grid_add(g, ctl_bytes(cell, one, "size"));
		grid_add(g, when(cell, (uint64_t)json_integer_value(
					       json_object_get(one, "mtime_ns"))));
		grid_add(g, ctl_yes(cell, one, "resident"));
	}
	return grid_print(g, stdout, terminal) ? CTL_FAILED : CTL_OK;
}

int ctl_object_list(struct ctl *ctl, int argc, char **argv)
{
	struct tier_object_entry *list CLEANUP_FREE = calloc(PAGE, sizeof(*list));
	const char *prefix = argc > 1 ? argv[1] : NULL, *after = NULL;
	json_t *all = json_array();
	int64_t n = list ? (int64_t)PAGE : -ENOMEM;
	int status;

	while (n == PAGE) {
		n = tier_object_list(ctl->t, argv[0], prefix, after, list, PAGE);
		for (int64_t i = 0; i < n; i++)
			json_array_append_new(all, entry(&list[i]));
		after = n > 0 ? list[n - 1].name : NULL;
	}
	if (n < 0)
		status = ctl_failed(ctl, (int)n);
	else if (ctl->json)
		status = ctl_print_json(all);
	else
		status = show_list(all, ctl->terminal);
	json_decref(all);
	return status;
}

int ctl_object_show(struct ctl *ctl, int argc, char **argv)
{
	struct tier_object_info info;
	char cell[CTL_CELL], name[256];
	int rc = tier_object_stat(ctl->t, argv[0], argv[1], &info);
	json_t *document;

	(void)argc;
	if (rc)
		return ctl_failed(ctl, rc);
	if (ctl->json) {
		document = json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "name",
				     name_json(argv[1]), "size", (json_int_t)info.size,
				     "version", (json_int_t)info.version, "mtime_ns",
				     (json_int_t)info.mtime_ns, "expires_ms",
				     (json_int_t)info.expires_ms, "mode", (json_int_t)info.mode,
				     "priority", (json_int_t)info.priority, "resident",
				     info.flags & TIER_OBJECT_RESIDENT);
		rc = ctl_print_json(document);
		json_decref(document);
		return rc;
	}
	printf("%s: %llu bytes, mode %04o, version %llu, priority %u, %s\n",
	       shown(name, argv[1]), (unsigned long long)info.size, info.mode,
	       (unsigned long long)info.version, info.priority,
	       info.flags & TIER_OBJECT_RESIDENT ? "in memory" : "on NVMe");
	printf("written %s\n", when(cell, info.mtime_ns));
	if (info.expires_ms)
		printf("expires %s\n", when(cell, info.expires_ms * 1000000));
	return CTL_OK;
}

/* ---- get, put ------------------------------------------------------------------------------ */

static int file_failed(const char *path, int error)
{
	fprintf(stderr, "tierctl: %s: %s\n", path, strerror(error));
	return CTL_FAILED;
}

/* Everything from one descriptor to another; 0 or an errno. */
static int pour(int from, int to)
{
	char *piece CLEANUP_FREE = malloc(PIECE);
	ssize_t n;

	if (!piece)
		return ENOMEM;
	while ((n = read(from, piece, PIECE)) > 0)
		for (ssize_t done = 0, one; done < n; done += one) {
			one = write(to, piece + done, (size_t)(n - done));
			if (one < 0)
				return errno;
		}
	return n < 0 ? errno : 0;
}

int ctl_object_get(struct ctl *ctl, int argc, char **argv)
{
	const char *path = argc > 2 && strcmp(argv[2], "-") ? argv[2] : NULL;
	int from CLEANUP_CLOSE = tier_object_open(ctl->t, argv[0], argv[1], 0);
	int to CLEANUP_CLOSE = -1, rc;

	if (from < 0)
		return ctl_failed(ctl, from);
	if (path)
		to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (path && to < 0)
		return file_failed(path, errno);
	rc = pour(from, path ? to : STDOUT_FILENO);
	return rc ? file_failed(path ? path : "standard output", rc) : CTL_OK;
}

int ctl_object_put(struct ctl *ctl, int argc, char **argv)
{
	const char *path = argc > 2 && strcmp(argv[2], "-") ? argv[2] : NULL;
	int from CLEANUP_CLOSE = path ? open(path, O_RDONLY | O_CLOEXEC) : -1, rc;
	tier_object *o;

	if (path && from < 0)
		return file_failed(path, errno);
	rc = tier_object_context(ctl->t, argv[0], NULL);
	if (rc == 0)
		rc = tier_object_create(ctl->t, argv[0], argv[1], NULL, &o);
	if (rc)
		return ctl_failed(ctl, rc);
	rc = pour(path ? from : STDIN_FILENO, tier_object_fd(o));
	if (rc) {
		tier_object_abort(o);
		return file_failed(path ? path : "standard input", rc);
	}
	rc = tier_object_commit(o);
	return rc ? ctl_failed(ctl, rc) : CTL_OK;
}

int ctl_object_remove(struct ctl *ctl, int argc, char **argv)
{
	int rc = tier_object_remove(ctl->t, argv[0], argv[1]);

	(void)argc;
	return rc ? ctl_failed(ctl, rc) : CTL_OK;
}
