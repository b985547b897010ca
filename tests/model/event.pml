/*
 * The caller's event descriptor (tier_event_fd, libtier/src/wait.c). The caller sleeps in its own
 * loop on a descriptor that watches two eventfds: `event`, which the daemon signals when cq_wait
 * asks for it, and `notify`, by which another thread of the library says that it collected what is
 * the caller's. Such a thread waits for the layer of a stream, and sleeps on `event` as well. Stores
 * of either side that the other reads go through a store buffer (x86-TSO); eventfds are the
 * kernel's. A poll may take all there is or one answer (MAX).
 *
 *   asleep  nobody can move any more, and the caller lacks an answer, or the thread its layer,
 *           though both were sent.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ANSWERS
#define ANSWERS 2
#endif
#ifndef MAX
#define MAX ANSWERS
#endif

byte cq_tail;               /* the daemon's, */
bool layer;                 /* ... and that the layer is there */
bool cq_wait;               /* the library's: wake me when there is an answer, */
bool want;                  /* ... when the layer is there (abi_stream.wait) */
bool event, notify, wake;   /* eventfds; wake: of the thread that waits */
byte taken, done;           /* under the lock: read from the ring, not given to the caller yet */
bool notified;              /* ... notify is signalled */
bool polling;               /* ... a thread sleeps on `event` */
bool lock;
byte given;                 /* to the caller */
bool waiter_over, asleep;

chan lb = [2] of { bool }; /* the library's stores of cq_wait */
chan db = [2] of { byte }; /* the daemon's of cq_tail */

active proctype machine()
{
	byte value;
	bool on;

end:	do
	:: d_step { lb?on -> cq_wait = on; on = false }
	:: d_step { db?value -> cq_tail = value; value = 0 }
	od
}

inline acquire()
{
	atomic { !lock -> lock = true }
}

inline ask()
{
	lb!true;
#ifndef ASK_UNFENCED
	empty(lb)
#endif
}

/* submit_collect, with the lock. */
inline collect()
{
	d_step {
		if
		:: cq_tail != taken ->
			done = done + (cq_tail - taken);
			taken = cq_tail;
			wake = wake || polling;
#ifndef NOT_NOTIFIED
			notify = notify || !notified;
#endif
			notified = true
		:: else
		fi
	}
}

inline give()
{
	d_step {
		n = (done < MAX - n -> done : MAX - n);
		given = given + n;
		done = done - n
	}
}

active proctype daemon()
{
	byte sent;
	bool told;

	do
	:: sent < ANSWERS ->
		sent++;
		db!sent;
#ifndef POST_UNFENCED
		empty(db);
#endif
		if
		:: cq_wait -> event = true
		:: !cq_wait
		fi
	:: !told ->
		told = true;
		layer = true;
		if
		:: want -> event = true /* whatever cq_wait says */
		:: !want
		fi
	:: sent == ANSWERS && told -> break
	od
}

active proctype caller()
{
	byte n;
	bool had;

	acquire(); /* tier_event_fd */
#ifdef LOOK_BEFORE_WISH
	collect();
	ask();
#else
	ask();
	collect();
#endif
	lock = false;
	do
	:: given == ANSWERS -> break
	:: given < ANSWERS && (event || notify) -> /* tier_poll: take_now */
		acquire();
		n = 0;
		collect();
		give();
		if
		:: n == MAX /* it comes back, for its descriptor is ready still */
		:: n < MAX -> /* quiet_event */
			had = event;
			if
			:: notify -> notify = false
			:: else
			fi;
			if
			:: had -> event = false
			:: else
			fi;
#ifndef NOT_PASSED_ON
			wake = wake || (had && polling);
#endif
			notified = false;
			ask();
#ifndef NO_LAST_LOOK
			collect();
#endif
			give()
		fi;
#ifdef CLEARED_AFTER_LOOK
		event = false;
#endif
		n = 0;
		had = false;
		lock = false
	od
}

/* tier_stream_wait in another thread: wait_step, poll_for_all. */
active proctype waiter()
{
	bool there;
	byte head;

#ifndef LAYER_NOT_WANTED
	want = true;
#endif
	there = layer;
	do
	:: there -> break
	:: !there ->
		acquire();
		collect();
		head = taken;
		polling = true;
		lock = false;
		ask();
		if
		:: cq_tail != head || layer
		:: else ->
			event || wake;
			event = false;
			wake = false
		fi;
		head = 0;
		acquire();
		polling = false;
#ifdef WITHDRAWN
		lb!false;
#else
		ask();
#endif
#ifndef CLEARED_AND_LEFT
		collect();
#endif
		there = layer;
		lock = false
	od;
	waiter_over = true
}

active proctype watch()
{
	timeout;
	asleep = given < ANSWERS || !waiter_over;
	assert(!asleep)
}
