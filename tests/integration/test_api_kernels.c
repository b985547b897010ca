/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels read pages where they lie while a daemon gives the places of deleted blocks to others,
 * and their process is killed again and again: no kernel of a living process ever reads bytes that
 * are not of the key it found. Kernels go on after their process (cuda/standin), so that places are
 * in fact used again under dead ones. With launches that are counted as ended when they begin, the
 * daemon waits for nothing: then a living one must be seen to read such bytes, or this test could
 * not see it. All of it in CXL, where the kernel chooses what it reads, and in HBM, where its
 * client is told addresses (tier_device.h) and gives slabs back when they are wanted.
 *
 * LIVES=n: how many processes are killed (30); `make cuda-fault` kills 1,000.
 */
#include <sched.h>

#include "libtier/abi/index.h"
#include "tests/integration/kv_world.h"
#include "tests/integration/gpu_client.h"

#define WINDOW 48u /* blocks that are there at a time */
#define STEP 4u    /* that come and go at a time */
#define KERNEL_US 1500u
#define AHEAD 3u   /* launches under way */
#define LIVES 30u
#define WAIT_MS 20000u

/* launches are counted when they end, or when they begin; kernels read HBM, or CXL */
struct how {
	bool counted, hbm;
};

/* Shared by all processes. */
struct seen {
	uint64_t kernels, looks; /* that found a page; its bytes looked at */
	uint64_t wrong, wrong_dead;
	uint64_t launched; /* by the present client */
	uint64_t next;     /* blocks put so far; of those a WINDOW is there */
};

struct kernel_param {
	const struct tier_device_view *view; /* CXL: it chooses itself, by the index; NULL = not */
	uint64_t *done; /* NULL: somebody else counts */
	struct seen *seen;
	const uint8_t *at; /* HBM: what it reads, and of which key */
	uint64_t want;
	uint32_t seed;
	int client;
};

/* ---- the kernel: in the device's process, which has no C library ----------------------------- */

/* Of each 8 bytes of a page. */
static inline uint64_t word_of(uint64_t key, uint32_t page)
{
	return key ^ page;
}

BARE static uint64_t load(const void *at)
{
	return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
}

BARE static uint64_t now_us(void)
{
	struct timespec t;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

BARE static const void *host_at(uint64_t address)
{
	return (const void *)(uintptr_t)address;
}

/* A page that is there, as a reader's first look has it: generation, state, key, word; the same
 * generation again. */
BARE static const uint8_t *choose(const struct tier_device_view *v, uint32_t n, uint64_t *want)
{
	const uint64_t index = load(&v->index), *chunk = host_at(v->chunk[ABI_TIER_CXL]);
	const uint32_t slot = n / v->pages % (2 * WINDOW), page = n % v->pages;
	const struct abi_block *b = host_at(index + v->block_offset + slot * sizeof(*b));
	const struct abi_page *d = host_at(index + v->page_offset);
	const uint64_t *words = d[(uint64_t)slot * v->pages + page].word;
	uint64_t key, word, begin;
	uint32_t generation;

	if (!index || slot >= v->blocks)
		return NULL;
	generation = __atomic_load_n(&b->generation, __ATOMIC_ACQUIRE);

	if (__atomic_load_n(&b->state, __ATOMIC_ACQUIRE) != ABI_BLOCK_COMMITTED)
		return NULL;
	key = load(b->key);
	word = load(&words[ABI_TIER_CXL]);
	if (abi_word_state(word) != ABI_PAGE_READY ||
	    abi_word_addr(word) / TIER_VIEW_CHUNK >= v->chunks[ABI_TIER_CXL] ||
	    __atomic_load_n(&b->generation, __ATOMIC_ACQUIRE) != generation)
		return NULL;
	*want = word_of(key, page);
	begin = load(&chunk[abi_word_addr(word) / TIER_VIEW_CHUNK]);
	return begin ? host_at(begin + abi_word_addr(word) % TIER_VIEW_CHUNK) : NULL;
}

BARE static void look(const struct kernel_param *p, const uint8_t *at, uint64_t want)
{
	bool same = load(at) == want && load(at + 2048) == want && load(at + 4088) == want;

	__atomic_add_fetch(&p->seen->looks, 1, __ATOMIC_RELAXED);
	if (same)
		return;
	/* Who has died meanwhile counts as dead. */
	if (syscall(SYS_getppid) == p->client)
		__atomic_add_fetch(&p->seen->wrong, 1, __ATOMIC_RELAXED);
	else
		__atomic_add_fetch(&p->seen->wrong_dead, 1, __ATOMIC_RELAXED);
}

BARE static void kernel(const void *param)
{
	const struct kernel_param *p = param;
	const uint64_t until = now_us() + KERNEL_US;
	const struct timespec pause = { .tv_nsec = 50000 };
	const uint8_t *at = p->at;
	uint32_t n = p->seed;
	uint64_t want = p->want;

	for (uint32_t tries = 0; !at && p->view && tries < 100000; tries++) {
		n = n * 1664525 + 1013904223;
		at = choose(p->view, n >> 4, &want);
	}
	while (at && now_us() < until) {
		look(p, at, want);
		syscall(SYS_nanosleep, &pause, NULL);
	}
	if (at)
		__atomic_add_fetch(&p->seen->kernels, 1, __ATOMIC_RELAXED);
	if (p->done)
		__atomic_add_fetch(p->done, 1, __ATOMIC_RELEASE);
}

/* ---- the client: launches until it is killed ------------------------------------------------- */

static void make_keys(tier_key *key, uint32_t first)
{
	for (uint32_t i = 0; i < STEP; i++) {
		uint32_t name = first + i;

		CHECK(tier_key_opaque(&key[i], &name, sizeof(name), NULL) == 0);
	}
}

/* A page of a block that was there lately, for the launch that was announced: if it is in HBM, it
 * is what the kernel reads. Its slab is mapped, or registered, from then on. */
static void ask_for_page(const struct gpu *g, struct kernel_param *p)
{
	uint64_t next = __atomic_load_n(&p->seen->next, __ATOMIC_ACQUIRE);
	uint32_t page = p->seed % BLOCK_PAGES, i = p->seed / 64 % STEP;
	struct tier_found found[STEP];
	struct tier_device_page at;
	tier_key key[STEP];

	p->at = NULL;
	make_keys(key, (uint32_t)(next - STEP * (1 + p->seed / 1024 % (WINDOW / STEP))));
	if (tier_match(g->c, key, STEP, found) <= (int)i)
		return;
	CHECK(tier_device_pages(g->d, &(struct tier_page){ found[i].block, page }, 1, &at) >= 0);
	if (!at.address || at.tier != TIER_HBM)
		return;
	memcpy(&p->want, key[i].bytes, sizeof(p->want));
	p->want = word_of(p->want, page);
	p->at = gpu_window(g, &at);
}

_Noreturn static void client(const struct world *w, struct seen *seen, struct how how)
{
	struct kernel_param p = { .seen = seen, .client = getpid() };
	uint64_t view;
	struct gpu g;

	gpu_begin(&g);
	gpu_open(&g, &w->d, "kernels");
	p.done = how.counted ? g.done : NULL;
	for (uint64_t n = 1;; n++) {
		p.seed = (uint32_t)n * 2654435761u ^ (uint32_t)getpid();
		CHECK(tier_era_begin(g.r) == 0);
		if (!how.hbm) {
			CHECK(tier_device_view(g.d, &view) == 0);
			p.view = host_at(view);
		}
		ask_for_page(&g, &p);
		if (!how.counted)
			__atomic_store_n(g.done, n, __ATOMIC_RELEASE);
		CHECK(g.standin.launch(g.stream, kernel, &p, sizeof(p)) == 0);
		__atomic_store_n(&seen->launched, n, __ATOMIC_RELEASE);
		if (n % AHEAD == 0)
			CHECK(g.cu.stream_wait(g.stream) == 0);
	}
}

/* ---- the parent: blocks come and go ---------------------------------------------------------- */

struct churn {
	tier_context *c;
	uint32_t next;
	uint8_t *data; /* STEP blocks */
	bool hbm;
	struct seen *seen;
};

/* As many as there is room for. */
static void bring(const struct churn *ch, const tier_key *key)
{
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_HBM,
				      .deadline_ns = time_now_ns() + 20 * NS_PER_MS };
	struct tier_found found[STEP];
	tier_block block[STEP];

	assert_int_equal(tier_match(ch->c, key, STEP, found), STEP);
	for (uint32_t i = 0; i < STEP; i++)
		block[i] = found[i].block;
	tier_fetch(ch->c, block, STEP, &ask);
}

static void put_and_delete(struct churn *ch)
{
	tier_key key[STEP];
	uint64_t word;
	int rc;

	make_keys(key, ch->next);
	for (uint32_t i = 0; i < STEP * BLOCK_BYTES / 8; i++) {
		memcpy(&word, key[i / (BLOCK_BYTES / 8)].bytes, 8);
		word = word_of(word, i % (BLOCK_BYTES / 8) / 512);
		memcpy(ch->data + i * 8, &word, 8);
	}
	rc = tier_put_copy(ch->c, key, STEP, ch->data, NULL);
	if (rc != STEP)
		fail_msg("put: %d: %s", rc, tier_error_text());
	if (ch->hbm)
		bring(ch, key);
	if (ch->next >= WINDOW) {
		make_keys(key, ch->next - WINDOW);
		assert_int_equal(tier_delete(ch->c, key, STEP), STEP);
	}
	ch->next += STEP;
	__atomic_store_n(&ch->seen->next, ch->next, __ATOMIC_RELEASE);
}

static pid_t begin_client(const struct world *w, struct seen *seen, struct how how)
{
	pid_t pid;

	__atomic_store_n(&seen->launched, 0, __ATOMIC_RELEASE);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		client(w, seen, how);
	return pid;
}

/* A client's life: until it has launched some, then killed at some moment. */
static void one_life(const struct world *w, struct churn *ch, struct seen *seen, struct how how,
		     uint32_t n)
{
	uint64_t wanted = AHEAD + n % (2 * AHEAD), since = now_us();
	pid_t pid = begin_client(w, seen, how);
	int status;

	while (__atomic_load_n(&seen->launched, __ATOMIC_ACQUIRE) < wanted) {
		put_and_delete(ch);
		assert_true(now_us() - since < WAIT_MS * 1000ull);
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	put_and_delete(ch);
}

static struct world *begin(bool hbm)
{
	/* Kernels that get no processor for long keep much of what is deleted under them. */
	const char *const settings[] = { "quarantine.percent=80", hbm ? "hbm.backend=cuda" : NULL,
					 NULL };
	struct world *w;

	gpu_daemon(NULL);
	w = world_begin(settings);
	gpu_daemon_runs();
	return w;
}

static void run(struct how how, uint32_t kills, struct seen *out)
{
	const struct tier_context_options options = {
		.size = sizeof(options),
		.quota = { how.hbm ? 0 : TIER_QUOTA_NONE, 0, TIER_QUOTA_NONE, 0 },
	};
	struct world *w = begin(how.hbm);
	struct seen *seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct churn ch = { .data = malloc(STEP * BLOCK_BYTES), .hbm = how.hbm, .seen = seen };
	uint32_t n = 0;
	void *state = w;

	assert_true(seen != MAP_FAILED && ch.data);
	if (tier_context_create(w->t, "kernels", w->g, &options, &ch.c))
		fail_msg("%s", tier_error_text());
	for (uint32_t i = 0; i < WINDOW / STEP; i++)
		put_and_delete(&ch);
	for (; n < kills && (how.counted || !seen->wrong); n++)
		one_life(w, &ch, seen, how, n);
	print_message("# %s, daemon waits%s: %u kills, %lu kernels, %lu looks, %u blocks put; "
		      "wrong: %lu alive, %lu dead\n", how.hbm ? "HBM" : "CXL",
		      how.counted ? "" : " for nothing", n, seen->kernels, seen->looks, ch.next,
		      seen->wrong, seen->wrong_dead);
	*out = *seen;
	tier_context_close(ch.c);
	free(ch.data);
	munmap(seen, sizeof(*seen));
	world_end(&state);
}

static uint32_t lives_wanted(void)
{
	const char *text = getenv("LIVES");

	return text && atoi(text) > 0 ? (uint32_t)atoi(text) : LIVES;
}

static bool is_hbm(void **state)
{
	return *state != NULL;
}

static void test_no_place_is_used_again_under_a_living_kernel(void **state)
{
	struct seen seen;

	run((struct how){ .counted = true, .hbm = is_hbm(state) }, lives_wanted(), &seen);
	assert_int_equal(seen.wrong, 0);
	assert_true(seen.kernels > lives_wanted());
}

static void test_without_the_wait_one_is(void **state)
{
	struct seen seen;

	run((struct how){ .counted = false, .hbm = is_hbm(state) }, 1000, &seen);
	assert_true(seen.wrong > 0);
}

int main(void)
{
	static bool hbm = true;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_place_is_used_again_under_a_living_kernel),
		cmocka_unit_test(test_without_the_wait_one_is),
		cmocka_unit_test_prestate(test_no_place_is_used_again_under_a_living_kernel,
					  &hbm),
		cmocka_unit_test_prestate(test_without_the_wait_one_is, &hbm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
