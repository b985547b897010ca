/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run has to have met, by name: `bench --cover` prints how often each did, and
 * `make fpga-long` asks for 100 of each. Full and empty count when it becomes so.
 */
#ifndef TIER_FPGA_COVER_H
#define TIER_FPGA_COVER_H

#include <stdbool.h>
#include <stdint.h>

#define COVER_POINTS(X) \
	X(slots_full) X(slots_empty) X(mshrs_full) X(mshrs_empty) X(units_full) X(units_empty) \
	X(drive_full) X(drive_empty) X(dram_full) X(dram_empty) X(answer_held_back) \
	X(hit) X(miss) X(join_miss) X(join_unit) X(retry_no_register) X(retry_leaving) \
	X(retry_all_pending) X(filled) X(broken) X(failed) X(refused) X(staged) X(held) \
	X(skipped_cached) X(skipped_leaving) X(skipped_other_unit) X(freed) X(evicts_clean) \
	X(evicts_dirty) X(dropped) X(poison_read) X(poison_staged) X(set_forwarded) \
	X(read_error) X(read_given_up) X(write_error) X(write_lost) X(unit_error) \
	X(unit_given_up) X(answer_doubled) X(answer_late) X(answer_lost) X(abort_read) \
	X(abort_write) X(abort_unit) X(abort_was_done) X(abort_withdrawn) \
	X(cancel_closed) X(cancel_none_begun) X(cancel_looking_up) X(cancel_none_came) \
	X(cancel_some_came) X(cancel_all_came) X(cancel_failed) X(cancel_drained) \
	X(cancel_cancelled) X(window_late) X(window_refused) X(window_open_again) \
	X(window_began_late) X(clean_begins) X(clean_passes) X(clean_idle) X(clean_waited) \
	X(clean_ends) X(clean_given_up) X(clean_error) X(join_cleaning) \
	X(queue_full) X(list_read) X(bell_for_many) X(entry_ignored) X(taken_garbled) \
	X(read_refused)

enum cover {
#define COVER_POINT(name) COVER_##name,
	COVER_POINTS(COVER_POINT)
#undef COVER_POINT
	COVERS
};

struct bench;
struct device_verdict;

/* The counts of a bench: times, and which of full and empty hold now. */
struct covered {
	uint64_t times[COVERS];
	bool now[COVERS];
	uint32_t last_set;
	uint64_t last_write; /* the cycle in which a decision wrote it */
};

void cover_hit(struct bench *b, enum cover point);
/* Once a cycle, after it; on a decision, after the model has made it. */
void cover_cycle(struct bench *b);
void cover_decision(struct bench *b, const struct device_verdict *v);
/* Before the model is told of these. */
void cover_answer(struct bench *b, uint32_t id, uint32_t cid, bool error);
void cover_order(struct bench *b, uint32_t window, uint32_t order);
void cover_abort(struct bench *b, uint32_t id);
void cover_print(const struct bench *b);

#endif
