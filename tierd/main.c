/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierd: the daemon. Parses the command line, runs the steps of start-up, the loop, and the steps
 * backwards. It alone knows every module; nothing calls it.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tierd/startup.h"

#define EXIT_USAGE 2

enum option_id { OPT_CONFIG = 1, OPT_FOREGROUND, OPT_SOCKET, OPT_STORE, OPT_SET, OPT_FORMAT,
		 OPT_VERSION = 'V', OPT_HELP = 'h' };

static const struct option option_table[] = {
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "foreground", no_argument, NULL, OPT_FOREGROUND },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "store", required_argument, NULL, OPT_STORE },
	{ "set", required_argument, NULL, OPT_SET },
	{ "format", no_argument, NULL, OPT_FORMAT },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 },
};

#define HELP_COLUMNS 80
#define HELP_TEXT 21 /* where the text of a key begins */

/* Words, in lines of HELP_COLUMNS; the cursor stands where they begin. */
static void print_words(const char *text)
{
	int at = HELP_TEXT;

	while (*text) {
		int length = (int)strcspn(text, " ");

		if (at > HELP_TEXT && at + 1 + length > HELP_COLUMNS) {
			printf("\n%*s", HELP_TEXT, "");
			at = HELP_TEXT;
		}
		at += printf(at > HELP_TEXT ? " %.*s" : "%.*s", length, text);
		text += length;
		text += strspn(text, " ");
	}
	putchar('\n');
}

static void print_help(void)
{
	struct config_help key;
	char text[256];

	puts("usage: tierd [--config FILE] [--foreground] [--socket PATH] [--store FILE]\n"
	     "             [--set KEY=VALUE]... [--format] [--version] [--help]\n\n"
	     "The daemon of tier, a tiered memory service for shared KV context.\n\n"
	     "  --config FILE    read FILE (default: /etc/tier/tierd.conf as a service, else\n"
	     "                   $XDG_CONFIG_HOME/tier/tierd.conf, when it is there)\n"
	     "  --foreground     log more, and print \"tierd: ready on PATH\" on standard output\n"
	     "  --socket PATH    same as --set socket=PATH\n"
	     "  --store FILE     same as --set store.path=FILE\n"
	     "  --set KEY=VALUE  set a key, after the file\n"
	     "  --format         make a new store; DESTROYS what is there\n"
	     "  -V, --version    print the version\n"
	     "  -h, --help       this text\n\n"
	     "keys (defaults in brackets, or in the text):");
	for (uint32_t i = 0; config_key(i, &key); i++) {
		printf("  %-18s ", key.name);
		snprintf(text, sizeof(text), key.value[0] ? "%s [%s]" : "%s", key.help, key.value);
		print_words(text);
	}
	puts("\nSizes: 64MiB, 25%, auto. Times: 200ms. man tierd.conf tells more of each.");
}

static int add_set(struct options *o, const char *key, const char *value)
{
	if (o->sets == SHELL_SETS_MAX) {
		fprintf(stderr, "tierd: more than %u settings; use a file\n", SHELL_SETS_MAX);
		return -E2BIG;
	}
	o->set[o->sets].key = key;
	o->set[o->sets++].value = value;
	return 0;
}

/* Returns 0 to go on, an exit status + 1 to stop, or a negative errno. */
static int take_option(struct options *o, int id)
{
	switch (id) {
	case OPT_CONFIG:
		o->config = optarg;
		return 0;
	case OPT_FOREGROUND:
		o->foreground = true;
		return 0;
	case OPT_SOCKET:
		return add_set(o, "socket", optarg);
	case OPT_STORE:
		return add_set(o, "store.path", optarg);
	case OPT_SET:
		return add_set(o, NULL, optarg);
	case OPT_FORMAT:
		o->format = true;
		return 0;
	case OPT_VERSION:
		puts("tierd " TIER_VERSION);
		return 1 + EXIT_SUCCESS;
	case OPT_HELP:
		print_help();
		return 1 + EXIT_SUCCESS;
	default:
		fputs("tierd: see tierd --help\n", stderr);
		return 1 + EXIT_USAGE;
	}
}

/* As take_option. */
static int parse(struct options *o, int argc, char **argv)
{
	int id, rc = 0;

	while (rc == 0 && (id = getopt_long(argc, argv, "hV", option_table, NULL)) != -1)
		rc = take_option(o, id);
	if (rc == 0 && optind < argc) {
		fprintf(stderr, "tierd: \"%s\" is not an option; see tierd --help\n", argv[optind]);
		rc = 1 + EXIT_USAGE;
	}
	return rc;
}

int main(int argc, char **argv)
{
	struct shell *s = calloc(1, sizeof(*s));
	int rc;

	if (!s) {
		fprintf(stderr, "tierd: there is no memory to start; free some and try again\n");
		return EXIT_FAILURE;
	}
	rc = parse(&s->options, argc, argv);
	if (rc) {
		free(s);
		return rc > 0 ? rc - 1 : EXIT_USAGE;
	}
	if (readlink("/proc/self/exe", s->handover.program, sizeof(s->handover.program) - 1) < 0)
		s->handover.program[0] = '\0';
	s->handover.argv = argv;
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of that write */
	rc = startup_begin(s);
	if (rc) {
		free(s);
		return EXIT_FAILURE;
	}
	rc = loop_run(s);
	if (rc) {
		/* The device still moves bytes of ours: leave the memory to the kernel. */
		log_error(&s->log, "the device did not let go", s->config.store_path,
			  "look at it; what was not durable is lost", "");
		_exit(EXIT_FAILURE);
	}
	handover_leave(s);
	log_info(&s->log, "stopped", NULL, "");
	startup_end(s);
	rc = s->loop.upgrade ? EXIT_FAILURE : EXIT_SUCCESS; /* unless it starts anew */
	handover_send(s);
	free(s);
	return rc;
}
