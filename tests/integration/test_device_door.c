/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole way, as an engine goes it: a live daemon whose HBM is memory of a GPU, a client whose
 * library maps it, and kernels that are launched by the driver and count their era themselves. They
 * read HBM where it lies; then the pages have gone to CXL, and kernels find them there by the
 * index. On the stand-in for the driver, where the model of the device runs them; with
 * DRIVER=machine on the machine's (cuda/gpu-check).
 */
#define BLOCKS 20u
#include "cuda/device/door.h"
#include "cuda/kernels/era.h"
#include "tests/integration/gpu_decode.h"

#define PAGE ((uintptr_t)4096)

static bool is_machine(void)
{
	const char *driver = getenv("DRIVER");

	return driver && !strcmp(driver, "machine");
}

#ifdef __x86_64__
static const char *by_model(const char *kernel, uint32_t blocks, uint32_t threads,
			    uint32_t shared_bytes, const void *param, size_t bytes)
{
	const struct outside_launch l = { kernel, blocks, threads, shared_bytes, 1, true };

	return outside_run(&l, param, bytes);
}

struct reader {
	struct door d;
	struct gpu g;        /* its connection; the driver's part is the door's */
	struct scratch *s;   /* processor and device have it at one address */
	struct tier_page *page;
	struct msa_era era;
};

static void must(const struct reader *r, cuda_result told, const char *what)
{
	if (told)
		fprintf(stderr, "%s: the driver answers %d (%s)\n", what, told,
			door_error(&r->d, told));
	CHECK(!told);
}

static void *share(struct reader *r, size_t bytes)
{
	uint64_t at;

	must(r, r->d.starts.managed(&at, bytes, CUDA_MANAGED_GLOBAL), "managed memory");
	outside_allow((void *)(uintptr_t)at, bytes, true);
	return (void *)(uintptr_t)at;
}

/* The words of the era, which lie in memory that the daemon sees. */
static void share_era(struct reader *r)
{
	uint8_t *begin = (uint8_t *)((uintptr_t)r->g.done & ~(PAGE - 1));
	uint64_t at;

	must(r, r->d.cu.host_register(begin, PAGE, 0), "the era's words");
	must(r, r->d.cu.host_address(&at, begin, 0), "their address");
	r->era.done = (uint64_t *)(uintptr_t)(at + (uint64_t)((uint8_t *)r->g.done - begin));
	outside_allow(r->era.done, sizeof(*r->era.done), true);
}

static void open_reader(struct reader *r, const struct decode *x)
{
	if (!is_machine())
		standin_load();
	if (door_open(&r->d, by_model))
		_exit(77);
	gpu_open(&r->g, &x->w->d, "msa");
	share_era(r);
	r->s = share(r, sizeof(*r->s));
	r->page = share(r, BLOCKS * sizeof(*r->page));
	for (uint32_t i = 0; i < BLOCKS; i++)
		r->page[i] = (struct tier_page){ x->block[i], 0 };
	fill_query(r->s);
}

/* Decode, and the end of the era; then the golden model's bits. */
static void decode_and_compare(struct reader *r, const struct decode *x)
{
	struct scratch *s = r->s;
	const struct msa_decode p = {
		.q = s->q, .chosen = s->chosen, .position = &s->position, .table = &s->table,
		.page = s->page, .part = s->part, .state = s->state, .out = s->out,
		.queries = 1, .rows = ROWS, .blocks = BLOCKS, .scale_log2 = 1,
	};
	const uint64_t before = __atomic_load_n(r->g.done, __ATOMIC_ACQUIRE);
	float want[MSA_DIM];

	must(r, door_launch(&r->d, "msa_decode_part", MSA_TOP, MSA_THREADS, MSA_DECODE_SHARED, &p),
	     "decode");
	must(r, door_launch(&r->d, "msa_decode_merge", 1, MSA_THREADS, 0, &p), "merge");
	must(r, door_launch(&r->d, "msa_era_end", 1, 32, 0, &r->era), "the end of an era");
	must(r, r->d.cu.stream_wait(r->d.stream), "the stream");
	CHECK(__atomic_load_n(r->g.done, __ATOMIC_ACQUIRE) == before + 1);
	for (uint32_t row = 0; row < ROWS; row++) {
		expect(x, s, row, want);
		CHECK(!memcmp(want, s->out + row * MSA_DIM, sizeof(want)));
	}
}

/* Kernels of the stand-in find the device's memory elsewhere. */
static uint64_t as_kernels_see(const struct reader *r, const struct tier_device_page *at)
{
	const void *window;

	if (!r->d.window)
		return at->address;
	window = r->d.window(at->address, at->bytes, false);
	CHECK(window);
	outside_allow(window, at->bytes, false);
	return (uintptr_t)window;
}

static void read_hbm(const struct decode *x)
{
	struct tier_device_page at[BLOCKS];
	static struct reader r;

	open_reader(&r, x);
	CHECK(tier_era_begin(r.g.r) == 0);
	CHECK(tier_device_pages(r.g.d, r.page, BLOCKS, at) == BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		CHECK(at[i].tier == TIER_HBM);
		r.s->page[i] = as_kernels_see(&r, &at[i]);
	}
	decode_and_compare(&r, x);
	tier_close(r.g.t);
	door_close(&r.d);
	_exit(0);
}

static void allow_view(const struct tier_device_view *v)
{
	outside_allow(v, v->chunk[1] + v->chunks[1] * 8 - (uintptr_t)v, false);
	outside_allow((const void *)(uintptr_t)v->index,
		      v->page_offset + (uint64_t)v->blocks * v->pages * sizeof(struct abi_page),
		      false);
}

static void find_in_cxl(const struct decode *x)
{
	struct tier_device_page at[BLOCKS];
	static struct reader r;
	struct msa_words p;
	uint64_t view;

	open_reader(&r, x);
	CHECK(tier_era_begin(r.g.r) == 0);
	CHECK(tier_device_view(r.g.d, &view) == 0);
	CHECK(tier_device_pages(r.g.d, r.page, BLOCKS, at) == BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		CHECK(at[i].tier == TIER_CXL);
		outside_allow((const void *)(uintptr_t)at[i].address, at[i].bytes, false);
	}
	allow_view((const void *)(uintptr_t)view);
	p = (struct msa_words){ (const struct tier_device_view *)(uintptr_t)view,
				(const struct msa_word *)r.page, r.s->page, BLOCKS };
	must(&r, door_launch(&r.d, "msa_words_find", 1, WORDS_THREADS, 0, &p), "words");
	decode_and_compare(&r, x);
	for (uint32_t i = 0; i < BLOCKS; i++)
		CHECK(r.s->page[i] == at[i].address);
	tier_close(r.g.t);
	door_close(&r.d);
	_exit(0);
}
#else
static void read_hbm(const struct decode *x)
{
	_exit(77); /* the model of the device is of x86-64 */
}

static void find_in_cxl(const struct decode *x)
{
	_exit(77);
}
#endif

/* A child's end; 77: here there is nothing to be seen. */
static void child_passes_or_skips(struct world *w, pid_t pid)
{
	void *state = w;
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	world_end(&state);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("a child ended with %x", (unsigned)status);
}

static void run_child(bool hbm, void (*child)(const struct decode *x))
{
	static const char *const settings[] = { "hbm.backend=cuda", "hbm.size=16MiB", NULL };
	struct decode x;
	pid_t pid;

	if (!is_machine())
		gpu_daemon(NULL);
	x.w = world_begin(settings);
	if (!is_machine())
		gpu_daemon_runs();
	put_kv(&x);
	admin(x.w, "drain", NULL);
	assert_int_equal(tier_fetch(x.c, x.block, BLOCKS, ASK(TIER_HBM)), BLOCKS);
	if (hbm) {
		admin(x.w, "evict", "{\"context\":\"msa\",\"tier\":\"cxl\"}");
	} else {
		admin(x.w, "evict", "{\"context\":\"msa\",\"tier\":\"hbm\"}");
		assert_int_equal(tier_fetch(x.c, x.block, BLOCKS, ASK(TIER_CXL)), BLOCKS);
	}
	pid = fork();
	if (pid == 0)
		child(&x);
	free(x.kv);
	child_passes_or_skips(x.w, pid);
}

static void test_kernels_read_hbm(void **state)
{
	(void)state;
	run_child(true, read_hbm);
}

static void test_kernels_find_pages_in_cxl(void **state)
{
	(void)state;
	run_child(false, find_in_cxl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels_read_hbm),
		cmocka_unit_test(test_kernels_find_pages_in_cxl),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
