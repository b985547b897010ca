/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model SLOTS SEQUENCES [SEED]: requests of the kernel module tier_mem in random order beside a
 *     model of one region: what its slots hold, who has which right. What each request answers and
 *     what each touch through each mapping gives (the byte, or which signal) is foretold by it.
 *     hostile.c asks for nonsense and counts; here what is asked is sane, and all of it is judged.
 */
#include <sys/uio.h>
#include <sys/wait.h>

#include "tests/vm/kmod.h"

#define SLOTS_MAX 16u
#define VIEWS_MAX 14u
#define WORDS 3u
#define CLIENTS 3u
#define STEPS_MAX 60u
#define LOOKS 4u /* at what a step left */

enum role { OWNER, READER, WRITER };

/* What a descriptor may do; its dma-bufs and mappings may do the same. */
struct right {
	enum role role;
	uint32_t first, count, client;
	uint32_t views; /* that have it; 0: it is gone */
	bool revoked;
};

/* A descriptor of the region or a dma-buf, open or not, and a mapping of it, if there is one. */
struct view {
	struct right *right;
	bool buffer;
	int fd; /* -1: closed, the mapping stays */
	uint8_t *at;
	uint32_t first, count; /* slots, of the mapping */
};

static struct {
	bool full[SLOTS_MAX];
	uint64_t value[SLOTS_MAX][WORDS];
	struct right right[VIEWS_MAX];
	struct view view[VIEWS_MAX];
	bool left;
} m;

static uint64_t state, seed;
static uint32_t step;
static uint64_t touches;

static uint32_t below(uint32_t most)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % most;
}

static void differs(const char *what, int64_t is, int64_t should)
{
	fail("broken: seed %" PRIu64 " step %u: %s is %" PRId64 ", not %" PRId64, seed, step, what,
	     is, should);
}

static void same(const char *what, int64_t is, int64_t should)
{
	if (is != should)
		differs(what, is, should);
}

/* ---- the model ------------------------------------------------------------------------------ */

static bool is_there(const struct view *v)
{
	return v->fd >= 0 || v->at;
}

static struct view *some_view(void)
{
	for (uint32_t i = 0, at = below(VIEWS_MAX); i < VIEWS_MAX; i++)
		if (is_there(&m.view[(at + i) % VIEWS_MAX]))
			return &m.view[(at + i) % VIEWS_MAX];
	return NULL;
}

static int owner(void)
{
	for (uint32_t i = 0; i < VIEWS_MAX; i++)
		if (m.view[i].fd >= 0 && !m.view[i].buffer && m.view[i].right->role == OWNER)
			return m.view[i].fd;
	return -1;
}

static struct view *room(void)
{
	for (uint32_t i = 0; i < VIEWS_MAX; i++)
		if (!is_there(&m.view[i]))
			return &m.view[i];
	return NULL;
}

static bool overlaps(const struct right *r, uint32_t first, uint32_t count)
{
	return r->views && !r->revoked && r->role == WRITER && r->first < first + count &&
	       first < r->first + r->count;
}

static void put_view(struct view *v, struct right *right, int fd, bool buffer)
{
	right->views++;
	*v = (struct view){ .right = right, .fd = fd, .buffer = buffer };
}

static void new_right(struct view *v, int fd, struct right made)
{
	for (uint32_t i = 0; i < VIEWS_MAX; i++)
		if (!m.right[i].views) {
			m.right[i] = made;
			put_view(v, &m.right[i], fd, false);
			return;
		}
}

static uint32_t views(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < VIEWS_MAX; i++)
		n += is_there(&m.view[i]);
	return n;
}

/* A view lost its descriptor or its mapping. The region goes with the last one. */
static void let_go(struct view *v)
{
	bool end = !is_there(v) && !--v->right->views && v->right->role == OWNER && !m.left;

	for (uint32_t i = 0; end && i < VIEWS_MAX; i++)
		m.right[i].revoked = true;
	if (end || !views())
		memset(m.full, 0, sizeof(m.full));
}

/* ---- touches -------------------------------------------------------------------------------- */

static const size_t word_at[WORDS] = { 0, CHUNK / 2 + 4096 + 8, CHUNK - 8 };

/* The signal of a touch of a slot; the owner's touch fills it. */
static int foretold(const struct view *v, uint32_t slot, bool write)
{
	const struct right *r = v->right;

	if (write && r->role == READER)
		return SIGSEGV;
	if (r->revoked || slot < r->first || slot - r->first >= r->count)
		return SIGBUS;
	if (m.full[slot])
		return 0;
	if (r->role != OWNER)
		return SIGBUS;
	m.full[slot] = true;
	memset(m.value[slot], 0, sizeof(m.value[slot]));
	return 0;
}

/* As a processor does it, or as the kernel for a system call. 0, or the signal. */
static int touch(uint64_t *at, uint64_t *value, bool write, bool by_kernel)
{
	struct iovec here = { value, sizeof(*value) }, there = { at, sizeof(*at) };
	ssize_t n;

	if (!by_kernel) {
		int signal = write ? store(at, *value) : load(at);

		if (!signal && !write)
			*value = *at;
		return signal;
	}
	n = write ? process_vm_writev(getpid(), &here, 1, &there, 1, 0) :
		    process_vm_readv(getpid(), &here, 1, &there, 1, 0);
	return n == (ssize_t)sizeof(*at) ? 0 : -1;
}

static void look(const struct view *v)
{
	uint32_t i = below(v->count), slot = v->first + i, k = below(WORDS);
	bool write = !below(3), by_kernel = !below(3);
	uint64_t value = ++touches;
	int should = foretold(v, slot, write);
	int is = touch((uint64_t *)(void *)(v->at + i * CHUNK + word_at[k]), &value, write,
		       by_kernel);

	if (by_kernel)
		same("a touch by the kernel", is != 0, should != 0);
	else
		same(write ? "a store's signal" : "a load's signal", is, should);
	if (is)
		return;
	if (write)
		m.value[slot][k] = value;
	same("what is read", (int64_t)value, (int64_t)m.value[slot][k]);
}

/* A child has what it inherited, and no more. */
static void look_of_child(const struct view *v)
{
	pid_t pid = spawn();
	int how;

	if (pid == 0) {
		for (uint32_t i = 0; i < v->count; i++) {
			uint64_t *at = (uint64_t *)(void *)(v->at + i * CHUNK);
			bool full = m.full[v->first + i];

			if (v->right->role == OWNER && !full)
				continue; /* its touch fills */
			if (load(at) != foretold(v, v->first + i, false))
				_exit(1);
		}
		_exit(0);
	}
	if (waitpid(pid, &how, 0) != pid)
		fail("waitpid: %s", strerror(errno));
	same("what a child sees", how, 0);
}

static void look_around(void)
{
	for (uint32_t i = 0; i < LOOKS; i++) {
		const struct view *v = some_view();

		if (v && v->at)
			look(v);
	}
}

/* ---- requests ------------------------------------------------------------------------------- */

static void some_slots(uint32_t *first, uint32_t *count)
{
	*first = below(slots);
	*count = 1 + below(slots - *first);
}

static void fill_or_punch(int fd, unsigned long what)
{
	struct tier_mem_slots out;
	uint32_t first, count, full = 0;

	some_slots(&first, &count);
	for (uint32_t i = first; i < first + count; i++)
		full += m.full[i];
	same("FILL, PUNCH", ask(fd, what, first, count, &out), 0);
	same("FILL, PUNCH: done", out.done, what == TIER_MEM_FILL ? count : full);
	for (uint32_t i = first; i < first + count; i++) {
		if (what == TIER_MEM_FILL && !m.full[i])
			memset(m.value[i], 0, sizeof(m.value[i]));
		m.full[i] = what == TIER_MEM_FILL;
	}
}

static void do_share(int fd)
{
	struct view *v = room();
	uint32_t client = below(CLIENTS);

	if (v)
		new_right(v, share(fd, client),
			  (struct right){ .role = READER, .count = slots, .client = client });
}

static void do_revoke(int fd)
{
	uint32_t client = below(CLIENTS), count = 0;
	struct tier_mem_client out = revoke_client(fd, client);

	for (uint32_t i = 0; i < VIEWS_MAX; i++) {
		struct right *r = &m.right[i];

		if (!r->views || r->revoked || r->role != READER || r->client != client)
			continue;
		r->revoked = true;
		count++;
	}
	same("REVOKE: descriptors", out.descriptors, count);
	same("REVOKE: pinned", out.pinned, 0);
}

static void do_grant(int fd)
{
	struct view *v = room();
	uint32_t first, count;
	bool busy = false;
	int64_t rc;

	some_slots(&first, &count);
	if (!v)
		return;
	for (uint32_t i = 0; i < VIEWS_MAX; i++)
		busy |= overlaps(&m.right[i], first, count);
	rc = ask(fd, TIER_MEM_GRANT, first, count, NULL);
	same("GRANT", rc < 0 ? rc : 0, busy ? -EBUSY : 0);
	if (!busy)
		new_right(v, (int)rc,
			  (struct right){ .role = WRITER, .first = first, .count = count });
}

static void do_commit(int fd)
{
	struct tier_mem_slots out;
	uint32_t first, count;

	some_slots(&first, &count);
	same("COMMIT", ask(fd, TIER_MEM_COMMIT, first, count, &out), 0);
	same("COMMIT: pinned", out.done, 0);
	for (uint32_t i = 0; i < VIEWS_MAX; i++)
		if (overlaps(&m.right[i], first, count))
			m.right[i].revoked = true;
}

static void do_dmabuf(const struct view *of)
{
	const struct right *r = of->right;
	struct view *v = room();
	uint32_t first, count;
	bool inside;
	int64_t rc;

	some_slots(&first, &count);
	inside = first >= r->first && first + count <= r->first + r->count;
	if (!v || of->fd < 0 || of->buffer)
		return;
	rc = ask(of->fd, TIER_MEM_DMABUF, first, count, NULL);
	same("DMABUF", rc < 0 ? rc : 0, r->revoked ? -EIDRM : inside ? 0 : -EINVAL);
	if (rc < 0)
		return;
	put_view(v, of->right, (int)rc, true);
	v->first = first;
	v->count = count;
}

/* What others than the owner ask of it. */
static void do_refused(const struct view *v)
{
	if (v->fd < 0 || v->buffer || v->right->role == OWNER)
		return;
	same("PUNCH of another", ask(v->fd, TIER_MEM_PUNCH, 0, 1, NULL), -ENOTTY);
	same("COMMIT of another", ask(v->fd, TIER_MEM_COMMIT, 0, 1, NULL), -ENOTTY);
}

static void do_seek(int fd)
{
	uint32_t from = below(slots), data = from, hole = from;

	while (data < slots && !m.full[data])
		data++;
	while (hole < slots && m.full[hole])
		hole++;
	same("SEEK_DATA", lseek(fd, (off_t)(from * CHUNK), SEEK_DATA),
	     data < slots ? (int64_t)(data * CHUNK) : -1);
	same("SEEK_HOLE", lseek(fd, (off_t)(from * CHUNK), SEEK_HOLE), (int64_t)(hole * CHUNK));
}

/* ---- mappings ------------------------------------------------------------------------------- */

static int protection(const struct view *v)
{
	return v->right->role == READER ? PROT_READ : PROT_READ | PROT_WRITE;
}

static void do_map(struct view *v)
{
	void *at;

	if (v->fd < 0 || v->at)
		return;
	if (!v->buffer) {
		v->first = below(slots);
		v->count = 1 + below(slots - v->first);
	}
	at = mmap(NULL, v->count * CHUNK, protection(v), MAP_SHARED, v->fd,
		  v->buffer ? 0 : (off_t)(v->first * CHUNK));
	same("mmap", at == MAP_FAILED ? errno : 0, v->right->revoked ? EIDRM : 0);
	v->at = at == MAP_FAILED ? NULL : at;
}

static void do_unmap(struct view *v)
{
	if (!v->at)
		return;
	munmap(v->at, v->count * CHUNK);
	v->at = NULL;
	let_go(v);
}

static void do_close(struct view *v)
{
	if (v->fd < 0)
		return;
	close(v->fd);
	v->fd = -1;
	let_go(v);
}

/* What mprotect() has cut up stays so, and cannot be moved as one. */
static void move(struct view *v)
{
	size_t bytes = v->count * CHUNK;
	uint8_t *to = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mremap(v->at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED)
		v->at = to;
	else if (errno != EFAULT)
		fail("mremap: %s", strerror(errno));
	else
		munmap(to, bytes);
}

/* What changes the page tables and nothing that anybody may rely on. */
static void do_stir(struct view *v)
{
	size_t bytes = v->count * CHUNK, from;

	if (!v->at)
		return;
	from = below((uint32_t)(bytes / 4096)) * 4096ul;
	switch (below(4)) {
	case 0:
		madvise(v->at + from, bytes - from, MADV_DONTNEED);
		break;
	case 1:
		if (mprotect(v->at + from, bytes - from, PROT_NONE) ||
		    mprotect(v->at + from, bytes - from, protection(v)))
			fail("mprotect: %s", strerror(errno));
		break;
	case 2:
		move(v);
		break;
	default:
		look_of_child(v);
	}
}

/* ---- sequences ------------------------------------------------------------------------------ */

static void ask_owner(int fd)
{
	switch (below(16)) {
	case 0:
		do_seek(fd);
		break;
	case 1:
	case 2:
		do_revoke(fd);
		break;
	case 3:
	case 4:
		fill_or_punch(fd, TIER_MEM_PUNCH);
		break;
	case 5:
	case 6:
	case 7:
		do_commit(fd);
		break;
	case 8:
	case 9:
	case 10:
		do_grant(fd);
		break;
	case 11:
	case 12:
		do_share(fd);
		break;
	case 13:
		if (!below(8)) {
			same("LEAVE", ioctl(fd, TIER_MEM_LEAVE), 0);
			m.left = true;
		}
		break;
	default:
		fill_or_punch(fd, TIER_MEM_FILL);
	}
}

static void change_view(struct view *v)
{
	switch (below(12)) {
	case 0:
		if (v->right->role != OWNER || !below(8))
			do_close(v);
		break;
	case 1:
		do_unmap(v);
		break;
	case 2:
		do_dmabuf(v);
		break;
	case 3:
		do_refused(v);
		break;
	case 4:
	case 5:
		do_stir(v);
		break;
	default:
		do_map(v);
	}
}

static void count_chunks(void)
{
	struct tier_mem_status s = status();
	uint32_t full = 0;

	for (uint32_t i = 0; i < slots; i++)
		full += m.full[i];
	same("chunks that are used", (int64_t)s.used, full);
	same("regions", (int64_t)s.regions, views() > 0);
	same("the sum", (int64_t)(s.free + s.held + s.used + s.retired), (int64_t)s.total);
}

static void sequence(void)
{
	uint32_t steps = 10 + below(STEPS_MAX - 10);

	memset(&m, 0, sizeof(m));
	for (uint32_t i = 0; i < VIEWS_MAX; i++)
		m.view[i].fd = -1;
	new_right(&m.view[0], create(), (struct right){ .role = OWNER, .count = slots });
	for (step = 0; step < steps && some_view(); step++) {
		int fd = owner();

		if (fd >= 0 && below(2))
			ask_owner(fd);
		else
			change_view(some_view());
		look_around();
		count_chunks();
	}
	/* The last to be let go is any of them. */
	for (struct view *v = some_view(); v; v = some_view()) {
		do_close(v);
		do_unmap(v);
		if (is_there(v))
			fail("a view stays");
		count_chunks();
		look_around();
	}
}

int main(int argc, char **argv)
{
	uint32_t count = argc > 2 ? (uint32_t)atoi(argv[2]) : 1000;
	uint64_t from = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);

	begin(argc, argv);
	if (slots < 2 || slots > SLOTS_MAX)
		fail("2 to %u slots", SLOTS_MAX);
	for (uint32_t i = 0; i < count; i++) {
		state = seed = from + i;
		for (uint32_t k = 0; k < 4; k++)
			below(2);
		sequence();
	}
	printf("%u sequences from seed %" PRIu64 " went as foretold, %" PRIu64 " touches\n", count,
	       from, touches);
	pool_is_whole();
	return 0;
}
