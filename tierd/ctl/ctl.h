/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierctl, the operator's tool: what its files share. It talks to the daemon through libtier's
 * admin door and context calls only, parses the answers with jansson, and reads them with
 * tolerance: a member that an older or newer daemon does not tell is shown as "-".
 *
 * With --json the daemon's document is printed as it is; without, people get tables and units.
 * What is printed does not depend on whether a terminal looks on, only how it is fitted to a line.
 */
#ifndef TIERD_CTL_CTL_H
#define TIERD_CTL_CTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "libtier/base/json_at.h"
#include "tier.h"

/* Exit statuses, as the manual has them. */
#define CTL_OK 0
#define CTL_FAILED 1 /* the daemon refused, or the object is not there, or a check found errors */
#define CTL_USAGE 2
#define CTL_NO_DAEMON 3

struct ctl {
	tier *t;
	bool json;
	uint32_t terminal;     /* columns of the one that stdout is; 0 = it is none */
	const char *verb;      /* for error texts */
	const char *arguments; /* the verb's, likewise */
};

#define CTL_OPTIONS UINT8_MAX /* as `most`: it has options, and judges its words itself */

/* A verb: argc and argv begin after its words. Returns an exit status. */
struct ctl_verb {
	const char *object; /* "context"; NULL for verbs of one word */
	const char *name;
	uint8_t least, most; /* words behind it */
	const char *arguments;
	const char *help;
	int (*run)(struct ctl *ctl, int argc, char **argv); /* NULL = it needs no daemon */
	/* With arguments, or without a run, it is this; NULL = there is no such form. */
	int (*offline)(struct ctl *ctl, int argc, char **argv);
};

int ctl_status(struct ctl *ctl, int argc, char **argv);
int ctl_stat(struct ctl *ctl, int argc, char **argv);
int ctl_top(struct ctl *ctl, int argc, char **argv);
int ctl_context_list(struct ctl *ctl, int argc, char **argv);
int ctl_context_show(struct ctl *ctl, int argc, char **argv);
int ctl_context_create(struct ctl *ctl, int argc, char **argv);
int ctl_context_remove(struct ctl *ctl, int argc, char **argv);
int ctl_context_epoch(struct ctl *ctl, int argc, char **argv);
int ctl_object_list(struct ctl *ctl, int argc, char **argv);
int ctl_object_show(struct ctl *ctl, int argc, char **argv);
int ctl_object_get(struct ctl *ctl, int argc, char **argv);
int ctl_object_put(struct ctl *ctl, int argc, char **argv);
int ctl_object_remove(struct ctl *ctl, int argc, char **argv);
int ctl_context_share(struct ctl *ctl, int argc, char **argv);
int ctl_context_unshare(struct ctl *ctl, int argc, char **argv);
int ctl_hosts(struct ctl *ctl, int argc, char **argv);
int ctl_hosts_epoch(struct ctl *ctl, int argc, char **argv);
int ctl_hosts_forget(struct ctl *ctl, int argc, char **argv);
int ctl_block_locate(struct ctl *ctl, int argc, char **argv);
int ctl_quota_show(struct ctl *ctl, int argc, char **argv);
int ctl_quota_set(struct ctl *ctl, int argc, char **argv);
int ctl_pin_list(struct ctl *ctl, int argc, char **argv);
int ctl_requests(struct ctl *ctl, int argc, char **argv);
int ctl_clients(struct ctl *ctl, int argc, char **argv);
int ctl_evict(struct ctl *ctl, int argc, char **argv);
int ctl_drain(struct ctl *ctl, int argc, char **argv);
int ctl_policy_set(struct ctl *ctl, int argc, char **argv);
int ctl_policy_try(struct ctl *ctl, int argc, char **argv);
int ctl_upgrade(struct ctl *ctl, int argc, char **argv);
int ctl_drive_drain(struct ctl *ctl, int argc, char **argv);
int ctl_drive_forget(struct ctl *ctl, int argc, char **argv);
int ctl_drive_keep(struct ctl *ctl, int argc, char **argv);
int ctl_check(struct ctl *ctl, int argc, char **argv);
int ctl_check_store(struct ctl *ctl, int argc, char **argv);
int ctl_events(struct ctl *ctl, int argc, char **argv);
int ctl_trace(struct ctl *ctl, int argc, char **argv);
int ctl_doctor(struct ctl *ctl, int argc, char **argv);
int ctl_size(struct ctl *ctl, int argc, char **argv);

/* ---- talking (ask.c) ----------------------------------------------------------------------- */

/*
 * Ask the daemon; args is taken over (may be NULL). Returns 0 with the document, to be released
 * with json_decref, or an exit status after having said why not.
 */
int ctl_ask(struct ctl *ctl, const char *verb, json_t *args, json_t **answer);

/* Print an answer, as JSON or by show (0 or a negative errno), and free it. An exit status. */
int ctl_show(struct ctl *ctl, json_t *answer, int (*show)(const json_t *, uint32_t terminal));

/* Say that something failed with the library's text; an exit status for the error. */
int ctl_failed(const struct ctl *ctl, int error);

/* Say what was wrong and how the verb is used, in one line. Returns CTL_USAGE. */
int ctl_usage(const struct ctl *ctl, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Say what getopt_long did not take, ':' (no value) or '?'. Returns CTL_USAGE. */
int ctl_option(const struct ctl *ctl, int c, const char *option);

/* The document as JSON, numbers as numbers. Returns CTL_OK, or CTL_FAILED when writing failed. */
int ctl_print_json(const json_t *document);

/*
 * Words of a verb without options: are there as many as it takes, and no option? "--" at their
 * front, for names that look like one, is passed over. Else says so and returns CTL_USAGE.
 */
int ctl_words(const struct ctl *ctl, const struct ctl_verb *verb, int *argc, char ***argv);

/* ---- showing (show.c) ---------------------------------------------------------------------- */

#define CTL_CELL 128

/* Members by path (json_at) in human form, into cell; "-" when not there. Each returns cell. */
char *ctl_text(char cell[CTL_CELL], const json_t *document, const char *path);
char *ctl_count(char cell[CTL_CELL], const json_t *document, const char *path);
char *ctl_bytes(char cell[CTL_CELL], const json_t *document, const char *path);
/* The same in five letters at most, for tables: "1.50K", "64.0M" */
char *ctl_bytes_short(char cell[CTL_CELL], const json_t *document, const char *path);
char *ctl_ns(char cell[CTL_CELL], const json_t *document, const char *path);
char *ctl_yes(char cell[CTL_CELL], const json_t *document, const char *path);
/* Does the document tell only of what belongs to who asked? */
bool ctl_only_own(const json_t *document);
/* What is left until a point of CLOCK_MONOTONIC, as "1.99s"; "never" for 0, "past" */
char *ctl_deadline(char cell[CTL_CELL], const json_t *document, const char *path, uint64_t now_ns);
/* How long ago a point of it was, likewise; "-" for 0 and what is still to come */
char *ctl_age(char cell[CTL_CELL], const json_t *document, const char *path, uint64_t now_ns);

/* The status in human form. */
int ctl_show_status(const json_t *status, FILE *to, uint32_t terminal);
/* Latencies of a stat: those of which there is any. */
int ctl_show_latencies(const json_t *latencies, FILE *to, uint32_t terminal);
/* Tiers of a status. */
int ctl_show_tiers(const json_t *status, FILE *to, uint32_t terminal);

/* ---- tables (grid.c) ----------------------------------------------------------------------- */

/*
 * A table of at most 16 columns, which are as wide as their cells. The first letter of a head is
 * none of it: '>' numbers, which stand right, '~' names, which may be cut in their middle, '=' (the
 * last column) text, which may be wrapped.
 */
struct grid;
struct grid *grid_new(const char *const *heads, uint32_t columns);
/* The next cell, left to right, row by row. Memory that is lacking makes grid_print fail. */
void grid_add(struct grid *g, const char *text);
uint32_t grid_rows(const struct grid *g);
/*
 * Print it for a terminal of so many columns (0: none), nothing if it has no rows, and free it.
 * Returns 0 or a negative errno.
 */
int grid_print(struct grid *g, FILE *to, uint32_t terminal);

/* Columns of the terminal that stdout is; 0 = it is none, or does not say. */
uint32_t ctl_terminal(void);

#endif
