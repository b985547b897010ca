/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and end of the daemon: what it refuses to start on and what it then leaves untouched, what
 * survives a stop and a kill, and how it takes over from a daemon that died.
 */
#include "tests/integration/front_client.h"

#include <sys/resource.h>

#include "libtier/abi/disk.h"

/* ---- starts that must fail ----------------------------------------------------------------- */

/* The daemon must refuse to start, with these words in its log. */
static void refuses(struct daemon *d, const char *const *extra, const char *says)
{
	int status = 0, out;
	pid_t pid, ended = 0;

	unlink(d->log);
	pid = daemon_spawn(d, extra, &out);
	for (int i = 0; i < PATIENCE_MS / 10 && !ended; i++) {
		ended = waitpid(pid, &status, WNOHANG);
		usleep(10000);
	}
	if (!ended) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		fail_msg("the daemon runs, and does not say \"%s\"", says);
	}
	close(out);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	if (!daemon_logged(d, says))
		fail_msg("%s does not say \"%s\"", d->log, says);
}

static void write_file(const char *path, const void *bytes, size_t count, off_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, count), (ssize_t)count);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

static void test_foreign_files_are_refused(void **state)
{
	static const char *const format[] = { "--format", NULL };
	char before[64] = "photographs of my cat", after[64] = "";
	struct daemon d;
	int fd;

	(void)state;
	daemon_folder(&d);
	write_file(d.store, before, sizeof(before), 8 << 20);
	refuses(&d, NULL, "not a tier store");
	write_file(d.store, before, sizeof(before), sizeof(before));
	refuses(&d, NULL, "not a tier store");
	fd = open(d.store, O_RDONLY);
	assert_int_equal(read(fd, after, sizeof(after)), (ssize_t)sizeof(after));
	close(fd);
	assert_memory_equal(before, after, sizeof(before));
	daemon_start(&d, format);
	daemon_serves(&d);
	daemon_stop(&d);
	daemon_start(&d, NULL);
	daemon_stop(&d);
	daemon_remove(&d);
}

/* Change bytes of the store; returns what was there in *was. */
static void poke(const struct daemon *d, off_t at, const void *bytes, void *was, size_t count)
{
	int fd = open(d->store, O_RDWR);

	assert_true(fd >= 0);
	if (was)
		assert_int_equal(pread(fd, was, count, at), (ssize_t)count);
	assert_int_equal(pwrite(fd, bytes, count, at), (ssize_t)count);
	close(fd);
}

static void test_damaged_stores(void **state)
{
	uint8_t noise[4096], first[4096], second[4096], slots[2][4096];
	struct disk_super super;
	struct daemon d;

	(void)state;
	memset(noise, 0x5a, sizeof(noise));
	daemon_folder(&d);
	daemon_start(&d, NULL);
	daemon_stop(&d);
	poke(&d, 0, noise, first, sizeof(noise));
	memcpy(&super, first, sizeof(super));
	unlink(d.log);
	daemon_start(&d, NULL);
	daemon_stop(&d);
	assert_true(daemon_logged(&d, "its copy was used"));
	poke(&d, 0, first, second, sizeof(first)); /* it was repaired */
	assert_memory_equal(first, second, sizeof(first));
	poke(&d, 0, noise, NULL, sizeof(noise));
	poke(&d, 4096, noise, second, sizeof(noise));
	refuses(&d, NULL, "not a tier store");
	poke(&d, 0, first, NULL, sizeof(first));
	poke(&d, 4096, second, NULL, sizeof(second));
	/* One slot of the catalog may be lost, not both. */
	poke(&d, (off_t)super.catalog_offset, noise, slots[0], sizeof(noise));
	daemon_start(&d, NULL);
	daemon_stop(&d);
	poke(&d, (off_t)super.catalog_offset, noise, slots[0], sizeof(noise));
	poke(&d, (off_t)(super.catalog_offset + super.catalog_bytes), noise, slots[1],
	     sizeof(noise));
	refuses(&d, NULL, "both copies of the catalog");
	poke(&d, (off_t)(super.catalog_offset + super.catalog_bytes), slots[1], NULL,
	     sizeof(noise));
	/* Cut off. */
	assert_int_equal(truncate(d.store, 32 << 20), 0);
	refuses(&d, NULL, "shorter than its super block");
	daemon_remove(&d);
}

static void test_another_version(void **state)
{
	uint8_t sector[4096];
	struct disk_super *super = (void *)sector;
	struct daemon d;
	int fd;

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, NULL);
	daemon_stop(&d);
	fd = open(d.store, O_RDWR);
	assert_int_equal(pread(fd, sector, sizeof(sector), 0), (ssize_t)sizeof(sector));
	super->version++;
	assert_int_equal(pwrite(fd, sector, sizeof(sector), 0), (ssize_t)sizeof(sector));
	close(fd);
	refuses(&d, NULL, "another version");
	daemon_remove(&d);
}

static void test_bad_configurations(void **state)
{
	static const char *const none[] = { "cxl.size=0", NULL };
	static const char *const wrong[] = { "cxl.size=lots", NULL };
	static const char *const unknown[] = { "cxl.sise=64MiB", NULL };
	static const char *const backend[] = { "cxl.backend=abacus", NULL };
	static const char *const tiny[] = { "nvme.size=1MiB", NULL };
	static const char *const byte[] = { "nvme.size=1", NULL };
	static const char *const huge[] = { "cxl.size=1024TiB", NULL };
	static const char *const file[] = { "--config=/nonexistent.conf", NULL };
	static const char *const place[] = { "socket=/nonexistent/a/b", NULL };
	struct daemon d;
	char left[200];

	(void)state;
	daemon_folder(&d);
	refuses(&d, none, "puts land in CXL");
	refuses(&d, wrong, "64MiB");
	refuses(&d, unknown, "is not a key");
	refuses(&d, backend, "backend=abacus known=\"module, numa, memfd, sim\"");
	refuses(&d, tiny, "too small");
	refuses(&d, byte, "too small");
	refuses(&d, huge, "larger than the memory there is\" object=\"--set cxl.size\"");
	refuses(&d, file, "/nonexistent.conf");
	/* A refused start leaves no store behind. */
	assert_int_equal(access(d.store, F_OK), -1);
	snprintf(left, sizeof(left), "%s.new", d.store);
	assert_int_equal(access(left, F_OK), -1);
	if (geteuid() != 0) /* root makes the folder */
		refuses(&d, place, "/nonexistent/a/b");
	daemon_remove(&d);
}

/* Sizes that a file alone says: the line of the one that is too large is told. */
static void test_a_size_beyond_the_host(void **state)
{
	char conf[200], command[440], where[240], said[4096];
	const char *build = getenv("BUILD");
	struct daemon d;
	FILE *f;

	(void)state;
	daemon_folder(&d);
	snprintf(conf, sizeof(conf), "%s/conf", d.folder);
	f = fopen(conf, "we");
	assert_non_null(f);
	fprintf(f, "socket = %s\nstore.path = %s\ncxl.size = 64MiB\n", d.socket, d.store);
	fputs("# more than any host has\nhbm.size = 900TiB\n", f);
	assert_int_equal(fclose(f), 0);
	snprintf(command, sizeof(command), "exec %s/tierd --foreground --config=%s 2>&1",
		 build ? build : "build/plain", conf);
	f = popen(command, "re");
	assert_non_null(f);
	said[fread(said, 1, sizeof(said) - 1, f)] = '\0';
	assert_int_equal(WEXITSTATUS(pclose(f)), 1);
	snprintf(where, sizeof(where), "object=\"%s:5: hbm.size\"", conf);
	assert_non_null(strstr(said, where));
	assert_non_null(strstr(said, "900 TiB for both tiers are wanted, and "));
	assert_non_null(strstr(said, " can be used: write a smaller size or auto"));
	assert_int_equal(access(d.store, F_OK), -1);
	daemon_remove(&d);
}

#define UP "../../../../../../../../../../../../../../.."

/* A path of --set leads from here, as that of an option does. */
static void test_a_path_from_here(void **state)
{
	char store[300];
	const char *const settings[] = { store, NULL };
	struct daemon d;

	(void)state;
	daemon_folder(&d);
	snprintf(store, sizeof(store), "store.path=" UP "%s", d.store);
	daemon_start(&d, settings);
	assert_int_equal(access(d.store, F_OK), 0);
	daemon_stop(&d);
	daemon_remove(&d);
}

/* A limit on file sizes is told, not died of. */
static void test_a_limit_on_file_sizes(void **state)
{
	struct rlimit before, small;
	struct daemon d;
	char left[200];

	(void)state;
	daemon_folder(&d);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = before;
	small.rlim_cur = 32 << 20;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	refuses(&d, NULL, "raise the limit on file sizes");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	snprintf(left, sizeof(left), "%s.new", d.store);
	assert_int_equal(access(left, F_OK), -1);
	daemon_remove(&d);
}

/* ---- two daemons --------------------------------------------------------------------------- */

static void test_a_second_daemon_is_refused(void **state)
{
	static const char *const memory[] = { "nvme.size=0", NULL };
	char other[200];
	const char *const elsewhere[] = { other, NULL };
	const char *const anew[] = { other, "--format", NULL };
	struct stat before, after;
	struct daemon d, e;

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, NULL);
	assert_int_equal(stat(d.store, &before), 0);
	e = d;
	snprintf(e.log, sizeof(e.log), "%s/log2", d.folder);
	refuses(&e, memory, "another daemon listens");
	/* It sees that first: no store is made for it. */
	snprintf(e.store, sizeof(e.store), "%s/in/vain", d.folder);
	refuses(&e, NULL, "another daemon listens");
	snprintf(other, sizeof(other), "%s/in", d.folder);
	assert_int_equal(access(other, F_OK), -1);
	memcpy(e.store, d.store, sizeof(e.store));
	snprintf(other, sizeof(other), "socket=%s2", d.socket);
	refuses(&e, elsewhere, "another daemon has the store");
	/* Nor may the file be replaced under the one that has it. */
	refuses(&e, anew, "another daemon has the store");
	assert_int_equal(stat(d.store, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	daemon_serves(&d);
	daemon_stop(&d);
	assert_int_equal(access(d.socket, F_OK), -1);
	daemon_remove(&d);
}

/* A link to the store is followed, also when it is made or made anew: its bytes lie there. */
static void test_a_link_to_the_store(void **state)
{
	static const char *const anew[] = { "--format", NULL };
	char folder[300], real[320];
	struct stat st;
	struct daemon d;

	(void)state;
	daemon_folder(&d);
	snprintf(folder, sizeof(folder), "%s/disk", d.folder);
	snprintf(real, sizeof(real), "%s/store", folder);
	assert_int_equal(mkdir(folder, 0700), 0);
	assert_int_equal(symlink("disk/store", d.store), 0);
	for (int i = 0; i < 3; i++) {
		daemon_start(&d, i == 2 ? anew : NULL);
		daemon_stop(&d);
		assert_int_equal(lstat(d.store, &st), 0);
		assert_true(S_ISLNK(st.st_mode));
		assert_int_equal(lstat(real, &st), 0);
		assert_true(S_ISREG(st.st_mode) && st.st_size > 0);
	}
	unlink(d.store);
	assert_int_equal(symlink("store", d.store), 0); /* to itself */
	refuses(&d, NULL, "store");
	unlink(d.store);
	unlink(real);
	rmdir(folder);
	daemon_remove(&d);
}

static void test_what_is_in_the_way_of_the_socket(void **state)
{
	static const char *const memory[] = { "nvme.size=0", NULL };
	struct daemon d;

	(void)state;
	daemon_folder(&d);
	write_file(d.socket, "x", 1, 1);
	refuses(&d, memory, "not a socket");
	assert_int_equal(access(d.socket, F_OK), 0);
	unlink(d.socket);
	/* A dead daemon's socket is replaced. */
	daemon_start(&d, memory);
	kill(d.pid, SIGKILL);
	daemon_wait(&d);
	assert_int_equal(access(d.socket, F_OK), 0);
	daemon_start(&d, memory);
	daemon_serves(&d);
	daemon_stop(&d);
	daemon_remove(&d);
}

/* ---- what survives ------------------------------------------------------------------------- */

static void geometry_of(struct wire_ctx *m)
{
	struct abi_geometry *g = &m->geometry;

	g->part_count = 1;
	g->block_tokens = 16;
	g->pages_per_block = 1;
	g->page_align = ABI_PAGE_ALIGN;
	g->block_bytes = 4096;
	g->part[0] = (struct abi_part){ .kind = ABI_KIND_DENSE, .hit_rule = ABI_HIT_EVERY,
					.shard_rule = ABI_SHARD_GROUPS, .layers = 1, .groups = 1,
					.page_bytes = 4096, .page_stride = 4096 };
	snprintf(g->part[0].name, sizeof(g->part[0].name), "kv");
}

/* The answer's type; *value: the context's epoch, or the error. */
static uint16_t ask(struct daemon *d, uint16_t type, const char *name, uint64_t epoch,
		    int64_t *value)
{
	struct wire_ctx m = { .epoch = epoch };
	struct client c;
	union answer a;

	assert_int_equal(client_open(&c, d), 0);
	snprintf(m.name, sizeof(m.name), "%s", name);
	if (type == WIRE_CTX_CREATE)
		geometry_of(&m);
	assert_true(client_ask(&c, &m, type, sizeof(m), &a) > 0);
	for (int i = 0; i < c.fds; i++)
		close(c.fd[i]);
	*value = a.header.type == WIRE_CTX_INFO ? (int64_t)a.info.epoch :
		 a.header.type == WIRE_DONE     ? (int64_t)a.done.value :
						  a.error.error;
	client_close(&c);
	return a.header.type;
}

static void test_contexts_survive(void **state)
{
	struct daemon d;
	int64_t value;

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, NULL);
	assert_int_equal(ask(&d, WIRE_CTX_CREATE, "one", 0, &value), WIRE_CTX_INFO);
	assert_int_equal(ask(&d, WIRE_CTX_CREATE, "two", 0, &value), WIRE_CTX_INFO);
	assert_int_equal(ask(&d, WIRE_CTX_EPOCH, "two", 9, &value), WIRE_DONE);
	assert_int_equal(ask(&d, WIRE_CTX_CREATE, "three", 0, &value), WIRE_CTX_INFO);
	assert_int_equal(ask(&d, WIRE_CTX_REMOVE, "three", 0, &value), WIRE_DONE);
	daemon_stop(&d);
	for (int round = 0; round < 2; round++) {
		daemon_start(&d, NULL);
		assert_int_equal(ask(&d, WIRE_CTX_OPEN, "one", 0, &value), WIRE_CTX_INFO);
		assert_int_equal(value, 1);
		assert_int_equal(ask(&d, WIRE_CTX_OPEN, "two", 0, &value), WIRE_CTX_INFO);
		assert_int_equal(value, 9);
		assert_int_equal(ask(&d, WIRE_CTX_OPEN, "three", 0, &value), WIRE_ERROR);
		assert_int_equal(value, -ENOENT);
		/* What was answered was durable. */
		kill(d.pid, SIGKILL);
		daemon_wait(&d);
	}
	daemon_remove(&d);
}

/* ---- ends ---------------------------------------------------------------------------------- */

static void test_a_stop_ends_connections(void **state)
{
	struct daemon d;
	struct client c;

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, NULL);
	assert_int_equal(client_open(&c, &d), 0);
	assert_true(client_nop(&c));
	daemon_stop(&d);
	assert_int_equal(atomic_load_acquire_u32(&c.region->closed), 1);
	assert_int_equal(c.region->connection_error, ESHUTDOWN);
	assert_true(client_hung_up(&c));
	client_close(&c);
	daemon_remove(&d);
}

static void test_signals_in_a_row(void **state)
{
	struct daemon d;
	int status;

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, NULL);
	kill(d.pid, SIGINT);
	kill(d.pid, SIGTERM);
	kill(d.pid, SIGINT);
	status = daemon_wait(&d);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	daemon_remove(&d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_foreign_files_are_refused),
		cmocka_unit_test(test_damaged_stores),
		cmocka_unit_test(test_another_version),
		cmocka_unit_test(test_bad_configurations),
		cmocka_unit_test(test_a_size_beyond_the_host),
		cmocka_unit_test(test_a_path_from_here),
		cmocka_unit_test(test_a_limit_on_file_sizes),
		cmocka_unit_test(test_a_second_daemon_is_refused),
		cmocka_unit_test(test_a_link_to_the_store),
		cmocka_unit_test(test_what_is_in_the_way_of_the_socket),
		cmocka_unit_test(test_contexts_survive),
		cmocka_unit_test(test_a_stop_ends_connections),
		cmocka_unit_test(test_signals_in_a_row),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("front life", tests, NULL, NULL);
}
