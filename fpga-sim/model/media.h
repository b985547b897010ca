/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on flash: lines of bytes with a bit of poison for each flit. A line has a pattern of its
 * own until it is first written. The bench has two, one behind the RTL's drive and one of the
 * golden model's; they must be equal at the end.
 */
#ifndef TIER_FPGA_MEDIA_H
#define TIER_FPGA_MEDIA_H

#include <stdbool.h>
#include <stdint.h>

struct media {
	uint8_t *bytes;
	uint64_t *poison; /* a word for each 64 flits of a line, one for less */
	uint8_t *known;   /* a line was asked for */
	uint64_t lines;
	uint32_t line_bytes, poison_words;
};

/* line_log: log2 of the 64 B flits of a line. Errors: -ENOMEM. */
int media_open(struct media *m, uint64_t lines, uint32_t line_log);
void media_close(struct media *m);

/* As device_store's line(); arg is a struct media. */
uint8_t *media_line(void *arg, uint64_t line, uint64_t **poison);

/* The first line in which they differ, or UINT64_MAX. */
uint64_t media_differ(struct media *a, struct media *b);

#endif
