/* SPDX-License-Identifier: Apache-2.0 */
/* The wrappers of gpu.cuh against what their instructions are defined to do. */
#include <math.h>
#include <string.h>

#include "cuda/kernels/wrappers.h"
#include "cuda/ref/msa.h"
#include "cuda/test/cases.h"

namespace {

struct wrappers_run {
	room memory;
	msa_wrappers p = {};
	uint32_t *in, *bulk, want[WRAPPERS_OUT][32];
	float a[16][16], b[16][8], c[16][8]; /* of the mma */

	explicit wrappers_run(uint32_t seed);
	void put(uint32_t word, uint32_t lane, float f) { memcpy(&in[word * 32 + lane], &f, 4); }
	void expect(uint32_t word, uint32_t lane, float f) { memcpy(&want[word][lane], &f, 4); }
	void put_fragments(uint32_t lane);
	void put_rest(uint32_t lane, uint32_t *seed);
	std::string run(uint32_t schedule);
	std::string compare_with_model();
};

float small(uint32_t *seed)
{
	return (float)(msa_random(seed) % 17) - 8;
}

wrappers_run::wrappers_run(uint32_t seed)
{
	in = memory.take<uint32_t>(WRAPPERS_IN * 32);
	bulk = memory.take<uint32_t>(WRAPPERS_BYTES / 4);
	for (uint32_t i = 0; i < WRAPPERS_BYTES / 4; i++)
		bulk[i] = msa_random(&seed);
	for (uint32_t k = 0; k < 16; k++)
		for (uint32_t i = 0; i < 16; i++)
			a[i][k] = small(&seed);
	for (uint32_t k = 0; k < 16; k++)
		for (uint32_t n = 0; n < 8; n++)
			b[k][n] = small(&seed);
	for (uint32_t i = 0; i < 16; i++)
		for (uint32_t n = 0; n < 8; n++)
			c[i][n] = small(&seed);
	for (uint32_t lane = 0; lane < 32; lane++)
		put_fragments(lane);
	for (uint32_t lane = 0; lane < 32; lane++)
		put_rest(lane, &seed);
	p.in = in;
	p.bulk = bulk;
}

uint32_t pair_of(float low, float high)
{
	return msa_to_bf16(low) | (uint32_t)msa_to_bf16(high) << 16;
}

/* As the PTX manual has the fragments of m16n8k16: by the lane's group and its number in it. */
void wrappers_run::put_fragments(uint32_t lane)
{
	const uint32_t group = lane / 4, first = lane % 4 * 2;

	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t row = group + i / 2 * 8, column = first + i % 2;
		double sum = (double)c[row][column];

		for (uint32_t k = 0; k < 16; k++)
			sum += (double)a[row][k] * (double)b[k][column];
		put(5 + i, lane, c[row][column]);
		expect(6 + i, lane, (float)sum);
	}
	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t row = group + i % 2 * 8, k = first + i / 2 * 8;

		in[(9 + i) * 32 + lane] = pair_of(a[row][k], a[row][k + 1]);
	}
	for (uint32_t i = 0; i < 2; i++)
		in[(13 + i) * 32 + lane] = pair_of(b[first + i * 8][group],
						   b[first + i * 8 + 1][group]);
}

void wrappers_run::put_rest(uint32_t lane, uint32_t *seed)
{
	const float low = (float)(msa_random(seed) % 100000) / 777.0f, high = -low / 3;
	const uint32_t codes = msa_random(seed) & 0x7e7e; /* no NaN: it has more than one form */
	const uint32_t of = lane / 4 * 4;

	put(0, lane, low);
	put(1, lane, high);
	want[0][lane] = pair_of(low, high);
	put(2, lane, (float)lane - 20);
	expect(1, lane, exp2f((float)lane - 20));
	in[3 * 32 + lane] = codes;
	expect(3, lane, msa_from_e4m3((uint8_t)codes));
	expect(4, lane, msa_from_e4m3((uint8_t)(codes >> 8)));
	in[4 * 32 + lane] = lane * 7;
	want[5][lane] = (lane ^ 5) * 7;
	want[10][lane] = bulk[lane] * 3 + bulk[WRAPPERS_BYTES / 8 + lane];
	put(15, lane, (float)lane);
	expect(11, lane, (float)(4 * of + 6));
}

std::string wrappers_run::run(uint32_t schedule)
{
	std::string wrong;

	memory.freeze();
	p.out = memory.take<uint32_t>(WRAPPERS_OUT * 32);
	wrong = launch("msa_wrappers_all", { 1, 32, WRAPPERS_BYTES / 2 }, schedule, p);
	if (!wrong.empty())
		return wrong;
	for (uint32_t word = 0; word < WRAPPERS_OUT; word++)
		for (uint32_t lane = 0; lane < 32; lane++)
			if (word != 2 && p.out[word * 32 + lane] != want[word][lane])
				return say("word %u of lane %u is %08x, not %08x", word, lane,
					   p.out[word * 32 + lane], want[word][lane]);
	return open_door == DOOR_DEVICE ? compare_with_model() : "";
}

/* All words of all lanes, as the model of the device has them of the same inputs. */
std::string wrappers_run::compare_with_model()
{
	msa_wrappers m = p;
	std::string wrong;

	m.out = memory.take<uint32_t>(WRAPPERS_OUT * 32);
	wrong = run_by(DOOR_SOURCE, "msa_wrappers_all", { 1, 32, WRAPPERS_BYTES / 2 }, 0, &m,
		       sizeof(m));
	for (uint32_t i = 0; i < WRAPPERS_OUT * 32 && wrong.empty(); i++)
		if (p.out[i] != m.out[i])
			wrong = say("word %u of lane %u is %08x, the model has %08x", i / 32,
				    i % 32, p.out[i], m.out[i]);
	return wrong;
}

std::string all_of_them(uint32_t seed, uint32_t schedule)
{
	return wrappers_run(seed).run(schedule);
}

} // namespace

void wrappers_cases(std::vector<cuda_case> &to)
{
	for (uint32_t seed : { 1u, 2u, 3u })
		to.push_back({ say("wrappers: inputs %u", seed), all_of_them, seed });
}
