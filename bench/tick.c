/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration of the tick counter; see tick.h. */
#include "bench/tick.h"

#define CALIBRATE_NS (20 * NS_PER_MS)
#define READINGS 10000u
#define INTERRUPTED_NS 1000.0

void tick_calibrate(struct tick *t)
{
	uint32_t count = 0;
	uint64_t begin_ns = time_now_ns(), begin = tick_now(), end_ns;
	uint64_t last = 0, least = UINT64_MAX;
	double sum = 0;

	do
		end_ns = time_now_ns();
	while (end_ns - begin_ns < CALIBRATE_NS);
	t->ns_per_tick = (double)(end_ns - begin_ns) / (double)(tick_now() - begin);
	for (uint32_t i = 0; i < READINGS; i++) {
		uint64_t from = tick_now();

		uint64_t step = tick_now() - from,
			 differs = step > last ? step - last : last - step;

		/* What an interrupt took is not the clock's. */
		if ((double)step * t->ns_per_tick > INTERRUPTED_NS)
			continue;
		if (last && differs && differs < least)
			least = differs;
		last = step;
		sum += (double)step * t->ns_per_tick;
		count++;
	}
	t->overhead_ns = count ? sum / count : 0;
	t->resolution_ns = least == UINT64_MAX ? t->ns_per_tick : (double)least * t->ns_per_tick;
}
