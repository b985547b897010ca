/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fleet of hosts in one process, made by a seed: the real protocol (tierd/net/proto*.c) of each,
 * a model of its tierd, of etcd, and of what is between them.
 *
 * Faults. The network delays, loses, repeats, reorders and cuts, each way by itself; bytes of pages
 * are damaged, or are another page's with that one's CRC. A call to etcd that nobody answered can
 * be done seconds later, or twice. etcd stops; its clock and the hosts' run up to 1% fast or slow.
 * Hosts stop and go on, die, come back with their store, with none, or with a copy of long ago; a
 * tierd starts anew under a grant, whose pages then come from memory that nobody keeps any more.
 *
 * Checked, after each event:
 *  R1  what is published is its generator's bytes
 *  R4  a pull ends by its deadline; who failed is not asked before a look has met it; of a life
 *      that etcd says was replaced nothing is taken
 *  R5  an epoch that was acknowledged: no member with a lease has a lower one. A deletion that was:
 *      no member with a lease has what was deleted; and who has done it never has it again
 *  R6  nothing strict is published when the lease is over
 *  X1 to X4  of a CXL pool (--pool): who stores into an extent is its owner, by etcd; what a reader
 *      loads is what was stored; until a reader's grant is over or it has copied, the place is
 *      kept, and nobody else may store there (X2)
 *  W1, N5  of RDMA (--rdma): nothing is read from memory that was given back; a frame lies where it
 *      was told of until its READ
 *  R7  a layer that is announced has come, of an epoch and deletions that stand at that moment, in
 *      time; its bytes are those that are published, if they are
 *  R8  a page that is read under a standing grant (--keep) is its generator's bytes, of an epoch
 *      and deletions that stand at that moment, and the grant is not over, by its holder's clock
 *      either
 *  and at last, when all is well again: the epochs are one, a raise is acknowledged, blocks are
 *  found, and the home of each anchor names who holds it (K1), or had no room for all and names
 *  others (K3); and host 0, a memory box, has what the others have (B1). Until then homes lie at
 *  times: that costs misses (R2), and R1 holds.
 */
#ifndef TESTS_SIM_HOSTS_FLEET_H
#define TESTS_SIM_HOSTS_FLEET_H

#include <stdio.h>

#include "tierd/net/agree.h"
#include "tierd/net/box.h"
#include "tierd/net/homes.h"
#include "tierd/net/keep.h"
#include "tierd/net/pool.h"

#define US 1000ull
#define MS (1000 * US)
#define SECOND (1000 * MS)

#define HOSTS_MAX 8u
#define CONTEXTS 2u /* the second one is strict */
#define PREFIXES 3u
#define LENGTH 4u /* blocks of a prefix */
#define KEYS (PREFIXES * LENGTH)
#define BLOCK_BYTES 80u
#define BLOCK_PAGES 3u
#define JOBS 2u
#define DELETIONS_MAX 256u
#define MOVES_MAX 4000u
#define LEASE_NS (2 * SECOND)
#define CALL_NS (1 * SECOND)
#define HOME_ROOM 1024u
#define SAYS_BYTES 512u
#define POOL_EXTENTS 12u
#define POOL_EXTENT_BYTES 256u
#define POOL_PLACE_BYTES 128u /* a frame is 80 at most */
#define POOL_LINES (POOL_EXTENTS * POOL_EXTENT_BYTES / POOL_LINE)
#define POOL_TOLD 256u
#define LINK_WAITS 16u
#define LENT_TOLD (HOSTS_MAX * HOSTS_MAX)

struct block {
	bool there;
	uint64_t epoch;
	uint64_t made; /* counted in the fleet: when it was first put */
	uint64_t slot; /* tells it from the next one in its place */
	uint8_t bytes[BLOCK_BYTES];
};

struct store {
	uint64_t epoch[CONTEXTS];
	struct block block[CONTEXTS][KEYS];
};

/* ---- a connection: requester to holder ------------------------------------------------------- */

struct serving {
	struct serve serve;
	uint32_t context, key[LENGTH];
	uint64_t slot[LENGTH], tierd;
	uint64_t in_pool; /* its number there */
	bool failed;      /* END is due when nothing lies to be read */
};

struct link {
	struct link *next; /* of all */
	uint32_t from, to;
	uint64_t from_life, to_life;
	uint64_t last_ns[2]; /* when the last message each way arrives */
	bool closed;         /* by the requester */
	bool gone;           /* by the holder */
	bool welcome;
	bool told; /* a HOLD was taken */
	bool pool; /* so the requester said */
	bool reading; /* from the pool, or by RDMA: what comes meanwhile waits */
	struct lent *lent; /* rdma.c; NULL: nothing was, so far */
	struct packet *waits[LINK_WAITS];
	uint32_t waiting;
	struct serving serving[NET_GRANTS_MAX];
	struct kept kept; /* keep.c: a standing grant, by its holder, and its blocks */
	uint32_t kept_context, kept_key[LENGTH];
	uint64_t kept_slot[LENGTH], kept_tierd;
	uint64_t kept_until_ns; /* counted apart, by the holder's clock */
};

struct part {
	struct pull pull;
	uint32_t first;
	bool begun;
	uint64_t put_epoch; /* of the put's beginning, as tierd takes it */
	uint64_t made[LENGTH];
	uint8_t bytes[LENGTH][BLOCK_BYTES];
	uint32_t came; /* pages; counted apart from the cursor */
	uint32_t layers; /* announced, and what was read of them then */
	uint8_t read[LENGTH][BLOCK_BYTES];
};

/* A pull of a prefix; a look, which ends with HELLO; or a word to a home, which HELD answers. */
struct job {
	bool busy, look;
	uint32_t says_bytes;
	uint8_t says[SAYS_BYTES];
	struct link *link;
	uint32_t context, prefix, next, end;
	uint64_t epoch, deleted, deadline_ns, id, era;
	struct part part[NET_GRANTS_MAX];
};

/* A standing grant, by who reads pages under it. */
struct picking {
	struct job job;
	struct keep keep;
	uint32_t left;
	uint64_t until_ns; /* of the grant, counted apart */
	struct net_picked_page got[NET_FRAME_PAGES_MAX];
	uint64_t made[NET_FRAME_PAGES_MAX];
	uint8_t bytes[NET_FRAME_PAGES_MAX][BLOCK_BYTES / 2];
};

/* ---- a CXL pool ------------------------------------------------------------------------------ */

struct cached_line {
	bool there, stored, late;
	uint8_t bytes[POOL_LINE];
};

/* A frame that a requester was told of. */
struct pool_told {
	const struct link *link;
	uint32_t reader, holder;
	uint64_t life, holder_life, id, offset, ends_ns; /* by the reader's clock */
	bool copied;
};

struct pool_world {
	struct {
		bool late;
		uint8_t bytes[POOL_LINE];
	} line[POOL_LINES];
	struct pool_told told[POOL_TOLD]; /* tolds of them */
	uint32_t tolds;
	struct pool_record record[POOL_EXTENTS]; /* etcd's; mod 0: none */
};

/* ---- who calls etcd ------------------------------------------------------------------------ */

struct caller {
	bool busy;
	uint64_t call; /* the one that is waited for */
	struct agree_call what;
};

struct host {
	uint32_t place;
	bool up;
	uint64_t life, stopped_ns;
	double rate;
	uint64_t offset;
	struct store store, copy; /* copy: of some time ago */
	uint64_t tierd;           /* which life of it */
	struct agree agree;
	struct agreed agreed[CONTEXTS];
	bool shares[CONTEXTS];
	uint64_t era[CONTEXTS]; /* how often it was shared, or ended to be */
	uint32_t publishing[CONTEXTS];
	struct peers peers;
	bool failed[HOSTS_MAX]; /* since a look met it */
	uint64_t lease;
	struct caller turn, client;
	uint32_t log[AGREE_LOG_PART]; /* what LOG read */
	uint32_t logged;
	struct agree_raise raise;
	uint32_t raise_context, raise_prefix, raise_from;
	uint64_t raise_until_ns, raise_made;
	struct job job[JOBS + HOSTS_MAX], tells[HOSTS_MAX], finds;
	struct picking picking;
	struct box box; /* of host 0 alone */
	struct job offers;
	bool offered[CONTEXTS][KEYS]; /* to it, since it was put */
	struct homes homes;
	struct homes_slot slot[HOME_ROOM + HOMES_WINDOW];
	bool forgot; /* as a home: a holder, where there was no room */
	struct homes_view view;
	bool told[CONTEXTS][KEYS];
	uint64_t told_epoch[CONTEXTS];
	struct pool pool;
	struct pool_extent extent[POOL_EXTENTS];
	struct cached_line cache[POOL_LINES];
	bool pool_told; /* etcd told it whose the extents are */
	uint64_t cut_ns[HOSTS_MAX], cut_etcd_ns; /* until then, what we send there is lost */
};

struct deletion {
	bool there, acknowledged;
	uint32_t prefix, from; /* its blocks from there on */
	uint64_t made;         /* what was put up to then has to go */
};

struct etcd_record {
	bool there;
	uint64_t epoch, deleted, first, lease, life;
	int64_t mod;
};

struct etcd {
	uint64_t down_ns; /* until then */
	double rate;
	int64_t revision;
	uint64_t leases, until_ns[4096];
	struct etcd_record context[CONTEXTS], applied[CONTEXTS][HOSTS_MAX], member[HOSTS_MAX];
	struct deletion deletion[CONTEXTS][DELETIONS_MAX]; /* by number */
	uint64_t deletions[CONTEXTS]; /* none has a higher number */
};

enum event_kind {
	EV_TURN, EV_LOOKS, EV_PULL, EV_ETCD, EV_ANSWER, EV_UNANSWERED, EV_LOCAL, EV_AGAIN,
	EV_MESSAGE, EV_SEND, EV_COMMIT, EV_LATE, EV_MOVE, EV_END, EV_POOL, EV_RDMA,
	EV_PICK, EV_PICKED,
};

struct event {
	uint64_t at_ns, order;
	enum event_kind kind;
	uint32_t host;
	uint64_t life; /* of the host; 0 = any */
	uint64_t call;
	struct caller *caller;
	struct link *link;
	struct job *job;
	struct part *part;
	void *data; /* freed with the event */
};

struct faults {
	uint32_t hosts;
	uint32_t lost_ppm, twice_ppm, order_ppm, slow_ppm, damaged_ppm;
	bool pool, rdma, keep;
	uint32_t work_us; /* what a tierd takes for a frame or a put, at most */
};

struct fleet_result {
	uint64_t events, pulls, blocks, layers, raises, deletions, turns, pooled, read, picked,
		move;
	char failure[256];
};

struct fleet {
	struct faults faults;
	uint64_t raised; /* epochs of one host alone */
	uint64_t random, now_ns, orders, calls, lives, made, slots;
	bool quiet; /* no faults any more */
	bool still; /* nothing new is asked for, so that all can have been told */
	bool trace;
	uint32_t hosts;
	struct host host[HOSTS_MAX];
	struct etcd etcd;
	struct pool_world pool;
	uint64_t acknowledged[CONTEXTS];
	struct link *links;
	struct link *lent[LENT_TOLD]; /* the last of each pair of hosts */
	struct event **heap;
	uint32_t events, room;
	const uint64_t *move; /* seeds */
	uint32_t moves;
	struct fleet_result *result;
};

extern const struct shape fleet_shape;

#define FAIL(f, ...)                                                                          \
	do {                                                                                  \
		if (!(f)->result->failure[0])                                                 \
			snprintf((f)->result->failure, sizeof((f)->result->failure), __VA_ARGS__); \
	} while (0)
#define TRACE(f, ...)                                                                         \
	do {                                                                                  \
		if ((f)->trace) {                                                             \
			printf("%10.3f ", (double)(f)->now_ns / 1e6);                         \
			printf(__VA_ARGS__);                                                  \
			printf("\n");                                                         \
		}                                                                             \
	} while (0)

/* fleet.c */
uint64_t fleet_random(struct fleet *f);
uint32_t fleet_below(struct fleet *f, uint32_t n);
bool fleet_chance(struct fleet *f, uint32_t ppm);
uint64_t fleet_clock(const struct fleet *f, const struct host *h); /* the host's own */
/* After so long; kind and the rest are the caller's to fill. */
struct event *fleet_after(struct fleet *f, uint64_t wait_ns, enum event_kind kind,
			  const struct host *h);
int fleet_run(const uint64_t *moves, uint32_t n, const struct faults *faults, bool trace,
	      uint64_t seed, struct fleet_result *r);

/* member.c: a host's turns, its client's raises, its life */
void member_start(struct fleet *f, struct host *h);
void member_turn(struct fleet *f, struct host *h);
void member_raise(struct fleet *f, struct host *h, uint32_t context, bool deletion);
void member_answered(struct fleet *f, struct host *h, struct caller *c,
		     const struct agree_answer *a);
void member_local(struct fleet *f, struct host *h);
/* The next call of one; or it is over. */
void member_go_on(struct fleet *f, struct host *h, struct caller *c);
void member_refresh(struct host *h);

/* registry.c: etcd */
struct reply {
	struct agree_answer answer;
	struct agree_record record[HOSTS_MAX];
	struct peer member[HOSTS_MAX]; /* MEMBERS */
	uint32_t members, log[AGREE_LOG_PART];
	struct pool_seen seen;
	struct pool_record pool_record[POOL_EXTENTS];
	struct pool_member pool_member[HOSTS_MAX];
};
void registry_take(struct fleet *f, struct event *e);
void registry_ask(struct fleet *f, struct host *h, struct caller *c);
void registry_answer(struct fleet *f, struct event *e);

/* traffic.c: pulls, looks and grants */
void traffic_pull(struct fleet *f, struct host *h);
void traffic_looks(struct fleet *f, struct host *h);
void traffic_message(struct fleet *f, struct event *e);
void traffic_send(struct fleet *f, struct event *e);
void traffic_commit(struct fleet *f, struct event *e);
void traffic_late(struct fleet *f, struct event *e);

/* A job that says one message, once it is met. */
void traffic_say(struct fleet *f, struct host *h, struct job *j, uint32_t to, const void *m,
		 uint32_t bytes);
/* A pull of a prefix from there. */
void traffic_pull_from(struct fleet *f, struct host *h, uint32_t to, uint32_t c, uint32_t prefix);

/* homes.c: homes are told, asked, and judged */
void homes_start(struct host *h);
void homes_tell(struct fleet *f, struct host *h);
void homes_find_some(struct fleet *f, struct host *h);
/* At a home: the answer's bytes. At who asked: the answer. */
uint32_t homes_reply(struct fleet *f, struct host *h, uint32_t from, const void *m, void *out);
void homes_replied(struct fleet *f, struct host *h, const struct job *j, const struct net_held *m);
void homes_judge(struct fleet *f);

/* box.c: offers, what becomes of them, and whether they did */
void box_offers(struct fleet *f, struct host *h);
void box_turn(struct fleet *f, struct host *h);
uint32_t box_reply(struct fleet *f, struct host *h, uint32_t from, const void *m, void *out);
void box_judge(struct fleet *f);

/* pool.c: a CXL pool */
void pool_start(struct fleet *f, struct host *h);
void pool_event(struct fleet *f, struct event *e);
void pool_judge_all(struct fleet *f);
void pool_execute(struct fleet *f, const struct host *h, const struct agree_call *c,
		  struct reply *out);

/* rdma.c: memory that devices of others read */
void rdma_event(struct fleet *f, struct event *e);

/* keep.c: standing grants */
void keep_some(struct fleet *f, struct host *h);
void keep_pick_event(struct fleet *f, struct event *e);
void keep_picked_event(struct fleet *f, struct event *e);

/* judge.c */
void judge_bytes(struct fleet *f, const struct host *h, uint32_t context, uint32_t key,
		 const struct block *b);
void judge_all(struct fleet *f);
void judge_end(struct fleet *f);
void fleet_bytes(uint32_t context, uint32_t key, uint64_t epoch, uint8_t bytes[BLOCK_BYTES]);
void fleet_key(uint32_t context, uint32_t key, uint8_t out[NET_KEY_BYTES]);
void fleet_digest(uint32_t context, uint8_t out[32]);
uint32_t fleet_context(const uint8_t digest[32]); /* CONTEXTS: there is none */
void fleet_put(struct fleet *f, struct host *h, uint32_t context, uint32_t key);
/* tierd's: how many of a prefix from `first` on are there, in the context's epoch. */
uint32_t fleet_match(const struct host *h, uint32_t context, uint32_t prefix, uint32_t first);

/* moves.c: what befalls the fleet */
void moves_do(struct fleet *f, uint64_t seed);
void moves_heal(struct fleet *f);
void moves_last(struct fleet *f, uint64_t which);

#endif
