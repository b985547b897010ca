/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierctl hosts, context share: questions for tierd-net, on the socket beside tierd's (abi/net.h).
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "libtier/abi/net.h"
#include "libtier/base/cleanup.h"
#include "tierd/ctl/ctl.h"

#define COUNT(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))
#define ANSWER_MS 60000 /* an epoch waits for all hosts */

/* ---- asking -------------------------------------------------------------------------------- */

static int no_net(const struct ctl *ctl, const char *path)
{
	fprintf(stderr, "tierctl %s: no tierd-net on %s; start it, as the same user as tierd\n",
		ctl->verb, path);
	return CTL_NO_DAEMON;
}

/* tierd says where it listens; tierd-net listens beside it. */
static int open_socket(struct ctl *ctl, int *fd)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s CLEANUP_CLOSE = -1;
	json_t *status;
	int rc = ctl_ask(ctl, "status", NULL, &status);

	if (rc != CTL_OK)
		return rc;
	snprintf(a.sun_path, sizeof(a.sun_path), "%.100s.net",
		 json_string_value(json_at(status, "socket")));
	json_decref(status);
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof(a)))
		return no_net(ctl, a.sun_path);
	*fd = take_fd(&s);
	return CTL_OK;
}

static char *receive(int fd, int32_t *error)
{
	char *m = malloc(NET_MESSAGE_MAX + 1);
	const struct net_text *text = (void *)m;
	size_t have = 0;
	int64_t whole = 0;

	while (m && whole == 0) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n = poll(&p, 1, ANSWER_MS) == 1 ?
				    recv(fd, m + have, NET_MESSAGE_MAX - have, 0) : 0;

		have += n > 0 ? (size_t)n : 0;
		whole = n > 0 ? net_check(m, have) : -ENOTCONN;
	}
	if (whole <= 0 || text->header.type != NET_TEXT) {
		free(m);
		return NULL;
	}
	*error = text->error;
	m[sizeof(*text) + text->bytes] = '\0';
	return m;
}

/* A question, and names that it may have. */
struct question {
	struct net_admin m;
	char name[NET_NAMES_MAX][NET_NAME_BYTES];
};

static int add_names(struct ctl *ctl, struct question *q, const char *list)
{
	size_t length;

	for (uint32_t i = 0; list; i++, list = list[length] ? list + length + 1 : NULL) {
		length = strcspn(list, ",");
		if (i == NET_NAMES_MAX)
			return ctl_usage(ctl, "hosts are %u at most", NET_NAMES_MAX);
		if (!length || length >= NET_NAME_BYTES)
			return ctl_usage(ctl, "\"%.64s\" does not begin with a host's name", list);
		memcpy(q->name[i], list, length);
		q->m.header.length += NET_NAME_BYTES;
	}
	return CTL_OK;
}

/* word: two at most, NULL where there is none; names: with commas, or NULL. */
static int ask_net(struct ctl *ctl, const char *verb, const char *const word[2], const char *names,
		   json_t **answer)
{
	struct question q = {
		.m.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_ADMIN,
			      .length = sizeof(q.m) },
	};
	char *m CLEANUP_FREE = NULL;
	int fd CLEANUP_CLOSE = -1;
	int rc = add_names(ctl, &q, names);
	int32_t error = 0;

	if (rc == CTL_OK)
		rc = open_socket(ctl, &fd);
	if (rc != CTL_OK)
		return rc;
	snprintf(q.m.verb, sizeof(q.m.verb), "%s", verb);
	for (uint32_t i = 0; i < 2 && word[i]; i++)
		if ((size_t)snprintf(q.m.word[i], sizeof(q.m.word[i]), "%s", word[i]) >=
		    sizeof(q.m.word[i]))
			return ctl_usage(ctl, "\"%.64s\" is too long", word[i]);
	if (send(fd, &q, q.m.header.length, MSG_NOSIGNAL) == (ssize_t)q.m.header.length)
		m = receive(fd, &error);
	*answer = m ? json_loads(m + sizeof(struct net_text), 0, NULL) : NULL;
	if (!*answer) {
		fprintf(stderr, "tierctl %s: tierd-net gave no answer\n", ctl->verb);
		return CTL_FAILED;
	}
	if (!error)
		return CTL_OK;
	fprintf(stderr, "tierctl %s: %s\n", ctl->verb,
		json_string_value(json_at(*answer, "why")));
	json_decref(*answer);
	return CTL_FAILED;
}

/* ---- showing ------------------------------------------------------------------------------- */

static int show_peers(const json_t *answer, uint32_t terminal)
{
	static const char *const heads[] = { "~host",	"state",   "over", ">in",     ">out",
					     ">pulls", ">missed", ">failed", ">/s", ">answer",
					     "=why" };
	const json_t *peers = json_at(answer, "peers");
	struct grid *g = grid_new(heads, COUNT(heads));
	char cell[CTL_CELL];

	for (size_t i = 0; i < json_array_size(peers); i++) {
		const json_t *p = json_array_get(peers, i);

		grid_add(g, ctl_text(cell, p, "name"));
		grid_add(g, ctl_text(cell, p, "state"));
		grid_add(g, ctl_text(cell, p, "transport"));
		grid_add(g, ctl_bytes_short(cell, p, "bytes_in"));
		grid_add(g, ctl_bytes_short(cell, p, "bytes_out"));
		grid_add(g, ctl_count(cell, p, "pulls"));
		grid_add(g, ctl_count(cell, p, "misses"));
		grid_add(g, ctl_count(cell, p, "failed"));
		grid_add(g, ctl_bytes_short(cell, p, "bytes_per_s"));
		grid_add(g, ctl_ns(cell, p, "answer_ns"));
		grid_add(g, ctl_text(cell, p, "why"));
	}
	return grid_print(g, stdout, terminal);
}

static void show_homes(const json_t *homes)
{
	char a[CTL_CELL], b[CTL_CELL];

	if (json_is_true(json_at(homes, "used")))
		printf("a home: %s entries held, %s probes/s\n", ctl_count(a, homes, "entries"),
		       ctl_count(b, homes, "probes_per_s"));
}

static void show_pool(const json_t *pool)
{
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL], e[CTL_CELL];

	if (json_is_object(pool))
		printf("pool %s: %s of %s extents are ours; %s in, %s out by it\n",
		       ctl_text(a, pool, "device"), ctl_count(b, pool, "ours"),
		       ctl_count(c, pool, "extents"), ctl_bytes_short(d, pool, "bytes_in"),
		       ctl_bytes_short(e, pool, "bytes_out"));
}

static int show(const json_t *answer, uint32_t terminal)
{
	const json_t *contexts = json_at(answer, "contexts");
	const char *etcd = json_string_value(json_at(answer, "etcd"));
	const char *rdma = json_string_value(json_at(json_at(answer, "rdma"), "device"));
	char a[CTL_CELL], b[CTL_CELL];

	printf("host %s on %s, %s", ctl_text(a, answer, "name"), ctl_text(b, answer, "listen"),
	       json_is_true(json_at(answer, "tls")) ? "TLS" : "bare TCP");
	if (rdma && *rdma)
		printf(", RDMA by %s with %s registered", rdma,
		       ctl_bytes_short(a, json_at(answer, "rdma"), "pinned"));
	if (etcd && *etcd)
		printf("; fleet %s in etcd %s, heard %s ago", ctl_text(a, answer, "fleet"), etcd,
		       ctl_ns(b, answer, "etcd_age_ns"));
	if (json_is_true(json_at(answer, "full")))
		printf("\nthe fleet has 65 hosts without this one, and no room for it:"
		       " tierd-net --fleet ANOTHER");
	printf("\nshared:");
	for (size_t i = 0; i < json_array_size(contexts); i++)
		printf(" %s (epoch %s%s%s)", ctl_text(a, json_array_get(contexts, i), "name"),
		       ctl_count(b, json_array_get(contexts, i), "epoch"),
		       json_is_true(json_at(json_array_get(contexts, i), "strict")) ? ", strict" :
										      "",
		       json_array_size(json_at(json_array_get(contexts, i), "with")) ?
			       ", with some" : "");
	printf("%s\n", json_array_size(contexts) ? "" : " nothing; tierctl context share NAME");
	show_homes(json_at(answer, "homes"));
	show_pool(json_at(answer, "pool"));
	return show_peers(answer, terminal);
}

int ctl_hosts(struct ctl *ctl, int argc, char **argv)
{
	json_t *answer;
	int rc = ask_net(ctl, "hosts", (const char *const[]){ NULL, NULL }, NULL, &answer);

	(void)argc;
	(void)argv;
	return rc == CTL_OK ? ctl_show(ctl, answer, show) : rc;
}

/* ---- doing --------------------------------------------------------------------------------- */

static int act(struct ctl *ctl, const char *verb, const char *const word[2], const char *names,
	       const char *done)
{
	json_t *answer;
	int rc = ask_net(ctl, verb, word, names, &answer);

	if (rc != CTL_OK)
		return rc;
	if (ctl->json)
		rc = ctl_print_json(answer);
	else
		printf("%s: %s\n", word[0], done);
	json_decref(answer);
	return rc;
}

int ctl_hosts_forget(struct ctl *ctl, int argc, char **argv)
{
	(void)argc;
	return act(ctl, "forget", (const char *const[]){ argv[0], NULL }, NULL,
		   "forgotten, until it is a member again");
}

int ctl_hosts_epoch(struct ctl *ctl, int argc, char **argv)
{
	const char *value = argc == 2 ? argv[1] : NULL;

	if (value && (!*value || strspn(value, "0123456789") != strlen(value) || value[0] == '0'))
		return ctl_usage(ctl, "epoch \"%.64s\" is not a number from 1 on", value);
	return act(ctl, "epoch", (const char *const[]){ argv[0], value }, NULL,
		   "all blocks so far are invalid, on every host");
}

int ctl_context_share(struct ctl *ctl, int argc, char **argv)
{
	const char *how = NULL, *names = NULL;

	if (!argc || argv[0][0] == '-')
		return ctl_usage(ctl, "an argument is missing");
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "strict") == 0)
			how = argv[i];
		else if (strcmp(argv[i], "--with") == 0 && i + 1 < argc && *argv[i + 1])
			names = argv[++i];
		else
			return ctl_usage(ctl, "\"%.64s\" is neither \"strict\" nor --with "
					      "HOST,HOST...", argv[i]);
	}
	return act(ctl, "share", (const char *const[]){ argv[0], how }, names,
		   names ? "shared with the hosts that were named" :
			   "shared with the other hosts of the fleet");
}

int ctl_context_unshare(struct ctl *ctl, int argc, char **argv)
{
	(void)argc;
	return act(ctl, "unshare", (const char *const[]){ argv[0], NULL }, NULL,
		   "shared no longer");
}
