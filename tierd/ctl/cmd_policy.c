/* SPDX-License-Identifier: Apache-2.0 */
/* tierctl policy set, try: another eviction policy for a context that is in use. */
#include <getopt.h>
#include <stdlib.h>
#include <time.h>

#include "libtier/base/time.h"
#include "tierd/ctl/ctl.h"

#define SECONDS 60u
#define LATE_NS (50 * NS_PER_MS) /* the loop may sleep a little beyond the end */

int ctl_policy_set(struct ctl *ctl, int argc, char **argv)
{
	json_t *args = json_pack("{ssss}", "context", argv[0], "policy", argv[1]), *answer;
	int rc = ctl_ask(ctl, "policy-set", args, &answer);

	(void)argc;
	if (rc != CTL_OK)
		return rc;
	if (ctl->json)
		rc = ctl_print_json(answer);
	else
		printf("%s: policy %s\n", argv[0], argv[1]);
	json_decref(answer);
	return rc;
}

static void sleep_ns(uint64_t ns)
{
	const struct timespec time = { (time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S) };

	nanosleep(&time, NULL);
}

static double number(const json_t *answer, const char *name)
{
	return json_number_value(json_at(answer, name));
}

/* A share of uses, in per cent, beside what made it less. */
static void show_row(const json_t *answer, const char *policy, const char *what, const char *reads)
{
	double uses = number(answer, "uses"), read = number(answer, reads);
	char name[CTL_CELL], hits[16] = "-", count[CTL_CELL];

	if (uses > 0)
		snprintf(hits, sizeof(hits), "%.1f", read < uses ? 100 * (1 - read / uses) : 0);
	printf("%s%-8s %6s %% of uses found in CXL, %s blocks %s NVMe\n",
	       ctl_text(name, answer, policy), what, hits, ctl_count(count, answer, reads),
	       reads[0] == 'w' ? "would have come from" : "came from");
}

static int show_tried(struct ctl *ctl, const json_t *answer)
{
	char blocks[CTL_CELL], uses[CTL_CELL], context[CTL_CELL];

	if (ctl->json)
		return ctl_print_json(answer);
	if (!json_is_true(json_at(answer, "begun"))) {
		fprintf(stderr, "tierctl policy try: the context went away, or its policy was "
				"changed, before the trial knew its blocks\n");
		return CTL_FAILED;
	}
	printf("%s: %s uses in %.1f s, %s blocks in CXL\n", ctl_text(context, answer, "context"),
	       ctl_count(uses, answer, "uses"), number(answer, "counted_ns") / NS_PER_S,
	       ctl_count(blocks, answer, "blocks"));
	show_row(answer, "policy", "", "reads");
	show_row(answer, "tried", ", tried", "would_read");
	return CTL_OK;
}

/* The words that are left are the context and the policy. */
static int take_options(struct ctl *ctl, int argc, char **argv, long *seconds)
{
	static const struct option table[] = { { "seconds", 1, NULL, 'n' }, { 0 } };
	char *end;
	int c;

	optind = 0; /* anew: the words before were read by another table */
	while ((c = getopt_long(argc + 1, argv - 1, ":", table, NULL)) != -1) {
		if (c != 'n')
			return ctl_option(ctl, c, argv[optind - 2]);
		*seconds = strtol(optarg, &end, 10);
		if (end == optarg || *end)
			return ctl_usage(ctl, "\"%.32s\" is no number of seconds", optarg);
	}
	return argc + 1 - optind == 2 ? CTL_OK : ctl_usage(ctl, "name a context and a policy");
}

int ctl_policy_try(struct ctl *ctl, int argc, char **argv)
{
	long seconds = SECONDS;
	json_t *answer;
	int rc = take_options(ctl, argc, argv, &seconds);

	if (rc != CTL_OK)
		return rc;
	rc = ctl_ask(ctl, "policy-try",
		     json_pack("{ss ss sI}", "context", argv[optind - 1], "policy", argv[optind],
			       "seconds", (json_int_t)seconds), &answer);
	if (rc != CTL_OK)
		return rc;
	json_decref(answer);
	sleep_ns((uint64_t)seconds * NS_PER_S + LATE_NS);
	rc = ctl_ask(ctl, "policy-try", NULL, &answer);
	if (rc != CTL_OK)
		return rc;
	rc = show_tried(ctl, answer);
	json_decref(answer);
	return rc;
}
