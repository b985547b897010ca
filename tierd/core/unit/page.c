/* SPDX-License-Identifier: Apache-2.0 */
/* The transitions of a page's word, as one table that is asserted on both sides of every store. */
#include "tierd/core/unit/page.h"

#define TO(state) (1u << ABI_PAGE_##state)

const uint8_t page_next_states[ABI_PAGE_STATES] = {
	[ABI_PAGE_ABSENT] = TO(RESERVED),
	[ABI_PAGE_RESERVED] = TO(FILLING) | TO(ABSENT),
	[ABI_PAGE_FILLING] = TO(READY) | TO(ABSENT),
	[ABI_PAGE_READY] = TO(READY) | TO(RETIRING),
	[ABI_PAGE_RETIRING] = TO(ABSENT),
};
