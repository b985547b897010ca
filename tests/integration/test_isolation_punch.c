/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that punches holes into its own staging and region while it submits: a page fault of the
 * daemon there would wait until the kernel has freed all that lay in the hole. The daemon looks at
 * neither before the client has sealed them against it (abi/ring.h, R5), so nobody notices.
 */
#include "tests/integration/isolation.h"

#include <fcntl.h>

#define STAGING (256ull << 20)
#define FEW 10u
#define LENGTH_NS (2 * NS_PER_S)
#define NOTICED_NS (300 * NS_PER_MS) /* more than beside the same work elsewhere */
#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

/* Of the second victim, which puts durably, and of the attacker's holes. */
struct punch_board {
	uint64_t ready, stop, puts, refused, slowest_ns;
	uint64_t holes, hole_ns, refused_holes, served, ended;
};

static struct punch_board *board;
static uint64_t plain_ns, plain_durable_ns; /* the slowest beside by_itself */

/* ---- a victim that puts durably -------------------------------------------------------------- */

static void __attribute__((noreturn)) put_durably(struct isolation *w)
{
	tier_context *c;
	tier *t;

	become(UID_READER, UID_READER);
	t = connect_to(&w->d);
	c = create_as(t, "durable", 0600);
	for (uint32_t n = 0; !atomic_load_acquire_u64(&board->stop); n++) {
		uint64_t begun = time_now_ns(), took;

		board->refused += put_secret_as(c, n % 64, TIER_PUT_DURABLE) != 1;
		took = time_now_ns() - begun;
		if (n && took > board->slowest_ns)
			board->slowest_ns = took;
		atomic_store_release_u64(&board->ready, 1);
		board->puts++;
		if (n % 64 == 63)
			for (uint32_t k = 0; k < 64; k++) {
				tier_key key = secret_key(k);

				CHECK(tier_delete(c, &key, 1) >= 0);
			}
		usleep(1000);
	}
	tier_close(t);
	_exit(0);
}

/* ---- the attacker ---------------------------------------------------------------------------- */

/* Until it may not, or is killed: fill it, punch it. */
static pid_t punch_on(struct client *c)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		off_t readers = (off_t)c->region->reader_offset;
		off_t end = (off_t)c->region->total_bytes;
		uint64_t begun;
		int rc;

		memset(c->staging, 1, c->welcome.staging_bytes);
		begun = time_now_ns();
		rc = fallocate(c->staging_fd, PUNCH, 0, (off_t)c->welcome.staging_bytes);
		if (rc == 0)
			rc = fallocate(c->region_fd, PUNCH, readers, end - readers);
		if (rc) {
			CHECK(errno == EPERM);
			atomic_store_release_u64(&board->refused_holes,
						 board->refused_holes + 1);
			usleep(10000);
			continue;
		}
		board->hole_ns = time_now_ns() - begun;
		atomic_store_release_u64(&board->holes, board->holes + 1);
	}
}

/* For one more than there were. */
static void wait_for_more(const uint64_t *holes, uint64_t before)
{
	for (uint32_t i = 0; i < PATIENCE_MS && atomic_load_acquire_u64(holes) == before; i++)
		usleep(1000);
	CHECK(atomic_load_acquire_u64(holes) > before);
}

static void punch_off(pid_t pid)
{
	CHECK(kill(pid, SIGKILL) == 0);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

/* Requests whose arguments lie where the hole is, until the daemon hangs up or it was enough. */
static void submit_on(struct client *c, uint32_t context, uint32_t patience_ms)
{
	uint64_t until_ns = time_now_ns() + LENGTH_NS;
	tier_key key = secret_key(0);
	struct abi_sqe sqe = { .op = ABI_OP_FETCH, .klass = ABI_CLASS_DEMAND,
			       .context_id = context, .count = 1, .flags = ABI_SQE_KEYS,
			       .tier = ABI_TIER_CXL, .arg_bytes = sizeof(key) };
	struct abi_cqe cqe;

	while (board->served <= FEW || time_now_ns() < until_ns) {
		sqe.arg_offset = c->welcome.staging_bytes - 4096;
		memcpy(c->staging + sqe.arg_offset, &key, sizeof(key));
		if (!client_push(c, &sqe) || !client_pop(c, &cqe, patience_ms)) {
			board->ended++;
			return;
		}
		board->served++;
	}
}

static void drop(struct client *c)
{
	for (int i = 0; i < 4; i++)
		close(i == 0 ? c->region_fd : i == 1 ? c->staging_fd : i == 2 ? c->doorbell :
										c->event);
	munmap(c->region, c->region->total_bytes);
	munmap(c->staging, c->welcome.staging_bytes);
	close(c->sock);
}

/* As much work, in memory of its own: what the machine does to the victims. */
static void by_itself(struct isolation *w)
{
	uint64_t until_ns = time_now_ns() + LENGTH_NS;
	int fd = memfd_create("own", MFD_CLOEXEC);
	void *at;

	(void)w;
	CHECK(fd >= 0 && ftruncate(fd, STAGING) == 0);
	at = mmap(NULL, STAGING, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED);
	while (time_now_ns() < until_ns) {
		memset(at, 1, STAGING);
		CHECK(fallocate(fd, PUNCH, 0, STAGING) == 0);
	}
}

/* It seals nothing: it is served nothing. So often that it was hung up on, however slow it is. */
static void by_unsealed(struct isolation *w)
{
	uint64_t until_ns = time_now_ns() + LENGTH_NS;

	for (bool rings = false;
	     !(board->ended || board->served) || time_now_ns() < until_ns; rings = !rings) {
		uint64_t holes = atomic_load_acquire_u64(&board->holes);
		struct client c;
		union answer a;
		pid_t pid;
		int rc = client_open_unsealed(&c, &w->d, STAGING);

		if (rc == -EUSERS) { /* those before are not over yet */
			usleep(1000);
			continue;
		}
		CHECK(rc == 0);
		pid = punch_on(&c);
		wait_for_more(&board->holes, holes);
		rc = rings ? 0 : ask_context(&c, WIRE_CTX_OPEN, "shared", &a);
		if (rc == 0)
			submit_on(&c, rings ? 0 : a.info.context_id, 300);
		punch_off(pid);
		drop(&c);
	}
}

/* It seals while holes are being punched; the seal waits, the daemon does not. */
static void by_sealing(struct isolation *w)
{
	struct client c;
	union answer a;
	pid_t pid;

	CHECK(client_open_unsealed(&c, &w->d, STAGING) == 0);
	pid = punch_on(&c);
	wait_for_more(&board->holes, 0);
	client_seal(&c);
	CHECK(ask_context(&c, WIRE_CTX_OPEN, "shared", &a) == 0);
	submit_on(&c, a.info.context_id, PATIENCE_MS);
	wait_for_more(&board->refused_holes, 0);
	punch_off(pid);
	drop(&c);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static uint64_t longest_ns(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	char *text, *at;
	uint64_t ns;

	assert_int_equal(tier_admin(t, "stat", NULL, &text), 0);
	at = strstr(text, "\"longest_ns\":");
	assert_non_null(at);
	ns = strtoull(at + strlen("\"longest_ns\":"), NULL, 10);
	free(text);
	tier_close(t);
	return ns;
}

static void under(struct isolation *w, const char *name, void (*body)(struct isolation *w))
{
	uint64_t before = longest_ns(w), after;

	*board = (struct punch_board){ .ready = 1 };
	fflush(NULL);
	board->ready = 0;
	if (fork() == 0)
		put_durably(w);
	while (!atomic_load_acquire_u64(&board->ready))
		usleep(1000);
	attack(w, name, body);
	atomic_store_release_u64(&board->stop, 1);
	assert_true(wait(NULL) > 0);
	after = longest_ns(w);
	printf("# %s: %llu holes (the last took %.1f ms), %llu refused; %llu requests served, "
	       "%llu connections ended; %llu durable puts, %llu refused, slowest %.1f ms; "
	       "loop.longest_ns %llu, before %llu\n", name, (unsigned long long)board->holes,
	       (double)board->hole_ns / 1e6, (unsigned long long)board->refused_holes,
	       (unsigned long long)board->served, (unsigned long long)board->ended,
	       (unsigned long long)board->puts, (unsigned long long)board->refused,
	       (double)board->slowest_ns / 1e6, (unsigned long long)after,
	       (unsigned long long)before);
	assert_true(board->puts > 10 && board->refused == 0);
}

static void test_nothing(void **state)
{
	struct isolation *w = isolation_of(state);

	if (!w)
		return;
	under(w, "holes in its own memory", by_itself);
	plain_ns = w->board->slowest_ns;
	plain_durable_ns = board->slowest_ns;
}

static void nobody_noticed(struct isolation *w)
{
	assert_true(w->board->slowest_ns < NOTICED_NS + 3 * plain_ns);
	assert_true(board->slowest_ns < NOTICED_NS + 3 * plain_durable_ns);
	assert_true(longest_ns(w) < NOTICED_NS + 3 * plain_ns);
}

static void test_unsealed(void **state)
{
	struct isolation *w = isolation_of(state);

	if (!w)
		return;
	under(w, "holes under a connection that is not sealed", by_unsealed);
	nobody_noticed(w);
	assert_int_equal(board->served, 0);
	assert_true(board->holes > 0 && board->ended > 0);
}

static void test_sealed(void **state)
{
	struct isolation *w = isolation_of(state);

	if (!w)
		return;
	under(w, "holes until the seal", by_sealing);
	nobody_noticed(w);
	assert_true(board->served > FEW && board->ended == 0);
	assert_true(board->holes > 0 && board->refused_holes > 0);
}

static int setup(void **state)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	assert_true(board != MAP_FAILED);
	return isolation_setup(state);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_sealed),
		cmocka_unit_test(test_unsealed),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("isolation, punch", tests, setup, isolation_teardown);
}
