/* SPDX-License-Identifier: Apache-2.0 */
/* tierctl block locate, evict, drain, check: single blocks and deeds. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "libtier/base/units.h"
#include "tierd/ctl/ctl.h"

#define CHECK_TRIES 5u
#define CHECK_WAIT_US 200000
#define UPGRADE_NS (60 * NS_PER_S)

static void show_location(const json_t *one)
{
	static const char *const tiers[] = { "hbm", "cxl", "nvme" };
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL], path[32];

	printf("block %s\n", ctl_text(a, one, "key"));
	printf("  in %s: %s, slot %s, generation %s", ctl_text(a, one, "context"),
	       ctl_text(b, one, "state"), ctl_count(c, one, "slot"),
	       ctl_count(d, one, "generation"));
	printf(", epoch %s, depth %s\n", ctl_count(a, one, "epoch"), ctl_count(b, one, "depth"));
	printf("  pages %s:", ctl_count(a, one, "pages"));
	for (size_t i = 0; i < sizeof(tiers) / sizeof(tiers[0]); i++) {
		snprintf(path, sizeof(path), "resident.%s", tiers[i]);
		printf(" %s in %s%s", ctl_count(a, one, path), tiers[i], i < 2 ? "," : "\n");
	}
	printf("  pins %s, durable %s, at byte %s of the store, salt %s\n",
	       ctl_count(a, one, "pins"), ctl_yes(b, one, "durable"),
	       ctl_count(c, one, "nvme_offset"), ctl_text(d, one, "salt"));
}

int ctl_block_locate(struct ctl *ctl, int argc, char **argv)
{
	json_t *answer;
	int rc;

	(void)argc;
	if (strlen(argv[1]) != 64 || strspn(argv[1], "0123456789abcdefABCDEF") != 64)
		return ctl_usage(ctl, "the key \"%.70s\" is not 64 hex digits", argv[1]);
	rc = ctl_ask(ctl, "locate", json_pack("{ssss}", "context", argv[0], "key", argv[1]),
		     &answer);
	if (rc != CTL_OK)
		return rc;
	if (ctl->json)
		rc = ctl_print_json(answer);
	else
		show_location(answer);
	json_decref(answer);
	return rc;
}

int ctl_evict(struct ctl *ctl, int argc, char **argv)
{
	char cell[CTL_CELL];
	json_t *args, *answer;
	uint64_t bytes = 0;
	int rc;

	if (strcmp(argv[1], "hbm") != 0 && strcmp(argv[1], "cxl") != 0)
		return ctl_usage(ctl, "tier \"%.32s\" is not hbm or cxl", argv[1]);
	if (argc == 3 && (units_parse_bytes(argv[2], &bytes) || bytes > INT64_MAX))
		return ctl_usage(ctl, "\"%.32s\": write bytes with a unit, as 512MiB", argv[2]);
	args = json_pack("{ssss}", "context", argv[0], "tier", argv[1]);
	if (argc == 3)
		json_object_set_new(args, "bytes", json_integer((json_int_t)bytes));
	rc = ctl_ask(ctl, "evict", args, &answer);
	if (rc != CTL_OK)
		return rc;
	if (ctl->json)
		rc = ctl_print_json(answer);
	else
		printf("%s: %s left %s\n", argv[0], ctl_bytes(cell, answer, "freed"), argv[1]);
	json_decref(answer);
	return rc;
}

int ctl_drain(struct ctl *ctl, int argc, char **argv)
{
	json_t *answer;
	int rc = ctl_ask(ctl, "drain", NULL, &answer);

	(void)argc;
	(void)argv;
	if (rc != CTL_OK)
		return rc;
	if (ctl->json)
		rc = ctl_print_json(answer);
	else
		puts("drained: everything dirty is on the store and flushed");
	json_decref(answer);
	return rc;
}

/* The status of the daemon that answers next; NULL: it came not in time, or has gone. */
static json_t *await_next(struct ctl *ctl, uint64_t begun)
{
	json_t *status = NULL;
	json_error_t what;
	char *text;

	/* Each question attaches anew if it can. */
	while (!status && time_now_ns() - begun < UPGRADE_NS) {
		struct timespec pause = { .tv_nsec = (long)NS_PER_MS };

		nanosleep(&pause, NULL);
		if (tier_check(ctl->t) != 1 || tier_admin(ctl->t, "status", NULL, &text))
			continue;
		status = json_loads(text, 0, &what);
		free(text);
	}
	return status;
}

int ctl_upgrade(struct ctl *ctl, int argc, char **argv)
{
	char blocks[CTL_CELL], bytes[CTL_CELL], dirty[CTL_CELL];
	uint64_t begun = time_now_ns();
	json_t *answer;
	int rc;

	(void)argc;
	(void)argv;
	tier_check(ctl->t); /* the attachment that there is, is no news */
	rc = ctl_ask(ctl, "upgrade", NULL, &answer);
	if (rc != CTL_OK)
		return rc;
	json_decref(answer);
	answer = await_next(ctl, begun);
	if (!answer) {
		fprintf(stderr, "tierctl upgrade: no daemon answers after %u s; its log tells "
				"why\n", (unsigned)(UPGRADE_NS / NS_PER_S));
		return CTL_NO_DAEMON;
	}
	json_object_set_new(answer, "upgrade_ns", json_integer((json_int_t)(time_now_ns() -
									    begun)));
	if (ctl->json)
		rc = ctl_print_json(answer);
	else
		printf("upgraded in %.0f ms to %s: %s blocks stayed, %s of them dirty; %s\n",
		       (double)(time_now_ns() - begun) / (double)NS_PER_MS,
		       json_string_value(json_object_get(answer, "version")),
		       ctl_count(blocks, answer, "handover.blocks"),
		       ctl_count(dirty, answer, "handover.dirty"),
		       ctl_bytes(bytes, answer, "handover.bytes"));
	json_decref(answer);
	return rc;
}

/* What the host says beside what is charged. */
static void show_host(const json_t *answer)
{
	static const char *const names[] = { "hbm", "cxl" };
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], path[48];

	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "host.%s.charged", names[i]);
		ctl_bytes(a, answer, path);
		snprintf(path, sizeof(path), "host.%s.written", names[i]);
		ctl_bytes(b, answer, path);
		snprintf(path, sizeof(path), "host.%s.resident", names[i]);
		printf("%-6s charged %s, in pages %s; the host holds %s\n", names[i], a, b,
		       ctl_bytes(c, answer, path));
	}
	if (json_at(answer, "host.store"))
		printf("store  %s; the host has allocated %s, holes %s\n",
		       ctl_bytes(a, answer, "host.store.bytes"),
		       ctl_bytes(b, answer, "host.store.allocated"),
		       ctl_bytes(c, answer, "host.store.holes"));
	printf("memory %s regions, %s descriptors; mapped %s\n",
	       ctl_count(a, answer, "host.regions"), ctl_count(b, answer, "host.descriptors"),
	       ctl_bytes(c, answer, "host.mapped"));
}

/*
 * The recount. Memory that a reader touched where nothing lies is given back by the daemon within
 * 0.1 s, so such an answer is of a moment: it is asked for again.
 */
static int ask_check(struct ctl *ctl, json_t **answer)
{
	for (uint32_t left = CHECK_TRIES; ; left--) {
		int rc = ctl_ask(ctl, "check", NULL, answer);

		if (rc != CTL_OK || left == 1 ||
		    (json_number_value(json_at(*answer, "host.hbm.foreign")) <= 0 &&
		     json_number_value(json_at(*answer, "host.cxl.foreign")) <= 0))
			return rc;
		json_decref(*answer);
		usleep(CHECK_WAIT_US);
	}
}

int ctl_check(struct ctl *ctl, int argc, char **argv)
{
	const json_t *messages;
	json_t *answer;
	int rc = ask_check(ctl, &answer);
	bool clean;

	(void)argc;
	(void)argv;
	if (rc != CTL_OK)
		return rc;
	clean = json_is_integer(json_at(answer, "errors")) &&
		json_integer_value(json_at(answer, "errors")) == 0;
	messages = json_at(answer, "messages");
	if (ctl->json) {
		rc = ctl_print_json(answer);
	} else {
		char cell[CTL_CELL];

		for (size_t i = 0; i < json_array_size(messages); i++)
			printf("%s\n", json_string_value(json_array_get(messages, i)));
		if (json_at(answer, "host"))
			show_host(answer);
		if (clean)
			puts("every byte of every tier is accounted for, and the host agrees");
		else
			printf("disagreements: %s; unless somebody else touched tierd's memory or "
			       "store,\nthis is a fault of tierd; please report it\n",
			       ctl_count(cell, answer, "errors"));
	}
	json_decref(answer);
	return rc == CTL_OK && !clean ? CTL_FAILED : rc;
}
