/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host that reads by RDMA what it may, and tries what it may not, with queue pairs of its own:
 *
 *   rdma ADDRESS HOLDER SELF CERTIFICATES DIGEST PID EVICT
 *
 * Of the holder's context kv (DIGEST) it is granted the prompts 1 and 2, whose blocks EVICT, a
 * command, takes from the holder while they lie to be read. PID: its tierd-net, whose registered
 * memory the kernel counts. Exit status: 0 all held, 1 one did not, which is said.
 */
#include <stdarg.h>
#include <tier.h>

#include "tierd/net/conn.h"
#include "tierd/net/verbs.c" /* its queue pairs do here what they do nowhere else */

#define BLOCKS 50u
#define WAIT_NS (60 * NS_PER_S)
#define READ_NS (20 * NS_PER_S)

struct asker {
	struct conn *c;
	struct verbs *v;
	struct net_places at[NET_PLACES_MAX]; /* where frames lie */
	uint32_t places;
};

static _Noreturn void fail(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fputs("rdma: ", stderr);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	exit(1);
}

static void check(int rc, const char *what)
{
	if (rc)
		fail("%s: %s", what, strerror(-rc));
}

static void *next(struct asker *p, uint16_t type)
{
	check(conn_message(p->c, time_now_ns() + WAIT_NS), "no message");
	if (conn_got(p->c)->type != type)
		fail("message %u where %u is due", conn_got(p->c)->type, type);
	return p->c->message;
}

static struct net_header header(uint16_t type, size_t length)
{
	return (struct net_header){ .magic = NET_MAGIC, .version = NET_VERSION, .type = type,
				    .length = (uint32_t)length };
}

/* A new queue pair; what there was is over. */
static void path(struct asker *p, struct verbs_device *d)
{
	struct net_path m = { .header = header(NET_PATH, sizeof(m)) };
	const struct net_path *theirs;

	verbs_close(p->v);
	check(verbs_open(&p->v, d, true, &m), "a queue pair");
	check(verbs_lend(p->v), "memory");
	check(conn_send_message(p->c, &m.header, time_now_ns() + WAIT_NS), "PATH");
	theirs = next(p, NET_PATH);
	check(theirs->error, "its queue pair");
	check(verbs_connect(p->v, theirs), "to connect");
}

/* ASK for a prompt of the context; all its frames are told of. */
static void ask(struct asker *p, const tier_geometry *g, const uint8_t digest[32], uint64_t prompt)
{
	struct {
		struct net_ask m;
		tier_key key[BLOCKS];
	} a = { .m = { .id = prompt, .epoch = 1, .wait_ns = WAIT_NS, .count = BLOCKS } };
	uint32_t tokens = tier_geometry_block_tokens(g), token[BLOCKS * 256];
	const struct net_grant *grant;
	uint64_t bytes, lie = 0;

	if (tokens > 256)
		fail("blocks of %u tokens", tokens);
	for (uint32_t i = 0; i < BLOCKS * tokens; i++) /* as bench/hosts/kv.c does */
		token[i] = (uint32_t)(prompt * 7919 + i);
	check(tier_key_chain(a.key, NULL, NULL, token, BLOCKS * tokens, tokens), "keys");
	memcpy(a.m.context, digest, sizeof(a.m.context));
	a.m.header = header(NET_ASK, sizeof(a.m) + sizeof(a.key));
	check(conn_send(p->c, &(struct iovec){ &a, a.m.header.length }, 1, time_now_ns() + WAIT_NS),
	      "ASK");
	grant = next(p, NET_GRANT);
	check(grant->error, "a grant");
	if (grant->blocks != BLOCKS)
		fail("%u blocks are granted", grant->blocks);
	bytes = grant->bytes;
	for (p->places = 0; lie < bytes && p->places < NET_PLACES_MAX; p->places++) {
		memcpy(&p->at[p->places], next(p, NET_PLACES), sizeof(p->at[0]));
		lie += p->at[p->places].pages.bytes;
	}
	if (lie != bytes)
		fail("%llu of %llu bytes lie to be read", (unsigned long long)lie,
		     (unsigned long long)bytes);
}

/* READ of all frames, each answered; then the holder's word. */
static void finish(struct asker *p)
{
	struct net_word m = { .header = header(NET_READ, sizeof(m)), .id = 0 };
	const struct net_word *word;

	for (uint32_t i = 0; i < p->places; i++) {
		m.id = p->at[i].number;
		check(conn_send_message(p->c, &m.header, time_now_ns() + WAIT_NS), "READ");
	}
	word = next(p, NET_WHOLE);
	check(word->error, "the grant did not stand");
}

static int fetch(struct asker *p, const struct net_places *m)
{
	return verbs_read(p->v, m, -1, -1, time_now_ns() + READ_NS);
}

static void refused(struct asker *p, const struct net_places *m, const char *what)
{
	int rc = fetch(p, m);

	if (rc == 0)
		fail("%s can be read", what);
	if (rc != -EIO)
		fail("%s: %s", what, strerror(-rc));
	printf("refused: %s\n", what);
}

/* Bytes that the kernel has registered of a process. */
static uint64_t pinned(const char *pid)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/status", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmPin: %llu", &kib);
	if (f)
		fclose(f);
	return kib << 10;
}

static void want_pinned(const char *pid, uint64_t bytes, const char *when)
{
	if (pinned(pid) != bytes)
		fail("%s %llu bytes of the holder are registered, not %llu", when,
		     (unsigned long long)pinned(pid), (unsigned long long)bytes);
	printf("registered %s: %llu bytes\n", when, (unsigned long long)bytes);
}

/* Nobody writes there: the queue pair that tries is dead, and the bytes are those that were. */
static void try_to_write(struct asker *p, const struct net_places *m)
{
	struct ibv_sge from = { .addr = (uintptr_t)p->v->memory, .length = 64,
				.lkey = p->v->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &from, .num_sge = 1,
					.opcode = IBV_WR_RDMA_WRITE,
					.send_flags = IBV_SEND_SIGNALED };
	int rc = 0;

	wr.wr.rdma.remote_addr = m->address;
	wr.wr.rdma.rkey = m->rkey;
	check(ibv_post_send(p->v->qp, &wr, &bad), "to post");
	while ((rc = completed(p->v)) == 0)
		usleep(1000);
	if (rc > 0)
		fail("the holder's memory can be written");
	printf("refused: a write\n");
}

static void connect_to(struct asker *p, struct conn_self *self, char **word)
{
	check(conn_open(&p->c, self, word[1], word[2], time_now_ns() + WAIT_NS), "to connect");
	if (!(p->c->features & NET_RDMA))
		fail("the holder has no RDMA");
}

static void walk(struct asker *a, struct asker *b, struct verbs_device *d, const tier_geometry *g,
		 const uint8_t digest[32], char **word)
{
	struct net_places beyond;
	uint8_t *before = malloc(VERBS_FRAME_BYTES);
	uint64_t most = (uint64_t)NET_PLACES_MAX * VERBS_FRAME_BYTES;

	path(a, d);
	path(b, d);
	want_pinned(word[6], 0, "before a grant");
	ask(a, g, digest, 1);
	want_pinned(word[6], most, "while one is open");
	check(fetch(a, &a->at[0]), "to read what is granted");
	refused(b, &a->at[0], "by another queue pair, what the first one was granted");
	memcpy(before, verbs_frame(a->v, 0), a->at[0].pages.bytes);
	/* The blocks leave while their copies lie there; nothing of tierd's is registered. */
	if (system(word[7]))
		fail("%s: it failed", word[7]);
	check(fetch(a, &a->at[0]), "to read it again");
	if (memcmp(before, verbs_frame(a->v, 0), a->at[0].pages.bytes) != 0)
		fail("what lies there changed before it was read");
	free(before);
	finish(a);
	refused(a, &a->at[0], "what a grant that is over had");
	want_pinned(word[6], 0, "when it is over");
	path(a, d); /* another queue pair, and it goes on */
	ask(a, g, digest, 2);
	check(fetch(a, &a->at[0]), "to read after a refusal");
	beyond = a->at[0];
	beyond.address += most;
	refused(a, &beyond, "what lies behind it");
	finish(a);
	path(a, d);
	ask(a, g, digest, 2);
	try_to_write(a, &a->at[0]);
	finish(a);
}

int main(int argc, char **argv)
{
	struct conn_self self = { .lock = LOCK_INIT, .features = NET_RDMA, .incarnation = 1,
				  .verbs_close = verbs_close, .stop = -1 };
	struct asker a = { .c = NULL }, b = { .c = NULL };
	struct verbs_device *d;
	uint8_t address[16], digest[32];
	tier_context *c;
	char why[512] = "";
	tier *t;

	if (argc != 8)
		fail("ADDRESS HOLDER SELF CERTIFICATES DIGEST PID EVICT");
	check(conn_address(argv[1], address), "the address");
	d = verbs_device("rxe0", address, 64 << 20, why, sizeof(why));
	if (!d)
		fail("no device: %s", why);
	self.name = argv[3];
	self.tls = conn_tls(argv[4], why, sizeof(why));
	if (!self.tls || strlen(argv[5]) != 64)
		fail("%s", why);
	for (uint32_t i = 0; i < 32; i++)
		sscanf(argv[5] + 2 * i, "%2hhx", &digest[i]);
	check(tier_connect(&t, NULL), "its tierd");
	check(tier_context_open(t, "kv", NULL, &c), "the context");
	connect_to(&a, &self, argv);
	connect_to(&b, &self, argv);
	walk(&a, &b, d, tier_context_geometry(c), digest, argv);
	verbs_close(a.v);
	verbs_close(b.v);
	conn_close(a.c);
	conn_close(b.c);
	tier_close(t);
	return 0;
}
