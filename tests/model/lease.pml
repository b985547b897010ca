/*
 * The lease protocol (libtier/abi/hazard.h): libtier/src/lease.c against reclaim.c, page.h and
 * index.c, on a machine with store buffers (x86-TSO).
 *
 * What the daemon writes and readers map is m[]. The daemon's stores go through its store buffer
 * `db`, those of a reader (hazard words, high_water) through its own `sb[r]`: first in, first out,
 * emptied one store at a time whenever the machine likes. membarrier empties all of them at once.
 * Loads come from memory: no side loads what it stores itself, the daemon keeps copies (d_...).
 *
 * The world: two block slots of one page, each page with a word in HBM (tier 0) and in CXL (tier
 * 1); places 0 and 1 lie in CXL, 2 in HBM. The daemon does OPS operations in any order:
 *
 *   put     a new key into a free slot          drop    delete: the slot leaves the index
 *   evict   retire one word (a clean copy)      fetch   fill an absent word again, in any place of
 *           (evacuate = evict + fetch,                  its tier: NVMe always has a copy
 *           migrate = fetch to HBM + evict CXL)
 *
 * and, as often as there is something to do: fence, scan, hear of a process's death.
 *
 * With MOVES there is no HBM, and relocation (core/place/evacuate.c): places 0 and 1 are slab A,
 * place 3 is another slab. A page is held and copied to a free place of another slab; then its
 * word names the new place, and the old one is retired, as a detached that no page names. Slab A may
 * be evacuated: nothing is put there any more, and when only readers keep places of it, units that
 * no such place reaches into are punched (parked), at some later time. Place 0 reaches into both of
 * A's units, place 1 lies in the second. The copy is made by another processor, whose stores arrive
 * in order: before the daemon hears that it is done.
 *
 * bytes[p] is what lies in a place: a key, or NOTHING (free, punched). lease[] is what readers
 * believe they may read: 1 + place. Properties, each a variable that is asserted to be false:
 *
 *   wrong   a place is leased that does not hold the key that was asked for (I2);
 *   freed   a place is freed, or punched, during a lease (I2);
 *   stuck   when all readers are done, stopped or dead, one more scan leaves a place retired that
 *           no living process's hazard word names;
 *
 * and nobody waits for ever (Spin's invalid end states).
 *
 * Readers may be stopped for ever (SIGSTOP) or die while they hold a lease. A hang-up of the socket
 * is no event here: it ends nothing that a reader may rely on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

/* ---- size of the world: the runner sets these ------------------------------------------------ */

#ifndef READERS
#define READERS 1 /* each in a process of its own */
#endif
#ifndef CALLS
#define CALLS 1 /* a reader makes */
#endif
#ifndef LIST
#define LIST 1 /* pages a call: 2 publishes both, then looks at both again */
#endif
#ifndef OPS
#define OPS 4
#endif

#define SLOTS 2
#define HBM 0
#define CXL 1
#ifdef MOVES
#define PLACES 4
#define OUTSIDE 3 /* the place that is not in slab A */
#else
#define PLACES 3
#endif
#define PAGES (2 * SLOTS) /* words: slot * 2 + tier */
#define HAZARDS 2
#define STORES 3   /* that a reader's buffer takes; then the processor waits */
#define D_STORES 4 /* and the daemon's */

/* ---- memory ---------------------------------------------------------------------------------- */

/* The slot's block line, and the words of its page. */
#define GEN(s) (s)
#define KEY(s) (SLOTS + (s))
#define STATE(s) (2 * SLOTS + (s))
#define WORD(s, tier) (3 * SLOTS + 2 * (s) + (tier))
byte m[5 * SLOTS];
#define COMMITTED 1

/* Readers do not tell the states of a word apart that are not READY. */
#define NOT_READY 0
#define READY(place, version) (1 + (place) + 4 * (version))
#define PLACE(word) (((word) - 1) % 4)

/* Readers' areas. A hazard word is 1 + place, or 0. */
byte hazard[READERS * HAZARDS];
byte high_water[READERS];

chan db = [D_STORES] of { byte, byte };
chan sb[READERS] = [STORES] of { byte, byte };
#define HIGH_WATER HAZARDS /* its address in sb */

inline arrive(r, at, value)
{
	if
	:: at == HIGH_WATER -> high_water[r] = value
	:: else -> hazard[r * HAZARDS + at] = value
	fi;
	at = 0;
	value = 0
}

/* Store buffers empty themselves, in order, when they like. */
active proctype machine()
{
	byte at, value;

end:	do
	:: d_step { db?at, value -> m[at] = value; at = 0; value = 0 }
	:: d_step { sb[0]?at, value -> arrive(0, at, value) }
#if READERS > 1
	:: d_step { sb[1]?at, value -> arrive(1, at, value) }
#endif
	od
}

/* ---- what the properties speak of ------------------------------------------------------------ */

#define NOTHING 0
byte bytes[PLACES];
byte lease[READERS * HAZARDS];
byte finished; /* readers that are done, stopped or dead */
bool died[READERS];
bool wrong, freed, stuck;
#ifdef QUIET_IS_DEAD
bool owned[READERS]; /* a reader handle is open */
#endif

#if READERS > 1
#define leased_place(p) (lease[0] == (p) + 1 || lease[1] == (p) + 1 || \
			 lease[2] == (p) + 1 || lease[3] == (p) + 1)
#define named_place(p) (names(p, 0) || names(p, 1) || names(p, 2) || names(p, 3))
#else
#define leased_place(p) (lease[0] == (p) + 1 || lease[1] == (p) + 1)
#define named_place(p) (names(p, 0) || names(p, 1))
#endif
#define names(p, h) (hazard[h] == (p) + 1 && !died[(h) / HAZARDS])

/* ---- the reader (lease.c) -------------------------------------------------------------------- */

/*
 * It wants whichever key it finds in the slot, which stands for a look-up of any key: generation,
 * state, key, generation (index_read.c). judge_block's second look at generation and state can only
 * refuse more: left out.
 */
proctype reader(byte r)
{
	byte calls = CALLS;
	byte raised; /* its own copy of high_water */
	byte g[LIST], key[LIST], w[LIST], tier[LIST];
	byte i, s;

#ifdef QUIET_IS_DEAD
	owned[r] = true; /* tier_reader_open; a lock's release empties the buffer */
#endif
	do
	:: calls == 0 -> break
	:: else ->
		calls--;
		do /* first look */
		:: i == LIST -> break
		:: else ->
#if LIST > 1
			s = i;
#else
			if
			:: s = 0
			:: s = 1
			fi;
#endif
			g[i] = m[GEN(s)];
			if
			:: m[STATE(s)] != COMMITTED -> goto missed
			:: else
			fi;
			key[i] = m[KEY(s)];
			if
			:: m[GEN(s)] != g[i] -> goto missed
			:: else
			fi;
			d_step { tier[i] = HBM; w[i] = m[WORD(s, HBM)] };
			if
			:: w[i] == NOT_READY -> d_step { tier[i] = CXL; w[i] = m[WORD(s, CXL)] }
			:: else
			fi;
			if
			:: w[i] == NOT_READY -> goto missed
			:: else
			fi;
			if
			:: raised <= i -> sb[r]!HIGH_WATER, i + 1; raised = i + 1
			:: else
			fi;
			sb[r]!i, PLACE(w[i]) + 1;
			goto published;
missed:			w[i] = NOT_READY;
published:		i++
		od;
		/* asymmetric_light_fence: nothing that the machine would notice */
		i = 0;
		do /* second look */
		:: i == LIST -> break
		:: i < LIST && w[i] == NOT_READY -> i++
		:: i < LIST && w[i] != NOT_READY ->
#if LIST > 1
			s = i;
#endif
#ifdef GENERATION_FIRST
			if
			:: m[GEN(s)] != g[i] -> goto changed
			:: else
			fi;
#endif
#ifndef NO_RECHECK
			if
			:: m[WORD(s, tier[i])] != w[i] -> goto changed
			:: else
			fi;
#endif
			atomic {
#if !defined(NO_RECHECK) && !defined(NO_GENERATION) && !defined(GENERATION_FIRST)
				if
				:: m[GEN(s)] != g[i] -> goto changed
				:: else
				fi;
#endif
				wrong = bytes[PLACE(w[i])] != key[i];
				assert(!wrong);
				lease[r * HAZARDS + i] = PLACE(w[i]) + 1;
				goto granted
			};
changed:		sb[r]!i, 0;
			w[i] = NOT_READY;
granted:		i++
		od;
		/* It reads as long as it likes: a stopped one for ever, a dead one no longer. */
		if
		:: skip
		:: goto stopped
		:: d_step {
			lease[r * HAZARDS] = 0;
			lease[r * HAZARDS + 1] = 0;
			died[r] = true
		   };
		   goto stopped
		fi;
		i = 0;
		do /* release */
		:: i == LIST -> break
		:: i < LIST && w[i] == NOT_READY -> i++
		:: i < LIST && w[i] != NOT_READY ->
			lease[r * HAZARDS + i] = 0;
			sb[r]!i, 0;
			i++
		od;
		skip;
		d_step { /* forget the call */
			i = 0;
			do
			:: i == LIST -> break
			:: else ->
				g[i] = 0;
				key[i] = 0;
				w[i] = 0;
				tier[i] = 0;
				i++
			od;
			i = 0;
			s = 0
		}
	od;
stopped:
	finished++
}

/* ---- the daemon ------------------------------------------------------------------------------ */

/* abi_word states; RESERVED and FILLING are between two of our steps. */
#define ABSENT 0
#define FULL 1     /* READY */
#define RETIRING 2 /* in the open batch */
#define FENCED 3   /* in a batch whose fence is done */
#define QUARANTINED 4 /* a place that readers keep: no page names it any more */

byte d_state[PAGES], d_place[PAGES], d_version[PAGES];
byte d_gen[SLOTS], d_key[SLOTS];
bool d_in[SLOTS]; /* in the index */
bool taken[PLACES];
byte detached[PLACES]; /* RETIRING ... QUARANTINED: a place that its page has let go of */
byte keys;             /* used so far */
bool heard[READERS];   /* of the process's death */

/* Scratch of deterministic steps: hidden from the state, and not restored by backtracking. */
hidden byte x_at, x_value, n;

/* membarrier: a full fence on every processor, the daemon's own included. */
#if READERS > 1
#define quiet (empty(db) && empty(sb[0]) && empty(sb[1]))
#else
#define quiet (empty(db) && empty(sb[0]))
#endif

inline drain()
{
	do
	:: nempty(db) -> db?x_at, x_value; m[x_at] = x_value
	:: nempty(sb[0]) -> sb[0]?x_at, x_value; arrive(0, x_at, x_value)
#if READERS > 1
	:: nempty(sb[1]) -> sb[1]?x_at, x_value; arrive(1, x_at, x_value)
#endif
	:: quiet -> break
	od
}

/* page_retire; the fence of its batch comes later, but for the variant. */
inline retire(n)
{
	if
	:: d_state[n] == FULL ->
#ifdef FENCE_EARLY
		drain();
		d_state[n] = FENCED;
#else
		d_state[n] = RETIRING;
#endif
#ifndef NO_VERSION
		d_version[n]++;
#endif
		db!WORD((n) / 2, (n) % 2), NOT_READY
	:: else
	fi
}

/* place_alloc, the copy or read, page_publish. */
inline fill(n, p)
{
	taken[p] = true;
	bytes[p] = d_key[(n) / 2];
	d_place[n] = p;
	d_state[n] = FULL;
	db!WORD((n) / 2, (n) % 2), READY(p, d_version[n])
}

inline free_place(p)
{
	freed = leased_place(p);
	assert(!freed);
	taken[p] = false;
	bytes[p] = NOTHING
}

#define room(n) (len(db) + (n) <= D_STORES)
#define free_slot(s) (!d_in[s] && d_state[2 * (s)] == ABSENT && d_state[2 * (s) + 1] == ABSENT)

/* ---- relocation (evacuate.c) ----------------------------------------------------------------- */

#ifdef MOVES
#define NO_PAGE PAGES
byte moving = NO_PAGE; /* the page whose copy is under way: its block is held */
byte move_to;
bool copied;
bool evacuated;     /* slab A */
bool going[2], gone[2]; /* its units: to be punched; punched */

#define may_take(p) (!taken[p] && ((p) == OUTSIDE || !evacuated))
#define same_slab(p, q) (((p) == OUTSIDE) == ((q) == OUTSIDE))
#define held(s) (moving / 2 == (s))
#define movable(n, p) (moving == NO_PAGE && d_in[(n) / 2] && d_state[n] == FULL && \
		       may_take(p) && !same_slab(d_place[n], p))
#ifdef MOVE_EARLY
#define may_publish true
#else
#define may_publish copied
#endif

/* move: space_alloc_move, a copy job, block_hold. */
inline move_begin(n, p)
{
	moving = n;
	move_to = p;
	taken[p] = true
}

inline move_copy()
{
	bytes[move_to] = bytes[d_place[moving]];
	copied = true
}

/* retire_moved: the new place is published, the old one retired. */
inline move_publish(n)
{
#ifdef MOVE_FREED_AT_ONCE
	free_place(d_place[n]);
#elif defined(MOVE_UNFENCED)
	detached[d_place[n]] = FENCED;
#else
	detached[d_place[n]] = RETIRING;
#endif
#ifndef NO_VERSION
	d_version[n]++;
#endif
	d_place[n] = move_to;
	db!WORD((n) / 2, (n) % 2), READY(move_to, d_version[n])
}

/* moved, block_unhold: a block that was dropped meanwhile is retired now. */
inline move_end()
{
	if
#ifdef MOVE_UNHELD
	:: d_state[moving] == FULL -> move_publish(moving)
#else
	:: d_in[moving / 2] -> move_publish(moving)
#endif
	:: else ->
		taken[move_to] = false; /* no reader has seen it */
		bytes[move_to] = NOTHING;
#ifndef MOVE_UNHELD
		retire(moving)
#endif
	fi;
	moving = NO_PAGE;
	move_to = 0;
	copied = false
}

/* The walks are over: no page is READY in the slab. */
#define in_a(n) (d_state[n] == FULL && d_place[n] != OUTSIDE)
#define walked (evacuated && !in_a(0) && !in_a(1) && !in_a(2) && !in_a(3))
#ifdef PARK_QUARANTINED
#define kept(p) (taken[p] && detached[p] != QUARANTINED)
#else
#define kept(p) taken[p]
#endif
#ifdef PARK_BY_FIRST_UNIT
#define vacant(u) (!kept(u))
#else
#define vacant(u) (!kept(0) && ((u) == 0 || !kept(1)))
#endif

/* space_park_punched; when both units are gone the slab is anybody's. */
inline punch(u)
{
	freed = leased_place(0) || ((u) == 1 && leased_place(1));
	assert(!freed);
	bytes[0] = NOTHING;
	bytes[1] = ((u) == 1 -> NOTHING : bytes[1]);
	gone[u] = true;
	if
	:: gone[0] && gone[1] ->
		evacuated = false;
		going[0] = false;
		going[1] = false;
		gone[0] = false;
		gone[1] = false
	:: else
	fi
}
#else
#define held(s) false
#define may_take(p) (!taken[p])
#endif

/* block_new, the commit's copy, block_commit. */
inline put(s, p)
{
	keys++;
	d_gen[s]++;
	d_key[s] = keys;
	d_in[s] = true;
	db!GEN(s), d_gen[s];
	db!KEY(s), keys;
	fill(2 * s + CXL, p);
	db!STATE(s), COMMITTED
}

/* index_remove, block_retire. */
inline drop(s)
{
	d_in[s] = false;
	d_gen[s]++;
	db!STATE(s), 0;
	db!GEN(s), d_gen[s];
	if
#ifndef MOVE_UNHELD
	:: held(s) /* move_end retires it */
#endif
	:: else ->
		retire(2 * s + HBM);
		retire(2 * s + CXL)
	fi
}

inline each_page(from, to)
{
	n = 0;
	do
	:: n == PAGES -> break
	:: else ->
		if
		:: d_state[n] == from -> d_state[n] = to
		:: else
		fi;
#ifdef MOVES
		detached[n] = (detached[n] == from -> to : detached[n]); /* as many places as pages */
#endif
		n++
	od;
	n = 0
}

inline fence()
{
#ifndef NO_FENCE
	drain();
#endif
	each_page(RETIRING, FENCED)
}

/* core_scan: word after word; readers go on meanwhile. */
inline scan()
{
	r = 0;
	do
	:: r == READERS -> break
	:: r < READERS && heard[r] -> r++
	:: r < READERS && !heard[r] ->
		h = high_water[r];
#ifdef BELOW_HIGH_WATER
		h = (h > 0 -> h - 1 : 0);
#endif
		do
		:: h == 0 -> break
		:: else ->
			h--;
			if
			:: hazard[r * HAZARDS + h] > 0 ->
				seen = seen | (1 << (hazard[r * HAZARDS + h] - 1))
			:: else
			fi
		od;
		r++
	od;
	r = 0
}

#define due(n) (d_state[n] == FENCED)
#define due_detached(p) (detached[p] == FENCED || detached[p] == QUARANTINED)

inline release_detached()
{
	n = 0;
	do
	:: n == PLACES -> break
	:: n < PLACES && !due_detached(n) -> n++
	:: n < PLACES && due_detached(n) ->
		if
#ifdef NO_RESCAN
		:: detached[n] == QUARANTINED
#endif
		:: (seen >> n) & 1 -> detached[n] = QUARANTINED
		:: else -> detached[n] = 0; free_place(n)
		fi;
		n++
	od
}

/* reclaim_scanned: place_release or place_keep. Either way the page is absent. */
inline release()
{
	release_detached();
	n = 0;
	do
	:: n == PAGES -> break
	:: n < PAGES && !due(n) -> n++
	:: n < PAGES && due(n) ->
		if
		:: (seen >> d_place[n]) & 1 ->
#ifdef KEPT_PLACE_TAKEN
			taken[d_place[n]] = false;
#endif
			detached[d_place[n]] = QUARANTINED
		:: else -> free_place(d_place[n])
		fi;
		d_place[n] = 0;
		d_state[n] = ABSENT;
		n++
	od;
	seen = 0
}

#ifdef DEATH_BY_SOCKET
#define dead(r) true /* a socket may hang up at any time */
#elif defined(QUIET_IS_DEAD)
#define dead(r) (!owned[r] && hazard[r * HAZARDS] == 0 && hazard[r * HAZARDS + 1] == 0)
#else
#define dead(r) died[r]
#endif

inline hear(r)
{
#ifdef DEAF
	false
#else
	dead(r) && !heard[r] -> heard[r] = true
#endif
}

inline check_progress()
{
	n = 0;
	do
	:: n == PAGES -> break
	:: else ->
		stuck = due(n);
		assert(!stuck);
		n++
	od;
	n = 0;
	do
	:: n == PLACES -> break
	:: else ->
		stuck = due_detached(n) && !named_place(n);
		assert(!stuck);
		n++
	od;
	n = 0
}

#define may(needs) (ops > 0 && room(needs))
#define fillable(n, p) (d_in[(n) / 2] && d_state[n] == ABSENT && may_take(p))
#define leavable(n) (d_in[(n) / 2] && d_state[n] == FULL && !held((n) / 2))
#ifdef MOVES
#define a_detached(what) (detached[0] == what || detached[1] == what || detached[3] == what)
#define at_rest (moving == NO_PAGE)
#else
#define a_detached(what) (detached[0] == what || detached[1] == what || detached[2] == what)
#define at_rest true
#endif
#define any_page(what) (d_state[0] == what || d_state[1] == what || d_state[2] == what || \
			d_state[3] == what || a_detached(what))

active proctype daemon()
{
	byte ops = OPS;
	byte r, h, seen;

	d_step { put(0, 0); drain() }; /* something to begin with */
	atomic {
		run reader(0);
#if READERS > 1
		run reader(1);
#endif
	}
	do
	:: d_step { may(4) && free_slot(0) && may_take(0) -> ops--; put(0, 0) }
	:: d_step { may(4) && free_slot(0) && may_take(1) -> ops--; put(0, 1) }
	:: d_step { may(4) && free_slot(1) && may_take(0) -> ops--; put(1, 0) }
	:: d_step { may(4) && free_slot(1) && may_take(1) -> ops--; put(1, 1) }
	:: d_step { may(4) && d_in[0] -> ops--; drop(0) }
	:: d_step { may(4) && d_in[1] -> ops--; drop(1) }
	:: d_step { may(1) && leavable(0) -> ops--; retire(0) }
	:: d_step { may(1) && leavable(1) -> ops--; retire(1) }
	:: d_step { may(1) && leavable(2) -> ops--; retire(2) }
	:: d_step { may(1) && leavable(3) -> ops--; retire(3) }
#ifdef MOVES
	:: d_step { may(4) && free_slot(0) && may_take(3) -> ops--; put(0, 3) }
	:: d_step { may(4) && free_slot(1) && may_take(3) -> ops--; put(1, 3) }
	:: d_step { may(1) && fillable(1, 3) -> ops--; fill(1, 3) }
	:: d_step { may(1) && fillable(3, 3) -> ops--; fill(3, 3) }
	:: d_step { ops > 0 && movable(1, 0) -> ops--; move_begin(1, 0) }
	:: d_step { ops > 0 && movable(1, 1) -> ops--; move_begin(1, 1) }
	:: d_step { ops > 0 && movable(1, 3) -> ops--; move_begin(1, 3) }
	:: d_step { ops > 0 && movable(3, 0) -> ops--; move_begin(3, 0) }
	:: d_step { ops > 0 && movable(3, 1) -> ops--; move_begin(3, 1) }
	:: d_step { ops > 0 && movable(3, 3) -> ops--; move_begin(3, 3) }
	:: d_step { moving != NO_PAGE && !copied -> move_copy() }
	:: d_step { moving != NO_PAGE && may_publish && room(1) -> move_end() }
	:: d_step { ops > 0 && !evacuated -> ops--; evacuated = true }
	:: d_step { evacuated && !going[0] && !going[1] -> evacuated = false }
	:: d_step { walked && !going[0] && vacant(0) -> going[0] = true }
	:: d_step { walked && !going[1] && vacant(1) -> going[1] = true }
	:: d_step { going[0] && !gone[0] -> punch(0) }
	:: d_step { going[1] && !gone[1] -> punch(1) }
#else
	:: d_step { may(1) && fillable(0, 2) -> ops--; fill(0, 2) }
	:: d_step { may(1) && fillable(2, 2) -> ops--; fill(2, 2) }
#endif
	:: d_step { may(1) && fillable(1, 0) -> ops--; fill(1, 0) }
	:: d_step { may(1) && fillable(1, 1) -> ops--; fill(1, 1) }
	:: d_step { may(1) && fillable(3, 0) -> ops--; fill(3, 0) }
	:: d_step { may(1) && fillable(3, 1) -> ops--; fill(3, 1) }
	:: d_step { any_page(RETIRING) -> fence() }
	:: any_page(FENCED) || any_page(QUARANTINED) ->
#ifndef NO_SCAN
		scan();
#endif
		d_step { release() }
	:: d_step { hear(0) }
#if READERS > 1
	:: d_step { hear(1) }
#endif
	:: finished == READERS && quiet && at_rest -> break
	od;
	/* Whatever was going on is over: one more round. */
	r = 0;
	do
	:: r == READERS -> break
#ifndef DEAF
	:: r < READERS && died[r] -> heard[r] = true; r++
#else
	:: r < READERS && died[r] -> r++
#endif
	:: r < READERS && !died[r] -> r++
	od;
	skip;
	d_step { fence() };
	scan();
	d_step { release(); check_progress() }
}
