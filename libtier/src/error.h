/*
 * The text behind the last errno of this thread. An error is told once, where its cause is known:
 * what failed, on which object, what the caller can do. Everyone else passes the number on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_ERROR_H
#define TIER_SRC_ERROR_H

/* Keeps the text and returns error (negative errno), so that it can stand in a return. */
int error_set(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a text that lives for ever; costs a store, for paths that count nanoseconds. */
int error_note(int error, const char *text);

#endif
