/*
 * The cleaner (tierd/core/log/clean*.c), in the world of put.pml without its cache log: one more log,
 * into which K is moved from a segment that is emptied. Tombstones of that segment which another one
 * may still need are written again.
 *
 *   carry tombstones -> header, flushed -> pages -> flush -> record (settled: its data is there for
 *   sure) -> flush -> K's home is the new place -> what was carried is flushed -> the segment is dead
 *
 * With -DRESERVED tombstones have no room elsewhere and go into its log, too (append_reserved), and
 * a header is written some time after its segment was opened.
 *
 * Until then the victim is not opened anew. A flush that fails, or a write, ends the run: K is where
 * it was. Reads of the old place verify: a page that does not takes the block away.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define CLEANER
#ifndef CLEANS
#define CLEANS 1 /* segments that are chosen */
#endif
#include "put.pml"

#define DATA_SYNC 4 /* phases of its log behind IN_RECORD */
#define RECORD_SYNC 5

#define cleanable(g) (begun && cleans > 0 && victim == NONE && state[g] == SEALED && \
		      pending[g] == 0 && !dead(g))
#define at_work (victim != NONE && phase[CLEANED] == IDLE)
#define gatherable (at_work && appends > 0 && lives_in(victim) && placeable(CLEANED) && \
		    !opened(CLEANED))
#define hopeless (at_work && lives_in(victim) && !gatherable && !opened(CLEANED))
#ifdef CARRY_UNFLUSHED
#define carried (!tomb_queued)
#else
#define carried (!tomb_queued && what[DURABLE] != TOMB && tomb_write <= synced)
#endif
#define emptied (at_work && !lives_in(victim) && (!carrying || carried))

/* clean.c: carry */
inline begin_cleaning(s)
{
	cleans--;
	victim = s;
#ifndef TOMB_DROPPED
	if
	:: needed(s) ->
		carrying = true;
#ifdef CARRIED_AS_NEW
		queue_tomb(lsns)
#else
		queue_tomb(lsn_tomb[s])
#endif
	:: else
	fi
#endif
}

inline gather()
{
	appends--;
	what[CLEANED] = KEY;
	mine[CLEANED] = true;
	append(CLEANED)
}

/* chunk_read: it may have been deleted, and its bytes may not be there. */
inline copy_pages()
{
	d_step {
		complete(HEADER(segment[CLEANED]));
		settle(HEADER(segment[CLEANED]));
#ifdef RESERVED
		header_done[segment[CLEANED]] = true
#endif
	};
	if
	:: mine[CLEANED] && whole -> write_pages(CLEANED)
	:: d_step { mine[CLEANED] && !whole -> run_fail(CLEANED); queue_tomb(lsns); leave_index() }
	:: d_step { !mine[CLEANED] -> run_fail(CLEANED) }
	fi
}

/* flush_then */
inline await_flush(next_phase)
{
	writes++;
	need = writes;
	phase[CLEANED] = next_phase
}

inline write_moved()
{
	need = 0;
#ifdef LSN_LATE
	lsns++;
	lsn[CLEANED] = lsns;
#endif
	write_record(CLEANED)
}

/* run_over */
inline moved(s)
{
	pending[s]--;
	header_done[s] = true;
	lsn_on_disk[s] = lsn_first[s];
	if
	:: mine[CLEANED] ->
		home = s;
		home_place = place[CLEANED];
		proven = true;
		k_write = 0;
		mine[CLEANED] = false
	:: else
	fi;
	need = 0;
	run_forget(CLEANED)
}

/* finish: store_tombs_carried */
inline end_cleaning()
{
	lsn_tomb[victim] = 0;
	carrying = false;
	victim = NONE
}

active proctype cleaner()
{
	byte at;
	short value;

end:	do
	:: d_step { cleanable(0) -> begin_cleaning(0) }
	:: d_step { cleanable(1) -> begin_cleaning(1) }
	:: d_step { cleanable(2) -> begin_cleaning(2) }
	:: atomic { gatherable -> gather() }
	:: d_step { hopeless -> victim = NONE; carrying = false }
	:: d_step { emptied -> end_cleaning() }
#ifdef RESERVED
	:: atomic { phase[CLEANED] == BEFORE_HEADER -> write_header(CLEANED) }
#endif
	:: atomic { phase[CLEANED] == IN_HEADER -> copy_pages() }
	:: atomic { phase[CLEANED] == IN_DATA ->
		d_step { complete(page_of(CLEANED, 0)); complete(page_of(CLEANED, 1)) };
#ifdef RECORD_BEFORE_FLUSH
		write_moved()
#else
		d_step { await_flush(DATA_SYNC) }
#endif
	   }
	:: atomic { phase[CLEANED] == DATA_SYNC && need <= synced -> write_moved() }
	:: d_step { phase[CLEANED] == IN_RECORD ->
		complete(record_of(CLEANED));
#ifdef OLD_FREED_EARLY
		moved(segment[CLEANED])
#else
		await_flush(RECORD_SYNC)
#endif
	   }
	:: d_step { phase[CLEANED] == RECORD_SYNC && need <= synced -> moved(segment[CLEANED]) }
	:: d_step { phase[CLEANED] > IN_HEADER && failures > 0 -> failures--; run_fail(CLEANED) }
	:: over -> break
	od
}
