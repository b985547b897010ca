/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an era: one more, once, and nothing else is written. */
#include "cuda/kernels/era.h"
#include "cuda/test/cases.h"

namespace {

std::string count(uint32_t from, uint32_t schedule)
{
	room memory;
	uint64_t *words = memory.take<uint64_t>(4);
	const uint64_t before = from * 0x100000001ull;

	words[0] = words[2] = words[3] = 7;
	words[1] = before;
	for (uint64_t n = 1; n <= 3; n++) {
		std::string wrong = launch("msa_era_end", { 1, 32, 0 }, schedule,
					   msa_era{ &words[1] });

		if (!wrong.empty())
			return wrong;
		if (words[1] != before + n || words[0] != 7 || words[2] != 7 || words[3] != 7)
			return say("after %lu launches the word is %lx, from %lx", (unsigned long)n,
				   (unsigned long)words[1], (unsigned long)before);
	}
	return "";
}

} // namespace

void era_cases(std::vector<cuda_case> &to)
{
	for (uint32_t from : { 0u, 1u, 0xffffffffu })
		to.push_back({ say("era: three launches, from %#x", from), count, from });
}
