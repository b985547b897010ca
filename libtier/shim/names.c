/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which paths are objects, and the C library's own functions. TIER_MAP is PATH=CONTEXT,
 * TIER_TEMPORARY a pattern of names, several with newlines between them; tier run sets them.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/shim/shim.h"

#define LINKS_MAX 40u /* as the kernel's */

static const char *const names[SHIM_NAMES] = {
#define SHIM_NAME(name) #name,
#include "shim_names.h"
#undef SHIM_NAME
};

static struct {
	uint64_t real[SHIM_NAMES]; /* atomic; 0 = not looked up yet */
	uint32_t ready;            /* atomic: 1 = maps are read */
	uint32_t maps;
	struct {
		const char *path; /* in text */
		size_t bytes;
		char context[ABI_NAME_BYTES];
	} map[SHIM_MAPS_MAX];
	char text[SHIM_MAPS_MAX * 1024];
	char temporary[1024]; /* patterns, each with its NUL; "" behind the last */
} shim;

static __thread int inside __attribute__((tls_model("initial-exec")));

void *shim_real(enum shim_name name)
{
	uint64_t word = atomic_load_acquire_u64(&shim.real[name]);

	if (!word) {
		word = (uint64_t)(uintptr_t)dlsym(RTLD_NEXT, names[name]);
		atomic_store_release_u64(&shim.real[name], word);
	}
	return (void *)(uintptr_t)word;
}

/* One PATH=CONTEXT; what is none is passed over. */
static void take_map(char *text)
{
	char *equals = strrchr(text, '=');
	size_t bytes;

	if (!equals || text[0] != '/' || shim.maps == SHIM_MAPS_MAX || equals[1] == '\0' ||
	    strlen(equals + 1) >= ABI_NAME_BYTES)
		return;
	memcpy(shim.map[shim.maps].context, equals + 1, strlen(equals + 1) + 1);
	*equals = '\0';
	bytes = (size_t)(equals - text);
	while (bytes > 1 && text[bytes - 1] == '/')
		bytes--;
	shim.map[shim.maps].path = text;
	shim.map[shim.maps].bytes = bytes;
	shim.maps++;
}

static void read_temporary(void)
{
	const char *patterns = getenv("TIER_TEMPORARY");

	if (!patterns || strlen(patterns) + 2 > sizeof(shim.temporary))
		return;
	memcpy(shim.temporary, patterns, strlen(patterns) + 1);
	for (char *at = shim.temporary; (at = strchr(at, '\n'));)
		*at++ = '\0';
}

/* Read once, before the program has threads or by all of them alike. */
static void __attribute__((constructor)) read_maps(void)
{
	const char *map = getenv("TIER_MAP");
	char *at = shim.text;

	if (atomic_load_acquire_u32(&shim.ready))
		return;
	if (map && strlen(map) < sizeof(shim.text))
		memcpy(shim.text, map, strlen(map) + 1);
	while (*at) {
		char *end = at + strcspn(at, "\n"), *next = end + (*end == '\n');

		*end = '\0';
		take_map(at);
		at = next;
	}
	read_temporary();
	atomic_store_release_u32(&shim.ready, 1);
}

bool shim_is_temporary(const struct shim_name_of *n)
{
	const char *slash = strrchr(n->name, '/');

	for (const char *at = shim.temporary; *at; at += strlen(at) + 1)
		if (fnmatch(at, slash ? slash + 1 : n->name, 0) == 0)
			return true;
	return false;
}

bool shim_passes(void)
{
	if (inside)
		return true;
	if (!atomic_load_acquire_u32(&shim.ready))
		read_maps();
	return shim.maps == 0;
}

void shim_enter(void)
{
	inside++;
}

void shim_leave(void)
{
	inside--;
}

/* ---- paths --------------------------------------------------------------------------------- */

/* The folder that a relative path begins in. */
static bool begin_in(int at, char *out, size_t bytes)
{
	char link[40];
	ssize_t n;

	if (at == AT_FDCWD)
		return getcwd(out, bytes) != NULL;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", at);
	n = readlink(link, out, bytes - 1);
	if (n <= 0 || out[0] != '/')
		return false;
	out[n] = '\0';
	return true;
}

/* Append a path's words to an absolute one: "." and "" are nothing, ".." takes one off. */
static bool append(char *out, size_t bytes, const char *path)
{
	size_t length = strlen(out);

	while (*path) {
		size_t n = strcspn(path, "/");

		if (n == 2 && path[0] == '.' && path[1] == '.') {
			while (length && out[--length] != '/')
				;
		} else if (n && !(n == 1 && path[0] == '.')) {
			if (length + n + 2 > bytes)
				return false;
			out[length] = '/';
			memcpy(out + length + 1, path, n);
			length += n + 1;
		}
		out[length] = '\0';
		path += n + (path[n] == '/');
	}
	return true;
}

static bool match(struct shim_name_of *out, bool folder)
{
	for (uint32_t i = 0; i < shim.maps; i++) {
		size_t bytes = shim.map[i].bytes;
		const char *name = out->path + bytes + 1;

		if (strncmp(out->path, shim.map[i].path, bytes))
			continue;
		if (folder && !out->path[bytes])
			name = "";
		else if (out->path[bytes] != '/' || !*name || strlen(name) >= sizeof(out->name))
			continue;
		memcpy(out->name, name, strlen(name) + 1);
		out->map = i;
		memcpy(out->context, shim.map[i].context, sizeof(out->context));
		return true;
	}
	return false;
}

static bool resolve(int at, const char *path, struct shim_name_of *out, bool folder)
{
	int saved = errno;
	bool found;

	out->path[0] = '\0';
	shim_enter();
	found = (path[0] == '/' || begin_in(at, out->path, sizeof(out->path))) &&
		append(out->path, sizeof(out->path), path) && match(out, folder);
	shim_leave();
	errno = saved;
	return found;
}

/* Is there a link among its words? One system call, which a name that is not there costs, too. */
static bool has_link(const char *path, bool last)
{
	const struct open_how how = { .flags = O_PATH | O_CLOEXEC | (last ? 0 : O_NOFOLLOW),
				      .resolve = RESOLVE_NO_SYMLINKS };
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

	if (fd >= 0)
		close(fd);
	return fd < 0 && errno == ELOOP;
}

/* One step: the folder as it is, and what its last word leads to. 1: that is a link, go on. */
static int step(char path[4096], bool last)
{
	char folder[4096], target[4096], base[ABI_OBJECT_NAME_BYTES];
	char *slash = strrchr(path, '/');
	ssize_t n;

	if (strlen(slash + 1) >= sizeof(base) || !slash[1] || !strcmp(slash + 1, ".") ||
	    !strcmp(slash + 1, ".."))
		return -ENOENT; /* a folder */
	memcpy(base, slash + 1, strlen(slash + 1) + 1);
	*slash = '\0';
	if (!realpath(slash == path ? "/" : path, folder) ||
	    snprintf(path, sizeof(folder), "%s/%s", folder, base) >= (int)sizeof(folder))
		return -ENOENT;
	n = last ? readlink(path, target, sizeof(target) - 1) : 0;
	if (n <= 0)
		return 0;
	target[n] = '\0';
	return snprintf(path, sizeof(folder), "%s%s%s", target[0] == '/' ? "" : folder,
			target[0] == '/' ? "" : "/", target) < (int)sizeof(folder) ? 1 : -ENOENT;
}

bool shim_canonical(struct shim_name_of *n, bool last)
{
	struct shim_name_of to = *n;
	int saved = errno, rc = 1;
	bool found;

	shim_enter();
	for (uint32_t links = 0; rc == 1 && links < LINKS_MAX; links++)
		rc = step(to.path, last);
	found = rc == 0 && match(&to, false);
	shim_leave();
	errno = saved;
	if (found)
		*n = to;
	return found;
}

bool shim_follow(struct shim_name_of *n, bool last)
{
	int saved = errno;
	bool found;

	shim_enter();
	found = has_link(n->path, last);
	shim_leave();
	errno = saved;
	return found && shim_canonical(n, last);
}

bool shim_resolve(int at, const char *path, struct shim_name_of *out)
{
	size_t length = path ? strlen(path) : 0;

	/* With a slash at its end it is a folder, whatever there is. */
	return length && path[length - 1] != '/' && resolve(at, path, out, false);
}

const char *shim_folder_of(const struct shim_name_of *n)
{
	return shim.map[n->map].path;
}

bool shim_resolve_folder(int at, const char *path, bool last, struct shim_name_of *out)
{
	char whole[sizeof(out->path)];
	int saved = errno;
	bool found;

	if (!path || !*path || !resolve(at, path, out, true))
		return false;
	if (!out->name[0])
		return true;
	if (!last) {
		shim_follow(out, false);
		return true;
	}
	shim_enter();
	found = !has_link(out->path, true) || (realpath(out->path, whole) &&
					       memcpy(out->path, whole, strlen(whole) + 1) &&
					       match(out, true));
	shim_leave();
	errno = saved;
	return found;
}
