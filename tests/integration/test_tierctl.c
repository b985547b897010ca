/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tierctl says of a daemon that holds something: the figures of its tables, each of them
 * another one, so that no column can stand for its neighbour; what it says it did; and what becomes
 * of a question whose daemon dies. (tierctl.sh has the verbs, the options and the refusals.)
 */
#include "tests/integration/kv_world.h"

#include <inttypes.h>

#define BLOCKS 8u
#define SALT_ID 0x5a17ull
#define TEXT_BYTES 65536u

struct tierctl {
	FILE *out;
	char text[TEXT_BYTES];
};

/* Begins a tierctl of the world's daemon; both of its outputs are read. */
static void begin(struct tierctl *ctl, const struct world *w, const char *words)
{
	const char *build = getenv("BUILD");
	char command[512];

	snprintf(command, sizeof(command), "exec %s/tierctl --socket %s %s 2>&1",
		 build ? build : "build/plain", w->d.socket, words);
	ctl->out = popen(command, "re");
	assert_non_null(ctl->out);
}

/* One blank for many, so that widths of columns do not matter. */
static void squeeze(char *text)
{
	char *to = text;

	for (const char *at = text; *at; at++)
		if (*at != ' ' || (to > text && to[-1] != ' ' && to[-1] != '\n'))
			*to++ = *at;
	*to = '\0';
}

/* The rest of what it says; its exit status. */
static int end(struct tierctl *ctl)
{
	size_t n = fread(ctl->text, 1, TEXT_BYTES - 1, ctl->out);
	int status = pclose(ctl->out);

	ctl->text[n] = '\0';
	squeeze(ctl->text);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static struct tierctl *ask(const struct world *w, const char *words)
{
	static struct tierctl ctl;
	int status;

	begin(&ctl, w, words);
	status = end(&ctl);
	if (status)
		fail_msg("tierctl %s: status %d: %s", words, status, ctl.text);
	return &ctl;
}

/* What left a tier is free, and what a stream brought is told, a moment later. */
static void expect(const struct world *w, const char *words, const char *line)
{
	uint64_t give_up = time_now_ns() + PATIENCE_MS * NS_PER_MS;
	const struct tierctl *ctl;

	while (!strstr((ctl = ask(w, words))->text, line)) {
		if (time_now_ns() > give_up)
			fail_msg("tierctl %s: no \"%s\" in: %s", words, line, ctl->text);
		usleep(20000);
	}
}

/* Of words that do something: what they say when they have. */
static void expect_once(const struct world *w, const char *words, const char *line)
{
	const struct tierctl *ctl = ask(w, words);

	if (!strstr(ctl->text, line))
		fail_msg("tierctl %s: no \"%s\" in: %s", words, line, ctl->text);
}

static void keys_of(tier_key *key, uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		assert_int_equal(tier_key_opaque(&key[i - first], &i, sizeof(i), NULL), 0);
}

static void put(struct world *w, uint32_t first, uint32_t count)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_DURABLE,
				      .salt = SALT_ID };
	uint8_t *data = calloc(count, BLOCK_BYTES);
	tier_key key[64];

	assert_true(count <= COUNT(key));
	keys_of(key, first, count);
	assert_int_equal(tier_put_copy(w->c, key, count, data, &o), count);
	free(data);
}

/* Two of the blocks in HBM, five in CXL, all of them on NVMe. */
static void spread(struct world *w, tier_block block[BLOCKS])
{
	struct tier_found found[BLOCKS];
	tier_key key[BLOCKS];

	put(w, 0, BLOCKS);
	keys_of(key, 0, BLOCKS);
	assert_int_equal(tier_match(w->c, key, BLOCKS, found), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		block[i] = found[i].block;
	assert_int_equal(tier_fetch(w->c, block, 2, ASK(TIER_HBM)), 2);
	assert_int_equal(tier_migrate(w->c, block + 5, 3, ASK(TIER_NVME, .user_data = 9)), 0);
	assert_int_equal(tier_drain(w->t), 0);
}


static void test_contexts_by_tier(void **state)
{
	static const char *const settings[] = { "writeback.age=600s", NULL };
	struct world *w = world_begin(settings);
	tier_block block[BLOCKS];
	tier_key key;
	tier_put *p;

	*state = w;
	spread(w, block);
	expect(w, "context list", "\nkv 0 0600 1 8 24.0K 48.0K 120K 192K 1 reuse\n");
	expect(w, "context show kv", "\nhbm 16.0M 12 4.00M 48.0K 0 0 0\n");
	expect(w, "context show kv", "\ncxl 64.0M 30 4.00M 120K 0 0 0\n");
	expect(w, "context show kv", " 48 192K 192K 0 0 0\n");
	expect(w, "context show kv", "\n8 blocks (0 being put), ");
	expect(w, "check", "\ncxl charged 4.00 MiB, in pages 120 KiB; the host holds ");
	keys_of(&key, BLOCKS, 1);
	assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p), 0);
	expect(w, "context show kv", " blocks (1 being put), ");
	tier_put_abort(p);
	expect_once(w, "context create odd --part k:window:2:3:1000B:64 --hbm none --nvme none "
		  "--page-align 512", "\nk window 2 3 1000 1.00K by all groups\n");
	expect_once(w, "context create mixed --part kv:dense:2:2:4KiB "
		  "--part s:state:1:1:8KiB,layer=2,last=1,replicated",
	       "\ns state 1 from 2 1 8.00K 8.00K by last 1 replicated\n");
	expect(w, "context show odd", "\nhbm none 0 ");
}

static void test_evict_says_what_left(void **state)
{
	struct world *w = world_begin(NULL);
	tier_block block[BLOCKS];

	*state = w;
	spread(w, block);
	expect_once(w, "evict kv cxl 24KiB", "kv: 24.0 KiB left cxl\n");
	expect(w, "context list", " 48.0K 96.0K 192K 1 ");
	expect_once(w, "evict kv cxl", "kv: 96.0 KiB left cxl\n");
	expect_once(w, "evict kv cxl", "kv: 0 B left cxl\n");
	expect_once(w, "--json evict kv hbm", "\"freed\": 49152\n");
}

static void locate(const struct world *w, uint32_t n, const char *line)
{
	char words[128] = "block locate kv ";
	size_t used = strlen(words);
	tier_key key;

	keys_of(&key, n, 1);
	for (uint32_t i = 0; i < sizeof(key.bytes); i++)
		snprintf(words + used + 2 * i, 3, "%02x", key.bytes[i]);
	expect(w, words, line);
}

static void test_where_a_block_is(void **state)
{
	struct world *w = world_begin(NULL);
	tier_block block[BLOCKS];
	uint64_t pin;

	*state = w;
	spread(w, block);
	assert_int_equal(tier_pin(w->c, block + 3, 1, TIER_CXL, 0, &pin), 1);
	locate(w, 1, "in kv: committed, ");
	locate(w, 1, "pages 6: 6 in hbm, 6 in cxl, 6 in nvme\n");
	locate(w, 1, "pins 0, durable yes, ");
	locate(w, 1, ", salt 0x0000000000005a17\n");
	locate(w, 3, "pages 6: 0 in hbm, 6 in cxl, 6 in nvme\n");
	locate(w, 3, "pins 1, durable yes, ");
	locate(w, 6, "pages 6: 0 in hbm, 0 in cxl, 6 in nvme\n");
	assert_int_equal(tier_unpin(w->c, pin), 0);
}

static void test_who_holds_what(void **state)
{
	static const char *const settings[] = { "writeback.age=600s", NULL };
	struct tier_reserve_options o = { .size = sizeof(o), .expected = 3, .salt = SALT_ID };
	struct world *w = world_begin(settings);
	struct tier_put_options later = { .size = sizeof(later), .salt = SALT_ID };
	struct tier_reserved reserved;
	static uint8_t data[BLOCK_BYTES];
	tier_block block[BLOCKS];
	uint64_t pin[2];
	tier_key key;

	*state = w;
	spread(w, block);
	assert_int_equal(tier_pin(w->c, block, 4, TIER_CXL, 0, &pin[0]), 4);
	assert_int_equal(tier_pin(w->c, block, 1, TIER_CXL, time_now_ns() + 3600 * NS_PER_S,
				  &pin[1]), 1);
	expect(w, "pin list", " 0 kv cxl 4 96.0K never\n");
	expect(w, "pin list", " 0 kv cxl 1 24.0K ");
	assert_int_equal(tier_reserve(w->c, &o, &reserved), 0);
	keys_of(&key, BLOCKS, 1);
	assert_int_equal(tier_put_copy(w->c, &key, 1, data, &later), 1);
	ask(w, "context create other --preset tiny");
	expect(w, "status", "\ncxl 64.0M 4.00M 144K 24.0K 96.0K 0 memfd ");
	expect(w, "status", "\nclients 2 open, 0 ended whose process may still read\n");
	expect(w, "status", " 0 copies; 2 pins\n");
	expect(w, "quota show", "\nother 0 ");
	expect(w, "quota show kv", "\nkv 24.0K 0 72.0K 96.0K -\n");
	expect(w, "quota show kv", "\n0x0000000000005a17 48.0K 16.0M - 144K 64.0M - 192K ");
	expect(w, "quota show kv", "\nput by client 0 48.0K - - 144K - - 192K - -\n");
	expect(w, "quota show kv", "\nput by client 0 - - - 120K -\n");
	assert_null(strstr(ask(w, "quota show kv")->text, "other"));
	expect(w, "clients", "\n0 test ");
	expect(w, "clients", " 0 operator 4.00M 10 0 0 0 2 0 ");
}

/* What was evicted, and what was removed, is in the list as long as somebody reads it. */
static void test_what_leases_keep(void **state)
{
	struct world *w = world_begin(NULL);
	uint64_t give_up = time_now_ns() + PATIENCE_MS * NS_PER_MS;
	tier_block block[BLOCKS];
	struct tier_lease lease;
	tier_reader *r;

	*state = w;
	spread(w, block);
	assert_int_equal(tier_reader_open(w->t, &r), 0);
	assert_int_equal(tier_lease_page(r, w->c, block[3], 0, 0, &lease), 0);
	assert_int_equal(lease.tier, TIER_CXL);
	ask(w, "evict kv cxl");
	expect(w, "quota show", "\nkv 0 4.00K 0 0 -\n");
	assert_int_equal(tier_context_remove(w->t, "kv"), 0);
	expect(w, "quota show", "\nremoved: kv 0 4.00K 0 0 -\n");
	expect(w, "clients", " 4.00K ");
	tier_release(r, &lease);
	while (strstr(ask(w, "quota show")->text, "removed") && time_now_ns() < give_up)
		usleep(20000);
	assert_null(strstr(ask(w, "quota show")->text, "removed"));
	tier_reader_close(r);
}

static void test_what_is_under_way(void **state)
{
	struct world *w = world_begin(NULL);
	tier_block block[BLOCKS];
	tier_stream *s;

	*state = w;
	spread(w, block);
	expect(w, "requests", "no requests under way\n");
	assert_int_equal(tier_stream_open(w->c, block, BLOCKS, NULL, &s), 0);
	assert_int_equal(tier_stream_wait(s, 1, 0), BLOCKS);
	expect(w, "requests", "\n0 ready demand kv cxl 8 2/2 ");
	assert_int_equal(tier_prefetch(w->c, block + 5, 3,
				       ASK(TIER_HBM, .user_data = 3,
					   .deadline_ns = time_now_ns() + 300 * NS_PER_S)), 0);
	expect(w, "requests", "\n0 prefetch deadline kv 0/18 ");
	expect(w, "requests", " 72.0K\n"); /* to bring: they are on NVMe only */
	tier_stream_close(s);
	assert_int_equal(tier_cancel(w->t, 3), 0);
}

/* ---- times -------------------------------------------------------------------------------- */

/* In ns. */
static double time_of(const char *text)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = { { "ns", 1 },	   { "us", 1e3 },	 { "ms", 1e6 },
		      { "s", 1e9 },	   { "min", 60e9 },	 { "h", 3600e9 } };
	char unit[8] = "";
	double value;

	if (sscanf(text, "%lf %7[a-z]", &value, unit) != 2)
		fail_msg("no time: %.80s", text);
	for (size_t i = 0; i < COUNT(units); i++)
		if (strcmp(unit, units[i].name) == 0)
			return value * units[i].ns;
	fail_msg("no unit of time: %s", unit);
	return 0;
}

static const char *behind(const struct tierctl *ctl, const char *words)
{
	const char *at = strstr(ctl->text, words);

	if (!at)
		fail_msg("no \"%s\" in: %s", words, ctl->text);
	return at + strlen(words);
}

static double time_behind(const struct tierctl *ctl, const char *words)
{
	return time_of(behind(ctl, words));
}

/* The one of so many words that ends the line which begins so. */
static double time_at_end(const struct tierctl *ctl, const char *words, uint32_t count)
{
	const char *line = behind(ctl, words), *at = line + strcspn(line, "\n");

	for (uint32_t blanks = 0; at > line && blanks < count; blanks += *at == ' ')
		at--;
	return time_of(at);
}

/* Three digits are told. */
static void assert_between(double ns, uint64_t least, uint64_t most)
{
	if (ns < 0.99 * (double)least || ns > 1.01 * (double)most)
		fail_msg("%f ns are not between %" PRIu64 " and %" PRIu64, ns, least, most);
}

/* Told in tenths of a second. */
static void assert_rounded(double ns, uint64_t least, uint64_t most)
{
	assert_between(ns + NS_PER_S / 10, least, most + NS_PER_S / 5);
}

#define FAR_NS (300 * NS_PER_S)
#define PARKED_MS 30u

/* Ages, deadlines and latencies against this test's own clock: they are of the right kind and unit,
 * however long anything takes here. */
static void test_times_are_told(void **state)
{
	const struct tierctl *ctl;
	uint64_t begun = time_now_ns(), asked, taken, looked;
	struct world *w = world_begin(NULL);
	uint64_t up = time_now_ns();
	tier_block block[BLOCKS];
	struct tier_completion done;
	const char *age;

	*state = w;
	spread(w, block);
	asked = time_now_ns();
	assert_int_equal(tier_prefetch(w->c, block + 5, 3,
				       ASK(TIER_HBM, .user_data = 3,
					   .deadline_ns = asked + FAR_NS)), 0);
	expect(w, "requests", "\n0 prefetch deadline kv 0/18 ");
	taken = time_now_ns();
	usleep(PARKED_MS * 1000);
	looked = time_now_ns();
	ctl = ask(w, "requests");
	age = behind(ctl, "\n0 prefetch deadline kv 0/18 ");
	assert_between(time_of(age), looked - taken, time_now_ns() - asked);
	assert_between(time_of(age + strcspn(age, " ")), asked + FAR_NS - time_now_ns(), FAR_NS);
	looked = time_now_ns();
	ctl = ask(w, "clients");
	assert_between(time_at_end(ctl, "\n0 test ", 1), looked - up, time_now_ns() - begun);
	ctl = ask(w, "status");
	assert_between(time_behind(ctl, " up "), looked - up, time_now_ns() - begun);
	ctl = ask(w, "top --count 1");
	assert_between(time_behind(ctl, " up "), looked - up, time_now_ns() - begun);
	assert_rounded(time_behind(ctl, "over the last "), looked - up, time_now_ns() - begun);
	looked = time_now_ns();
	assert_int_equal(tier_cancel(w->t, 3), 0);
	assert_int_equal(tier_wait(w->t, &done, 1, 1, LONG_NS), 1);
	ctl = ask(w, "stat");
	assert_between(time_at_end(ctl, "\nrequest deadline ", 2), looked - taken,
		       time_now_ns() - begun); /* the longest of those */
}

/* ---- figures over time --------------------------------------------------------------------- */

/* The next screen of `tierctl top`. */
static void screen(struct tierctl *ctl)
{
	size_t used = 0;

	do {
		char *line = ctl->text + used;

		if (!fgets(line, (int)(TEXT_BYTES - used), ctl->out))
			fail_msg("top ended: %s", ctl->text);
		used += strlen(line);
		if (strstr(line, "rotten pages"))
			break;
	} while (used < TEXT_BYTES - 1);
	squeeze(ctl->text);
}

static double rate(const struct tierctl *ctl, const char *name)
{
	const char *at = strstr(ctl->text, name);
	char unit[16] = "";
	double value;

	assert_non_null(at);
	at += strlen(name);
	assert_true(sscanf(at, "%lf %15s", &value, unit) >= 1);
	return value * (unit[0] == 'K' ? 1024 : unit[0] == 'M' ? 1024 * 1024 : 1);
}

#define RATE_BLOCKS 40u
/* What happened between two screens by the time between them, and nothing of what was before. */
static bool rates_are_right(struct world *w, uint32_t first, uint32_t seconds)
{
	static struct tierctl ctl;
	uint64_t begun = time_now_ns(), over;
	double most, least;
	char command[64];

	snprintf(command, sizeof(command), "top --interval %u --count 3", seconds);
	begin(&ctl, w, command);
	screen(&ctl);
	assert_true(rate(&ctl, "\nput ") > 0); /* the first one: since the daemon began */
	put(w, first, RATE_BLOCKS);
	over = time_now_ns();
	screen(&ctl);
	/* A put that was not over when the second question came is partly in the third. The first
	 * one came at some time before it was shown. */
	if (over - begun > seconds * NS_PER_S * 9 / 10) {
		end(&ctl);
		return false;
	}
	over = time_now_ns();
	assert_true(over - begun >= seconds * NS_PER_S);
	most = 1.01 * RATE_BLOCKS / seconds;
	least = 0.99 * RATE_BLOCKS / ((double)(over - begun) / 1e9);
	assert_true(rate(&ctl, "blocks committed ") <= most);
	assert_true(rate(&ctl, "blocks committed ") >= least);
	assert_true(rate(&ctl, "\nput ") <= most * BLOCK_BYTES);
	assert_true(rate(&ctl, "\nput ") >= least * BLOCK_BYTES);
	assert_true(rate(&ctl, "\nwritten to NVMe ") >= least * BLOCK_BYTES);
	assert_true(rate(&ctl, "rotten pages ") == 0);
	screen(&ctl);
	assert_true(rate(&ctl, "\nput ") == 0);
	assert_int_equal(end(&ctl), 0);
	assert_string_equal(ctl.text, "");
	return true;
}

static void test_top_shows_rates(void **state)
{
	struct world *w = world_begin(NULL);
	uint32_t first = 0, seconds = 1;

	*state = w;
	for (; first < 10 * RATE_BLOCKS; first += RATE_BLOCKS)
		put(w, first, RATE_BLOCKS);
	/* Where the puts take long, they are shown over a longer time. */
	for (; seconds < 60 && !rates_are_right(w, first, seconds); first += RATE_BLOCKS)
		seconds *= 2;
	assert_true(seconds < 60);
}

/* ---- a daemon that dies -------------------------------------------------------------------- */

/* In the middle of a question, and between two: the same word and the same status. */
static void test_a_daemon_that_dies(void **state)
{
	struct world *w = world_begin(NULL);
	static struct tierctl ctl;

	*state = w;
	for (uint32_t asked = 0; asked < 2; asked++) {
		begin(&ctl, w, asked ? "top --interval 0.1" : "top --interval 3");
		screen(&ctl);
		if (asked) {
			assert_int_equal(kill(w->d.pid, SIGSTOP), 0);
			usleep(300000);
		}
		assert_int_equal(kill(w->d.pid, SIGKILL), 0);
		daemon_wait(&w->d);
		assert_int_equal(end(&ctl), 3);
		assert_non_null(strstr(ctl.text, "tierctl top: the daemon has gone without an "
						 "answer; its log tells why\n"));
		daemon_start(&w->d, NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_contexts_by_tier, world_end),
		cmocka_unit_test_teardown(test_evict_says_what_left, world_end),
		cmocka_unit_test_teardown(test_where_a_block_is, world_end),
		cmocka_unit_test_teardown(test_who_holds_what, world_end),
		cmocka_unit_test_teardown(test_what_leases_keep, world_end),
		cmocka_unit_test_teardown(test_what_is_under_way, world_end),
		cmocka_unit_test_teardown(test_times_are_told, world_end),
		cmocka_unit_test_teardown(test_top_shows_rates, world_end),
		cmocka_unit_test_teardown(test_a_daemon_that_dies, world_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
