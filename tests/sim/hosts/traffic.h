/* SPDX-License-Identifier: Apache-2.0 */
/* What traffic.c and pool.c share: a message on its way, and the pool's part of a grant. */
#ifndef TESTS_SIM_HOSTS_TRAFFIC_H
#define TESTS_SIM_HOSTS_TRAFFIC_H

#include "tests/sim/hosts/fleet.h"

#define FRAME_PAGES (LENGTH * BLOCK_PAGES)

struct packet {
	bool back; /* to the requester */
	uint64_t made[FRAME_PAGES]; /* of each page's block: for judge.c alone */
	uint32_t bytes;
	union {
		struct net_header header;
		struct net_hello hello;
		struct net_ask ask;
		struct net_grant grant;
		struct net_pages pages;
		struct net_at at; /* with its pages, which are for the judge alone */
		struct net_places places; /* likewise */
		struct net_word word;
		struct net_pick pick;
		struct net_picked picked;
		uint8_t byte[1024];
	} m;
};

/* traffic.c */
/* A connection, and its HELLO, for so long: its clock's. It is over: an error is the peer's. */
void traffic_job(struct fleet *f, struct host *h, struct job *j, uint32_t to, uint64_t wait);
void traffic_job_end(struct fleet *f, struct host *h, struct job *j, int error);
/* One of those that may be asked; -1: there is none. Mostly of what it has more than we have. */
int traffic_whom(struct fleet *f, struct host *h);
void traffic_what(struct fleet *f, const struct host *h, const struct host *of, uint32_t *c,
		  uint32_t *prefix);
void traffic_word(struct fleet *f, struct link *l, const void *m, uint32_t bytes, bool back);
void traffic_transmit(struct fleet *f, struct link *l, struct packet *p);
/* A frame went: the next one, or the last word. */
void traffic_sent(struct fleet *f, struct host *h, struct link *l, uint32_t serving);
/* A frame was copied from the pool, and is as if it had come by the socket. */
void traffic_loaded(struct fleet *f, struct host *h, struct link *l, const struct packet *p);

/* The last word of a grant, where it is due. */
void traffic_last_word(struct fleet *f, struct host *h, struct link *l, struct serving *s);
/* A frame was read by RDMA (NULL: it could not be), and its holder is told so. */
void traffic_read(struct fleet *f, struct host *h, struct link *l, const struct net_word *said,
		  const struct packet *p);
/* A message that begins as PAGES does and has its CRCs at `crcs`: as if it had come so. */
void packet_as_pages(struct packet *p, size_t crcs, const uint8_t *bytes, uint32_t count);

/* rdma.c: must the next frame wait for a place? Does it lie there to be read? Does one of a grant?
 * READ; the grant is over; and what a requester was told of. */
bool rdma_waits(const struct link *l);
bool rdma_frame_begins(struct fleet *f, struct host *h, struct link *l, uint32_t serving,
		       const struct packet *p);
bool rdma_lies(const struct link *l, uint64_t id);
void rdma_read(struct fleet *f, struct host *h, struct link *l, const struct net_word *m);
void rdma_grant_over(struct fleet *f, struct host *h, struct link *l);
int rdma_told_of(struct fleet *f, struct host *h, struct link *l, const struct job *j,
		 const struct pull *pull, const struct packet *p);

/* keep.c: who picks was met; its next message; does it wait for nothing? A KEEP or a PICK. */
void keep_greeted(struct fleet *f, struct host *h);
int keep_take(struct fleet *f, struct host *h, const struct packet *p);
bool keep_idle(const struct host *h, const struct job *j);
void keep_asked(struct fleet *f, struct host *h, struct link *l, const struct packet *p);

/* pool.c: does the frame go by the pool? And what a requester was told of. */
bool pool_frame_begins(struct fleet *f, struct host *h, struct link *l, uint32_t serving,
		       const struct packet *p);
int pool_told_of(struct fleet *f, struct host *h, struct link *l, const struct pull *pull,
		 const struct packet *p);

#endif
