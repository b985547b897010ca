/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment d: lines of 4, 16, 64 KiB, for reads of 4 KiB to 16 MiB. Four DRAMs of data; 80 % of
 * the reads go to a fifth of it, which is hot here and there, not in one piece. No clock: what hits
 * and what is moved; the rate follows of the registers, the latency and the rate of flash.
 */
#include "exp.h"

#define LINES 3u
#define READS 4u
#define DATA 4u /* DRAMs */
#define PART 13u /* log2 of the sets of 4 KiB lines: 512 MiB of DRAM */

static const uint32_t LINE[LINES] = { 6, 8, 10 }, READ[READS] = { 6, 8, 10, 18 }; /* log2 flits */

struct tried {
	double hits, moved, rate; /* of look-ups; bytes a byte that is read; GB/s */
};

static uint64_t draw(uint64_t *rng)
{
	*rng = *rng * 6364136223846793005u + 1442695040888963407u;
	return *rng >> 24;
}

static void read_at(struct clock *c, uint64_t first, uint64_t lines, uint64_t *hits)
{
	for (uint64_t i = 0; i < lines; i++)
		*hits += clock_touch(c, first + i, false);
}

static int try(struct exp *e, uint32_t line, uint32_t read, struct tried *out)
{
	struct point p = { .mshrs = e->mshrs, .slots = e->slots, .line_log = line };
	struct exp_setting set = point_setting(&p, &e->rates, PART);
	uint64_t pieces = (uint64_t)DATA << (PART + 4 + 6 - read), hits = 0, rng = 1, looks = 0;
	uint64_t lines = read > line ? 1ull << (read - line) : 1;
	uint64_t warm = 6 * pieces, count = 2 * pieces;
	double registers, line_bytes = 64 << line, bytes;
	struct clock *c;
	int rc = clock_open(&c, &set, p.mshrs, p.slots);

	if (rc)
		return rc;
	for (uint64_t i = 0; i < warm + count; i++) {
		uint64_t piece = draw(&rng) % (pieces / 5);

		/* one of five neighbours is hot; scattered by an odd multiplier */
		piece = draw(&rng) % 10 < 8 ? piece * 5 : draw(&rng) % pieces;
		piece = piece * 0x9e3779b1u % pieces;
		if (i == warm)
			hits = 0;
		read_at(c, (piece << read) >> line, lines, &hits);
	}
	clock_close(c);
	looks = count * lines;
	bytes = (double)count * (64 << read);
	out->hits = (double)hits / (double)looks;
	out->moved = (double)(looks - hits) * line_bytes / bytes;
	registers = e->mshrs * line_bytes / (e->rates.latency * 1e3);
	out->rate = (registers < e->rates.flash ? registers : e->rates.flash) / out->moved;
	if (out->rate > e->rates.link)
		out->rate = e->rates.link;
	return 0;
}

static double tags_mib(uint32_t line)
{
	return 15.0 / (1u << (line - 6)); /* 32 GiB of DRAM, 15 bits a line */
}

static void say(struct exp *e, uint32_t line, uint32_t read, const struct tried *t,
		const struct tried *ours)
{
	char text[160], curve[64];
	uint32_t kib = (64u << line) >> 10;
	struct row r = { .figure = text, .unit = "GB/s", .against = "lines of 4 KiB",
			 .goal = "none", .value = t->rate, .against_value = ours->rate,
			 .ratio = t->rate / ours->rate };

	printf("  %6u KiB  %6.2f MiB  %8u KiB  %6.2f %%  %8.2f  %6.2f GB/s\n", kib,
	       tags_mib(line), (64u << read) >> 10, 100 * t->hits, t->moved, t->rate);
	snprintf(text, sizeof(text), "reads of %u KiB, lines of %u KiB: %.1f %% hits, %.2f bytes "
		 "moved a byte", (64u << read) >> 10, kib, 100 * t->hits, t->moved);
	exp_row(e, &r);
	snprintf(curve, sizeof(curve), "lines of %u KiB", kib);
	exp_value(e, "lines", curve, (64u << read) >> 10, t->rate);
}

void exp_lines(struct exp *e)
{
	struct tried t[LINES];

	printf("d: lines; 4 DRAMs of data, 80 %% of reads to a fifth; %u registers\n"
	       "       line   tags, 32 GiB   read     hits   moved/read  rate\n", e->mshrs);
	for (uint32_t k = 0; k < READS; k++) {
		for (uint32_t i = 0; i < LINES; i++) {
			int rc = try(e, LINE[i], READ[k], &t[i]);

			if (rc) {
				e->error = rc;
				return;
			}
			say(e, LINE[i], READ[k], &t[i], &t[0]);
		}
	}
}
