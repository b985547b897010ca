/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's end of a text protocol over a UNIX socket (RESP, memcached's meta commands): short
 * texts are gathered and sent with values that stay where they are, replies' values are received
 * straight to where they shall lie.
 */
#ifndef TIER_BENCH_PEERS_WIRE_H
#define TIER_BENCH_PEERS_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_TEXT_BYTES 65536u
#define WIRE_LINE_BYTES 512u /* also: of what follows a value, received with it and copied */

struct wire {
	int fd;
	size_t out;	/* of `text` to send */
	size_t at, end; /* of `in`: received and not taken */
	char text[WIRE_TEXT_BYTES];
	char in[WIRE_LINE_BYTES];
};

/* Connect; tries until `until_ns`. Errors: -ETIMEDOUT, -ENAMETOOLONG, socket(2)'s. */
int wire_open(struct wire *w, const char *path, uint64_t until_ns);
void wire_close(struct wire *w);

/* Add to what is sent next; sends when there is much. */
int wire_text(struct wire *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Send all text so far, then a value and what follows it. */
int wire_value(struct wire *w, const void *value, size_t bytes, const char *tail);
int wire_flush(struct wire *w);

/* One line, without its end. Errors: -EPROTO too long, -ECONNRESET. */
int wire_line(struct wire *w, char line[WIRE_LINE_BYTES]);

/* So many bytes to `to`, then the two of a line's end. */
int wire_bytes(struct wire *w, void *to, size_t bytes);

#endif
