/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the shell around the core owes: a stop writes what is dirty, bytes that rotted on the store
 * are a miss and not served, places are freed behind a fence, the command line goes over the file,
 * the service manager is told when.
 */
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/user.h>

#define BLOCKS 70u /* two runs and a piece of one, which waits */
#define WORLD_MORE tier_key key[BLOCKS];

#include "tests/integration/kv_world.h"

/* The store alone keeps what is dirty when nobody writes it for a minute. */
static const char *const slow[] = { "writeback.age=60s", NULL };

static uint8_t byte_of(uint32_t n, uint32_t page)
{
	return (uint8_t)(0x40 + n * 3 + page);
}

static void put_all(struct world *w, uint32_t flags)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = flags };
	uint8_t *data = malloc(BLOCKS * BLOCK_BYTES);

	for (uint32_t i = 0; i < BLOCKS; i++) {
		assert_int_equal(tier_key_opaque(&w->key[i], &i, sizeof(i), NULL), 0);
		for (uint32_t page = 0; page < 6; page++)
			memset(data + i * BLOCK_BYTES + page * 4096, byte_of(i, page), 4096);
	}
	assert_int_equal(tier_put_copy(w->c, w->key, BLOCKS, data, &o), BLOCKS);
	free(data);
}

static struct world *begin(const char *const *settings, uint32_t flags)
{
	struct world *w = world_begin(settings);

	put_all(w, flags);
	return w;
}

/* Stop without a word to it before, start again. */
static void restart(struct world *w)
{
	tier_close(w->t);
	assert_int_equal(kill(w->d.pid, SIGTERM), 0);
	assert_int_equal(daemon_wait(&w->d), 0);
	daemon_start(&w->d, NULL);
	world_open(w);
}

/* Pages of a block that can be read, each of them right; the others are a miss. */
static uint32_t read_block(struct world *w, uint32_t n)
{
	struct tier_page page[6];
	struct tier_lease lease[6];
	struct tier_found found;
	uint32_t there = 0;

	if (tier_match(w->c, &w->key[n], 1, &found) != 1)
		return 0;
	for (uint32_t i = 0; i < 6; i++)
		page[i] = (struct tier_page){ found.block, i };
	assert_true(tier_read_pages(w->r, w->c, page, 6, 0, lease) >= 0);
	for (uint32_t i = 0; i < 6; i++) {
		for (uint32_t k = 0; lease[i].data && k < 4096; k++)
			assert_int_equal(((const uint8_t *)lease[i].data)[k], byte_of(n, i));
		there += lease[i].data != NULL;
	}
	tier_release_many(w->r, lease, 6);
	return there;
}

static void test_a_stop_writes_what_is_dirty(void **state)
{
	struct world *w;

	(void)state;
	w = begin(slow, 0);
	restart(w);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_int_equal(read_block(w, i), 6);
	world_end((void **)&w);
}

/* ---- rot ----------------------------------------------------------------------------------- */

/* Where the store keeps this page: its bytes are all alike, and like no other's. */
static off_t find_page(const struct daemon *d, uint8_t byte, uint8_t out[4096])
{
	uint8_t wanted[4096];
	int fd = open(d->store, O_RDONLY);
	off_t at = 0;

	memset(wanted, byte, sizeof(wanted));
	assert_true(fd >= 0);
	while (pread(fd, out, 4096, at) == 4096 && memcmp(out, wanted, 4096) != 0)
		at += 4096;
	close(fd);
	assert_memory_equal(out, wanted, 4096);
	return at;
}

static void rot(const struct daemon *d, uint8_t byte)
{
	uint8_t page[4096];
	off_t at = find_page(d, byte, page);
	int fd = open(d->store, O_WRONLY);

	page[1234] ^= 4;
	assert_int_equal(pwrite(fd, page, sizeof(page), at), 4096);
	close(fd);
}

/* One bit of one page: that page is never served, and nothing else is lost. Read by itself, and
 * together with others in one operation of the device. */
static void test_rot_is_a_miss(void **state)
{
	struct tier_found found[BLOCKS];
	tier_block blocks[BLOCKS];
	struct world *w;
	uint32_t lost = 0;

	(void)state;
	w = begin(NULL, TIER_PUT_DURABLE);
	tier_close(w->t);
	assert_int_equal(kill(w->d.pid, SIGTERM), 0);
	assert_int_equal(daemon_wait(&w->d), 0);
	rot(&w->d, byte_of(5, 2));
	rot(&w->d, byte_of(40, 0));
	daemon_start(&w->d, NULL);
	world_open(w);
	assert_true(read_block(w, 5) < 6);
	assert_int_equal(tier_match(w->c, w->key, BLOCKS, found), 5); /* voided */
	for (uint32_t i = 0; i < BLOCKS; i++)
		blocks[i] = found[i].block;
	tier_fetch(w->c, blocks + 6, BLOCKS - 6, NULL);
	for (uint32_t i = 0; i < BLOCKS; i++)
		lost += read_block(w, i) < 6;
	assert_int_equal(lost, 2);
	world_end((void **)&w);
}

/* ---- the fence ----------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* The daemon's loop thread stands still, and we are told of its system calls. */
static bool stops(pid_t pid)
{
	int status;

	return ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0 &&
	       waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status);
}

/* Lets the daemon run until its loop thread enters this system call; false = it does not. */
static bool enters(pid_t pid, long wanted, uint64_t end_ns)
{
	struct user_regs_struct regs;
	int status;

	ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
	while (time_now_ns() < end_ns) {
		pid_t got = waitpid(pid, &status, __WALL | WNOHANG);

		if (got == 0) {
			usleep(100);
			continue;
		}
		if (got != pid || !WIFSTOPPED(status))
			return false;
		if (ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0 &&
		    (long)regs.orig_rax == wanted)
			return true;
		ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
	}
	return false;
}

static int evict_all(const struct daemon *d)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = d->socket };
	char *reply;
	tier *t;

	if (tier_connect(&t, &o))
		return 1;
	return tier_admin(t, "evict", "{\"context\":\"kv\",\"tier\":\"cxl\"}", &reply) != 0;
}

/* Pages that leave: no place of theirs is free before every reader was fenced. */
static void test_eviction_fences_the_readers(void **state)
{
	struct world *w;
	bool fenced;
	int status;
	pid_t child;

	(void)state;
	w = begin(NULL, TIER_PUT_DURABLE);
	if (ptrace(PTRACE_SEIZE, w->d.pid, NULL, NULL)) {
		world_end((void **)&w);
		skip();
	}
	assert_true(stops(w->d.pid)); /* before anybody asks */
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(evict_all(&w->d));
	fenced = enters(w->d.pid, SYS_membarrier, time_now_ns() + PATIENCE_MS * NS_PER_MS);
	ptrace(PTRACE_DETACH, w->d.pid, NULL, NULL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(fenced);
	world_end((void **)&w);
}
#else
static void test_eviction_fences_the_readers(void **state)
{
	(void)state;
	skip();
}
#endif

/* ---- settings, service manager ------------------------------------------------------------- */

/* What tierctl status tells; to be freed. */
static char *status_of(const struct daemon *d)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = d->socket };
	char *text;
	tier *t;

	assert_int_equal(tier_connect(&t, &o), 0);
	assert_int_equal(tier_admin(t, "status", NULL, &text), 0);
	tier_close(t);
	return text;
}

static void test_the_command_line_goes_over_the_file(void **state)
{
	char path[200], option[220], *text;
	const char *const settings[] = { option, "client.puts=7", NULL };
	struct daemon d;
	FILE *f;

	(void)state;
	daemon_folder(&d);
	snprintf(path, sizeof(path), "%s/conf", d.folder);
	snprintf(option, sizeof(option), "--config=%s", path);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("client.puts = 5\nclient.pins = 6\nclient.requests = 8\n", f);
	fclose(f);
	daemon_start(&d, settings);
	text = status_of(&d); /* that is what counts */
	assert_non_null(strstr(text, "\"client_puts\":7"));
	assert_non_null(strstr(text, "\"client_pins\":6"));
	assert_non_null(strstr(text, "\"client_requests\":8"));
	free(text);
	daemon_stop(&d);
	daemon_remove(&d);
}

/* The next message that has this in it, in a minute; the others are passed over. */
static bool manager_hears(int sock, const char *word)
{
	char text[512];

	for (;;) {
		struct pollfd p = { .fd = sock, .events = POLLIN };
		ssize_t n = -1;

		if (poll(&p, 1, PATIENCE_MS) == 1)
			n = recv(sock, text, sizeof(text) - 1, 0);

		if (n < 0)
			return false;
		text[n] = '\0';
		if (strstr(text, word))
			return true;
	}
}

static void test_the_service_manager_is_told(void **state)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), out;
	struct daemon d;

	(void)state;
	if (!TIER_HAVE_SYSTEMD)
		skip();
	daemon_folder(&d);
	snprintf(at.sun_path, sizeof(at.sun_path), "%.90s/notify", d.folder);
	assert_int_equal(bind(manager, (struct sockaddr *)&at, sizeof(at)), 0);
	setenv("NOTIFY_SOCKET", at.sun_path, 1);
	d.pid = daemon_spawn(&d, NULL, &out);
	unsetenv("NOTIFY_SOCKET");
	assert_true(manager_hears(manager, "READY=1"));
	daemon_serves(&d); /* not before it does */
	daemon_check(&d);
	assert_int_equal(kill(d.pid, SIGTERM), 0);
	assert_true(manager_hears(manager, "STOPPING=1"));
	assert_int_equal(daemon_wait(&d), 0);
	close(out);
	close(manager);
	daemon_remove(&d);
}

/* Each client and each context takes descriptors: it has as many as it may, whoever starts it. */
static void test_all_descriptors_that_may_be_open(void **state)
{
	struct rlimit before, now;
	struct daemon d;
	char *text, fact[64];

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	now = before;
	now.rlim_cur = 256;
	if (before.rlim_max <= now.rlim_cur)
		skip();
	daemon_folder(&d);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	daemon_start(&d, NULL);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(prlimit(d.pid, RLIMIT_NOFILE, NULL, &now), 0);
	assert_true(now.rlim_cur == before.rlim_max);
	text = status_of(&d);
	snprintf(fact, sizeof(fact), "\"open files\":\"%llu\"", (unsigned long long)now.rlim_cur);
	assert_non_null(strstr(text, fact));
	free(text);
	daemon_stop(&d);
	daemon_remove(&d);
}

/* ---- uids ---------------------------------------------------------------------------------- */

static uint64_t create(struct daemon *d, const char *name, bool removed)
{
	struct wire_ctx m = { .flags = 0 };
	struct client c;
	union answer a;
	uint64_t uid;

	snprintf(m.name, sizeof(m.name), "%s", name);
	m.geometry = (struct abi_geometry){ .part_count = 1, .block_tokens = 16,
					    .pages_per_block = 1, .page_align = ABI_PAGE_ALIGN,
					    .block_bytes = 4096 };
	m.geometry.part[0] = (struct abi_part){ .name = "kv", .kind = ABI_KIND_DENSE,
						.hit_rule = ABI_HIT_EVERY,
						.shard_rule = ABI_SHARD_GROUPS, .layers = 1,
						.groups = 1, .page_bytes = 4096,
						.page_stride = 4096 };
	assert_int_equal(client_open(&c, d), 0);
	assert_true(client_ask(&c, &m, WIRE_CTX_CREATE, sizeof(m), &a) > 0);
	assert_int_equal(a.header.type, WIRE_CTX_INFO);
	uid = a.info.uid;
	for (int i = 0; i < c.fds; i++)
		close(c.fd[i]);
	if (removed)
		assert_true(client_ask(&c, &m, WIRE_CTX_REMOVE, sizeof(m), &a) > 0);
	client_close(&c);
	return uid;
}

/* Blocks of a removed context may lie in the store for long: no other one gets its number. */
static void test_a_context_has_a_number_of_its_own(void **state)
{
	struct daemon d;
	uint64_t first, second;

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, NULL);
	first = create(&d, "first", true);
	daemon_stop(&d);
	daemon_start(&d, NULL);
	second = create(&d, "second", false);
	assert_true(second > first);
	daemon_stop(&d);
	daemon_remove(&d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stop_writes_what_is_dirty),
		cmocka_unit_test(test_rot_is_a_miss),
		cmocka_unit_test(test_eviction_fences_the_readers),
		cmocka_unit_test(test_the_command_line_goes_over_the_file),
		cmocka_unit_test(test_the_service_manager_is_told),
		cmocka_unit_test(test_all_descriptors_that_may_be_open),
		cmocka_unit_test(test_a_context_has_a_number_of_its_own),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("shell", tests, NULL, NULL);
}
