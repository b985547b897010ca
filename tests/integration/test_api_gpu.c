/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages for kernels (tier_device.h) on the stand-in for the driver: a decode kernel on the model of
 * the device reads HBM where it lies; another finds pages by the index while the daemon moves them;
 * another user reads CXL; what the daemon wants back it gets when launches have ended, or their
 * process is dead, and not before; each call of the driver fails once in the client at each time
 * that it is made: no byte is wrong and nothing is left behind.
 *
 * FAULTS=n: up to which time of a call (2).
 */
#include <sys/prctl.h>

#define BLOCKS 20u
#include "tests/integration/gpu_decode.h"
#include "tests/lib/users.h"

#define ILLEGAL_ADDRESS 700
#define OTHER 4242u
#define SOON_NS (300 * NS_PER_MS)

static const char *const names[] = {
#define ENTRY(field, name, version, parameters) name,
#include "libtier/base/cuda_driver.def"
#undef ENTRY
};

/* However slow the machine, what an era keeps ends nobody's connection. */
static struct world *begin(const char *hbm)
{
	const char *settings[] = { "hbm.backend=cuda", hbm, "quarantine.percent=80", NULL };
	struct world *w;

	gpu_daemon(NULL);
	w = world_begin(settings);
	gpu_daemon_runs();
	return w;
}

/* All pages of blocks, in order. */
static void list_pages(const tier_block *block, uint32_t blocks, uint32_t pages,
		       struct tier_page *out)
{
	for (uint32_t i = 0; i < blocks * pages; i++)
		out[i] = (struct tier_page){ block[i / pages], i % pages };
}

/* ---- a kernel reads HBM in place ------------------------------------------------------------- */

/* By each make of the kernel and two schedules: the golden model's bits. */
static void decode_in_place(const struct decode *x, const struct tier_device_page *at,
			    const struct gpu *g)
{
	static struct scratch s;
	float want[MSA_DIM];

	fill_query(&s);
	outside_allow(&s, sizeof(s), true);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const uint8_t *window = gpu_window(g, &at[i]);

		s.page[i] = (uintptr_t)window;
		outside_allow(window, MSA_PAGE_BYTES, false);
	}
	for (uint32_t n = 0; n < 4; n++) {
		memset(s.out, 0xff, sizeof(s.out));
		decode(&s, n / 2, n % 2);
		for (uint32_t row = 0; row < ROWS; row++) {
			expect(x, &s, row, want);
			CHECK(!memcmp(want, s.out + row * MSA_DIM, sizeof(want)));
		}
	}
}

static void read_in_place(const struct decode *x)
{
	struct tier_device_page at[BLOCKS];
	struct tier_page page[BLOCKS];
	struct gpu g;

	gpu_begin(&g);
	gpu_open(&g, &x->w->d, "msa");
	list_pages(x->block, BLOCKS, 1, page);
	CHECK(tier_device_pages(g.d, page, BLOCKS, at) == -EINVAL); /* no launch is announced */
	CHECK(tier_era_begin(g.r) == 0);
	CHECK(tier_device_pages(g.d, page, BLOCKS, at) == BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		CHECK(at[i].tier == TIER_HBM && at[i].error == 0);
	decode_in_place(x, at, &g);
	page[0].block.generation++;
	page[1].page = 1;
	CHECK(tier_device_pages(g.d, page, 3, at) == 1);
	CHECK(at[0].error == -ESTALE && at[1].error == -EINVAL && at[2].address);
	gpu_ended(&g);
	gpu_end(&g);
	CHECK(gpu_left(&g) == 0);
	_exit(0);
}

static void test_a_kernel_reads_hbm_in_place(void **state)
{
	struct decode x = { .w = begin("hbm.size=16MiB") };
	pid_t pid;

	(void)state;
	put_kv(&x);
	assert_int_equal(tier_fetch(x.c, x.block, BLOCKS, ASK(TIER_HBM)), BLOCKS);
	admin(x.w, "drain", NULL);
	admin(x.w, "evict", "{\"context\":\"msa\",\"tier\":\"cxl\"}");
	pid = fork();
	if (pid == 0)
		read_in_place(&x);
	child_passes(pid);
	free(x.kv);
	*state = x.w;
	world_end(state);
}

/* ---- a kernel finds pages by itself ---------------------------------------------------------- */

/* Between test and child. */
struct followed {
	uint32_t removed, done;
	uint64_t launches, whole, missed, wrong, in[2]; /* pages by tier */
};

_Static_assert(sizeof(struct msa_word) == sizeof(struct tier_page), "one is taken for the other");

static uint64_t index_bytes(const struct tier_device_view *v)
{
	return v->page_offset + (uint64_t)v->blocks * v->pages * sizeof(struct abi_page);
}

/* What the words kernel may touch. */
static void allow_view(const struct tier_device_view *v, const struct tier_page *page)
{
	outside_allow(v, v->chunk[1] + v->chunks[1] * 8 - (uintptr_t)v, false);
	outside_allow((const void *)(uintptr_t)v->index, index_bytes(v), false);
	outside_allow(page, BLOCKS * sizeof(*page), false);
}

/* Registered memory stays as it is: nothing of the index has been punched. */
static void check_resident(const struct tier_device_view *v)
{
	static unsigned char there[1u << 16];
	const uint64_t pages = (index_bytes(v) + 4095) / 4096;

	CHECK(pages <= sizeof(there));
	CHECK(mincore((void *)(uintptr_t)v->index, pages * 4096, there) == 0);
	CHECK(!memchr(there, 0, pages));
}

/* The launch that was announced: pages where their words say, and the golden model's bits. */
static void find_and_decode(const struct decode *x, const struct gpu *g,
			    const struct tier_device_view *v, const struct tier_page *page,
			    struct followed *f)
{
	static struct scratch s;
	const uint32_t n = (uint32_t)f->launches++;
	const uint64_t hbm = *(const uint64_t *)(uintptr_t)v->chunk[0];
	float want[MSA_DIM];
	uint32_t found = 0;

	fill_query(&s);
	outside_allow(&s, sizeof(s), true);
	find_pages(v, page, &s, n, n % 2);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const void *window;

		if (!s.page[i])
			continue;
		found++;
		f->in[!(hbm && s.page[i] - hbm < v->chunks[0] * TIER_VIEW_CHUNK)]++;
		window = g->standin.window(s.page[i], MSA_PAGE_BYTES, false);
		CHECK(window);
		s.page[i] = (uintptr_t)window;
		outside_allow(window, MSA_PAGE_BYTES, false);
	}
	f->missed += BLOCKS - found;
	if (found < BLOCKS)
		return;
	f->whole++;
	decode(&s, n, n % 2);
	for (uint32_t row = 0; row < ROWS; row++) {
		expect(x, &s, row, want);
		f->wrong += memcmp(want, s.out + row * MSA_DIM, sizeof(want)) != 0;
	}
}

#define LAUNCHES 24u /* that find all pages */

static void follow(const struct decode *x, struct followed *f)
{
	struct tier_device_page at[BLOCKS];
	struct tier_page page[BLOCKS];
	const struct tier_device_view *v;
	uint64_t address;
	struct gpu g;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	gpu_begin(&g);
	gpu_open(&g, &x->w->d, "msa");
	list_pages(x->block, BLOCKS, 1, page);
	CHECK(tier_device_view(g.d, &address) == 0);
	v = (const void *)(uintptr_t)address;
	allow_view(v, page);
	while (f->whole < LAUNCHES) {
		CHECK(tier_era_begin(g.r) == 0);
		CHECK(tier_device_view(g.d, &address) == 0 && address == (uintptr_t)v);
		check_resident(v); /* within an era: behind it, what is wanted back goes */
		CHECK(tier_device_pages(g.d, page, BLOCKS, at) >= 0);
		find_and_decode(x, &g, v, page, f);
		gpu_ended(&g);
	}
	__atomic_store_n(&f->done, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&f->removed, __ATOMIC_ACQUIRE))
		usleep(1000);
	/* All is wanted back; a launch under way keeps the index until it has ended. */
	CHECK(tier_era_begin(g.r) == 0);
	while (v->index)
		CHECK(tier_device_give_back(g.d) >= 0 && tier_check(g.t) == 0);
	CHECK(tier_device_give_back(g.d) > 0);
	gpu_ended(&g);
	CHECK(tier_device_give_back(g.d) == 0);
	CHECK(tier_era_begin(g.r) == 0);
	CHECK(tier_device_view(g.d, &address) == -EAGAIN && address == (uintptr_t)v);
	f->whole = 0;
	find_and_decode(x, &g, v, page, f);
	CHECK(!f->whole);
	gpu_ended(&g);
	gpu_end(&g);
	CHECK(gpu_left(&g) == 0);
	_exit(0);
}

/* To HBM alone, to CXL alone; and others' bytes come where they lay. */
static void move_about(struct decode *x, uint32_t n)
{
	const uint32_t first = 1000 + n * BLOCKS;
	uint8_t *noise = malloc(BLOCKS * MSA_PAGE_BYTES);
	tier_block block[BLOCKS];
	tier_key key[BLOCKS];

	assert_non_null(noise);
	memset(noise, 0x40 + (int)n % 8, BLOCKS * MSA_PAGE_BYTES);
	if (n % 2)
		admin(x->w, "evict", "{\"context\":\"msa\",\"tier\":\"hbm\"}");
	tier_fetch(x->c, x->block, BLOCKS, ASK(n % 2 ? TIER_CXL : TIER_HBM));
	if (n % 2 == 0)
		admin(x->w, "evict", "{\"context\":\"msa\",\"tier\":\"cxl\"}");
	put_blocks(x->c, first, noise, block);
	tier_fetch(x->c, block, BLOCKS, ASK(TIER_HBM));
	keys_of(key, first);
	assert_int_equal(tier_delete(x->c, key, BLOCKS), BLOCKS);
	free(noise);
}

static void test_a_kernel_finds_pages_while_they_move(void **state)
{
	struct decode x = { .w = begin("hbm.size=64MiB") };
	struct followed *f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	(void)state;
	assert_true(f != MAP_FAILED);
	put_kv(&x);
	admin(x.w, "drain", NULL);
	pid = fork();
	if (pid == 0)
		follow(&x, f);
	/* Once in a launch, or what its era keeps would be more than a client may keep. */
	for (uint64_t n = 0, since = 0; !__atomic_load_n(&f->done, __ATOMIC_ACQUIRE);) {
		const uint64_t launches = __atomic_load_n(&f->launches, __ATOMIC_ACQUIRE);

		if (launches != since)
			move_about(&x, (uint32_t)n++);
		since = launches;
		usleep(1000);
		assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	}
	print_message("# %lu launches, %lu found all pages; %lu pages in HBM, %lu in CXL, %lu "
		      "nowhere; %lu rows wrong\n", f->launches, f->whole, f->in[0], f->in[1],
		      f->missed, f->wrong);
	assert_int_equal(f->wrong, 0);
	assert_true(f->in[0] && f->in[1]);
	tier_context_close(x.c);
	assert_int_equal(tier_context_remove(x.w->t, "msa"), 0);
	__atomic_store_n(&f->removed, 1, __ATOMIC_RELEASE);
	child_passes(pid);
	munmap(f, sizeof(*f));
	free(x.kv);
	*state = x.w;
	world_end(state);
}

/* ---- another user ---------------------------------------------------------------------------- */

static void read_as_another(const struct decode *x)
{
	struct tier_device_page at[BLOCKS];
	struct tier_page page[BLOCKS];
	struct standin_left left;
	struct gpu g;

	CHECK(setgroups(0, NULL) == 0 && setgid(OTHER) == 0 && setuid(OTHER) == 0);
	gpu_begin(&g);
	gpu_open(&g, &x->w->d, "msa");
	list_pages(x->block, BLOCKS, 1, page);
	CHECK(tier_era_begin(g.r) == 0);
	CHECK(tier_device_pages(g.d, page, BLOCKS, at) == BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		CHECK(at[i].tier == TIER_CXL);
		CHECK(!memcmp(gpu_window(&g, &at[i]), x->kv + (uint64_t)i * KV_TOKENS * MSA_DIM,
			      MSA_PAGE_BYTES));
	}
	g.standin.left(&left);
	CHECK(left.registered > 0 && left.ranges == 0);
	gpu_ended(&g);
	gpu_end(&g);
	CHECK(gpu_left(&g) == 0);
	_exit(0);
}

/* HBM of a context is its owner's alone: what others may read they read from CXL. */
static void test_another_user_reads_cxl(void **state)
{
	struct decode x;
	pid_t pid;

	(void)state;
	if (!users_can_be_others())
		skip();
	x.w = begin("hbm.size=16MiB");
	put_kv(&x);
	assert_int_equal(tier_fetch(x.c, x.block, BLOCKS, ASK(TIER_HBM)), BLOCKS);
	pid = fork();
	if (pid == 0)
		read_as_another(&x);
	child_passes(pid);
	free(x.kv);
	*state = x.w;
	world_end(state);
}

/* ---- what is wanted back --------------------------------------------------------------------- */

#define MANY 160u /* blocks that fill 4 MiB of HBM, nearly */

/* Between test and child: what has happened, what may. */
struct steps {
	uint32_t mapped, end, left;
	uint64_t wrong;
};

static void many_keys(tier_key *key, uint32_t first)
{
	for (uint32_t i = 0; i < MANY; i++)
		key[i] = key_of(first + i);
}

static tier_context *many_blocks(struct world *w, const char *name, uint32_t first)
{
	uint8_t *data = malloc(MANY * BLOCK_BYTES);
	tier_key key[MANY];
	tier_context *c;

	assert_non_null(data);
	if (tier_context_create(w->t, name, w->g, NULL, &c))
		fail_msg("%s", tier_error_text());
	many_keys(key, first);
	for (uint32_t i = 0; i < MANY * BLOCK_PAGES; i++)
		memset(data + i * 4096, byte_of(first + i / BLOCK_PAGES, i % BLOCK_PAGES), 4096);
	assert_int_equal(tier_put_copy(c, key, MANY, data, NULL), MANY);
	free(data);
	return c;
}

static void many_found(tier_context *c, uint32_t first, tier_block *block)
{
	struct tier_found found[MANY];
	tier_key key[MANY];

	many_keys(key, first);
	CHECK(tier_match(c, key, MANY, found) == (int)MANY);
	for (uint32_t i = 0; i < MANY; i++)
		block[i] = found[i].block;
}

/* Maps all of its blocks for a launch that ends when it is told to. */
static void hold(const struct world *w, struct steps *s)
{
	static struct tier_device_page at[MANY * BLOCK_PAGES];
	static struct tier_page page[MANY * BLOCK_PAGES];
	tier_block block[MANY];
	uint32_t there = 0;
	struct gpu g;

	gpu_begin(&g);
	gpu_open(&g, &w->d, "a");
	many_found(g.c, 0, block);
	list_pages(block, MANY, BLOCK_PAGES, page);
	CHECK(tier_era_begin(g.r) == 0);
	CHECK(tier_device_pages(g.d, page, MANY * BLOCK_PAGES, at) > 0);
	for (uint32_t i = 0; i < MANY * BLOCK_PAGES; i++)
		there += at[i].tier == TIER_HBM && at[i].address;
	CHECK(there > MANY * BLOCK_PAGES / 2);
	__atomic_store_n(&s->mapped, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&s->end, __ATOMIC_ACQUIRE)) {
		CHECK(tier_device_give_back(g.d) >= 0);
		for (uint32_t i = 0; i < MANY * BLOCK_PAGES; i += 7)
			if (at[i].tier == TIER_HBM && at[i].address)
				s->wrong += gpu_window(&g, &at[i])[i % 4096] !=
					    byte_of(i / BLOCK_PAGES, i % BLOCK_PAGES);
		usleep(1000);
	}
	gpu_ended(&g);
	while (!__atomic_load_n(&s->left, __ATOMIC_ACQUIRE)) {
		CHECK(tier_device_give_back(g.d) == 0);
		usleep(1000);
	}
	gpu_end(&g);
	CHECK(gpu_left(&g) == 0);
	_exit(0);
}

static int fetch_many(tier_context *c, const tier_block *block, uint64_t ns)
{
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_HBM,
				      .deadline_ns = time_now_ns() + ns };

	return tier_fetch(c, block, MANY, &ask);
}

/* Context b wants the memory that a device of a's client has: it comes when the client lets go, or
 * with its death. */
static void wanted_back(bool killed)
{
	struct world *w = begin("hbm.size=4MiB");
	struct steps *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	tier_context *a = many_blocks(w, "a", 0), *b;
	tier_block block[MANY];
	void *state = w;
	uint64_t until;
	pid_t pid;

	assert_true(s != MAP_FAILED);
	many_found(a, 0, block);
	assert_true(fetch_many(a, block, LONG_NS) > 0);
	pid = fork();
	if (pid == 0)
		hold(w, s);
	while (!__atomic_load_n(&s->mapped, __ATOMIC_ACQUIRE))
		usleep(1000);
	b = many_blocks(w, "b", 1000);
	many_found(b, 1000, block);
	assert_true(fetch_many(b, block, SOON_NS) < (int)MANY / 8);
	assert_int_equal(s->wrong, 0);
	if (killed)
		kill(pid, SIGKILL);
	__atomic_store_n(&s->end, 1, __ATOMIC_RELEASE);
	until = time_now_ns() + 20 * NS_PER_S;
	while (fetch_many(b, block, SOON_NS) < (int)MANY / 4) {
		assert_true(time_now_ns() < until);
		usleep(20000);
	}
	__atomic_store_n(&s->left, 1, __ATOMIC_RELEASE);
	if (killed)
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	else
		child_passes(pid);
	munmap(s, sizeof(*s));
	world_end(&state);
}

static void test_what_is_wanted_back_comes_when_launches_end(void **state)
{
	(void)state;
	wanted_back(false);
}

static void test_what_is_wanted_back_comes_with_death(void **state)
{
	(void)state;
	wanted_back(true);
}

/* ---- another daemon -------------------------------------------------------------------------- */

static void meet_another(const struct world *w, const tier_block *block, struct steps *s)
{
	struct tier_device_page at[BLOCKS];
	struct tier_page page[BLOCKS];
	tier_key key[BLOCKS];
	struct tier_found found[BLOCKS];
	struct gpu g;

	gpu_begin(&g);
	gpu_open(&g, &w->d, "kv");
	list_pages(block, BLOCKS, 1, page);
	CHECK(tier_era_begin(g.r) == 0);
	CHECK(tier_device_pages(g.d, page, BLOCKS, at) == BLOCKS);
	__atomic_store_n(&s->mapped, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&s->end, __ATOMIC_ACQUIRE))
		usleep(1000);
	while (tier_check(g.t) < 0)
		usleep(1000);
	CHECK(tier_device_pages(g.d, page, BLOCKS, at) == -ESTALE);
	CHECK(tier_device_give_back(g.d) == -ESTALE);
	tier_device_close(g.d);
	tier_era_close(g.r);
	for (uint32_t i = 0; i < BLOCKS; i++)
		CHECK(tier_key_opaque(&key[i], &i, sizeof(i), SALT("device", 6)) == 0);
	CHECK(tier_match(g.c, key, BLOCKS, found) == BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		page[i].block = found[i].block;
	CHECK(tier_fetch_pages(g.c, page, BLOCKS, ASK(TIER_HBM)) == BLOCKS);
	CHECK(tier_era_open(g.r, &g.done) == 0 && tier_device_open(g.c, g.r, &g.d) == 0);
	CHECK(tier_era_begin(g.r) == 0);
	CHECK(tier_device_pages(g.d, page, BLOCKS, at) == BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		CHECK(at[i].tier == TIER_HBM && *gpu_window(&g, &at[i]) == byte_of(i, 0));
	gpu_ended(&g);
	gpu_end(&g);
	CHECK(gpu_left(&g) == 0);
	_exit(0);
}

static void test_a_daemon_is_replaced(void **state)
{
	static const char *const settings[] = { "hbm.backend=cuda", NULL };
	struct world *w = begin("hbm.size=16MiB");
	struct steps *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	tier_block block[BLOCKS];
	pid_t pid;

	assert_true(s != MAP_FAILED);
	put_and_find(w, block);
	assert_int_equal(tier_fetch(w->c, block, BLOCKS, ASK(TIER_HBM)), BLOCKS);
	admin(w, "drain", NULL);
	pid = fork();
	if (pid == 0)
		meet_another(w, block, s);
	while (!__atomic_load_n(&s->mapped, __ATOMIC_ACQUIRE))
		usleep(1000);
	daemon_stop(&w->d);
	gpu_daemon(NULL);
	daemon_start(&w->d, settings);
	gpu_daemon_runs();
	__atomic_store_n(&s->end, 1, __ATOMIC_RELEASE);
	child_passes(pid);
	munmap(s, sizeof(*s));
	*state = w;
	world_end(state);
}

/* ---- each call fails ------------------------------------------------------------------------- */

struct totals {
	uint32_t runs, failed, pages, leaks;
};

/* What these are asked to give back stays when they fail. */
static bool gives_back(const char *name)
{
	static const char *const releases[] = { "cuMemUnmap", "cuMemRelease", "cuMemAddressFree",
						"cuMemHostUnregister", "cuStreamDestroy",
						"cuDevicePrimaryCtxRelease" };

	for (uint32_t i = 0; i < COUNT(releases); i++)
		if (!strcmp(name, releases[i]))
			return true;
	return false;
}

static uint32_t look_at_pages(struct gpu *g, const struct tier_page *page, uint32_t count)
{
	struct tier_device_page at[BLOCKS * BLOCK_PAGES];
	uint64_t view;
	uint32_t n = 0;
	int rc;

	CHECK(tier_era_begin(g->r) == 0);
	tier_device_view(g->d, &view);
	rc = tier_device_pages(g->d, page, count, at);
	for (uint32_t i = 0; i < count && rc > 0; i++) {
		const uint8_t want = byte_of(i / BLOCK_PAGES, i % BLOCK_PAGES);

		if (!at[i].address)
			continue;
		n++;
		for (uint32_t k = 0; k < 4096; k += 511)
			CHECK(gpu_window(g, &at[i])[k] == want);
	}
	gpu_ended(g);
	return n;
}

/* In a child: the nth call of that name answers with an error. */
static void use_with_fault(const struct world *w, const tier_block *block, const char *name,
			   uint32_t nth, struct totals *sum)
{
	struct tier_page page[BLOCKS * BLOCK_PAGES];
	uint32_t before;
	struct gpu g;

	gpu_begin(&g);
	list_pages(block, BLOCKS, BLOCK_PAGES, page);
	before = g.standin.calls(name);
	g.standin.fail_at(name, nth, ILLEGAL_ADDRESS);
	gpu_connect(&g, &w->d, "kv");
	for (uint32_t i = 0; i < 2; i++) {
		if (tier_device_open(g.c, g.r, &g.d))
			continue;
		sum->pages += look_at_pages(&g, page, BLOCKS * BLOCK_PAGES);
		sum->pages += look_at_pages(&g, page, BLOCKS * BLOCK_PAGES);
		tier_device_close(g.d);
	}
	sum->failed += g.standin.calls(name) >= before + nth;
	gpu_end(&g);
	if (gpu_left(&g) && !gives_back(name))
		sum->leaks += (uint32_t)printf("# %s, time %u: something is left\n", name, nth) > 0;
	fflush(stdout);
	_exit(0);
}

static void test_each_call_fails_once(void **state)
{
	const char *text = getenv("FAULTS");
	const uint32_t most = text && atoi(text) > 0 ? (uint32_t)atoi(text) : 2;
	struct world *w = begin("hbm.size=16MiB");
	struct totals *sum = mmap(NULL, sizeof(*sum), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	tier_block block[BLOCKS];
	pid_t pid;

	assert_true(sum != MAP_FAILED);
	put_and_find(w, block);
	/* Some blocks are in HBM, others are not. */
	assert_int_equal(tier_fetch(w->c, block, BLOCKS / 2, ASK(TIER_HBM)), BLOCKS / 2);
	for (uint32_t i = 0; i < COUNT(names); i++)
		for (uint32_t nth = 1; nth <= most; nth++) {
			uint32_t failed = sum->failed;

			pid = fork();
			if (pid == 0)
				use_with_fault(w, block, names[i], nth, sum);
			child_passes(pid);
			sum->runs++;
			if (sum->failed == failed)
				break; /* it is not made so often */
		}
	print_message("# %zu entry points, %u clients, %u calls failed; %u pages looked at, 0 "
		      "wrong; %u leaks\n", COUNT(names), sum->runs, sum->failed, sum->pages,
		      sum->leaks);
	assert_int_equal(sum->leaks, 0);
	assert_true(sum->failed >= 12 && sum->pages >= 12 * BLOCKS);
	munmap(sum, sizeof(*sum));
	*state = w;
	world_end(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_kernel_reads_hbm_in_place),
		cmocka_unit_test(test_a_kernel_finds_pages_while_they_move),
		cmocka_unit_test(test_another_user_reads_cxl),
		cmocka_unit_test(test_what_is_wanted_back_comes_when_launches_end),
		cmocka_unit_test(test_what_is_wanted_back_comes_with_death),
		cmocka_unit_test(test_a_daemon_is_replaced),
		cmocka_unit_test(test_each_call_fails_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
