/*
 * A CXL pool (tierd/net/pool.h, X1-X5): a holder, the next owner of its extent, and a reader, each
 * with a cache over one place of LINES lines, which no hardware keeps coherent. A cache writes a
 * stored line back whenever it likes, and loads any line whenever it likes, as prefetchers do; a
 * line that was loaded and not stored to is dropped, never written back. Messages arrive in order,
 * whenever they like. The first owner's lease may be over at any moment, and so may a grant, by the
 * reader's clock before the holder's. There is no CRC here: it only makes a miss of what is wrong.
 *
 *   wrong   the reader publishes a frame of which a line is not what its holder stored;
 *   early   a place is stored to while a grant about it is not over for its reader.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LINES
#define LINES 1
#endif
#ifndef FRAMES
#define FRAMES 2 /* of each owner */
#endif
#define READER 2 /* 0 holds the extent, 1 comes after it */

typedef cached {
	bool there[LINES], stored[LINES];
	byte is[LINES]
};
byte memory[LINES];  /* a frame is its number, the same in each of its lines */
cached cache[3];
bool leased = true;  /* of owner 0, by its own clock */
bool storing;        /* owner 0 has begun to store, under its lease, and has not flushed all */
byte granted[2];     /* an owner's frame whose grant is not over for its reader; 0 = none */
bool wrong, early;

chan told[2] = [1] of { byte };   /* AT */
chan copied[2] = [1] of { byte }; /* COPIED */
chan word[2] = [1] of { bool };   /* WHOLE: it was kept */

inline out_of(h, l)
{
	if
	:: cache[h].stored[l] -> memory[l] = cache[h].is[l]
	:: else
	fi;
	cache[h].there[l] = false;
	cache[h].stored[l] = false;
	cache[h].is[l] = 0
}

inline into(h, l)
{
	if
	:: !cache[h].there[l] ->
		cache[h].there[l] = true;
		cache[h].is[l] = memory[l]
	:: else
	fi
}

/* What happens by itself. */
active proctype machine()
{
	byte h, l;

end:	do
	:: d_step {
		h < 2 -> h++
	}
	:: d_step {
		h == 2 -> h = 0;
		l = (l + 1) % LINES
	}
	:: d_step { cache[h].there[l] -> out_of(h, l) }
	:: d_step { !cache[h].there[l] -> into(h, l) }
	:: d_step { granted[0] -> granted[0] = 0 }
	:: d_step { granted[1] -> granted[1] = 0 }
	:: d_step { leased -> leased = false }
	od
}

inline store()
{
	l = 0;
	do
	:: d_step {
		l < LINES ->
		early = early || granted[0] || granted[1];
		cache[me].there[l] = true;
		cache[me].stored[l] = true;
		cache[me].is[l] = f;
		l++
	}
	:: l == LINES -> break
	od
}

inline flush()
{
	l = 0;
	do
#ifdef NO_FLUSH
	:: l < LINES -> l++
#else
	:: d_step {
		l < LINES ->
		out_of(me, l);
		l++
	}
#endif
	:: l == LINES -> break
	od
}

proctype owner(byte me)
{
	byte f, l, x, out;
	bool busy; /* the place: told of, neither copied nor lapsed */

#ifndef TAKEN_EARLY
	/* X2: what was begun there is done, and all grants are over. */
	(me == 0 || (!leased && !storing && !granted[0]));
#else
	(me == 0 || !leased);
#endif
	f = me * FRAMES + 1;
	do
#ifdef STORED_WITHOUT_LEASE
	:: f <= (me + 1) * FRAMES && !busy ->
#else
	:: atomic {
		f <= (me + 1) * FRAMES && !busy && (me == 1 || leased) ->
		storing = (me == 0)
	}
#endif
		store();
#ifndef TOLD_BEFORE_FLUSH
		flush();
#endif
		atomic {
			if
			:: me == 1 || leased ->
				granted[me] = f;
				told[me]!f;
				out++;
#ifndef REUSED_AT_ONCE
				busy = true
#endif
			:: else
			fi
		}
#ifdef TOLD_BEFORE_FLUSH
		flush();
		skip;
#endif
		d_step {
			storing = storing && me != 0;
			f++
		}
#ifdef NO_MARGIN
	:: busy -> busy = false
#else
	:: atomic { busy && !granted[me] -> busy = false } /* lapsed, a margin later */
#endif
	:: atomic {
		copied[me]?x ->
		out--;
		if
#ifdef LOST_IS_KEPT
		:: x == f - 1 && busy -> word[me]!true
#else
		:: x == f - 1 && busy && (me == 1 || leased) -> word[me]!true
#endif
#ifdef LAPSED_IS_KEPT
		:: else -> word[me]!(me == 1 || leased)
#else
		:: else -> word[me]!false
#endif
		fi;
		busy = busy && x != f - 1
	}
	:: out == 0 && !busy && (f > (me + 1) * FRAMES || (me == 0 && !leased)) -> break
	od
}

inline drop()
{
	l = 0;
	do
#ifdef NO_DROP
	:: l < LINES -> l++
#else
	:: d_step {
		l < LINES ->
		out_of(READER, l);
		l++
	}
#endif
	:: l == LINES -> break
	od
}

active proctype reader()
{
	byte l, f, o;
	byte got[LINES];
	bool kept;

end:	do
	:: true ->
#ifdef DROPPED_BEFORE_TOLD
		drop();
#endif
end_told:	if
		:: told[0]?f -> o = 0
		:: told[1]?f -> o = 1
		fi;
#ifndef DROPPED_BEFORE_TOLD
		drop();
#endif
		l = 0;
		do
		:: d_step {
			l < LINES ->
			into(READER, l);
			got[l] = cache[READER].is[l];
			l++
		}
		:: l == LINES -> break
		od;
		atomic {
			copied[o]!f;
			if
			:: granted[o] == f -> granted[o] = 0
			:: else
			fi
		}
		word[o]?kept;
#ifdef NOT_ASKED
		kept = true;
#endif
		d_step {
			for (l : 0 .. LINES - 1) {
				wrong = wrong || (kept && got[l] != f);
				got[l] = 0
			}
			l = 0; f = 0; o = 0; kept = false
		}
	od
}

active proctype watch()
{
end:	if
	:: wrong -> assert(!wrong)
	:: early -> assert(!early)
	fi
}

init {
	run owner(0);
	run owner(1)
}
