/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects and crashes. The module runs as the daemon runs it, on a recorded folder (crash_disk.h);
 * then the power is cut, or the daemon killed, at any event of what it did, and at any event of the
 * start that follows. What a start finds must be what was promised: of each name the last durable
 * version or one begun since, whole (O1, O8); a rename whole; and a further start must find
 * the same (O10). SEED= and SEEDS= choose.
 */
#include "tests/unit/object_daemon.h"

#define NAMES 5u /* the last one is for puts behind a crash */
#define OPS 30u
#define CRASHES 40u
#ifdef __SANITIZE_ADDRESS__
#define SEEDS 10u /* each costs three times as much; `make test` runs all without it */
#else
#define SEEDS 40u
#endif
#define STATES 64u
#define CONTEXT 7u /* of daemon_context */

/* What a name came to have: 0 nothing, else the number that its bytes are made of. */
struct state {
	uint32_t content, asked, durable; /* events; durable: UINT32_MAX = not */
	uint32_t answered;
	uint32_t from; /* a rename: the other name + 1, whose state this was */
};

static struct world {
	struct rng rng;
	uint32_t content;
	struct state state[NAMES][STATES];
	uint32_t states[NAMES];
	uint32_t found[NAMES];
} w;

/* ---- the daemon's half --------------------------------------------------------------------- */

static void start(void)
{
	daemon_start(64 << 20, 64 << 20, rng_next(&w.rng), NS_PER_S);
}

static uint32_t ask(uint16_t type, uint32_t name, uint32_t other, uint64_t upload, uint32_t flags)
{
	struct wire_object m = { .header.type = type, .upload = upload, .flags = flags };
	struct object_ask a = { .who = { 1, 1, 0 }, .context = CONTEXT,
				.quota = { UINT64_MAX, UINT64_MAX }, .writable = true,
				.message = &m };

	if (name < NAMES)
		m.name[0] = (char)('a' + name);
	if (other < NAMES)
		m.other[0] = (char)('a' + other);
	return daemon_ask(&a);
}

/* ---- bytes --------------------------------------------------------------------------------- */

static size_t bytes_of(uint32_t content, uint8_t out[20000])
{
	struct rng rng = { content };
	size_t n = content % 7 ? 4 + rng_below(&rng, 9000) : 0;

	daemon_bytes(content, out, n);
	return n;
}

/* ---- what clients do ----------------------------------------------------------------------- */

static struct state *begin(uint32_t name, uint32_t content)
{
	struct state *s = &w.state[name][w.states[name]++];

	assert_true(w.states[name] < STATES);
	*s = (struct state){ content, disk.events, UINT32_MAX, UINT32_MAX, 0 };
	return s;
}

static uint32_t now_has(uint32_t name)
{
	return w.state[name][w.states[name] - 1].content;
}

/* All that was answered is on the medium. */
static void all_durable(uint32_t since)
{
	for (uint32_t n = 0; n < NAMES; n++)
		for (uint32_t i = 0; i < w.states[n]; i++)
			if (w.state[n][i].answered <= since &&
			    w.state[n][i].durable == UINT32_MAX)
				w.state[n][i].durable = disk.events;
}

/* Returns the question. */
static uint32_t put_begin(uint32_t name, uint32_t content)
{
	struct wire_object_info info;
	uint8_t data[20000];
	size_t n = bytes_of(content, data);
	int fd;

	assert_int_equal(daemon_answered(ask(WIRE_OBJ_CREATE, name, NAMES, 0, 0), &info, &fd), 0);
	assert_int_equal(write(fd, data, n), n);
	close(fd);
	return ask(WIRE_OBJ_COMMIT, NAMES, NAMES, info.upload, 0);
}

static void end(struct state *s, bool lazy)
{
	s->answered = disk.events;
	if (!lazy)
		s->durable = s->answered;
}

/* Puts of several names at a time: they share flushes. */
static void do_puts(void)
{
	uint32_t first = (uint32_t)rng_below(&w.rng, NAMES - 1), n = 0;
	uint32_t count = 1 + (uint32_t)rng_below(&w.rng, 3);
	uint32_t question[4];
	struct state *s[4];

	for (; n < count && n < NAMES - 1; n++) {
		uint32_t name = (first + n) % (NAMES - 1);

		s[n] = begin(name, ++w.content);
		question[n] = put_begin(name, w.content);
	}
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(daemon_answered(question[i], NULL, NULL), 0);
		end(s[i], false);
	}
}

static void do_remove(void)
{
	uint32_t name = (uint32_t)rng_below(&w.rng, NAMES - 1);
	bool lazy = rng_below(&w.rng, 2);
	struct state *s;

	if (!now_has(name))
		return;
	s = begin(name, 0);
	assert_int_equal(daemon_answered(ask(WIRE_OBJ_REMOVE, name, NAMES, 0,
					     lazy ? WIRE_OBJ_LAZY : 0), NULL, NULL), 0);
	end(s, lazy);
}

static void do_rename(void)
{
	uint32_t from = (uint32_t)rng_below(&w.rng, NAMES - 1);
	uint32_t to = (from + 1 + (uint32_t)rng_below(&w.rng, NAMES - 2)) % (NAMES - 1);
	bool lazy = rng_below(&w.rng, 4);
	struct state *a, *b;

	if (!now_has(from))
		return;
	b = begin(to, now_has(from));
	a = begin(from, 0);
	b->from = from + 1;
	assert_int_equal(daemon_answered(ask(WIRE_OBJ_RENAME, from, to, 0,
					     lazy ? WIRE_OBJ_LAZY : 0), NULL, NULL), 0);
	end(a, lazy);
	end(b, lazy);
}

static void do_sync(void)
{
	uint32_t since = disk.events;

	assert_int_equal(daemon_answered(ask(WIRE_OBJ_SYNC, NAMES, NAMES, 0, 0), NULL, NULL), 0);
	all_durable(since);
}

static void live(void)
{
	for (uint32_t n = 0; n < NAMES; n++)
		w.states[n] = 0;
	for (uint32_t n = 0; n < NAMES; n++)
		end(begin(n, 0), false);
	start();
	for (uint32_t i = 0; i < OPS; i++) {
		switch (rng_below(&w.rng, 12)) {
		case 0:
			daemon_stop();
			all_durable(disk.events);
			start();
			break;
		case 1:
			do_sync();
			break;
		case 2:
		case 3:
			do_remove();
			break;
		case 4:
		case 5:
		case 6:
			do_rename();
			break;
		default:
			do_puts();
		}
	}
	daemon_stop();
	all_durable(disk.events);
}

/* ---- what a start finds -------------------------------------------------------------------- */

/* The number of the content that a name has; UINT32_MAX: none that it ever had. */
static uint32_t look(uint32_t name)
{
	static uint8_t got[20001], want[20000];
	struct wire_object_info info;
	ssize_t n;
	int fd, rc;

	rc = daemon_answered(ask(WIRE_OBJ_OPEN, name, NAMES, 0, 0), &info, &fd);
	if (rc == -ENOENT)
		return 0;
	assert_int_equal(rc, 0);
	n = read(fd, got, sizeof(got));
	close(fd);
	for (uint32_t i = 1; i <= w.content; i++)
		if (bytes_of(i, want) == (size_t)n && memcmp(got, want, (size_t)n) == 0 &&
		    (n || i % 7 == 0))
			return n ? i : 7; /* all empty ones are the same */
	return UINT32_MAX;
}

static bool same(uint32_t a, uint32_t b)
{
	return a == b || (a && b && a % 7 == 0 && b % 7 == 0);
}

/* Of the states that a crash at this event may leave: the first and behind the last. */
static uint32_t first_state(uint32_t name, uint32_t crash)
{
	uint32_t first = 0;

	for (uint32_t i = 0; i < w.states[name]; i++)
		if (w.state[name][i].durable <= crash)
			first = i;
	return first;
}

static bool may_have(uint32_t name, uint32_t content, uint32_t crash)
{
	for (uint32_t i = first_state(name, crash); i < w.states[name]; i++)
		if (w.state[name][i].asked <= crash && same(w.state[name][i].content, content))
			return true;
	return false;
}

/* A version is where a rename took it, or where it was. */
static bool renames_whole(uint32_t crash)
{
	for (uint32_t to = 0; to < NAMES; to++) {
		uint32_t last = w.states[to] - 1;
		const struct state *s;
		uint32_t from;

		while (w.state[to][last].asked > crash)
			last--;
		s = &w.state[to][last];
		from = s->from - 1;
		if (!s->from || s->content % 7 == 0)
			continue;
		if (w.found[from] == s->content && w.found[to] == s->content)
			return false;
		if (!w.found[from] && w.found[to] != s->content &&
		    w.state[from][first_state(from, crash)].content == s->content)
			return false;
	}
	return true;
}

static void complain(const char *what, uint32_t seed, uint32_t crash)
{
	for (uint32_t n = 0; n < NAMES; n++) {
		print_error("%c: found %d;", 'a' + n, (int)w.found[n]);
		for (uint32_t i = first_state(n, crash); i < w.states[n]; i++)
			if (w.state[n][i].asked <= crash)
				print_error(" %u", w.state[n][i].content);
		print_error("\n");
	}
	fail_msg("%s: SEED=%u, crash at event %u", what, seed, crash);
}

static void check_start(uint32_t seed, uint32_t crash)
{
	uint32_t extra = w.content + 1;

	for (uint32_t n = 0; n < NAMES; n++)
		w.found[n] = look(n);
	for (uint32_t n = 0; n < NAMES; n++)
		if (w.found[n] == UINT32_MAX || !may_have(n, w.found[n], crash))
			complain("not what was promised", seed, crash);
	if (!renames_whole(crash))
		complain("half a rename", seed, crash);
	if (objects_audit(tierd.o, daemon_tell, NULL))
		complain("the accounts disagree", seed, crash);
	assert_int_equal(daemon_answered(put_begin(NAMES - 1, extra), NULL, NULL), 0);
	daemon_stop();
	start();
	for (uint32_t n = 0; n < NAMES - 1; n++)
		if (!same(look(n), w.found[n]))
			complain("a further start finds something else", seed, crash);
	daemon_stop();
}

/* Somewhere from..end: as often as not right before a flush, when there is most to lose. */
static uint32_t moment(uint32_t from, uint32_t end)
{
	uint32_t at = from + (uint32_t)rng_below(&w.rng, end - from + 1);

	if (rng_below(&w.rng, 2))
		return at;
	while (at < end && disk.event[at].kind != DISK_FLUSHED)
		at++;
	return at;
}

static void crash_once(struct disk_image *m, uint32_t seed, uint32_t crash)
{
	bool power = rng_below(&w.rng, 2);
	uint32_t from, events;

	disk_crash(m, crash, power ? &w.rng : NULL);
	disk.events = crash;
	disk_become(m, power);
	from = disk.events;
	start();
	if (rng_below(&w.rng, 2)) { /* at any event of the start, too */
		daemon_stop();
		events = moment(from, disk.events);
		disk_crash(m, events, &w.rng);
		disk_become(m, true);
		start();
	}
	check_start(seed, crash);
}

static void run(uint32_t seed)
{
	static struct disk_image image;
	struct disk_event *kept;
	uint32_t events, files;

	memset(&w, 0, sizeof(w));
	w.rng.state = seed;
	daemon_world("object-crash", LOG_LEVEL_ERROR);
	live();
	events = disk.events;
	files = disk.files;
	kept = malloc(events * sizeof(*kept));
	memcpy(kept, disk.event, events * sizeof(*kept));
	for (uint32_t i = 0; i < CRASHES; i++) {
		memcpy(disk.event, kept, events * sizeof(*kept));
		disk.events = events;
		disk.files = files;
		crash_once(&image, seed, moment(0, events));
	}
	free(kept);
	daemon_world_end();
}

/* A rename that was not waited for, then a sync: behind its answer the rename is on the medium. */
static void sync_then_crash(uint32_t seed)
{
	static struct disk_image image;
	uint32_t at;

	memset(&w, 0, sizeof(w));
	w.rng.state = seed;
	daemon_world("object-crash", LOG_LEVEL_ERROR);
	start();
	assert_int_equal(daemon_answered(put_begin(0, ++w.content), NULL, NULL), 0);
	assert_int_equal(daemon_answered(ask(WIRE_OBJ_RENAME, 0, 1, 0, WIRE_OBJ_LAZY), NULL, NULL),
			 0);
	assert_int_equal(daemon_answered(ask(WIRE_OBJ_SYNC, NAMES, NAMES, 0, 0), NULL, NULL), 0);
	at = disk.events;
	daemon_stop();
	disk_crash(&image, at, &w.rng);
	disk.events = at;
	disk_become(&image, true);
	start();
	assert_int_equal(look(0), 0);
	assert_int_equal(look(1), w.content);
	daemon_stop();
	daemon_world_end();
}

static void test_a_sync_is_a_flush(void **state)
{
	(void)state;
	for (uint32_t seed = 0; seed < 16; seed++)
		sync_then_crash(seed);
}

static void test_a_crash_leaves_what_was_promised(void **state)
{
	uint32_t seed = getenv("SEED") && *getenv("SEED") ? (uint32_t)atoi(getenv("SEED")) : 1;
	uint32_t seeds = getenv("SEEDS") ? (uint32_t)atoi(getenv("SEEDS")) : SEEDS;

	(void)state;
	for (uint32_t i = 0; i < seeds; i++)
		run(seed + i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_sync_is_a_flush),
		cmocka_unit_test(test_a_crash_leaves_what_was_promised),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
