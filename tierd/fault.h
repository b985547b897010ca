/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work on memory that may go away under it: a tier's device is lost or has poison, and the next
 * touch is SIGBUS. The work is given up with an error then, and the daemon goes on.
 */
#ifndef TIERD_FAULT_H
#define TIERD_FAULT_H

/* Once, before any work. Errors: those of sigaction. */
int fault_open(void);

/*
 * Do work(arg), which holds nothing that would be left behind (no lock, no memory of its own).
 * Errors: -EIO it touched memory that is gone; what it did until then stays. Any thread, but no
 * guard inside another.
 */
int fault_guard(void (*work)(void *arg), void *arg);

#endif
