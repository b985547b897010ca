/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and end of the daemon: a table of named steps, each with its undo, so that the log names
 * the step that failed and roll-back needs no code of its own.
 */
#ifndef TIERD_STARTUP_H
#define TIERD_STARTUP_H

#include "tierd/shell.h"

/* All steps in order. On an error those that were done are undone, and it is returned. */
int startup_begin(struct shell *s);

/*
 * Read file and options anew, and take what can change while the daemon runs; the log says what
 * was taken, and what waits for a restart. What cannot be used leaves all as it is.
 */
void startup_reload(struct shell *s);

/* Undo all steps, last first. */
void startup_end(struct shell *s);

#endif
