/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierctl drive drain, forget, keep: a drive leaves the store. The daemon does it by itself, over
 * restarts, too; who waits here only looks on.
 */
#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <time.h>

#include "tierd/ctl/ctl.h"

static int ask(struct ctl *ctl, const char *drive, const char *deed)
{
	json_t *answer;
	int rc = ctl_ask(ctl, "drive", json_pack("{ss ss}", "drive", drive, "do", deed), &answer);

	if (rc == CTL_OK)
		json_decref(answer);
	return rc;
}

/* How it fares, in a line where that has changed. -EAGAIN: it is not over. */
static int look(struct ctl *ctl, const char *drive, char said[2 * CTL_CELL])
{
	char state[CTL_CELL], live[CTL_CELL], line[2 * CTL_CELL] = "";
	const json_t *drives;
	json_t *status;
	int rc = ctl_ask(ctl, "status", NULL, &status);

	if (rc != CTL_OK)
		return rc;
	drives = json_at(status, "store.drives");
	for (size_t i = 0; i < json_array_size(drives); i++) {
		const json_t *one = json_array_get(drives, i);

		if (strcmp(ctl_text(state, one, "path"), drive) != 0 &&
		    strcmp(ctl_text(state, one, "store_id"), drive) != 0)
			continue;
		ctl_text(state, one, "state");
		rc = strcmp(state, "drained") == 0		    ? CTL_OK
		     : json_is_true(json_at(one, "draining")) ? -EAGAIN
							      : CTL_FAILED;
		snprintf(line, sizeof(line), "%s, %s left%s", state, ctl_bytes(live, one, "live"),
			 json_is_true(json_at(one, "no_room")) ? ", no room elsewhere yet" : "");
	}
	json_decref(status);
	if (*line && rc != CTL_OK && strcmp(line, said) != 0 && !ctl->json)
		printf("%s\n", line);
	fflush(stdout);
	memcpy(said, line, sizeof(line));
	return rc;
}

static int watch(struct ctl *ctl, const char *drive)
{
	const struct timespec while_ = { .tv_nsec = 250000000 };
	char said[2 * CTL_CELL] = "";
	int rc;

	while ((rc = look(ctl, drive, said)) == -EAGAIN)
		nanosleep(&while_, NULL);
	if (rc == CTL_FAILED)
		fprintf(stderr, "tierctl %s: it is kept after all\n", ctl->verb);
	return rc;
}

static int leave(struct ctl *ctl, int argc, char **argv, const char *deed)
{
	static const struct option table[] = { { "no-wait", 0, NULL, 'n' }, { 0 } };
	bool wait = true;
	int c, rc;

	optind = 0; /* anew: the words before were read by another table */
	while ((c = getopt_long(argc + 1, argv - 1, ":n", table, NULL)) != -1) {
		if (c != 'n')
			return ctl_option(ctl, c, argv[optind - 2]);
		wait = false;
	}
	if (argc + 1 - optind != 1)
		return ctl_usage(ctl, "name one drive as tierctl status has it");
	argv += optind - 1;
	rc = ask(ctl, argv[0], deed);
	if (rc == CTL_OK && wait)
		rc = watch(ctl, argv[0]);
	if (rc != CTL_OK)
		return rc;
	if (ctl->json)
		return ctl_show(ctl, json_pack("{sb}", "drained", wait), NULL);
	puts(wait ? "drained: the store no longer has it; take it out of store.path"
		  : "it is being drained; tierctl status tells how far that is");
	return CTL_OK;
}

int ctl_drive_drain(struct ctl *ctl, int argc, char **argv)
{
	return leave(ctl, argc, argv, "drain");
}

int ctl_drive_forget(struct ctl *ctl, int argc, char **argv)
{
	return leave(ctl, argc, argv, "forget");
}

int ctl_drive_keep(struct ctl *ctl, int argc, char **argv)
{
	int rc = ask(ctl, argv[0], "keep");

	(void)argc;
	if (rc == CTL_OK && ctl->json)
		return ctl_show(ctl, json_pack("{sb}", "kept", 1), NULL);
	if (rc == CTL_OK)
		puts("kept: it takes new data again");
	return rc;
}
