/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the daemon, and saying what went wrong; see ctl.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/ctl/ctl.h"

int ctl_failed(const struct ctl *ctl, int error)
{
	if (error == -ENOTCONN) /* there was one, or we would not be here */
		fprintf(stderr, "tierctl %s: the daemon has gone without an answer; its log tells "
				"why\n", ctl->verb);
	else
		fprintf(stderr, "tierctl %s: %s\n", ctl->verb, tier_error_text());
	return error == -ENOTCONN || error == -ECONNREFUSED ? CTL_NO_DAEMON : CTL_FAILED;
}

int ctl_usage(const struct ctl *ctl, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "tierctl %s: ", ctl->verb);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "; usage: tierctl %s", ctl->verb);
	for (const char *next = ctl->arguments; *next; next += strspn(next, " \n")) {
		int word = (int)strcspn(next, " \n"); /* help has them in several lines */

		fprintf(stderr, " %.*s", word, next);
		next += word;
	}
	fputc('\n', stderr);
	return CTL_USAGE;
}

int ctl_option(const struct ctl *ctl, int c, const char *option)
{
	if (c == ':')
		return ctl_usage(ctl, "a value is missing behind %.64s", option);
	return ctl_usage(ctl, "no option %.64s", option);
}

int ctl_words(const struct ctl *ctl, const struct ctl_verb *verb, int *argc, char ***argv)
{
	if (*argc && strcmp(**argv, "--") == 0) {
		--*argc;
		++*argv;
	} else {
		for (int i = 0; i < *argc; i++)
			if ((*argv)[i][0] == '-')
				return ctl_option(ctl, '?', (*argv)[i]);
	}
	if (*argc < verb->least)
		return ctl_usage(ctl, "an argument is missing");
	if (*argc > verb->most)
		return ctl_usage(ctl, "\"%.64s\" is one argument too many", (*argv)[verb->most]);
	return CTL_OK;
}

int ctl_ask(struct ctl *ctl, const char *verb, json_t *args, json_t **answer)
{
	char *text = args ? json_dumps(args, JSON_COMPACT) : NULL, *reply = NULL;
	json_error_t what;
	int error;

	if (args && !text) {
		json_decref(args);
		fprintf(stderr, "tierctl %s: out of memory\n", ctl->verb);
		return CTL_FAILED;
	}
	json_decref(args);
	error = tier_admin(ctl->t, verb, text, &reply);
	free(text);
	if (error)
		return ctl_failed(ctl, error);
	*answer = json_loads(reply, 0, &what);
	free(reply);
	if (*answer)
		return CTL_OK;
	fprintf(stderr, "tierctl %s: the daemon's answer is no JSON (%s); do the versions agree?\n",
		ctl->verb, what.text);
	return CTL_FAILED;
}

int ctl_print_json(const json_t *document)
{
	if (json_dumpf(document, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER) ||
	    fputc('\n', stdout) == EOF || fflush(stdout)) {
		fprintf(stderr, "tierctl: standard output: %s\n", strerror(errno));
		return CTL_FAILED;
	}
	return CTL_OK;
}

int ctl_show(struct ctl *ctl, json_t *answer, int (*show)(const json_t *, uint32_t terminal))
{
	int rc;

	if (ctl->json)
		rc = ctl_print_json(answer);
	else
		rc = show(answer, ctl->terminal) ? CTL_FAILED : CTL_OK;
	json_decref(answer);
	return rc;
}
