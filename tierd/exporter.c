/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics' end point: HTTP by libmicrohttpd in a thread of its own, on a loopback port, on a
 * UNIX socket, or on both. A scrape asks the loop for a snapshot and makes the text of it, so what
 * a slow or hostile scraper costs the loop is one snapshot each SNAPSHOT_NS. The port is open to
 * everybody on the host, so it names no context (I4); the socket's mode is that of the daemon's
 * user alone, so it does.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tierd/obs/metrics.h"
#include "tierd/shell.h"

#if TIER_HAVE_MICROHTTPD
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>

#include "libtier/base/atomic.h"
#include "libtier/base/time.h"

#define SNAPSHOT_NS (100 * NS_PER_MS) /* scrapes that come faster get the same figures */
#define LOOP_WAIT_NS (2 * NS_PER_S)   /* the loop answers in a turn; else the scraper hears 503 */
#define CONNECTIONS_MAX 16u
#define CONNECTION_BYTES ((size_t)16384) /* for a request's head; longer ones are refused */
#define CONNECTION_S 5u                  /* without a byte from the scraper, or taken by it */

static const char openmetrics_type[] =
	"application/openmetrics-text; version=1.0.0; charset=utf-8";
static const char prometheus_type[] = "text/plain; version=0.0.4; charset=utf-8";

struct door {
	struct exporter *exporter;
	struct MHD_Daemon *http;
	bool named; /* tells the names of contexts */
	struct obs_scrape seen; /* of its thread alone */
};

/* The lock guards what stands below it; it is held for a copy of the snapshot, no longer. */
struct exporter {
	struct shell *shell;
	pthread_mutex_t lock;
	pthread_cond_t taken;
	uint32_t wanted; /* the loop looks at this one without the lock first */
	uint64_t taken_ns;
	struct obs_scrape snapshot;
	struct door port, socket;
};

static void wake_loop(struct shell *s)
{
	uint64_t one = 1;

	/* An eventfd that does not block: what fails is a full one, which wakes as well. */
	if (write(s->loop.fd[LOOP_WORKERS], &one, sizeof(one)) < 0)
		errno = 0;
}

/* ---- the loop's side ----------------------------------------------------------------------- */

void exporter_turn(struct shell *s, uint64_t now_ns)
{
	struct exporter *e = s->exporter;

	if (!e || !atomic_load_acquire_u32(&e->wanted))
		return;
	if (pthread_mutex_trylock(&e->lock)) {
		wake_loop(s); /* the loop waits for nobody, and looks again before it sleeps */
		return;
	}
	obs_scrape_take(&s->obs, now_ns, &e->snapshot);
	e->taken_ns = now_ns;
	atomic_store_release_u32(&e->wanted, 0);
	pthread_cond_broadcast(&e->taken);
	pthread_mutex_unlock(&e->lock);
}

/* ---- the scraper's side -------------------------------------------------------------------- */

/* Has the loop take a snapshot. The lock is held. */
static int refresh(struct exporter *e, uint64_t now)
{
	uint64_t until = now + LOOP_WAIT_NS;
	struct timespec end = { .tv_sec = (time_t)(until / NS_PER_S),
				.tv_nsec = (long)(until % NS_PER_S) };

	atomic_store_release_u32(&e->wanted, 1);
	wake_loop(e->shell);
	while (atomic_load_acquire_u32(&e->wanted))
		if (pthread_cond_timedwait(&e->taken, &e->lock, &end))
			return -ETIMEDOUT;
	return 0;
}

/* A snapshot that is new enough, of this door's own: the text is made without the lock. */
static int look(struct door *d)
{
	struct exporter *e = d->exporter;
	uint64_t now = time_now_ns();
	int rc = 0;

	pthread_mutex_lock(&e->lock);
	if (!e->taken_ns || now - e->taken_ns >= SNAPSHOT_NS)
		rc = refresh(e, now);
	if (rc == 0)
		d->seen = e->snapshot;
	pthread_mutex_unlock(&e->lock);
	return rc;
}

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type,
			      char *text, size_t length)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result done;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", type);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, "Allow", "GET, HEAD");
	done = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return done;
}

static enum MHD_Result say(struct MHD_Connection *c, unsigned status, const char *text)
{
	char line[80];

	snprintf(line, sizeof(line), "%s\n", text);
	return answer(c, status, "text/plain; charset=utf-8", line, strlen(line));
}

static enum MHD_Result scrape(struct door *d, struct MHD_Connection *c)
{
	const char *accept = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Accept");
	bool open = accept && strstr(accept, "application/openmetrics-text");
	enum MHD_Result done;
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	int rc = out ? 0 : -ENOMEM;

	if (rc == 0) {
		rc = look(d);
		if (rc == 0)
			obs_scrape_write(&d->exporter->shell->obs, &d->seen,
					 open ? OBS_OPENMETRICS : OBS_PROMETHEUS, d->named, out);
		if (fclose(out) && rc == 0)
			rc = -ENOMEM;
	}
	if (rc == 0)
		done = answer(c, MHD_HTTP_OK, open ? openmetrics_type : prometheus_type, text,
			      length);
	else
		done = say(c, MHD_HTTP_SERVICE_UNAVAILABLE, "the daemon is busy; ask again");
	free(text);
	return done;
}

static enum MHD_Result request(void *arg, struct MHD_Connection *c, const char *url,
			       const char *method, const char *version, const char *data,
			       size_t *data_bytes, void **state)
{
	(void)version;
	(void)data;
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET /metrics is all there is");
	if (*data_bytes) { /* a GET with a body: read and forgotten */
		*data_bytes = 0;
		return MHD_YES;
	}
	*state = arg;
	if (strcmp(url, "/metrics"))
		return say(c, MHD_HTTP_NOT_FOUND, "the figures are at /metrics");
	return scrape(arg, c);
}

/* ---- doors --------------------------------------------------------------------------------- */

static int door_open(struct exporter *e, struct door *d, int fd)
{
	d->exporter = e;
	d->http = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0, NULL, NULL,
				   request, d, MHD_OPTION_LISTEN_SOCKET, fd,
				   MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
				   MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES,
				   MHD_OPTION_CONNECTION_TIMEOUT, CONNECTION_S, MHD_OPTION_END);
	if (d->http)
		return 0;
	close(fd);
	return -ENOMEM;
}

static int listen_at(const struct sockaddr *to, socklen_t bytes, mode_t mode)
{
	int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, rc;
	mode_t before = umask((mode_t)(0777 & ~mode));

	if (fd < 0)
		rc = -errno;
	else if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
		 bind(fd, to, bytes) || listen(fd, (int)CONNECTIONS_MAX))
		rc = -errno;
	else
		rc = fd;
	umask(before);
	if (rc < 0 && fd >= 0)
		close(fd);
	return rc;
}

static int listen_port(uint32_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	return listen_at((const struct sockaddr *)&to, sizeof(to), 0777);
}

/* What an earlier daemon left is taken away; a socket that somebody listens on is not. */
static int listen_socket(const char *path)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct stat st;

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) && errno == ECONNREFUSED &&
	    lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		unlink(path);
	close(fd);
	return listen_at((const struct sockaddr *)&to, sizeof(to), 0600);
}

static int door_begin(struct shell *s, struct door *d, int fd, const char *where)
{
	int rc = fd < 0 ? fd : door_open(s->exporter, d, fd);

	if (rc)
		log_error(&s->log, "metrics cannot be served", where,
			  "choose another metrics.port or metrics.socket, or 0 and none",
			  "error=\"%s\" errno=%d", strerror(-rc), -rc);
	else
		log_info(&s->log, "metrics", where, "");
	return rc;
}

int exporter_open(struct shell *s)
{
	struct exporter *e;
	char where[32];
	pthread_condattr_t clock;
	int rc = 0;

	if (!s->config.metrics_port && !s->config.metrics_socket[0])
		return 0;
	e = s->exporter = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->shell = s;
	pthread_mutex_init(&e->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&e->taken, &clock);
	pthread_condattr_destroy(&clock);
	if (s->config.metrics_port) {
		snprintf(where, sizeof(where), "127.0.0.1:%u", s->config.metrics_port);
		rc = door_begin(s, &e->port, listen_port(s->config.metrics_port), where);
	}
	e->socket.named = true;
	if (rc == 0 && s->config.metrics_socket[0])
		rc = door_begin(s, &e->socket, listen_socket(s->config.metrics_socket),
				s->config.metrics_socket);
	if (rc)
		exporter_close(s);
	return rc;
}

void exporter_close(struct shell *s)
{
	struct exporter *e = s->exporter;

	if (!e)
		return;
	if (e->port.http)
		MHD_stop_daemon(e->port.http);
	if (e->socket.http) {
		MHD_stop_daemon(e->socket.http);
		unlink(s->config.metrics_socket);
	}
	pthread_cond_destroy(&e->taken);
	pthread_mutex_destroy(&e->lock);
	free(e);
	s->exporter = NULL;
}

#else

void exporter_turn(struct shell *s, uint64_t now_ns)
{
	(void)s;
	(void)now_ns;
}

int exporter_open(struct shell *s)
{
	if (!s->config.metrics_port && !s->config.metrics_socket[0])
		return 0;
	log_error(&s->log, "metrics cannot be served", "metrics.port, metrics.socket",
		  "install libmicrohttpd-dev and build anew", "");
	return -ENOSYS;
}

void exporter_close(struct shell *s)
{
	(void)s;
}

#endif
