/*
 * Attaching to the daemon, and again after it went away: the connection's socket, region and
 * staging arena, and the maps of its contexts, exchanged as a whole while readers go on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_ATTACH_H
#define TIER_SRC_ATTACH_H

#include "libtier/src/connection.h"

/* The first attachment. Errors: those of tier_connect. */
int attach_first(struct tier *t) REQUIRES(t->wire) EXCLUDES(t->lock);

/*
 * Make sure that there is a live attachment, re-attaching if there is none and the last try is not
 * too young. Returns 0 or -ENOTCONN. May wait CONNECTION_REATTACH_NS. The two differ in whether the
 * wire lock is held already; without it, a busy wire counts as -ENOTCONN.
 */
int attach_ensure(struct tier *t) EXCLUDES(t->wire, t->lock);
int attach_ensure_wired(struct tier *t) REQUIRES(t->wire) EXCLUDES(t->lock);

/* The daemon hands over: attach to the next one, which asks again what is under way. The lock is
 * given up meanwhile. */
void attach_follow(struct tier *t) REQUIRES(t->lock);

/* Contexts that the daemon had lost may be there again: look, now and then. */
void attach_retry_lost(struct tier *t) EXCLUDES(t->wire, t->lock);

/*
 * The attachment is over: what is under way on it completes with -ENOTCONN, or, when its daemon
 * hands over, waits for attach_follow.
 */
void attach_fail(struct tier *t, struct attachment *a) REQUIRES(t->lock);

/* Has the daemon hung up or ended the connection? One system call. */
bool attach_is_over(const struct attachment *a);

/* Unmap and close the replaced attachments in which nobody is inside any more. */
void attach_reclaim(struct tier *t) REQUIRES(t->lock);

/* Unmap and close everything, whoever is inside. For tier_close. */
void attach_drop_all(struct tier *t) REQUIRES(t->lock);

/*
 * A question on the socket and its answer, in t->message, whose descriptors the caller takes. One
 * that a daemon did not answer which hands over is asked of the next one: the attachment is another
 * one then.
 * Errors: -ENOTCONN, -ETIMEDOUT, -EPROTO, or the daemon's.
 */
int attach_ask(struct tier *t, struct wire_header *question, size_t bytes, uint16_t answer)
	REQUIRES(t->wire) EXCLUDES(t->lock);

#endif
