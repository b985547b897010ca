// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pool: chunks of all sources, and what becomes of them. A chunk that comes back goes to the
 * free list only when nobody but us has a reference: a device that still reads or writes it (a
 * registered buffer, a memory region of RDMA, a mapped dma-buf) keeps it among the held ones, which
 * are looked at again until it has let go. While there is one the module cannot be unloaded.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/workqueue.h>

#include "internal.h"

#define LOOK_AGAIN (HZ / 20)

static void look_again(struct work_struct *work);

struct tier_mem_status tm_status = { .version = TIER_MEM_VERSION };
static LIST_HEAD(free_list);
static LIST_HEAD(held_list);
static DECLARE_DELAYED_WORK(look_work, look_again);
static bool holding; /* a reference on the module, for the sake of held chunks */

static bool is_ours_alone(const struct tm_chunk *chunk)
{
	return folio_ref_count(chunk->folio) == 1;
}

/* Its source leaves: it is in no list, and no chunk of the pool. */
static void __part(struct tm_chunk *chunk)
{
	chunk->state = TM_GONE;
	tm_status.total--;
	if (!chunk->source->pgmap)
		tm_status.ordinary--;
}

static void __put_back(struct tm_chunk *chunk)
{
	if (chunk->source->leaving) {
		__part(chunk);
		return;
	}
	if (chunk->poisoned) {
		chunk->state = TM_RETIRED;
		tm_status.retired++;
		return;
	}
	chunk->state = TM_FREE;
	list_add(&chunk->link, &free_list);
	tm_status.free++;
}

static void __let_go(void)
{
	struct tm_chunk *chunk, *next;

	list_for_each_entry_safe(chunk, next, &held_list, link) {
		if (!is_ours_alone(chunk))
			continue;
		list_del(&chunk->link);
		tm_status.held--;
		__put_back(chunk);
	}
}

static void look_again(struct work_struct *work)
{
	bool done;

	mutex_lock(&tm_lock);
	__let_go();
	done = list_empty(&held_list);
	if (!done)
		schedule_delayed_work(&look_work, LOOK_AGAIN);
	else
		holding = false;
	mutex_unlock(&tm_lock);
	/* tm_pool_exit() waits for us: the text that we return to is there. */
	if (done)
		module_put(THIS_MODULE);
}

/* A chunk for a slot, its bytes whatever they were: tm_chunk_zero() comes next. */
struct tm_chunk *__tm_chunk_take(void)
{
	struct tm_chunk *chunk;

	if (list_empty(&free_list))
		__let_go();
	chunk = list_first_entry_or_null(&free_list, struct tm_chunk, link);
	if (!chunk)
		return NULL;
	list_del(&chunk->link);
	chunk->state = TM_USED;
	tm_status.free--;
	tm_status.used++;
	return chunk;
}

/* Out of its slot, and unmapped everywhere. */
void __tm_chunk_give(struct tm_chunk *chunk)
{
	chunk->region = NULL;
	tm_status.used--;
	if (is_ours_alone(chunk)) {
		__put_back(chunk);
		return;
	}
	chunk->state = TM_HELD;
	list_add_tail(&chunk->link, &held_list);
	tm_status.held++;
	if (holding)
		return;
	holding = true;
	__module_get(THIS_MODULE);
	schedule_delayed_work(&look_work, 1);
}

void __tm_chunk_poison(struct tm_chunk *chunk)
{
	if (chunk->poisoned)
		return;
	WRITE_ONCE(chunk->poisoned, true);
	if (chunk->state != TM_FREE)
		return;
	list_del(&chunk->link);
	tm_status.free--;
	__put_back(chunk);
}

/* By words: emulated memory takes its stores one by one, and bytes are eight times as many. */
void tm_chunk_zero(struct tm_chunk *chunk)
{
	u32 i;

	for (i = 0; i < TM_PAGES; i++) {
		memset64(page_address(folio_page(chunk->folio, i)), 0, PAGE_SIZE / 8);
		cond_resched();
	}
}

void tm_pool_add(struct tm_source *source)
{
	unsigned long i;

	mutex_lock(&tm_lock);
	for (i = 0; i < source->count; i++) {
		struct tm_chunk *chunk = &source->chunk[i];

		chunk->source = source;
		chunk->state = TM_FREE;
		list_add_tail(&chunk->link, &free_list);
	}
	tm_status.sources++;
	tm_status.total += source->count;
	tm_status.free += source->count;
	if (!source->pgmap)
		tm_status.ordinary += source->count;
	mutex_unlock(&tm_lock);
}

/* No chunk of it is handed out any more; those in slots come back by and by. */
void __tm_pool_leave(struct tm_source *source)
{
	unsigned long i;

	source->leaving = true;
	tm_status.sources--;
	for (i = 0; i < source->count; i++) {
		struct tm_chunk *chunk = &source->chunk[i];

		if (chunk->state == TM_FREE) {
			list_del(&chunk->link);
			tm_status.free--;
			__part(chunk);
		} else if (chunk->state == TM_RETIRED) {
			tm_status.retired--;
			__part(chunk);
		}
	}
}

/* Has everybody let go of its chunks? */
bool __tm_pool_left(struct tm_source *source)
{
	unsigned long i;

	__let_go();
	for (i = 0; i < source->count; i++)
		if (source->chunk[i].state != TM_GONE || !is_ours_alone(&source->chunk[i]))
			return false;
	return true;
}

void tm_pool_exit(void)
{
	flush_delayed_work(&look_work);
}
