/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierd-net: shares this host's contexts with other hosts. Options, start, and the loop that takes
 * connections; node.h says what is where. Runs as tierd's own user, so that it may open contexts.
 */
#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "libtier/base/units.h"
#include "tierd/net/node.h"
#include "tierd/net/verbs.h"

#define END_NS (3 * NS_PER_S) /* threads are waited for so long */

static struct node node = {
	.config = { .fleet = "default", .lease_ns = 5 * NS_PER_S, .staging_bytes = 64 << 20,
		    .streams_bytes = 256 << 20, .rdma_bytes = 256 << 20, .pullers = 4,
		    .ask_all = NET_HOLDERS_MAX, .pool_grant_ns = 30 * NS_PER_S,
		    .pool_extent_bytes = 16 << 20 },
	.shares = LOCK_INIT, .peers_lock = LOCK_INIT, .pool = LOCK_INIT, .pullers_lock = LOCK_INIT,
	.homes_lock = LOCK_INIT, .box_lock = LOCK_INIT, .self.lock = LOCK_INIT,
};

/* ---- options ------------------------------------------------------------------------------- */

static const char *const usage =
	"usage: tierd-net --name NAME --listen ADDRESS:PORT (--tls DIR | --no-tls) [OPTION...]\n\n"
	"  -n, --name NAME         this host, as its certificate calls it\n"
	"  -l, --listen ADDR:PORT  where other hosts connect to; addresses are numbers\n"
	"  -a, --advertise ADDR:PORT  what they are told, if it is another\n"
	"  -t, --tls DIR           ca.pem, cert.pem and key.pem of this host\n"
	"      --no-tls            no encryption, no proof of who is who: trusted networks only\n"
	"  -p, --peer NAME=ADDR:PORT  another host; repeat for each\n"
	"      --peers FILE        the same, a line each\n"
	"  -e, --etcd URL          members are kept there\n"
	"      --fleet NAME        which of the fleets in it (default: default)\n"
	"      --lease TIME        how long we are a member without a word of ours (5s)\n"
	"  -s, --socket PATH       tierd's socket (default as for tierctl); ours is PATH.net\n"
	"      --state FILE        remembers which contexts are shared\n"
	"      --staging SIZE      memory for blocks on their way, a puller (64MiB)\n"
	"      --streams SIZE      memory for streams from afar, all together (256MiB)\n"
	"      --pullers N         pulls at a time, 1 to 8 (4)\n"
	"      --ask-all N         up to so many other hosts are all asked, else homes (8)\n"
	"      --rdma DEVICE       pages by RDMA READ, not encrypted: trusted networks only\n"
	"      --rdma-memory SIZE  registered for it, all together (256MiB)\n"
	"      --box NAME          the host that keeps what the others store; the same on all\n"
	"      --pool DEVICE       a CXL pool that the others have, too; wants --etcd\n"
	"      --pool-grant TIME   the longest grant that goes by it, the same on all (30s)\n"
	"      --pool-extent SIZE  what each host owns parts of, when one is made (16MiB)\n"
	"      --pool-format DEVICE  make one, and end\n"
	"  -h, --help; -V, --version\n\n"
	"man tierd-net tells more.\n";

enum { OPT_NO_TLS = 256, OPT_PEERS, OPT_FLEET, OPT_LEASE, OPT_STATE, OPT_STAGING, OPT_PULLERS,
	OPT_ASK_ALL, OPT_STREAMS, OPT_BOX, OPT_RDMA, OPT_RDMA_MEMORY, OPT_POOL, OPT_POOL_GRANT,
	OPT_POOL_EXTENT, OPT_POOL_FORMAT };

static const struct option options[] = {
	{ "name", 1, NULL, 'n' },	     { "listen", 1, NULL, 'l' },
	{ "advertise", 1, NULL, 'a' },	     { "tls", 1, NULL, 't' },
	{ "no-tls", 0, NULL, OPT_NO_TLS },   { "peer", 1, NULL, 'p' },
	{ "peers", 1, NULL, OPT_PEERS },     { "etcd", 1, NULL, 'e' },
	{ "fleet", 1, NULL, OPT_FLEET },     { "lease", 1, NULL, OPT_LEASE },
	{ "socket", 1, NULL, 's' },	     { "state", 1, NULL, OPT_STATE },
	{ "staging", 1, NULL, OPT_STAGING }, { "pullers", 1, NULL, OPT_PULLERS },
	{ "ask-all", 1, NULL, OPT_ASK_ALL },   { "streams", 1, NULL, OPT_STREAMS },
	{ "box", 1, NULL, OPT_BOX },	     { "rdma", 1, NULL, OPT_RDMA },
	{ "rdma-memory", 1, NULL, OPT_RDMA_MEMORY },
	{ "pool", 1, NULL, OPT_POOL },
	{ "pool-grant", 1, NULL, OPT_POOL_GRANT },
	{ "pool-extent", 1, NULL, OPT_POOL_EXTENT },
	{ "pool-format", 1, NULL, OPT_POOL_FORMAT },
	{ "help", 0, NULL, 'h' },	     { "version", 0, NULL, 'V' },
	{ 0 },
};

static int wrong(const char *what, const char *which)
{
	fprintf(stderr, "tierd-net: %s%s; tierd-net --help shows how\n", what, which);
	return -EINVAL;
}

static bool name_good(const char *name)
{
	return *name && strlen(name) < NET_NAME_BYTES &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
		       strlen(name);
}

static int set_text(char *to, size_t bytes, const char *from)
{
	if ((size_t)snprintf(to, bytes, "%s", from) >= bytes)
		return wrong("too long: ", from);
	return 0;
}

static int set_name(char to[NET_NAME_BYTES], const char *name)
{
	return name_good(name) ? set_text(to, NET_NAME_BYTES, name) :
				 wrong("a name is 1 to 63 of A-Z a-z 0-9 . _ -, not ", name);
}

static int add_peer(const char *text)
{
	const char *equals = strchr(text, '=');
	char name[NET_NAME_BYTES];
	struct peer *p;

	if (!equals || (size_t)(equals - text) >= sizeof(name) ||
	    strlen(equals + 1) >= NET_NAME_BYTES)
		return wrong("a peer is NAME=ADDRESS:PORT, not ", text);
	snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
	if (!name_good(name))
		return wrong("no name of a peer: ", name);
	LOCK_SCOPE(&node.peers_lock);
	p = peers_add(&node.peers, name, equals + 1);
	if (!p)
		return wrong("a fleet is 65 hosts, others share in another; too many with ",
			     name);
	p->fixed = true;
	return 0;
}

static int add_peers(const char *path)
{
	FILE *f CLEANUP_FCLOSE = fopen(path, "r");
	char line[2 * NET_NAME_BYTES + 2];
	int rc = f ? 0 : wrong("cannot read ", path);

	while (rc == 0 && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "#\n")] = '\0';
		if (line[strspn(line, " \t")])
			rc = add_peer(line);
	}
	return rc;
}

static int set_number(int c, const char *text)
{
	struct node_config *o = &node.config;
	char *end;

	if (c == OPT_LEASE)
		return units_parse_ns(text, &o->lease_ns) || o->lease_ns < NS_PER_S ||
				       o->lease_ns > 600 * NS_PER_S ?
			       wrong("a lease is 1s to 10min, not ", text) : 0;
	if (c == OPT_POOL_GRANT)
		return units_parse_ns(text, &o->pool_grant_ns) ||
				       o->pool_grant_ns > 60 * NS_PER_S ?
			       wrong("a grant by the pool is 60s at most, not ", text) : 0;
	if (c == OPT_POOL_EXTENT)
		return units_parse_bytes(text, &o->pool_extent_bytes) ||
				       o->pool_extent_bytes < 2 << 20 ||
				       o->pool_extent_bytes % 4096 ?
			       wrong("an extent is 2MiB or more, not ", text) : 0;
	if (c == OPT_STAGING)
		return units_parse_bytes(text, &o->staging_bytes) || o->staging_bytes < 1 << 20 ?
			       wrong("staging is 1MiB or more, not ", text) : 0;
	if (c == OPT_STREAMS)
		return units_parse_bytes(text, &o->streams_bytes) || o->streams_bytes < 1 << 20 ?
			       wrong("streams have 1MiB or more, not ", text) : 0;
	if (c == OPT_RDMA_MEMORY)
		return units_parse_bytes(text, &o->rdma_bytes) || !o->rdma_bytes ?
			       wrong("memory for RDMA is 1 or more, not ", text) : 0;
	if (c == OPT_ASK_ALL) {
		o->ask_all = (uint32_t)strtoul(text, &end, 10);
		return *end || !isdigit((unsigned char)*text) || o->ask_all > PEERS_MAX ?
			       wrong("asked at once are 0 to 64, not ", text) : 0;
	}
	o->pullers = (uint32_t)strtoul(text, &end, 10);
	return *end || o->pullers < 1 || o->pullers > NODE_PULLERS_MAX ?
		       wrong("pullers are 1 to 8, not ", text) : 0;
}

static int set_option(int c, const char *text, bool *bare)
{
	struct node_config *o = &node.config;

	switch (c) {
	case 'n':
		return set_name(o->name, text);
	case 'l':
		return set_text(o->listen, sizeof(o->listen), text);
	case 'a':
		return set_text(o->advertise, sizeof(o->advertise), text);
	case 't':
		return set_text(o->tls, sizeof(o->tls), text);
	case OPT_NO_TLS:
		*bare = true;
		return 0;
	case 'p':
		return add_peer(text);
	case OPT_PEERS:
		return add_peers(text);
	case 'e':
		return set_text(o->etcd, sizeof(o->etcd), text);
	case OPT_FLEET:
		return set_name(o->fleet, text);
	case OPT_RDMA:
		return verbs_built_in() ? set_text(o->rdma, sizeof(o->rdma), text) :
			wrong("libibverbs-dev was not there for this build: no --rdma ",
			      text);
	case OPT_BOX:
		return set_name(o->box, text);
	case OPT_POOL:
		return set_text(o->pool, sizeof(o->pool), text);
	case 's':
		return set_text(o->socket, sizeof(o->socket), text);
	case OPT_STATE:
		return set_text(o->state, sizeof(o->state), text);
	default:
		return set_number(c, text);
	}
}

/* Where tierctl would look. */
static int default_socket(char *to, size_t bytes)
{
	const char *path = getenv("TIER_SOCKET"), *run = getenv("XDG_RUNTIME_DIR");

	if (path && *path)
		return set_text(to, bytes, path);
	snprintf(to, bytes, "%s/tier.sock", run && *run ? run : "/run/tier");
	return 0;
}

static int parse(int argc, char **argv)
{
	struct node_config *o = &node.config;
	bool bare = false;
	int c, rc = 0;

	opterr = 0;
	while (!rc && (c = getopt_long(argc, argv, ":n:l:a:t:p:e:s:hV", options, NULL)) != -1) {
		if (c == 'h')
			exit(fputs(usage, stdout) < 0);
		if (c == 'V')
			exit(printf("tierd-net %s\n", tier_version()) < 0);
		if (c == OPT_POOL_FORMAT)
			exit(pool_make(optarg, node.config.pool_extent_bytes) ? 1 : 0);
		if (c == '?' || c == ':')
			return wrong(c == ':' ? "a value is missing behind " : "no option ",
				     argv[optind - 1]);
		rc = set_option(c, optarg, &bare);
	}
	if (rc)
		return rc;
	if (optind < argc)
		return wrong("one argument too many: ", argv[optind]);
	if (!o->name[0] || !o->listen[0])
		return wrong("--name and --listen must be given", "");
	if (!o->tls[0] == !bare)
		return wrong("one of --tls DIR and --no-tls must be given", "");
	if (o->pool[0] && !o->etcd[0])
		return wrong("who owns what of a pool is agreed on by --etcd", "");
	if (!o->advertise[0])
		memcpy(o->advertise, o->listen, sizeof(o->advertise));
	return o->socket[0] ? 0 : default_socket(o->socket, sizeof(o->socket));
}

/* ---- start --------------------------------------------------------------------------------- */

static int connect_tierd(tier **out, uint64_t staging_bytes, uint32_t readers)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = node.config.socket,
					  .name = "tierd-net", .staging_bytes = staging_bytes,
					  .readers = readers };
	int rc = tier_connect(out, &o);

	if (rc)
		log_error(&node.log, "tierd cannot be reached", node.config.socket,
			  "start tierd first, as the same user", "why=\"%s\"", tier_error_text());
	return rc;
}

/* All connections to tierd, before there are threads. */
static int start_tier(void)
{
	pthread_condattr_t attr;
	int rc = connect_tierd(&node.t, 1 << 20, NODE_SENDING_MAX);

	for (uint32_t i = 0; rc == 0 && i < node.config.pullers; i++)
		rc = connect_tierd(&node.puller[i].t, node.config.staging_bytes, 1);
	if (rc)
		return rc;
	{
		LOCK_SCOPE(&node.homes_lock);
		node.homes.room = HOMES_ROOM;
		node.homes.slot = calloc(HOMES_ROOM + HOMES_WINDOW, sizeof(*node.homes.slot));
		if (!node.homes.slot)
			return -ENOMEM;
	}
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	return -pthread_cond_init(&node.puller_free, &attr);
}

/* At start, and again at each SIGHUP: what cannot be used changes nothing. */
static int load_tls(bool again)
{
	char why[512];
	SSL_CTX *tls;
	uint32_t ended;

	if (!node.config.tls[0])
		return 0;
	tls = conn_tls(node.config.tls, why, sizeof(why));
	if (!tls) {
		log_error(&node.log, again ? "the old certificates stay" : "no TLS", why,
			  "make them with openssl", "");
		return -EINVAL;
	}
	ended = conn_use_tls(&node.self, tls);
	if (again)
		log_info(&node.log, "new certificates are in use", node.config.tls,
			 "connections_ended=%u", ended);
	return 0;
}

/* Without it bytes go by TCP, as before. */
static void start_rdma(void)
{
	const struct node_config *o = &node.config;
	uint8_t address[16] = { 0 };
	char why[128] = "";

	if (!o->rdma[0])
		return;
	if (conn_address(o->advertise, address) == 0)
		node.rdma = verbs_device(o->rdma, address, o->rdma_bytes, why, sizeof(why));
	if (node.rdma)
		node.self.features = NET_RDMA;
	else
		log_warn(&node.log, "no RDMA: bytes go by TCP", o->rdma, "ibv_devices lists them",
			 "why=\"%s\"", why);
}

static int listen_on(int *fd, bool local)
{
	char path[NODE_PATH_BYTES + 8];

	snprintf(path, sizeof(path), "%s.net", node.config.socket);
	*fd = local ? conn_listen_local(path) : conn_listen(node.config.listen);
	if (*fd >= 0)
		return 0;
	log_error(&node.log, "cannot listen", local ? path : node.config.listen,
		  "is another tierd-net there, or is it no address of this host?", "errno=%d",
		  -*fd);
	return *fd;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static int spawn(void *(*body)(void *), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, body, arg);
	pthread_attr_destroy(&attr);
	return -rc;
}

static struct visitor *visitor_of(int fd, bool local)
{
	struct visitor *v = calloc(1, sizeof(*v));
	struct sockaddr_storage a = { .ss_family = AF_UNSPEC };
	socklen_t bytes = local ? sizeof(v->who) : sizeof(a);

	if (!v)
		return NULL;
	v->n = &node;
	v->fd = fd;
	v->local = local;
	if (local ? getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &v->who, &bytes) :
		    getpeername(fd, (struct sockaddr *)&a, &bytes)) {
		free(v);
		return NULL;
	}
	v->known = local && (v->who.uid == 0 || v->who.uid == geteuid());
	if (a.ss_family == AF_INET)
		memcpy(v->from, &((struct sockaddr_in *)&a)->sin_addr, sizeof(struct in_addr));
	else if (a.ss_family == AF_INET6)
		memcpy(v->from, &((struct sockaddr_in6 *)&a)->sin6_addr, sizeof(struct in6_addr));
	return v;
}

/* Nobody who is not trusted keeps all others out: not one user, nor one host without a name. */
static bool enter(struct visitor *v)
{
	uint32_t all = 0, same = 0, most = v->local ? NODE_LOCAL_MAX : NODE_REMOTE_MAX;

	LOCK_SCOPE(&node.pool);
	for (const struct visitor *o = node.visitors; o; o = o->next) {
		if (o->local != v->local)
			continue;
		all++;
		same += !o->known && o->who.uid == v->who.uid &&
			memcmp(o->from, v->from, sizeof(v->from)) == 0;
	}
	if (all >= most || (!v->known && same >= NODE_SAME_MAX))
		return false;
	v->next = node.visitors;
	node.visitors = v;
	return true;
}

void visitor_end(struct visitor *v)
{
	struct visitor **at = &node.visitors;

	LOCK_SCOPE(&node.pool);
	while (*at != v)
		at = &(*at)->next;
	*at = v->next;
	free(v);
}

static void take(int listener, bool local)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct visitor *v = fd < 0 ? NULL : visitor_of(fd, local);

	if (v && !enter(v)) {
		free(v);
		v = NULL;
	}
	if (v && spawn(local ? local_run : holder_run, v) == 0)
		return;
	if (v)
		visitor_end(v);
	if (fd >= 0)
		close(fd);
}

static bool ends(int signals)
{
	struct signalfd_siginfo s;

	while (read(signals, &s, sizeof(s)) == sizeof(s)) {
		if (s.ssi_signo != SIGHUP)
			return true;
		load_tls(true);
	}
	return false;
}

static void loop(int remote, int local, int signals)
{
	struct pollfd p[] = { { .fd = remote, .events = POLLIN }, { .fd = local, .events = POLLIN },
			      { .fd = signals, .events = POLLIN } };

	while (!ends(signals)) {
		if (poll(p, 3, -1) < 0)
			continue;
		if (p[0].revents)
			take(remote, false);
		if (p[1].revents)
			take(local, true);
	}
}

static bool threads_left(void)
{
	LOCK_SCOPE(&node.pool);
	return node.visitors != NULL;
}

static void end(const pthread_t thread[3])
{
	uint64_t until_ns = time_now_ns() + END_NS, one = 1;
	char path[NODE_PATH_BYTES + 8];

	snprintf(path, sizeof(path), "%s.net", node.config.socket);
	unlink(path);
	if (write(node.stop, &one, sizeof(one)) < 0)
		return;
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	pthread_join(thread[2], NULL);
	while (threads_left() && time_now_ns() < until_ns)
		usleep(5000);
	if (threads_left())
		return; /* they hang at tierd; the kernel ends them with us */
	for (uint32_t i = 0; i < node.config.pullers; i++)
		tier_close(node.puller[i].t);
	tier_close(node.t);
	log_info(&node.log, "stopped", node.config.name, "");
}

static int run(int signals)
{
	int remote CLEANUP_CLOSE = -1, local CLEANUP_CLOSE = -1;
	pthread_t thread[3];
	int rc = load_tls(false);

	if (rc == 0)
		rc = pool_open(&node);
	if (rc == 0)
		rc = start_tier();
	if (rc == 0)
		rc = listen_on(&remote, false);
	if (rc)
		return rc;
	share_load(&node);
	start_rdma();
	rc = -pthread_create(&thread[0], NULL, members_run, &node);
	if (rc == 0)
		rc = -pthread_create(&thread[1], NULL, tell_run, &node);
	if (rc == 0)
		rc = -pthread_create(&thread[2], NULL, box_run, &node);
	if (rc == 0)
		rc = listen_on(&local, true);
	if (rc)
		return rc;
	log_info(&node.log, "ready", node.config.name, "listen=%s transport=%s rdma=%s",
		 node.config.listen, node.config.tls[0] ? "tls" : "bare-tcp",
		 node.rdma ? node.config.rdma : "off");
	loop(remote, local, signals);
	end(thread);
	return 0;
}

int main(int argc, char **argv)
{
	sigset_t set;
	int rc = parse(argc, argv);

	if (rc)
		return 2;
	node.log = (struct log){ .level = LOG_LEVEL_INFO, .lines_per_s_max = 20 };
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	node.stop = eventfd(0, EFD_CLOEXEC);
	if (getrandom(&node.self.incarnation, sizeof(node.self.incarnation), 0) < 0 ||
	    node.stop < 0 || curl_global_init(CURL_GLOBAL_DEFAULT))
		return 1;
	node.agree.lease_ns = node.config.lease_ns;
	if (!node.config.etcd[0])
		agree_alone(&node.agree);
	node.self.name = node.config.name;
	node.self.stop = node.stop;
	node.self.verbs_close = verbs_close;
	return run(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) ? 1 : 0;
}
