/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of blocks and their sizes, who waits, accounts of users, marks on blocks.
 * A last part of state.h, which includes it.
 */
#ifndef TIERD_CORE_BOOK_BOOK_H
#define TIERD_CORE_BOOK_BOOK_H

/* block_list.c */
void block_list_init(struct block_list *list);
void block_link(struct core *c, struct block_list *list, struct context *x, uint32_t slot);
void block_link_first(struct core *c, struct block_list *list, struct context *x, uint32_t slot);
void block_unlink(struct core *c, struct block_list *list, struct context *x, uint32_t slot);
void block_list_turn(struct core *c, struct block_list *list);
uint32_t dirty_log(const struct context *x, uint32_t slot);
void writeback_unqueue(struct core *c, struct context *x, uint32_t slot);
uint64_t parts_mask(const struct context *x);
uint32_t block_pages(const struct context *x, uint32_t slot);
uint64_t block_bytes(const struct context *x, uint32_t slot);
bool block_alive(const struct context *x, struct abi_block_ref ref);
uint64_t block_word(const struct context *x, uint32_t slot);
struct drive *block_drive(const struct core *c, const struct context *x, uint32_t slot);
uint32_t block_segment(const struct core *c, const struct context *x, uint32_t slot);
bool block_lies(const struct core *c, const struct context *x, uint32_t slot,
		const struct drive *dv, uint32_t segment);

/* records.c */
int records_open(struct core *c);
void records_close(struct core *c);
uint64_t records_count(const struct core *c);
/* Of a segment: sectors at which a record may begin. */
static inline uint64_t records_sectors(const struct disk_super *s)
{
	return s->summary_bytes / DISK_SECTOR;
}
uint64_t records_beyond(const struct core *c, const struct context *x, uint32_t slot,
			uint32_t blocks);
uint64_t records_join(const struct core *c, const struct context *x, uint32_t slot, uint8_t *count);
uint64_t records_leave(const struct core *c, const struct context *x, uint32_t slot);

/* wait.c */
void request_wake(struct core *c, struct request *r);
void request_go_on(struct core *c, struct request *r);
void request_wait_space(struct core *c, struct request *r);
void request_unqueue(struct core *c, struct request *r); /* ... for room any more */
void request_wake_space(struct core *c);
void request_wake_joiners(struct core *c);
void request_wake_phase(struct core *c, enum request_phase phase);

/* account.c */
void account_open(struct core *c, struct client *k);
void account_close(struct core *c, struct client *k);
bool account_may(const struct core *c, const struct client *k, enum account_kind kind);
bool account_user_may(const struct core *c, uint32_t account, enum account_kind kind);
void account_take(struct core *c, struct client *k, enum account_kind kind);
void account_take_for(struct core *c, uint32_t account, enum account_kind kind);
void account_give(struct core *c, uint32_t account, struct client *k, enum account_kind kind);
uint64_t account_lack(const struct core *c, const struct client *k, enum account_kind kind);
void account_refused(struct core *c);
uint32_t account_fullest(const struct core *c, enum account_kind kind);
void account_hold(struct core *c, uint32_t client, uint32_t tier, uint64_t bytes);
void account_round(struct core *c);

/* marks.c; those of leads are in hint/conversation.h */
bool pin_holds(const struct context *x, uint32_t slot, uint32_t page, uint32_t tier);
bool pin_is_all(const struct context *x, uint32_t slot, uint32_t tier);

#endif
