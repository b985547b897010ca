/*
 * Era leases: how kernels read pages in place (docs/cuda.md). A captured graph chooses pages while
 * it runs, so nobody can name them in hazard words before. A reader has two words in their place:
 * the client stores begin + 1 before each launch, the graph's last node adds one to done. The
 * daemon unpublishes a word, fences, takes a snapshot of begin, and waits until done has reached it
 * or the process is dead. Stores of the client and of the daemon go through store buffers
 * (x86-TSO); those of the device are for the whole system. lease.pml is the same for processors.
 *
 * The world: one page, two places. The daemon does OPS times: retire the page, wait, give its place
 * to another key, publish that in either place. The client launches STEPS graphs, each of which
 * reads the word and then, twice, what lies there; a launch may fail, the client may die at any
 * moment, and what it has launched goes on. Kernels cannot write what is shared.
 *
 *   wrong   a living client's kernel reads bytes that are not of the key its word named;
 *   stuck   the daemon waits, and nobody is left who could end that.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef OPS
#define OPS 2
#endif
#ifndef STEPS
#define STEPS 2
#endif

#define FREE 0
#define READY(place, key) (1 + (place) + 2 * (key))
#define PLACE(word) (((word) - 1) % 2)
#define KEY(word) (((word) - 1) / 2)

byte word = READY(0, 1);
byte bytes[2]; /* key of what lies in a place; first: 1 in both */
byte era_begin, era_done;

bool died, heard;     /* the process; the daemon of it */
bool closed;          /* the client launches no more */
byte busy;            /* kernels under way */
bool wrong, stuck;

chan queue = [STEPS] of { byte }; /* launches */
chan sb = [2] of { byte };        /* the client's stores of era_begin */
chan db = [2] of { byte };        /* the daemon's of the word */

active proctype machine()
{
	byte value;

end:	do
	:: d_step { sb?value -> era_begin = value; value = 0 }
	:: d_step { db?value -> word = value; value = 0 }
	od
}

inline announce()
{
	sb!era;
#ifndef NO_DRAIN
	empty(sb); /* the doorbell does, or a fence */
#endif
}

active proctype client()
{
	byte era, left = STEPS;
	bool owed; /* a launch failed: its era is the next one's */

	do
	:: left == 0 -> break
	:: died -> break
	:: left > 0 && !died ->
		left--;
		era = (owed -> era : era + 1);
#ifdef LAUNCH_FIRST
		queue!era;
		announce()
#else
		if
		:: !owed -> announce()
		:: else
		fi;
		if
		:: queue!era; owed = false
		:: owed = true
		fi
#endif
	od;
	/* Close: the stream has come to its end, so that nothing else writes era_done. */
	if
#ifndef NO_CLOSE
	:: !died && empty(queue) && busy == 0 -> era_done = era
#else
	:: !died
#endif
	:: died
	fi;
	closed = true
}

active proctype death()
{
	if
	:: died = true
	:: closed
	fi
}

inline look()
{
	atomic {
		wrong = !died && bytes[PLACE(w)] != KEY(w);
		assert(!wrong)
	}
}

/* A stream's launches end in order. */
proctype device()
{
	byte era, w;

end:	do
	:: atomic { queue?era -> busy++ };
#ifdef DONE_FIRST
		era_done++;
#endif
		w = word;
		if
		:: w != FREE ->
			look();
			look()
		:: else
		fi;
		atomic {
#ifndef DONE_FIRST
			era_done++;
#endif
			busy--;
			w = 0;
			era = 0
		}
	od
}

inline drain(c, at)
{
	do
	:: nempty(c) -> c?value; at = value
	:: empty(c) -> break
	od;
	value = 0
}

inline fence()
{
#ifdef NO_FENCE
	skip
#else
	d_step {
		drain(db, word);
#ifndef OWN_FENCE
		drain(sb, era_begin)
#endif
	}
#endif
}

#define over (closed && empty(queue) && busy == 0 && empty(sb))

active proctype daemon()
{
	byte ops = OPS, key = 1, old, at, snapshot, value;

	d_step { bytes[0] = 1; bytes[1] = 1 };
	atomic {
		run device();
#ifdef SHARED_BY_STREAMS
		run device();
#endif
	}
	do
	:: ops == 0 -> break
	:: else ->
		ops--;
		old = at;
#ifdef FENCE_EARLY
		fence();
		db!FREE;
#else
		db!FREE;
		fence();
#endif
#ifdef SNAPSHOT_OF_DONE
		snapshot = era_done;
#else
		snapshot = era_begin;
#endif
#ifndef NO_WAIT
		do
		:: era_done >= snapshot -> break
		:: heard -> break
#ifndef DEAF
		:: died -> heard = true
#endif
#ifdef DEATH_BY_SOCKET
		:: heard = true
#endif
#ifdef DEAF
		:: atomic { over && era_done < snapshot ->
#else
		:: atomic { over && era_done < snapshot && !died ->
#endif
			stuck = true;
			assert(!stuck)
		   }
		od;
#endif
		key++;
		bytes[old] = key; /* another page's now */
		if
		:: at = old
		:: at = 1 - old; bytes[at] = key
		fi;
		db!READY(at, key)
	od
}
