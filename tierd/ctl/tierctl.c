/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierctl: the operator's tool. Options before the verb, one table of verbs; each verb parses its
 * own arguments. docs/man/tierctl.1 is its manual, tierctl.bash its completion.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tierd/ctl/ctl.h"

static const struct ctl_verb verbs[] = {
	{ NULL, "status", 0, 0, "",
	  "the daemon, its tiers, what is emulated, whether clients are isolated",
	  ctl_status, NULL },
	{ NULL, "stat", 0, 1, "[PATTERN]", "counters and latencies", ctl_stat, NULL },
	{ NULL, "top", 0, CTL_OPTIONS, "[--interval SECONDS] [--count N]",
	  "tiers and rates, live", ctl_top, NULL },
	{ "context", "list", 0, 0, "", "your contexts; to root and the daemon's own user: all",
	  ctl_context_list, NULL },
	{ "context", "show", 1, 1, "NAME", "one context: geometry, quotas, where its pages are",
	  ctl_context_show, NULL },
	{ "context", "create", 1, CTL_OPTIONS,
	  "NAME --preset NAME |\n"
	  "            --part P:KIND:LAYERS:GROUPS:BYTES[:ARG]\n"
	  "              [,last=BLOCKS][,replicated][,layer=NUMBER] ...",
	  "make a context; man tierctl has its other options", ctl_context_create, NULL },
	{ "context", "remove", 1, 1, "NAME", "remove a context with all its blocks",
	  ctl_context_remove, NULL },
	{ "context", "epoch", 1, 2, "NAME [VALUE]", "invalidate all blocks stored so far",
	  ctl_context_epoch, NULL },
	{ "context", "share", 1, CTL_OPTIONS, "NAME [strict] [--with HOST,HOST...]",
	  "let other hosts read it, and read theirs (tierd-net)",
	  ctl_context_share, NULL },
	{ "context", "unshare", 1, 1, "NAME", "no longer", ctl_context_unshare, NULL },
	{ "block", "locate", 2, 2, "CONTEXT KEY", "where one block is", ctl_block_locate, NULL },
	{ "object", "list", 1, 2, "CONTEXT [PREFIX]", "objects of a context, by name",
	  ctl_object_list, NULL },
	{ "object", "show", 2, 2, "CONTEXT NAME", "one object: size, version, where it is",
	  ctl_object_show, NULL },
	{ "object", "get", 2, 3, "CONTEXT NAME [FILE]", "an object's bytes", ctl_object_get, NULL },
	{ "object", "put", 2, 3, "CONTEXT NAME [FILE]",
	  "make an object of a file; the context, too, if it is not there", ctl_object_put, NULL },
	{ "object", "remove", 2, 2, "CONTEXT NAME", "remove an object for good",
	  ctl_object_remove, NULL },
	{ "quota", "show", 0, 1, "[CONTEXT]", "who holds what of each tier, and what they may",
	  ctl_quota_show, NULL },
	{ "quota", "set", 1, CTL_OPTIONS,
	  "CONTEXT|--client ID hbm|cxl|nvme [--salt N]\n"
	  "            [--soft SIZE] [--hard SIZE] [--pins SIZE]",
	  "soft: kept when room is short; hard, pins: limits; left out: none",
	  ctl_quota_set, NULL },
	{ "policy", "set", 2, 2, "CONTEXT NAME",
	  "another eviction policy, while the context is in use", ctl_policy_set, NULL },
	{ "policy", "try", 2, CTL_OPTIONS, "[--seconds N] CONTEXT NAME",
	  "what another policy would keep, beside the one in use", ctl_policy_try, NULL },
	{ "pin", "list", 0, 0, "", "claims that keep blocks where they are", ctl_pin_list, NULL },
	{ NULL, "evict", 2, 3, "CONTEXT hbm|cxl [SIZE]", "make clean pages leave a tier", ctl_evict,
	  NULL },
	{ NULL, "drain", 0, 0, "", "write everything dirty to the store and flush it", ctl_drain,
	  NULL },
	{ NULL, "upgrade", 0, 0, "",
	  "start the daemon's program anew; what is in memory stays", ctl_upgrade, NULL },
	{ "drive", "drain", 1, CTL_OPTIONS, "[--no-wait] PATH",
	  "empty a drive of the store into the others, and take it out", ctl_drive_drain, NULL },
	{ "drive", "forget", 1, CTL_OPTIONS, "[--no-wait] PATH|ID",
	  "likewise, giving up what cannot be read; of a missing one: all",
	  ctl_drive_forget, NULL },
	{ "drive", "keep", 1, 1, "PATH", "neither any more: the drive stays", ctl_drive_keep,
	  NULL },
	{ NULL, "check", 0, 0, "[[--repair] [--data] [--remove NAME] [--objects DIR] STORE]",
	  "recount every byte of every tier; with a STORE: look at that file",
	  ctl_check, ctl_check_store },
	{ NULL, "doctor", 0, 1, "[STORE]",
	  "look at this host: what tier needs, and what would make it faster", NULL, ctl_doctor },
	{ NULL, "size", 0, CTL_OPTIONS,
	  "--model PRESET --users N [--tokens N] [--shared N]\n"
	  "            [--active N] [--turns N] [--new N]",
	  "how much of each tier a model and its traffic want", NULL, ctl_size },
	{ "hosts", "epoch", 1, 2, "NAME [VALUE]", "invalidate its blocks on every host",
	  ctl_hosts_epoch, NULL },
	{ "hosts", "forget", 1, 1, "NAME", "end a host that was replaced", ctl_hosts_forget, NULL },
	{ NULL, "hosts", 0, 0, "", "other hosts: state, bytes, who is on probation and why",
	  ctl_hosts, NULL },
	{ NULL, "events", 1, CTL_OPTIONS, "[--follow] CONTEXT",
	  "the blocks that are there, and what becomes of them", ctl_events, NULL },
	{ NULL, "trace", 0, CTL_OPTIONS, "[--seconds N] -o FILE",
	  "what the daemon does in that time, for ui.perfetto.dev", ctl_trace, NULL },
	{ NULL, "requests", 0, 0, "", "requests and streams under way, and their age", ctl_requests,
	  NULL },
	{ NULL, "clients", 0, 0, "", "connections: whose they are and what they hold", ctl_clients,
	  NULL },
};

#define ANSWER_BYTES 65536u /* what a pipe holds */
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

static int help(FILE *to, int status)
{
	fputs("usage: tierctl [--socket PATH] [--json] VERB [ARGUMENT...]\n\n", to);
	for (size_t i = 0; i < VERBS; i++) {
		const struct ctl_verb *v = &verbs[i];

		fprintf(to, "  %s%s%s%s%s\n          %s\n", v->object ? v->object : "",
			v->object ? " " : "", v->name, *v->arguments ? " " : "", v->arguments,
			v->help);
	}
	fputs("\n  -s, --socket PATH  the daemon's socket (default $TIER_SOCKET,\n"
	      "                     $XDG_RUNTIME_DIR/tier.sock, /run/tier/tier.sock)\n"
	      "  -j, --json         print the daemon's document; numbers stay numbers\n"
	      "  -h, --help         this text; man tierctl tells more\n"
	      "  -V, --version\n\n"
	      "exit status: 0 done; 1 refused, not there, or check found errors; 2 usage;\n"
	      "             3 no daemon\n",
	      to);
	return status;
}

/* A word about what was wrong stands alone: below forty lines of help nobody finds it. */
static int misused(const char *what, const char *which)
{
	fprintf(stderr, "tierctl: %s%s; tierctl --help shows how\n", what, which);
	return CTL_USAGE;
}

/* The verb that the words name; *words is how many they are. */
static const struct ctl_verb *find(char **argv, int argc, int *words)
{
	for (size_t i = 0; i < VERBS; i++) {
		const struct ctl_verb *v = &verbs[i];

		if (!v->object && strcmp(argv[0], v->name) == 0) {
			*words = 1;
			return v;
		}
		if (v->object && argc > 1 && strcmp(argv[0], v->object) == 0 &&
		    strcmp(argv[1], v->name) == 0) {
			*words = 2;
			return v;
		}
	}
	return NULL;
}

/* Near misses get the right list instead of the whole help. */
static int unknown(char **argv, int argc)
{
	bool object = false;

	for (size_t i = 0; i < VERBS; i++)
		object = object || (verbs[i].object && strcmp(argv[0], verbs[i].object) == 0);
	if (!object) {
		fprintf(stderr, "tierctl: no verb \"%s\"; tierctl --help lists them\n", argv[0]);
		return CTL_USAGE;
	}
	fprintf(stderr, "tierctl %s: ", argv[0]);
	if (argc > 1)
		fprintf(stderr, "no verb \"%s\"; ", argv[1]);
	fputs("there is:", stderr);
	for (size_t i = 0; i < VERBS; i++)
		if (verbs[i].object && strcmp(argv[0], verbs[i].object) == 0)
			fprintf(stderr, " %s", verbs[i].name);
	fputc('\n', stderr);
	return CTL_USAGE;
}

/* What was printed has arrived, or that is an error. */
static int flushed(int status)
{
	if (fflush(stdout) && status == CTL_OK) {
		fprintf(stderr, "tierctl: standard output: %s\n", strerror(errno));
		status = CTL_FAILED;
	}
	return status;
}

static int run(struct ctl *ctl, const char *socket, int argc, char **argv)
{
	struct tier_connect_options options = {
		.size = sizeof(options),
		.socket = socket,
		.name = "tierctl",
		.staging_bytes = 1 << 20,
		.readers = 1,
	};
	const struct ctl_verb *verb;
	int words, error, status;
	char name[32];

	verb = find(argv, argc, &words);
	if (!verb)
		return unknown(argv, argc);
	snprintf(name, sizeof(name), "%s%s%s", verb->object ? verb->object : "",
		 verb->object ? " " : "", verb->name);
	ctl->verb = name;
	ctl->arguments = verb->arguments;
	argc -= words;
	argv += words;
	if (verb->run && verb->offline && argc)
		return flushed(verb->offline(ctl, argc, argv));
	if (verb->most != CTL_OPTIONS) {
		status = ctl_words(ctl, verb, &argc, &argv);
		if (status != CTL_OK)
			return status;
	}
	if (!verb->run)
		return flushed(verb->offline(ctl, argc, argv));
	error = tier_connect(&ctl->t, &options);
	if (error) {
		fprintf(stderr, "tierctl: %s\n", tier_error_text());
		return CTL_NO_DAEMON;
	}
	status = verb->run(ctl, argc, argv);
	tier_close(ctl->t);
	return flushed(status);
}

/*
 * In one write: who reads an answer's first lines only is no reason to fail (grep -q). Of glibc a
 * buffer of its own making is no larger than a block.
 */
static void answer_at_once(void)
{
	char *room = isatty(STDOUT_FILENO) ? NULL : malloc(ANSWER_BYTES);

	if (room)
		setvbuf(stdout, room, _IOFBF, ANSWER_BYTES);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "socket", 1, NULL, 's' },
		{ "json", 0, NULL, 'j' },
		{ "help", 0, NULL, 'h' },
		{ "version", 0, NULL, 'V' },
		{ 0 },
	};
	struct ctl ctl = { .terminal = ctl_terminal() };
	const char *socket = NULL;
	int c, count = 0;
	char **words = argv;

	answer_at_once();
	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:s:jhV", options, NULL)) != -1) {
		if (c == 's')
			socket = optarg;
		else if (c == 'j')
			ctl.json = true;
		else if (c == 'V')
			return printf("tierctl %s\n", tier_version()) < 0;
		else if (c == 'h')
			return help(stdout, CTL_OK);
		else
			return misused(c == ':' ? "a value is missing behind " : "no option ",
				       argv[optind - 1]);
	}
	/* They may also stand at the end, where people put them: the words move together. */
	for (words += optind; optind < argc; optind++) {
		if (strcmp(argv[optind], "--json") == 0 || strcmp(argv[optind], "-j") == 0)
			ctl.json = true;
		else if (strcmp(argv[optind], "--help") == 0 || strcmp(argv[optind], "-h") == 0)
			return help(stdout, CTL_OK);
		else
			words[count++] = argv[optind];
	}
	if (!count)
		return help(stderr, CTL_USAGE);
	if (count == 1 && strcmp(words[0], "help") == 0)
		return help(stdout, CTL_OK);
	return run(&ctl, socket, count, words);
}
