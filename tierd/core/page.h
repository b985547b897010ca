/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States of a page in one memory tier, and the only functions that change a descriptor's word.
 *
 *   from \ to     absent  reserved  filling  ready  retiring
 *   absent           .       R         .       .       .
 *   reserved         x       .         F       .       .
 *   filling          x       .         .       P       .
 *   ready            .       .         .       M       U
 *   retiring         x       .         .       .       .
 *
 *   R place allocated   F bytes are on their way   P publish (release)   U unpublish: version + 1
 *   M to another place, whose bytes are there (release): version + 1; the old place is retired
 *   x place freed; or found leased after the fence: then it is its batch's alone (reclaim.c)
 *
 * Each function asserts its row (one table in page.c) before and after the store.
 */
#ifndef TIERD_CORE_PAGE_H
#define TIERD_CORE_PAGE_H

#include <stdbool.h>

#include "libtier/abi/index.h"

/* Is the transition in the table? */
bool page_may(uint32_t from, uint32_t to);

/* May the page ever be filled again in this tier? False once its version is the last one (X4). */
bool page_usable(const struct abi_page *page, uint32_t tier);

/* May it move, and be retired after that? */
bool page_movable(const struct abi_page *page, uint32_t tier);

void page_reserve(struct abi_page *page, uint32_t tier, uint64_t addr); /* absent -> reserved */
void page_fill(struct abi_page *page, uint32_t tier);       /* reserved -> filling */
void page_publish(struct abi_page *page, uint32_t tier);    /* filling -> ready */
/* ready -> ready, version + 1 */
void page_move(struct abi_page *page, uint32_t tier, uint64_t addr);
void page_retire(struct abi_page *page, uint32_t tier);     /* ready -> retiring, version + 1 */
void page_free(struct abi_page *page, uint32_t tier);       /* any but ready, absent -> absent */

static inline uint32_t page_state(const struct abi_page *page, uint32_t tier)
{
	return abi_word_state(page->word[tier]);
}

static inline uint64_t page_addr(const struct abi_page *page, uint32_t tier)
{
	return abi_word_addr(page->word[tier]);
}

#endif
