/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command tier: `tier run [--map PATH=CONTEXT]... -- CMD` starts a program under
 * libtier-preload.so, with the contexts made if they are not there. docs/man/tier.1 is its manual.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tier.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/file.h"
#include "libtier/shim/import.h"

#define LIBRARY "libtier-preload.so"
#define MAP_BYTES 8192u
#define MAPS_MAX 8u /* libtier-preload.so takes twice as many */
#define USAGE 125 /* as env(1): errors of our own */
#define PROFILES "PREFIX/share/tier/profiles"

struct run {
	const char *socket;
	uint32_t maps;
	char map[MAP_BYTES]; /* TIER_MAP, as libtier-preload.so reads it */
	char temporary[1024]; /* TIER_TEMPORARY: of the profiles */
	char library[PATH_MAX];
};

static int usage(FILE *to, int status)
{
	fputs("usage: tier run [--socket PATH] --map PATH=CONTEXT ... -- COMMAND [ARGUMENT...]\n"
	      "       tier import [OPTION...] FILE...; tier import --help\n\n"
	      "  Runs COMMAND so that files below PATH are objects of CONTEXT, which is made if\n"
	      "  it is not there. Where the daemon is away they are files of the directory.\n\n"
	      "  -m, --map PATH=CONTEXT  up to 8 of them\n"
	      "  -p, --profile NAME      of the program: which names it writes, then renames; a\n"
	      "                          file, or one of " PROFILES "\n"
	      "  -s, --socket PATH       the daemon's socket (default $TIER_SOCKET,\n"
	      "                          $XDG_RUNTIME_DIR/tier.sock, /run/tier/tier.sock)\n"
	      "  -h, --help              this text; man tier tells more\n"
	      "  -V, --version\n", to);
	return status;
}

static int wrong(const char *what, const char *which)
{
	fprintf(stderr, "tier run: %s%s; tier --help shows how\n", what, which);
	return USAGE;
}

/* Programs compare paths as they are written. */
static int append_map(struct run *r, const char *path, const char *context)
{
	size_t used = strlen(r->map);

	if ((size_t)snprintf(r->map + used, sizeof(r->map) - used, "%s%s=%s", used ? "\n" : "",
			     path, context) >= sizeof(r->map) - used)
		return wrong("too many maps at ", path);
	return 0;
}

/* PATH as the kernel knows it and as it was given, if that is by a link; and the context's name. */
static int take_map(struct run *r, const char *text)
{
	const char *equals = strrchr(text, '=');
	char path[PATH_MAX], whole[PATH_MAX];
	int rc;

	if (!equals || equals == text || !equals[1] || (size_t)(equals - text) >= sizeof(path))
		return wrong("not PATH=CONTEXT: ", text);
	memcpy(path, text, (size_t)(equals - text));
	path[equals - text] = '\0';
	if (!realpath(path, whole) || strchr(whole, '\n'))
		return wrong("no such directory: ", path);
	if (r->maps++ == MAPS_MAX)
		return wrong("too many maps at ", path);
	rc = append_map(r, whole, equals + 1);
	for (size_t end = strlen(path); end > 1 && path[end - 1] == '/'; end--)
		path[end - 1] = '\0';
	return rc || path[0] != '/' || strcmp(path, whole) == 0 ? rc :
								  append_map(r, path, equals + 1);
}

/* A file that belongs to us: where we were built, or where it is installed. */
static bool find_ours(const char *built, const char *installed, const char *name,
		      char path[PATH_MAX])
{
	const char *const places[] = { built, installed };
	char self[PATH_MAX], *folder;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[n > 0 ? n : 0] = '\0';
	folder = dirname(self);
	for (size_t i = 0; i < 2; i++)
		if (snprintf(path, PATH_MAX, "%s%s/%s", folder, places[i], name) < PATH_MAX &&
		    access(path, R_OK) == 0)
			return true;
	return false;
}

/* Its lines "temporary PATTERN" are appended to the patterns. */
static int take_profile(struct run *r, const char *name)
{
	char path[PATH_MAX], line[256], *pattern = r->temporary;
	bool found = access(name, R_OK) == 0;
	FILE *f;

	if (!found && !find_ours("/../../libtier/shim/profiles", "/../share/tier/profiles", name,
				 path))
		return wrong("no such profile: ", name);
	f = fopen(found ? name : path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		size_t used = strlen(pattern);

		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '#' || !line[0])
			continue;
		if (strncmp(line, "temporary ", 10) || used + strlen(line) >= sizeof(r->temporary))
			return wrong("a profile has lines \"temporary PATTERN\", not ", line);
		snprintf(pattern + used, sizeof(r->temporary) - used, "%s%s", used ? "\n" : "",
			 line + 10);
	}
	if (f)
		fclose(f);
	return f ? 0 : wrong("it cannot be read: ", name);
}

/* Make the contexts. Without a daemon everything is as it would be without us, and is said so. */
static void make_contexts(const struct run *r)
{
	struct tier_connect_options options = { .size = sizeof(options), .socket = r->socket,
						.name = "tier run", .staging_bytes = 1 << 16,
						.requests = 8, .readers = 1 };
	char map[MAP_BYTES];
	tier *t;

	if (tier_connect(&t, &options)) {
		fprintf(stderr, "tier run: %s; files are those of the directory\n",
			tier_error_text());
		return;
	}
	memcpy(map, r->map, sizeof(map));
	for (char *at = strtok(map, "\n"); at; at = strtok(NULL, "\n"))
		if (tier_object_context(t, strrchr(at, '=') + 1, NULL))
			fprintf(stderr, "tier run: %s; files are those of the directory\n",
				tier_error_text());
	tier_close(t);
}

/* Has the program no interpreter, so that nothing can be loaded into it? */
static bool is_static(const char *path)
{
	int fd CLEANUP_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr head;
	bool found = false;

	if (fd < 0 || file_read(fd, &head, sizeof(head), 0) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_phentsize != sizeof(Elf64_Phdr))
		return false;
	for (uint32_t i = 0; i < head.e_phnum; i++) {
		Elf64_Phdr p;

		if (file_read(fd, &p, sizeof(p), head.e_phoff + i * sizeof(p)))
			return false;
		found = found || p.p_type == PT_INTERP;
	}
	return !found;
}

static void warn_static(const char *command)
{
	char path[PATH_MAX], *places, *rest;

	if (strchr(command, '/')) {
		if (is_static(command))
			wrong("it is statically linked and sees the directory alone: ", command);
		return;
	}
	places = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	for (char *at = places ? strtok_r(places, ":", &rest) : NULL; at;
	     at = strtok_r(NULL, ":", &rest)) {
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", at, command) >= sizeof(path) ||
		    access(path, X_OK))
			continue;
		warn_static(path);
		break;
	}
	free(places);
}

static int run(const struct run *r, char **command)
{
	const char *before = getenv("LD_PRELOAD");
	char preload[2 * PATH_MAX];

	make_contexts(r);
	warn_static(command[0]);
	snprintf(preload, sizeof(preload), "%s%s%s", r->library, before && *before ? ":" : "",
		 before ? before : "");
	if (setenv("LD_PRELOAD", preload, 1) || setenv("TIER_MAP", r->map, 1) ||
	    (r->temporary[0] && setenv("TIER_TEMPORARY", r->temporary, 1)) ||
	    (r->socket && setenv("TIER_SOCKET", r->socket, 1)))
		return wrong("out of memory", "");
	execvp(command[0], command);
	fprintf(stderr, "tier run: %s: %s\n", command[0], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}

/* Where libtier looks, for the program may see another environment's. */
static const char *default_socket(char *path, size_t bytes)
{
	const char *given = getenv("TIER_SOCKET"), *runtime = getenv("XDG_RUNTIME_DIR");

	if (given && *given)
		return given;
	if (!runtime || !*runtime)
		return "/run/tier/tier.sock";
	snprintf(path, bytes, "%s/tier.sock", runtime);
	return access(path, F_OK) ? "/run/tier/tier.sock" : path;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "map", 1, NULL, 'm' },    { "socket", 1, NULL, 's' }, { "help", 0, NULL, 'h' },
		{ "version", 0, NULL, 'V' }, { "profile", 1, NULL, 'p' }, { 0 },
	};
	char path[PATH_MAX];
	static struct run r;
	int c, rc = 0;

	if (argc > 1 && strcmp(argv[1], "import") == 0)
		return import_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "run") == 0) {
		argc--;
		argv++;
	} else if (argc < 2 || argv[1][0] != '-') {
		return usage(stderr, USAGE);
	}
	opterr = 0;
	while (rc == 0 && (c = getopt_long(argc, argv, "+:m:p:s:hV", options, NULL)) != -1) {
		if (c == 'm')
			rc = take_map(&r, optarg);
		else if (c == 'p')
			rc = take_profile(&r, optarg);
		else if (c == 's')
			r.socket = optarg;
		else if (c == 'h')
			return usage(stdout, 0);
		else if (c == 'V')
			return printf("tier %s\n", tier_version()) < 0;
		else
			rc = wrong(c == ':' ? "a value is missing behind " : "no option ",
				   argv[optind - 1]);
	}
	if (rc == 0 && (!r.map[0] || optind == argc))
		rc = wrong(r.map[0] ? "no command" : "no --map", "");
	if (rc)
		return rc;
	if (!find_ours("", "/../lib/tier", LIBRARY, r.library))
		memcpy(r.library, LIBRARY, sizeof(LIBRARY)); /* the loader knows the place */
	if (!r.socket)
		r.socket = default_socket(path, sizeof(path));
	return run(&r, argv + optind);
}
