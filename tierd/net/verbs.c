/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs and registered memory; see verbs.h. */
#include <errno.h>

#include "tierd/net/verbs.h"

#if TIER_HAVE_IBVERBS

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/time.h"
#include "tierd/net/proto.h"

#define PORT 1
#define PSN_MASK 0xffffffu
/*
 * 4.096 us * 2^16 = 0.27 s without an answer, seven times: a deadline of ours comes first. What is
 * left is for a holder that waits for no completion.
 */
#define TIMEOUT 16
#define RETRIES 7

struct verbs_device {
	struct ibv_context *c;
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint8_t gid_index;
	uint64_t bytes_max;
	uint64_t pinned; /* atomic */
};

struct verbs {
	struct verbs_device *d;
	bool reads;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint32_t psn;
	struct ibv_mr *mr;
	uint8_t *memory; /* NULL = nothing is lent */
	uint64_t bytes;
};

bool verbs_built_in(void)
{
	return true;
}

/* ---- the device ---------------------------------------------------------------------------- */

/* RoCE v2 by our address; elsewhere the port's first, which all have. */
static bool find_gid(struct verbs_device *d, const uint8_t address[16])
{
	struct ibv_gid_entry e[256];
	ssize_t count = ibv_query_gid_table(d->c, e, sizeof(e) / sizeof(e[0]), 0);

	if (d->port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return ibv_query_gid(d->c, PORT, 0, &d->gid) == 0;
	for (ssize_t i = 0; i < count; i++)
		if (e[i].port_num == PORT && e[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    memcmp(e[i].gid.raw, address, sizeof(e[i].gid.raw)) == 0) {
			d->gid = e[i].gid;
			d->gid_index = (uint8_t)e[i].gid_index;
			return true;
		}
	return false;
}

static struct ibv_context *open_named(const char *name)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *c = NULL;

	for (int i = 0; i < count; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			c = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return c;
}

struct verbs_device *verbs_device(const char *name, const uint8_t address[16], uint64_t bytes_max,
				  char *text, size_t text_bytes)
{
	struct verbs_device *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->bytes_max = bytes_max;
	d->c = open_named(name);
	if (!d->c)
		snprintf(text, text_bytes, "no device of this name");
	else if (ibv_query_port(d->c, PORT, &d->port) || d->port.state != IBV_PORT_ACTIVE)
		snprintf(text, text_bytes, "its port 1 is not active");
	else if (!find_gid(d, address))
		snprintf(text, text_bytes, "it has no RoCE v2 GID of our address (--advertise)");
	else
		return d;
	if (d->c)
		ibv_close_device(d->c);
	free(d);
	return NULL;
}

uint64_t verbs_pinned(const struct verbs_device *d)
{
	return d ? atomic_load_relaxed_u64(&d->pinned) : 0;
}

/* ---- queue pairs --------------------------------------------------------------------------- */

static int queue_pair(struct verbs *v)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = PORT };

	v->pd = ibv_alloc_pd(v->d->c);
	v->channel = ibv_create_comp_channel(v->d->c);
	if (!v->pd || !v->channel || fcntl(v->channel->fd, F_SETFL, O_NONBLOCK))
		return -ENOMEM;
	v->cq = ibv_create_cq(v->d->c, 4, NULL, v->channel, 0);
	if (!v->cq)
		return -ENOMEM;
	init.send_cq = v->cq;
	init.recv_cq = v->cq;
	init.cap = (struct ibv_qp_cap){ .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1,
					.max_recv_sge = 1 };
	v->qp = ibv_create_qp(v->pd, &init);
	if (!v->qp)
		return -ENOMEM;
	/* Nobody writes here, and nobody reads from who reads. */
	a.qp_access_flags = v->reads ? 0 : IBV_ACCESS_REMOTE_READ;
	return -ibv_modify_qp(v->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						 IBV_QP_ACCESS_FLAGS);
}

int verbs_open(struct verbs **out, struct verbs_device *d, bool reads, struct net_path *ours)
{
	struct verbs *v = calloc(1, sizeof(*v));
	int rc = v ? 0 : -ENOMEM;

	if (v) {
		v->d = d;
		v->reads = reads;
		rc = queue_pair(v);
	}
	if (rc == 0 && getrandom(&v->psn, sizeof(v->psn), 0) != sizeof(v->psn))
		rc = -EIO;
	if (rc) {
		verbs_close(v);
		return rc;
	}
	v->psn &= PSN_MASK;
	ours->qpn = v->qp->qp_num;
	ours->psn = v->psn;
	ours->lid = d->port.lid;
	ours->mtu = (uint8_t)d->port.active_mtu;
	memcpy(ours->gid, d->gid.raw, sizeof(ours->gid));
	*out = v;
	return 0;
}

static int ready_to_receive(struct verbs *v, const struct net_path *theirs)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .dest_qp_num = theirs->qpn,
				 .rq_psn = theirs->psn, .max_dest_rd_atomic = 1,
				 .min_rnr_timer = 12 };

	a.path_mtu = theirs->mtu < v->d->port.active_mtu ? (enum ibv_mtu)theirs->mtu :
							   v->d->port.active_mtu;
	a.ah_attr.port_num = PORT;
	a.ah_attr.dlid = theirs->lid;
	a.ah_attr.is_global = v->d->port.link_layer == IBV_LINK_LAYER_ETHERNET;
	a.ah_attr.grh.sgid_index = v->d->gid_index;
	a.ah_attr.grh.hop_limit = 64;
	memcpy(a.ah_attr.grh.dgid.raw, theirs->gid, sizeof(theirs->gid));
	return -ibv_modify_qp(v->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						 IBV_QP_MAX_DEST_RD_ATOMIC |
						 IBV_QP_MIN_RNR_TIMER);
}

int verbs_connect(struct verbs *v, const struct net_path *theirs)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .timeout = TIMEOUT, .retry_cnt = RETRIES,
				 .rnr_retry = RETRIES, .sq_psn = v->psn, .max_rd_atomic = 1 };
	int rc = ready_to_receive(v, theirs);

	if (rc)
		return rc;
	return -ibv_modify_qp(v->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						 IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						 IBV_QP_MAX_QP_RD_ATOMIC);
}

void verbs_close(struct verbs *v)
{
	if (!v)
		return;
	if (v->qp)
		ibv_destroy_qp(v->qp); /* W1: nothing comes after this */
	verbs_unlend(v);
	if (v->cq)
		ibv_destroy_cq(v->cq);
	if (v->channel)
		ibv_destroy_comp_channel(v->channel);
	if (v->pd)
		ibv_dealloc_pd(v->pd);
	free(v);
}

/* ---- memory -------------------------------------------------------------------------------- */

int verbs_lend(struct verbs *v)
{
	uint64_t bytes = (uint64_t)VERBS_FRAME_BYTES * (v->reads ? 1 : NET_PLACES_MAX);
	int access = v->reads ? IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_REMOTE_READ;
	void *memory;

	if (v->memory)
		return 0;
	if (atomic_add_u64(&v->d->pinned, bytes) + bytes > v->d->bytes_max) {
		atomic_sub_u64(&v->d->pinned, bytes);
		return -ENOBUFS;
	}
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	v->bytes = bytes;
	v->memory = memory == MAP_FAILED ? NULL : memory;
	v->mr = v->memory ? ibv_reg_mr(v->pd, v->memory, bytes, access) : NULL;
	if (v->mr)
		return 0;
	verbs_unlend(v);
	return -ENOBUFS;
}

static void undo(const struct verbs *v, enum lent_step step)
{
	if (step == LENT_DEREGISTER && v->mr)
		ibv_dereg_mr(v->mr);
	if (step == LENT_GIVE_BACK && v->memory)
		munmap(v->memory, v->bytes);
}

void verbs_unlend(struct verbs *v)
{
	for (enum lent_step s = lent_ends(LENT_BEGIN); s != LENT_END; s = lent_ends(s)) /* W1 */
		undo(v, s);
	atomic_sub_u64(&v->d->pinned, v->bytes);
	v->mr = NULL;
	v->memory = NULL;
	v->bytes = 0;
}

uint8_t *verbs_frame(const struct verbs *v, uint32_t frame)
{
	return v && v->memory ? v->memory + (size_t)frame * VERBS_FRAME_BYTES : NULL;
}

void verbs_tell(const struct verbs *v, uint32_t frame, struct net_places *m)
{
	m->address = (uint64_t)(uintptr_t)verbs_frame(v, frame);
	m->rkey = v->mr->rkey;
}

/* ---- reading ------------------------------------------------------------------------------- */

static int post(struct verbs *v, const struct net_places *m)
{
	struct ibv_sge to = { .addr = (uintptr_t)v->memory, .length = m->pages.bytes,
			      .lkey = v->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &to, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
					.send_flags = IBV_SEND_SIGNALED };

	wr.wr.rdma.remote_addr = m->address;
	wr.wr.rdma.rkey = m->rkey;
	return ibv_post_send(v->qp, &wr, &bad) ? -EIO : 0;
}

/* 1: it came. 0: not yet. */
static int completed(struct verbs *v)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(v->cq, 1, &wc);

	if (n <= 0)
		return n ? -EIO : 0;
	return wc.status == IBV_WC_SUCCESS ? 1 : -EIO;
}

static int wait_event(struct verbs *v, int stop, int line, uint64_t deadline_ns)
{
	struct pollfd p[] = { { .fd = v->channel->fd, .events = POLLIN },
			      { .fd = stop, .events = POLLIN },
			      { .fd = line, .events = POLLRDHUP } };
	uint64_t now = time_now_ns();
	struct timespec left = time_to_timespec(deadline_ns > now ? deadline_ns - now : 0);
	struct ibv_cq *cq;
	void *user;
	int n = ppoll(p, 3, &left, NULL);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	if (p[0].revents) {
		if (ibv_get_cq_event(v->channel, &cq, &user) == 0)
			ibv_ack_cq_events(cq, 1);
		return 0;
	}
	if (p[1].revents)
		return -ECANCELED;
	return p[2].revents ? -ENOTCONN : -ETIMEDOUT;
}

int verbs_read(struct verbs *v, const struct net_places *m, int stop, int line,
	       uint64_t deadline_ns)
{
	int rc = v->memory && m->pages.bytes <= v->bytes ? post(v, m) : -ENOBUFS;

	while (rc == 0) {
		rc = completed(v);
		if (rc == 0 && ibv_req_notify_cq(v->cq, 0))
			rc = -EIO;
		if (rc == 0) /* what came before we asked to be told */
			rc = completed(v);
		if (rc == 0)
			rc = wait_event(v, stop, line, deadline_ns);
	}
	return rc > 0 ? 0 : rc;
}

#else

bool verbs_built_in(void)
{
	return false;
}

struct verbs_device *verbs_device(const char *name, const uint8_t address[16], uint64_t bytes_max,
				  char *text, size_t text_bytes)
{
	(void)name, (void)address, (void)bytes_max;
	if (text_bytes)
		text[0] = '\0';
	return NULL;
}

uint64_t verbs_pinned(const struct verbs_device *d)
{
	(void)d;
	return 0;
}

int verbs_open(struct verbs **out, struct verbs_device *d, bool reads, struct net_path *ours)
{
	(void)out, (void)d, (void)reads, (void)ours;
	return -EOPNOTSUPP;
}

int verbs_connect(struct verbs *v, const struct net_path *theirs)
{
	(void)v, (void)theirs;
	return -EOPNOTSUPP;
}

void verbs_close(struct verbs *v)
{
	(void)v;
}

int verbs_lend(struct verbs *v)
{
	(void)v;
	return -EOPNOTSUPP;
}

void verbs_unlend(struct verbs *v)
{
	(void)v;
}

uint8_t *verbs_frame(const struct verbs *v, uint32_t frame)
{
	(void)v, (void)frame;
	return NULL;
}

void verbs_tell(const struct verbs *v, uint32_t frame, struct net_places *m)
{
	(void)v, (void)frame, (void)m;
}

int verbs_read(struct verbs *v, const struct net_places *m, int stop, int line,
	       uint64_t deadline_ns)
{
	(void)v, (void)m, (void)stop, (void)line, (void)deadline_ns;
	return -EOPNOTSUPP;
}

#endif
