/*
 * Put, delete, re-use of segments and recovery: put.c, delete.c, writeback.c, store.c,
 * store_recover.c, recover.c of tierd/core, and D1-D8 of libtier/abi/disk.h, on a disk that reorders writes.
 *
 * The disk decides at once what a crash of the host will do to a write if no flush comes before it:
 * the sector holds the new contents already, or still the old ones, or neither (torn); in the last
 * two cases the new contents wait in the device's cache, where reads see them. Deciding early loses
 * no behaviour: any set of the writes since the last flush can be the one that survives. A flush
 * settles the writes that were complete when it began; one that fails loses all that waits in the
 * cache, and the next one succeeds without it. A crash of the daemon alone loses nothing but writes
 * under way.
 *
 * The world: one key K of two pages, and other blocks ("filler"), of which only the room they take
 * matters; they come and go as they like. SEGMENTS segments with RECORDS places each for a record
 * and its data. Two logs, one run at a time in each: header (new segment), data, record; or, with
 * -DBESIDE, only the durable log, and two runs side by side. In any order: put K (for the cache or
 * durable), delete it, evict it, append filler, fail a write, flush when somebody waits, crash and
 * recover.
 *
 * want is what clients may rely on. Properties, each a variable that is asserted to be false:
 *
 *   lost      K was acknowledged durable, and recovery does not serve it;
 *   undead    its deletion was acknowledged, and recovery serves it;
 *   wrong     recovery serves other bytes, or not both pages;
 *   partial   a block is visible without both its pages;
 *   reuse     a place that a block lives in is written.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

/* ---- size of the world: the runner sets these ------------------------------------------------ */

#ifndef SEGMENTS
#define SEGMENTS 2 /* or 3 */
#endif
#ifndef RECORDS
#define RECORDS 2
#endif
#ifndef APPENDS
#define APPENDS 3 /* runs and tombstone records; all numbers stay below 8 */
#endif
#ifndef PUTS
#define PUTS 1
#endif
#ifndef DELETES
#define DELETES 1
#endif
#ifndef FAILURES
#define FAILURES 0 /* writes that fail */
#endif
#ifndef FLUSH_FAILS
#define FLUSH_FAILS 0 /* flushes that fail, and forget what they should have kept */
#endif
#ifndef CRASHES
#define CRASHES 1 /* of the daemon or of its host; the run ends with the last */
#endif

/* The store at the beginning: */
#define EMPTY 0
#define APART 1     /* K deleted: its record in segment 0, the tombstone in segment 1 */
#define TOGETHER 2  /* K deleted: both in segment 0 */
#define UNDER_WAY 3 /* K deleted: its run is still being written to segment 0 */
#define LIVE 4      /* K durable in segment 0 */
#define AGAIN 5     /* K's first record in segment 0; in segment 1 its tombstone, then K again */
#ifndef STORE
#define STORE EMPTY
#endif

/* ---- the disk -------------------------------------------------------------------------------- */

/* Sectors of a segment: header, then for each place a record and two pages. */
#define SECTORS (1 + 3 * RECORDS)
#define HEADER(g) (SECTORS * (g))
#define RECORD(g, j) (SECTORS * (g) + 1 + 3 * (j))
#define PAGE(g, j, part) (SECTORS * (g) + 2 + 3 * (j) + (part))
#define ALL (SECTORS * SEGMENTS)
#define BIT(i) (1 << (i))

short medium[ALL];
short cache[ALL];               /* counts where cached has its bit */
int cached, under_way, covered; /* sectors; covered: by the flush that runs */
#define seen(sector) (cached & BIT(sector) -> cache[sector] : medium[sector])

/* Header: 2 * sequence + log; 0 = never written. */
#define TORN_HEADER 255
/* Record: settled:1 | flushed:3 | what:2 | bound:3 | sequence:3 | lsn:3; 0 = never written. A tombstone's bound
 * is the last lsn that was given out when K was deleted: runs up to it are void, later ones are not.
 * flushed: data of records up to this lsn was flushed when it was written (D9); settled: its own. */
#define RUN(what, bound, sequence, lsn) (512 * (what) + 64 * (bound) + 8 * (sequence) + (lsn))
#define SETTLED(record) ((record) >> 14)
#define FLUSHED(record) (((record) >> 11) & 7)
#define WHAT(record) (((record) >> 9) & 3)
#define BOUND(record) (((record) >> 6) & 7)
#define SEQUENCE(record) (((record) >> 3) & 7)
#define LSN(record) ((record) & 7)
#define FILLER 0
#define KEY 1
#define TOMB 2
#define TORN 3
/* Page: 1 = K's, 0 = anything else. */

#define is_header (at % SECTORS == 0)
#define is_record (at % SECTORS % 3 == 1)
#define torn (is_header -> TORN_HEADER : (is_record -> RUN(TORN, 0, 0, 0) : 0))

/* Until another daemon runs on the same disk, filler over filler: who cares. */
#define all_the_same (CRASHES == 1 && is_record && WHAT(value) == FILLER && \
		      WHAT(medium[at]) == FILLER)

/* at and value are the caller's variables, 0 between its steps. */
inline write(sector, contents)
{
	d_step {
		at = sector;
		value = contents;
		if
		:: covered & BIT(at) -> medium[at] = cache[at] /* a flush waits for it */
		:: else
		fi;
		cached = cached & ~BIT(at);
		covered = covered & ~BIT(at);
		under_way = under_way | BIT(at);
		cache[at] = 0
	}
	if /* what a crash of the host will leave */
	:: medium[at] = value
	:: medium[at] != value && !all_the_same -> cache[at] = value; cached = cached | BIT(at)
	:: medium[at] != 0 && torn != medium[at] && torn != value ->
		medium[at] = torn;
		cache[at] = value;
		cached = cached | BIT(at)
	fi;
	d_step { at = 0; value = 0 }
}

inline settle(sector)
{
	medium[sector] = seen(sector);
	cache[sector] = 0;
	cached = cached & ~BIT(sector);
	covered = covered & ~BIT(sector)
}

inline complete(sector)
{
	under_way = under_way & ~BIT(sector)
}

/* ---- what the daemon knows ------------------------------------------------------------------- */

#define FREE 0
#define OPEN 1
#define SEALED 2
byte state[SEGMENTS], sequence[SEGMENTS], next[SEGMENTS], pending[SEGMENTS];
byte lsn_first[SEGMENTS], lsn_on_disk[SEGMENTS], lsn_tomb[SEGMENTS];
bool header_done[SEGMENTS];
byte sequences, lsns; /* handed out so far; recovery's gap keeps them from being used twice */

/* Logs: the open segment, and the run under way. */
#define CACHE 0
#define DURABLE 1
#define NONE 255
#ifdef CLEANER
#define CLEANED 2 /* what the cleaner (clean.pml) moves of the durable log */
#define LOGS 3
#elif defined(BESIDE)
#define SECOND 2 /* another run of the durable log, beside its first */
#define LOGS 3
#else
#define LOGS 2
#endif
#ifdef BESIDE
#define log_of(l) DURABLE
#define other(l) (DURABLE + SECOND - (l))
#elif defined(RESERVED)
#define log_of(l) ((l) == DURABLE && what[l] == TOMB -> CLEANED : (l)) /* append_reserved */
#define other(l) (l)
#else
#define log_of(l) (l)
#define other(l) (l)
#endif
#define kind(l) ((l) != CACHE) /* as the header says it */
byte log_open[LOGS];
#define IDLE 0
#define IN_HEADER 1
#define IN_DATA 2
#define IN_RECORD 3
#define BEFORE_HEADER 6 /* with RESERVED: it is to be written (4 and 5 are the cleaner's) */
byte phase[LOGS], what[LOGS], segment[LOGS], place[LOGS], lsn[LOGS], bound[LOGS];
bool mine[LOGS]; /* the run's block is the K that is in the index */

/* Block K. */
#define DIRTY 1
#define WRITING 2
#define CLEAN 3
bool copying; /* PENDING: a put is under way */
byte pages;   /* copied */
bool visible; /* COMMITTED */
byte persist;
bool is_durable, proven; /* proven: this daemon has written it, or read it and found it whole */
byte home, home_place;

/* Requests. */
#define RUNNING 1 /* a put: until K is written; a deletion: until its tombstone is */
#define SYNCING 2
byte putting, deleting;
byte put_sync, delete_sync; /* records that the flush has to cover */
bool tomb_queued, tomb_done;
byte tomb_bound;
byte writes, synced, sync_began; /* records written; those that a flush covers */
bool sync_runs;
#if FLUSH_FAILS > 0 || defined(CLEANER)
byte k_write, tomb_write, tomb_kept; /* written with this number; the last tombstone's bound */
#endif
#if FLUSH_FAILS > 0
bool frozen; /* flushed stays */
byte flush_fails = FLUSH_FAILS;
#endif
#ifdef CLEANER
byte victim = NONE; /* the segment that the cleaner empties */
bool carrying;      /* its tombstones are written again */
byte need;          /* the cleaner waits for the flush of this write */
byte delete_bound;  /* of the deletion under way */
bool begun;
byte cleans = CLEANS;
#endif
#ifdef WATERMARK
byte flushed, sync_lsn;
#else
#define flushed 0
#endif

/* What clients may rely on. */
#define ANYTHING 0
#define PRESENT 1
#define ABSENT 2
byte want;
bool put_since; /* the deletion began */
bool lost, undead, wrong, partial, reuse;

/* Budgets. */
byte appends = APPENDS, puts = PUTS, deletes = DELETES, evictions = 1;
byte failures = FAILURES, crashes = CRASHES;
bool over;

/* ---- segments (store.c) ---------------------------------------------------------------------- */

#define lives_in(g) (persist == CLEAN && home == (g))
#define older(g, other) (lsn_on_disk[other] != 0 && lsn_on_disk[other] <= lsn_tomb[g])

/* D8: does another segment show something older than g's tombstones? */
#if SEGMENTS == 2
#define needed(g) older(g, 1 - (g))
#else
#define needed(g) (older(g, ((g) + 1) % 3) || older(g, ((g) + 2) % 3))
#endif
#define dead(g) (state[g] == SEALED && !lives_in(g) && pending[g] == 0 && !needed(g))

/* pick_free and store_dead choose by age; here any will do. */
#if defined(CLEANER) && !defined(VICTIM_REOPENED)
#define usable(g) (state[g] == FREE || (dead(g) && (g) != victim))
#else
#define usable(g) (state[g] == FREE || dead(g))
#endif
#define full(l) (log_open[log_of(l)] == NONE || next[log_open[log_of(l)]] == RECORDS)
#if SEGMENTS == 2
#define placeable(l) (!full(l) || usable(0) || usable(1))
#else
#define placeable(l) (!full(l) || usable(0) || usable(1) || usable(2))
#endif

inline open_segment(l, g)
{
	d_step {
		if
		:: log_open[log_of(l)] != NONE -> state[log_open[log_of(l)]] = SEALED
		:: else
		fi;
		log_open[log_of(l)] = g;
		state[g] = OPEN;
		sequences++;
		sequence[g] = sequences;
		next[g] = 0;
		header_done[g] = false;
		lsn_first[g] = 0;
		lsn_tomb[g] = 0
	}
}

/* Of the open segment, for what[l]. */
inline take_place(l, g)
{
	d_step {
		segment[l] = g;
		place[l] = next[g];
		reuse = lives_in(g) && home_place == next[g];
		assert(!reuse);
		next[g]++;
		pending[g]++;
		lsns++;
		lsn[l] = lsns;
		/* Runs: nothing makes a tombstone void. */
		lsn_first[g] = (lsn_first[g] == 0 && what[l] != TOMB -> lsns : lsn_first[g]);
#ifndef COUNTED_LATE
		lsn_on_disk[g] = (lsn_on_disk[g] == 0 && what[l] != TOMB -> lsns : lsn_on_disk[g])
#endif
	}
}

inline write_header(l)
{
	write(HEADER(segment[l]), 2 * sequence[segment[l]] + kind(l));
	phase[l] = IN_HEADER
}

inline append(l)
{
	if
	:: full(l) && usable(0) -> open_segment(l, 0)
	:: full(l) && usable(1) -> open_segment(l, 1)
#if SEGMENTS > 2
	:: full(l) && usable(2) -> open_segment(l, 2)
#endif
	:: !full(l)
	fi;
	take_place(l, log_open[log_of(l)]);
	if
	:: header_done[segment[l]] -> phase[l] = IN_HEADER /* nothing to wait for */
#ifdef HEADER_BELIEVED
	:: what[l] != TOMB && under_way & BIT(HEADER(segment[l])) -> write_pages(l)
#endif
#ifdef HEADER_STAYS
	:: !header_done[segment[l]] && medium[HEADER(segment[l])] != 0 ->
		sequence[segment[l]] = medium[HEADER(segment[l])] / 2;
		phase[l] = IN_HEADER
	:: !header_done[segment[l]] && medium[HEADER(segment[l])] == 0 ->
#else
	:: else ->
#endif
#ifdef RESERVED
		phase[l] = BEFORE_HEADER
#else
		write_header(l)
#endif
	fi
}

/* ---- runs (writeback.c) ---------------------------------------------------------------------- */

#define record_of(l) RECORD(segment[l], place[l])
#define page_of(l, part) PAGE(segment[l], place[l], part)
#define bytes_of(l) (what[l] == KEY -> 1 : 0)

inline write_pages(l)
{
	write(page_of(l, 0), bytes_of(l));
	write(page_of(l, 1), bytes_of(l));
	phase[l] = IN_DATA
}

#ifdef CLEANER
#define settled(l) ((l) == CLEANED -> 16384 : 0)
#else
#define settled(l) 0
#endif

inline write_record(l)
{
	write(record_of(l), settled(l) + 2048 * flushed +
			    RUN(what[l], bound[l], sequence[segment[l]], lsn[l]));
	phase[l] = IN_RECORD
}

inline header_complete(l)
{
	d_step {
		complete(HEADER(segment[l]));
#ifndef HEADER_UNFLUSHED
		/* A flush: what the segment held before is void from here on. */
		settle(HEADER(segment[l]));
#endif
#if defined(BESIDE) || defined(RESERVED)
		header_done[segment[l]] = true; /* no run behind it writes it again */
#endif
	}
#ifdef RECORD_FIRST
	write_record(l)
#else
	if
	:: what[l] != TOMB -> write_pages(l)
	:: else -> write_record(l)
	fi
#endif
}

inline run_forget(l)
{
	phase[l] = IDLE;
	what[l] = 0;
	segment[l] = 0;
	place[l] = 0;
	lsn[l] = 0;
	bound[l] = 0
}

inline pages_complete(l)
{
	d_step { complete(page_of(l, 0)); complete(page_of(l, 1)) };
#ifdef RECORD_FIRST
	d_step { run_forget(l) }
#else
	write_record(l)
#endif
}

/* block_written, store_append_done */
inline run_end(l, g)
{
	pending[g]--;
	header_done[g] = true;
	lsn_on_disk[g] = lsn_first[g];
	writes++;
	if
	:: mine[l] ->
		persist = CLEAN;
		home = g;
		home_place = place[l];
		proven = true;
		mine[l] = false;
#if FLUSH_FAILS > 0 || defined(CLEANER)
		k_write = writes
#endif
	:: what[l] == TOMB ->
		lsn_tomb[g] = (bound[l] > lsn_tomb[g] -> bound[l] : lsn_tomb[g]);
#ifdef CLEANER /* it may be a carried one */
		tomb_done = tomb_done || (deleting == RUNNING && bound[l] >= delete_bound);
#else
		tomb_done = true;
#endif
#if FLUSH_FAILS > 0 || defined(CLEANER)
		tomb_kept = bound[l];
		tomb_write = writes
#endif
	:: else
	fi
}

inline record_complete(l)
{
	d_step { complete(record_of(l)); run_end(l, segment[l]) };
#ifdef RECORD_FIRST
	if
	:: what[l] != TOMB -> write_pages(l)
	:: else -> d_step { run_forget(l) }
	fi
#else
	d_step { run_forget(l) }
#endif
}

inline queue_tomb(up_to)
{
	tomb_queued = true;
	tomb_bound = (up_to > tomb_bound -> up_to : tomb_bound)
}

/* If a write fails, its sectors stay under way for ever: no flush covers them. */
inline run_fail(l)
{
	pending[segment[l]]--;
	if
#ifdef CLEANER
	:: l == CLEANED -> mine[l] = false; need = 0 /* K is where it was */
	:: l != CLEANED && mine[l] -> persist = DIRTY; mine[l] = false
#else
	:: mine[l] -> persist = DIRTY; mine[l] = false
#endif
	:: what[l] == TOMB -> queue_tomb(bound[l])
	:: else
	fi;
	run_forget(l)
}

/* drive_run_free: none begins beside one that opens a segment. */
#if defined(BESIDE) && !defined(HEADER_BELIEVED)
#define opens(l) (phase[l] == IN_HEADER && !header_done[segment[l]])
#else
#define opens(l) false
#endif
/* tombs_write: one record at a time. */
#ifdef RESERVED
#define tombs_may(l) (placeable(CLEANED) && !opened(CLEANED))
#else
#define tombs_may(l) (log_of(l) == DURABLE && what[other(l)] != TOMB)
#endif
/* store_opening */
#if defined(RESERVED) && !defined(HEADER_TWICE)
#define opened(l) (log_open[l] != NONE && pending[log_open[l]] > 0 && !header_done[log_open[l]])
#else
#define opened(l) false
#endif
#define may_append(l) (appends > 0 && phase[l] == IDLE && placeable(l) && !opens(other(l)))

proctype log(byte l)
{
	byte at;
	short value;

end:	do
	:: atomic { may_append(l) ->
		appends--;
		if
		:: d_step { persist == DIRTY && is_durable == log_of(l) ->
			persist = WRITING;
			mine[l] = true;
			what[l] = KEY
		   }
		:: d_step { tomb_queued && tombs_may(l) ->
			tomb_queued = false;
			bound[l] = tomb_bound;
			tomb_bound = 0;
			what[l] = TOMB
		   }
		:: what[l] = FILLER
		fi;
		append(l)
	   }
#ifdef RESERVED
	:: atomic { phase[l] == BEFORE_HEADER -> write_header(l) }
#endif
	:: atomic { phase[l] == IN_HEADER -> header_complete(l) }
	:: atomic { phase[l] == IN_DATA -> pages_complete(l) }
	:: atomic { phase[l] == IN_RECORD -> record_complete(l) }
	:: d_step { phase[l] > IN_HEADER && failures > 0 -> failures--; run_fail(l) }
	:: over -> break
	od
}

/* ---- flushes --------------------------------------------------------------------------------- */

/* Scratch of the steps below, all of them deterministic. */
hidden byte g, i, n, run_lsn, run_settled, tomb_lsn, room;
hidden short record;

#ifdef OTHERS_FLUSH /* puts of filler are durable, too */
#define flush_wanted (writes > synced)
#elif defined(CLEANER)
#define flush_wanted ((putting == SYNCING && put_sync > synced) || \
		      (deleting == SYNCING && delete_sync > synced) || \
		      need > synced || (carrying && tomb_write > synced))
#else
#define flush_wanted ((putting == SYNCING && put_sync > synced) || \
		      (deleting == SYNCING && delete_sync > synced))
#endif

inline flush_begin()
{
	sync_runs = true;
	sync_began = writes;
#ifdef WATERMARK
	sync_lsn = lsns;
#ifndef LSN_TOO_FAR
	sync_lsn = (phase[0] != IDLE && lsn[0] <= sync_lsn -> lsn[0] - 1 : sync_lsn);
	sync_lsn = (phase[1] != IDLE && lsn[1] <= sync_lsn -> lsn[1] - 1 : sync_lsn);
#if defined(BESIDE) && !defined(LSN_OF_FIRST)
	sync_lsn = (phase[SECOND] != IDLE && lsn[SECOND] <= sync_lsn -> lsn[SECOND] - 1 : sync_lsn);
#endif
#endif
#if FLUSH_FAILS > 0 && !defined(NEVER_FROZEN)
	sync_lsn = (frozen -> 0 : sync_lsn);
#endif
#endif
	covered = cached & ~under_way
}

inline settle_all(which)
{
	i = 0;
	do
	:: i == ALL -> break
	:: i < ALL && which & BIT(i) -> settle(i); i++
	:: i < ALL && !(which & BIT(i)) -> i++
	od
}

inline flush_end()
{
	settle_all(covered);
	sync_runs = false;
#ifdef FLUSH_COVERS_ALL
	synced = writes;
#else
	synced = sync_began;
#endif
	sync_began = 0
#ifdef WATERMARK
	;
	flushed = (sync_lsn > flushed -> sync_lsn : flushed);
	sync_lsn = 0
#endif
}

/* What is in the cache of these sectors is gone. */
inline lose(which)
{
	i = 0;
	do
	:: i == ALL -> break
	:: i < ALL && which & BIT(i) -> cache[i] = 0; cached = cached & ~BIT(i); i++
	:: i < ALL && !(which & BIT(i)) -> i++
	od
}

#if FLUSH_FAILS > 0
#define in_doubt(l) (phase[l] == IN_DATA || phase[l] == IN_RECORD)

/* All that was written since the last good flush is written again (flush.c). */
inline flush_fail()
{
	flush_fails--;
	sync_runs = false;
	sync_began = 0;
	covered = 0;
#ifdef WATERMARK
	sync_lsn = 0;
#endif
	lose(cached & ~under_way);
	i = 0;
#ifndef FAILURE_BELIEVED
	frozen = true;
#ifndef RUN_GOES_ON
	if
	:: in_doubt(0) -> run_fail(0)
	:: else
	fi;
	if
	:: in_doubt(1) -> run_fail(1)
	:: else
	fi;
#ifdef BESIDE
	if
	:: in_doubt(SECOND) -> run_fail(SECOND)
	:: else
	fi;
#endif
#endif
#if defined(CLEANER) && !defined(CLEANED_OVER_FAILURE)
	if
	:: phase[CLEANED] != IDLE -> run_fail(CLEANED)
	:: else
	fi;
#endif
	if
	:: persist == CLEAN && is_durable && k_write > synced ->
		persist = DIRTY;
		home = 0;
		home_place = 0
	:: else
	fi;
#ifndef TOMB_NOT_AGAIN
	if
	:: tomb_write > synced ->
		queue_tomb(tomb_kept);
		tomb_done = false
	:: else
	fi;
#endif
	k_write = 0;
	tomb_write = 0;
	putting = (putting == SYNCING -> RUNNING : putting);
	put_sync = 0;
	if
	:: deleting == SYNCING -> deleting = RUNNING; delete_sync = 0
	:: else
	fi
#endif
}
#endif

/* ---- requests (put.c, delete.c, evict.c) ----------------------------------------------------- */

inline put_begin(durable)
{
	puts--;
	put_since = true;
	want = (want == ABSENT -> ANYTHING : want);
	if
	:: durable -> putting = RUNNING
	:: else
	fi;
	if
	:: !visible -> copying = true; pages = 0; is_durable = is_durable || durable
	:: visible && durable && persist == DIRTY -> is_durable = true
	:: else
	fi
}

/* page_copied, block_commit */
inline page_copied()
{
	pages++;
	copying = pages < 2;
	if
#ifdef VISIBLE_EARLY
	:: !visible ->
#else
	:: pages == 2 ->
#endif
		visible = true;
		proven = true;
		persist = DIRTY
	:: else
	fi;
	partial = visible && pages < 2;
	assert(!partial)
}

/* make_durable: it is in the cache log. */
inline write_again()
{
	persist = DIRTY;
	is_durable = true;
	proven = true;
	home = 0;
	home_place = 0
}

inline leave_index()
{
	visible = false;
	copying = false;
	pages = 0;
	persist = 0;
	is_durable = false;
	proven = false;
	home = 0;
	home_place = 0;
	mine[0] = false;
	mine[1] = false;
#if LOGS > 2
	mine[2] = false;
#endif
	putting = 0; /* a put that waits for it fails */
	put_sync = 0
}

#define k_page(part) seen(PAGE(home, home_place, part))
#define whole (k_page(0) == 1 && k_page(1) == 1)

/* Recovery believes a record that its data was written. Before a new answer is built upon it, it is
 * read: a page that does not verify takes the block away. */
inline prove()
{
	if
	:: whole -> proven = true
	:: else -> queue_tomb(lsns); leave_index()
	fi
}

inline written()
{
#ifdef ANSWERED_EARLY
	putting = 0;
	want = PRESENT
#else
	putting = SYNCING;
	put_sync = writes
#endif
}

inline put_end()
{
	putting = 0;
	put_sync = 0;
	want = PRESENT
}

inline delete_begin()
{
	deletes--;
	put_since = false;
	want = (want == PRESENT -> ANYTHING : want);
	deleting = RUNNING;
#ifdef CLEANER
	delete_bound = lsns;
#endif
	if
#ifdef UNKNOWN_IS_GONE
	:: !visible -> tomb_done = true
#endif
	:: else -> queue_tomb(lsns)
	fi;
	leave_index()
}

inline delete_end()
{
	deleting = 0;
	delete_sync = 0;
	tomb_done = false;
#ifdef CLEANER
	delete_bound = 0;
#endif
	want = (put_since -> want : ABSENT)
}

/* ---- crash and recovery ---------------------------------------------------------------------- */

inline forget_memory()
{
	run_forget(0);
	run_forget(1);
	log_open[0] = NONE;
	log_open[1] = NONE;
	leave_index();
	deleting = 0;
	delete_sync = 0;
	tomb_queued = false;
	tomb_bound = 0;
	tomb_done = false;
	put_since = false;
	writes = 0;
	synced = 0;
	sync_began = 0;
	sync_runs = false;
	covered = 0;
	under_way = 0
#if FLUSH_FAILS > 0 || defined(CLEANER)
	;
	k_write = 0;
	tomb_write = 0;
	tomb_kept = 0
#endif
#if FLUSH_FAILS > 0
	;
	frozen = false
#endif
#ifdef BESIDE
	;
	run_forget(SECOND)
#endif
#ifdef CLEANER
	;
	run_forget(CLEANED);
	log_open[CLEANED] = NONE;
	victim = NONE;
	carrying = false;
	need = 0;
	delete_bound = 0
#endif
#ifdef WATERMARK
	;
	flushed = 0;
	sync_lsn = 0
#endif
}

#ifdef ANY_SEQUENCE
#define is_taken (record != 0 && WHAT(record) != TORN)
#else
#define is_taken (SEQUENCE(record) == sequence[g] && WHAT(record) != TORN)
#endif

/* apply: the newest run of K wins; tombstones come at the end. */
inline recover_record()
{
#ifdef WATERMARK
	flushed = (FLUSHED(record) > flushed -> FLUSHED(record) : flushed);
#endif
	n = LSN(record);
	lsn_first[g] = (lsn_first[g] == 0 || n < lsn_first[g] -> n : lsn_first[g]);
	if
	:: WHAT(record) == KEY && n > run_lsn && room > 0 ->
		run_lsn = n;
		run_settled = SETTLED(record);
		home = g;
		home_place = i;
		is_durable = seen(HEADER(g)) & 1
	:: WHAT(record) == TOMB ->
		lsn_tomb[g] = (BOUND(record) > lsn_tomb[g] -> BOUND(record) : lsn_tomb[g]);
#ifndef NO_BOUND
		n = BOUND(record);
#endif
		tomb_lsn = (n > tomb_lsn -> n : tomb_lsn)
#ifdef QUOTA_IN_ORDER
	:: WHAT(record) == FILLER && room > 0 -> room--
#endif
	:: else
	fi
}

/* store_recover, store_next: a record that does not verify is a hole, not the end. */
inline recover_segment()
{
	lsn_first[g] = 0;
	lsn_tomb[g] = 0;
	next[g] = 0;
	pending[g] = 0;
	header_done[g] = false;
	state[g] = FREE;
	sequence[g] = 0;
	record = seen(HEADER(g));
	i = (record == 0 || record == TORN_HEADER -> RECORDS : 0);
	if
	:: i == 0 -> state[g] = SEALED; sequence[g] = record / 2
	:: else
	fi;
	do
	:: i == RECORDS -> break
	:: else ->
		record = seen(RECORD(g, i));
		if
		:: is_taken -> recover_record()
#ifdef HOLE_ENDS
		:: else -> i = RECORDS - 1
#else
		:: else
#endif
		fi;
		i++
	od;
	lsn_on_disk[g] = lsn_first[g]
}

/* A page's CRC starts from key and page number (D5): other bytes do not verify. */
#ifdef NO_CRC
#define served visible
#else
#define served (visible && whole)
#endif

inline recover()
{
	forget_memory();
	run_lsn = 0;
	tomb_lsn = 0;
	room = 1; /* blocks that the context's quota has room for */
	g = 0;
	do
	:: g == SEGMENTS -> break
	:: else -> recover_segment(); g++
	od;
	if
	:: run_lsn > tomb_lsn ->
		visible = true;
		pages = 2;
		persist = CLEAN;
		proven = run_settled
#ifdef RECOVERED_TRUSTED
		; proven = true
#endif
#ifdef WATERMARK
		; proven = run_lsn <= flushed
#endif
	:: else -> home = 0; home_place = 0; is_durable = false
	fi;
	lost = want == PRESENT && !served;
	undead = want == ABSENT && served;
	wrong = served && !whole;
	assert(!lost);
	assert(!undead);
	assert(!wrong)
}

/* All ends are one. */
inline end_world()
{
	forget_memory();
	want = ANYTHING;
	i = 0;
	do
	:: i == ALL -> break
	:: else -> medium[i] = 0; i++
	od;
	g = 0;
	do
	:: g == SEGMENTS -> break
	:: else ->
		state[g] = FREE;
		sequence[g] = 0;
		lsn_first[g] = 0;
		lsn_on_disk[g] = 0;
		lsn_tomb[g] = 0;
		g++
	od;
	sequences = 0;
	lsns = 0;
	appends = 0;
	puts = 0;
	deletes = 0;
	evictions = 0;
	failures = 0;
#ifdef CLEANER
	cleans = 0;
#endif
#if FLUSH_FAILS > 0
	flush_fails = 0;
#endif
	over = true
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* A segment in its first life, all of it flushed. */
inline aged(s, l, first)
{
	state[s] = SEALED;
	sequence[s] = s + 1;
	next[s] = RECORDS;
	lsn_first[s] = first;
	lsn_on_disk[s] = first;
	medium[HEADER(s)] = 2 * (s + 1) + l
}

inline tomb_at(s, j, sequence_of)
{
	medium[RECORD(s, j)] = RUN(TOMB, 1, sequence_of, 2);
	lsn_tomb[s] = 1
}

inline k_at(s, j)
{
	medium[PAGE(s, j, 0)] = 1;
	medium[PAGE(s, j, 1)] = 1
}

inline k_lives(s, j)
{
	k_at(s, j);
	visible = true;
	pages = 2;
	persist = CLEAN;
	is_durable = true;
	proven = true;
	home = s;
	home_place = j;
	want = PRESENT
}

inline begin_world()
{
	log_open[0] = NONE;
	log_open[1] = NONE;
#if STORE == APART || STORE == TOGETHER || STORE == UNDER_WAY
	aged(0, CACHE, 1);
	k_at(0, 0);
	sequences = 2;
	lsns = 2;
	want = ABSENT;
#endif
#if STORE == APART || STORE == TOGETHER
	medium[RECORD(0, 0)] = RUN(KEY, 0, 1, 1);
#endif
#if STORE == TOGETHER
	tomb_at(0, 1, 1);
#endif
#if STORE == APART || STORE == UNDER_WAY
	aged(1, DURABLE, 2);
	tomb_at(1, 0, 2);
#endif
#if STORE == UNDER_WAY
	log_open[CACHE] = 0;
	state[0] = OPEN;
	pending[0] = 1;
	header_done[0] = true;
#ifdef COUNTED_LATE
	lsn_on_disk[0] = 0;
#endif
	phase[CACHE] = IN_DATA;
	what[CACHE] = KEY;
	lsn[CACHE] = 1;
	under_way = BIT(PAGE(0, 0, 0)) | BIT(PAGE(0, 0, 1));
#endif
#if STORE == LIVE
	aged(0, DURABLE, 1);
	medium[RECORD(0, 0)] = RUN(KEY, 0, 1, 1);
	sequences = 1;
	lsns = 1;
	k_lives(0, 0);
#endif
#if STORE == AGAIN
	aged(0, CACHE, 1);
	medium[RECORD(0, 0)] = RUN(KEY, 0, 1, 1);
	k_at(0, 0);
	aged(1, DURABLE, 2);
	tomb_at(1, 0, 2);
	medium[RECORD(1, 1)] = RUN(KEY, 0, 2, 3);
	sequences = 2;
	lsns = 3;
	k_lives(1, 1);
#endif
#ifdef CLEANER
	log_open[CLEANED] = NONE;
	begun = true;
#endif
	i = 0
}

/* ---- the world ------------------------------------------------------------------------------- */

#define k_is(how) (putting == RUNNING && persist == CLEAN && how)

active proctype world()
{
	int gone;

	d_step { begin_world() };
#ifdef CLEANER
	run log(DURABLE);
#elif defined(BESIDE)
	atomic { run log(DURABLE); run log(SECOND) };
#else
	atomic { run log(CACHE); run log(DURABLE) };
#endif
end:	do
	:: d_step { puts > 0 && putting == 0 -> put_begin(true) }
#if !defined(CLEANER) && !defined(BESIDE)
	:: d_step { puts > 0 -> put_begin(false) }
#endif
	:: d_step { copying -> page_copied() }
	:: d_step { k_is(!is_durable) -> write_again() }
#ifdef COPY_GIVEN_UP
	:: d_step { k_is(is_durable && !proven) -> write_again() }
#else
	:: d_step { k_is(is_durable && !proven) -> prove() }
#endif
	:: d_step { k_is(is_durable && proven) -> written() }
	:: d_step { putting == SYNCING && put_sync <= synced -> put_end() }
	:: d_step { deletes > 0 && deleting == 0 -> delete_begin() }
	:: d_step { deleting == RUNNING && tomb_done -> deleting = SYNCING; delete_sync = writes }
	:: d_step { deleting == SYNCING && delete_sync <= synced -> delete_end() }
	/* Evicted: its record stays where it is. Or its segment is dropped, and it is kept. */
	:: d_step { evictions > 0 && persist == CLEAN && !is_durable -> evictions--; leave_index() }
	:: d_step { evictions > 0 && persist == CLEAN && !is_durable ->
		evictions--;
		persist = DIRTY;
		home = 0;
		home_place = 0
	   }
	:: d_step { flush_wanted && !sync_runs -> flush_begin() }
	:: d_step { sync_runs -> flush_end() }
#if FLUSH_FAILS > 0
	:: d_step { sync_runs && flush_fails > 0 -> flush_fail() }
#endif
	:: atomic { !over ->
		crashes--;
		if
		:: crashes > 0 /* the daemon's; its last writes arrive ... */
		:: crashes > 0 -> gone = under_way & cached /* ... or do not */
		:: gone = cached /* the host's */
		fi;
		d_step {
			lose(gone);
			gone = 0;
#ifndef RECOVERY_UNFLUSHED
			settle_all(cached);
#endif
			recover();
			if
			:: crashes == 0 -> end_world()
			:: else
			fi
		}
	   }
	:: over -> break
	od
}
