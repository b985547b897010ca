/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one user's names, permissions and left-over bytes let another do: a name that was made first
 * by somebody else, a migration by who may only read, and what stands behind a short page.
 */
#include "tests/integration/isolation.h"

#define SHORT_BYTES 512u
#define SECRET 0x5a

/* ---- names ----------------------------------------------------------------------------------- */

static int create_mode(tier *t, const char *name, uint32_t mode, uint32_t flags, tier_context **c)
{
	struct tier_context_options o = { .size = sizeof(o), .mode = mode, .flags = flags };
	tier_geometry *g;
	int rc;

	CHECK(tier_geometry_preset(&g, "tiny") == 0);
	rc = tier_context_create(t, name, g, &o, c);
	tier_geometry_free(g);
	return rc;
}

static void makes_it_first(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c;
	uint32_t uid;

	CHECK(create_mode(t, "llama-prod", 0666, 0, &c) == 0);
	CHECK(tier_context_owner(c, &uid) == 0 && uid == UID_ATTACKER);
	CHECK(create_mode(t, "llama-prod", 0600, 0, &c) == 0); /* one's own, again */
	tier_close(t);
}

static void wants_its_own(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c;
	uint32_t uid;

	CHECK(create_mode(t, "llama-prod", 0600, 0, &c) == -EEXIST);
	CHECK(strstr(tier_error_text(), "belongs to user 4302"));
	CHECK(tier_context_open_of(t, "llama-prod", UID_READER, NULL, &c) == -EEXIST);
	CHECK(strstr(tier_error_text(), "belongs to user 4302"));
	/* Meant, it is opened, and it can be seen whose it is. */
	CHECK(create_mode(t, "llama-prod", 0600, TIER_OPEN_FOREIGN, &c) == 0);
	CHECK(tier_context_owner(c, &uid) == 0 && uid == UID_ATTACKER);
	CHECK(put_secret(c, 1) == 1);
	CHECK(tier_context_open_of(t, "llama-prod", UID_ATTACKER, NULL, &c) == 0);
	CHECK(tier_context_open(t, "llama-prod", NULL, &c) == 0);
	CHECK(tier_context_owner(c, &uid) == 0 && uid == UID_ATTACKER);
	/* An operator's is for everybody. */
	CHECK(create_mode(t, "for-all", 0600, 0, &c) == 0);
	CHECK(tier_context_owner(c, &uid) == 0 && uid == 0);
	tier_close(t);
}

static void test_names(void **state)
{
	struct isolation *w = isolation_of(state);
	tier_context *c;
	tier *t;

	if (!w)
		return;
	t = connect_to(&w->d); /* as root */
	assert_int_equal(create_mode(t, "for-all", 0666, 0, &c), 0);
	tier_close(t);
	attack(w, "a name that others will want", makes_it_first);
	attack_as(w, UID_READER, UID_READER, "who wants it", wants_its_own);
}

/* ---- a name taken while the daemon was away -------------------------------------------------- */

/* Run as that user, and wait for its end. */
static void run_as(uint32_t uid, const struct daemon *d, void (*body)(const struct daemon *d))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		become(uid, uid);
		body(d);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void takes_the_name(const struct daemon *d)
{
	tier *t = connect_to(d);
	tier_context *c;

	CHECK(create_mode(t, "shop", 0666, 0, &c) == 0);
	tier_close(t);
}

static void looks_into_it(const struct daemon *d)
{
	tier *t = connect_to(d);
	tier_key key = secret_key(7);
	struct tier_found found;
	tier_context *c;

	CHECK(tier_context_open(t, "shop", NULL, &c) == 0);
	CHECK(tier_match(c, &key, 1, &found) == 0);
	tier_close(t);
}

static void __attribute__((noreturn)) goes_on(const struct daemon *d, int go, int tell)
{
	tier_context *c;
	char byte;
	tier *t;

	become(UID_READER, UID_READER);
	t = connect_to(d);
	CHECK(create_mode(t, "shop", 0600, 0, &c) == 0);
	CHECK(put_secret(c, 6) == 1);
	CHECK(write(tell, "x", 1) == 1);
	CHECK(read(go, &byte, 1) == 1);
	for (uint32_t i = 0; i < 100; i++) {
		CHECK(put_secret(c, 7) != 1); /* it would lie in another user's context */
		tier_check(t);
	}
	_exit(0);
}

static void test_a_name_is_taken_meanwhile(void **state)
{
	static const char *const settings[] = { "nvme.size=0", NULL };
	int go[2], tell[2], status;
	struct daemon d;
	char byte;
	pid_t pid;

	if (!isolation_of(state))
		return;
	daemon_folder(&d);
	d.uid = UID_DAEMON;
	assert_int_equal(chown(d.folder, UID_DAEMON, UID_DAEMON), 0);
	daemon_start(&d, settings);
	assert_int_equal(pipe(go) | pipe(tell), 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		goes_on(&d, go[0], tell[1]);
	assert_int_equal(read(tell[0], &byte, 1), 1);
	daemon_stop(&d);
	daemon_start(&d, settings); /* without a store it knows no context any more */
	run_as(UID_ATTACKER, &d, takes_the_name);
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	run_as(UID_ATTACKER, &d, looks_into_it);
	daemon_stop(&d);
	daemon_remove(&d);
}

/* ---- migration ------------------------------------------------------------------------------- */

static void by_migration(struct isolation *w)
{
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_NVME, .user_data = 9 };
	struct tier_completion done;
	tier *t = connect_to(&w->d);
	tier_key key = secret_key(0);
	struct tier_found found;
	tier_context *c;

	CHECK(tier_context_open(t, "shared", NULL, &c) == 0);
	CHECK(tier_match(c, &key, 1, &found) == 1);
	for (uint32_t to = 0; to <= TIER_NVME; to++) {
		ask.tier = to;
		CHECK(tier_migrate(c, &found.block, 1, &ask) == 0);
		CHECK(tier_wait(t, &done, 1, 1, 10 * NS_PER_S) == 1);
		CHECK(done.user_data == 9 && done.result == -EACCES);
	}
	CHECK(tier_match(c, &key, 1, &found) == 1 && found.tier != TIER_NVME);
	tier_close(t);
}

static void test_migration_by_a_reader(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "migration by who may only read", by_migration);
}

/* ---- padding --------------------------------------------------------------------------------- */

static tier_context *create_short(tier *t, const char *name, uint32_t mode)
{
	const struct tier_part part = { .name = "kv", .kind = TIER_KIND_DENSE, .layers = 1,
					.groups = 1, .page_bytes = SHORT_BYTES };
	const struct tier_geometry_options g = { .size = sizeof(g), .part_count = 1,
						 .part = &part };
	struct tier_context_options o = { .size = sizeof(o), .mode = mode };
	tier_geometry *geometry;
	tier_context *c;

	CHECK(tier_geometry_new(&geometry, &g) == 0);
	CHECK(tier_context_create(t, name, geometry, &o, &c) == 0);
	tier_geometry_free(geometry);
	return c;
}

/* A block of 512 bytes, written into the arena as it is: is the secret behind them? */
static int64_t put_short(tier *t, tier_context *c, uint32_t flags, bool *secret)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = flags };
	struct tier_completion done;
	tier_key key = secret_key(70);
	uint8_t *at;
	tier_put *p;

	CHECK(tier_put_begin(c, &key, 1, &o, &p) == 0);
	at = tier_put_data(p, 0, 0, 0, 0);
	*secret = at[SHORT_BYTES] == SECRET && at[4095] == SECRET;
	memset(at, 0x11, SHORT_BYTES);
	CHECK(tier_put_commit(p, 5) == 0);
	CHECK(tier_wait(t, &done, 1, 1, 10 * NS_PER_S) == 1);
	return done.result;
}

/* It has a diary, and a notice for all. */
static void writes_a_notice(struct isolation *w)
{
	struct tier_ask down = { .size = sizeof(down), .tier = TIER_NVME, .user_data = 6 };
	static uint8_t pages[ATTACKED_BYTES];
	tier *t = connect_to(&w->d);
	tier_context *diary = create_as(t, "diary", 0600), *notice;
	tier_key key = secret_key(71);
	struct tier_completion done;
	struct tier_found found;
	bool secret;

	notice = create_short(t, "notice", 0644);
	memset(pages, SECRET, sizeof(pages));
	CHECK(tier_put_copy(diary, &key, 1, pages, NULL) == 1);
	CHECK(put_short(t, notice, TIER_PUT_DURABLE, &secret) == 0);
	CHECK(secret); /* else this shows nothing */
	/* Out of memory, and put again: the same 512 bytes are the same, whatever lay behind. */
	key = secret_key(70);
	CHECK(tier_match(notice, &key, 1, &found) == 1);
	CHECK(tier_migrate(notice, &found.block, 1, &down) == 0);
	CHECK(tier_wait(t, &done, 1, 1, 10 * NS_PER_S) == 1 && done.result == 0);
	memset(pages, SECRET + 1, sizeof(pages));
	key = secret_key(72);
	CHECK(tier_put_copy(diary, &key, 1, pages, NULL) == 1);
	CHECK(put_short(t, notice, 0, &secret) == 0 && !secret);
	tier_close(t);
}

static void reads_the_notice(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_key key = secret_key(70);
	struct tier_lease lease;
	struct tier_found found;
	struct tier_page page;
	tier_reader *r;
	tier_context *c;

	CHECK(tier_context_open(t, "notice", NULL, &c) == 0);
	CHECK(tier_reader_open(t, &r) == 0);
	CHECK(tier_match(c, &key, 1, &found) == 1);
	page = (struct tier_page){ found.block, 0 };
	CHECK(tier_read_pages(r, c, &page, 1, 0, &lease) == 1);
	for (uint32_t i = 0; i < 4096; i++)
		CHECK(((const uint8_t *)lease.data)[i] == (i < SHORT_BYTES ? 0x11 : 0));
	tier_release(r, &lease);
	tier_close(t);
}

static void test_padding(void **state)
{
	struct isolation *w = isolation_of(state);

	if (!w)
		return;
	attack_as(w, UID_READER, UID_READER, "short pages beside a diary", writes_a_notice);
	attack(w, "what stands behind a short page", reads_the_notice);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_a_name_is_taken_meanwhile),
		cmocka_unit_test(test_migration_by_a_reader),
		cmocka_unit_test(test_padding),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("isolation, names", tests, isolation_setup,
					   isolation_teardown);
}
