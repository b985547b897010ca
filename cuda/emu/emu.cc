/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers, schedules, barriers and copies of the model of the device; see emu.cuh. A fiber runs
 * until it waits. It waits for a word to change, so the scheduler sees who can go on.
 */
#include "cuda/emu/emu.cuh"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <map>
#include <string>
#include <vector>

/* The linker's: where the kernels' __shared__ objects lie. */
extern "C" {
extern unsigned char __start_emu_shared[] __attribute__((weak));
extern unsigned char __stop_emu_shared[] __attribute__((weak));
void emu_switch(void **save, void *to);
}

/* Save what a call must keep on the own stack, take up another. */
asm(".text\n.globl emu_switch\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

namespace emu {

constexpr uint32_t STACK_BYTES = 64u << 10, GUARD_BYTES = 4096, SAVED_REGISTERS = 6;
constexpr uint32_t THREADS_MAX = 1024, WARPS_MAX = THREADS_MAX / 32;

emu_dim thread_, block_, threads_, blocks_;
plant planted;

namespace {

struct fiber {
	void *stack_at;
	unsigned char *stack;
	bool done;
	const uint32_t *word; /* waits while *word == value; NULL = can go on */
	uint32_t value;
	const char *where;
	int line;
};

struct meeting {
	uint32_t arrived, mask, generation;
	int line;
	const char *what;
	void *lane[32];
};

struct copy {
	unsigned char *dst;
	const unsigned char *src;
	uint32_t bytes;
	uint64_t *bar;
};

struct mbarrier {
	uint32_t count, pending, phase;
	int64_t bytes;
	bool fenced;
};

/* How unfair a schedule is. */
enum order { ORDER_ANY, ORDER_WARPS_APART, ORDER_LAST_FIRST, ORDERS };
enum delivery { DELIVER_LATE, DELIVER_ANY, DELIVERIES };

/* Who was last at a word of shared memory: threads by number, times by barriers passed. */
struct touch {
	uint32_t write_time, write_warp_time, read_time, read_warp_time;
	uint32_t warps, lanes; /* that have read it since: of the block, of the warp read_warp */
	uint16_t writer, read_warp;
	bool written;
};

struct span {
	size_t bytes;
	bool write;
	const unsigned char *now; /* NULL: what lies there is not old */
};

struct machine {
	std::vector<touch> touched;
	std::function<void()> change;
	uint32_t change_in;
	bool overtaken;
	std::map<uint64_t, span> spans;
	std::vector<fiber> fibers;
	meeting warp[WARPS_MAX];
	std::vector<copy> flying;
	std::map<uint64_t *, mbarrier> mbars;
	unsigned char *shared;
	uint32_t shared_bytes;
	void *scheduler;
	uint32_t current, alive, seed, order, delivery;
	uint32_t barrier_in, barrier_generation;
	int barrier_line;
	uint32_t warp_time[WARPS_MAX]; /* bar.warp.sync passed */
	std::function<void()> body;
	char why[400];
};

machine m;

void begin_wait(const uint32_t *word, uint32_t value, const char *where, int line)
{
	fiber &f = m.fibers[m.current];

	f.word = word;
	f.value = value;
	f.where = where;
	f.line = line;
	emu_switch(&f.stack_at, m.scheduler);
}

void run_fiber()
{
	m.body();
	m.fibers[m.current].done = true;
	m.alive--;
	emu_switch(&m.fibers[m.current].stack_at, m.scheduler);
	abort();
}

void make_fiber(fiber &f)
{
	void **top;

	if (!f.stack) {
		f.stack = (unsigned char *)mmap(nullptr, STACK_BYTES + GUARD_BYTES,
						PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (f.stack == MAP_FAILED || mprotect(f.stack, GUARD_BYTES, PROT_NONE)) {
			perror("emu: a fiber's stack");
			abort();
		}
	}
	top = (void **)(f.stack + GUARD_BYTES + STACK_BYTES);
	*--top = nullptr;
	*--top = (void *)run_fiber;
	f.stack_at = top - SAVED_REGISTERS;
	f.done = false;
	f.word = nullptr;
}

bool can_go(const fiber &f)
{
	return !f.done && (!f.word || *f.word != f.value);
}

/* The next fiber by the schedule; -1 = all wait. */
int choose()
{
	const uint32_t n = (uint32_t)m.fibers.size();
	uint32_t from = m.order == ORDER_ANY ? random() % n : 0;

	/* Whoever runs goes on as long as its warp can: the others see it far ahead. */
	if (m.order == ORDER_WARPS_APART)
		from = m.current / 32 * 32;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = m.order == ORDER_LAST_FIRST ? n - 1 - i : (from + i) % n;

		if (can_go(m.fibers[at]))
			return (int)at;
	}
	return -1;
}

void complete(mbarrier &b)
{
	if (b.pending || b.bytes)
		return;
	b.phase ^= 1;
	b.pending = b.count;
}

/* One copy arrives, any of them: it reads its source now, not when it was asked for. */
void deliver()
{
	const uint32_t i = random() % (uint32_t)m.flying.size();
	const copy c = m.flying[i];
	mbarrier &b = m.mbars[c.bar];

	m.flying.erase(m.flying.begin() + i);
	memcpy(c.dst, c.src, c.bytes);
	b.bytes -= c.bytes;
	complete(b);
}

/* Who waits where, in few words: the same place once, with its first threads. */
void tell_hang()
{
	std::map<std::string, std::vector<uint32_t>> places;
	std::string all;

	for (uint32_t i = 0; i < m.fibers.size(); i++)
		if (!m.fibers[i].done)
			places[std::string(m.fibers[i].where) + " at line " +
			       std::to_string(m.fibers[i].line)].push_back(i);
	for (auto &p : places) {
		all += (all.empty() ? "" : "; ") + std::to_string(p.second.size()) + " at " +
		       p.first + " (thread";
		for (uint32_t i = 0; i < p.second.size() && i < 4; i++)
			all += " " + std::to_string(p.second[i]);
		all += p.second.size() > 4 ? " ...)" : ")";
	}
	snprintf(m.why, sizeof(m.why), "block %u hangs: %u of %u threads wait for ever: %s",
		 block_.x, m.alive, threads_.x, all.c_str());
}

/* NaN in every format that kernels use: bf16, f16, f32. */
void poison(void *at, size_t bytes)
{
	memset(at, 0xff, bytes);
}

void begin_block(uint32_t index)
{
	if (__start_emu_shared)
		poison(__start_emu_shared, (size_t)(__stop_emu_shared - __start_emu_shared));
	poison(m.shared, m.shared_bytes);
	memset(m.warp, 0, sizeof(m.warp));
	m.touched.assign(m.shared_bytes / 4 + 1, {});
	m.flying.clear();
	m.mbars.clear();
	m.barrier_in = 0;
	m.alive = threads_.x;
	m.current = 0;
	block_.x = index;
	for (fiber &f : m.fibers)
		make_fiber(f);
}

bool run_block(uint32_t index)
{
	begin_block(index);
	while (m.alive && !m.why[0]) {
		int next = choose();

		if (!m.flying.empty() &&
		    (next < 0 || (m.delivery == DELIVER_ANY && random() % 64 == 0))) {
			deliver();
			continue;
		}
		if (next < 0) {
			tell_hang();
			break;
		}
		m.current = thread_.x = (uint32_t)next;
		m.fibers[m.current].word = nullptr;
		emu_switch(&m.scheduler, m.fibers[m.current].stack_at);
	}
	if (!m.why[0] && !m.flying.empty())
		snprintf(m.why, sizeof(m.why), "block %u ends with %zu bulk copies in flight",
			 index, m.flying.size());
	if (!m.why[0] && m.barrier_in)
		snprintf(m.why, sizeof(m.why), "block %u ends within a barrier", index);
	return !m.why[0];
}

mbarrier &find_mbar(uint64_t *bar, const char *what, int line)
{
	auto found = m.mbars.find(bar);

	if (found == m.mbars.end())
		die("%s at line %d: the mbarrier has not been initialised", what, line);
	return found->second;
}

} // namespace

bool launch(const shape &shape, uint32_t seed, std::function<void()> body)
{
	bool good = true;

	m.why[0] = '\0';
	if (!shape.threads || shape.threads % 32 || shape.threads > THREADS_MAX) {
		snprintf(m.why, sizeof(m.why), "%u threads a block", shape.threads);
		return false;
	}
	m.seed = seed * 2654435761u + 12345u;
	m.order = seed % ORDERS;
	m.delivery = seed / ORDERS % DELIVERIES;
	m.body = std::move(body);
	threads_.x = shape.threads;
	blocks_.x = shape.blocks;
	m.fibers.resize(shape.threads);
	m.shared_bytes = shape.shared_bytes;
	m.shared = (unsigned char *)aligned_alloc(1024, (shape.shared_bytes + 1024u) / 1024 * 1024);
	for (uint32_t i = 0; i < shape.blocks && good; i++)
		good = run_block(i);
	free(m.shared);
	m.shared = nullptr;
	return good;
}

const char *why()
{
	return m.why;
}

unsigned char *shared()
{
	return m.shared;
}

uint32_t shared_bytes()
{
	return m.shared_bytes;
}

uint32_t random()
{
	m.seed = m.seed * 1664525u + 1013904223u;
	return m.seed >> 8;
}

void die(const char *format, ...)
{
	va_list args;
	int n = snprintf(m.why, sizeof(m.why), "block %u thread %u: ", block_.x, thread_.x);

	va_start(args, format);
	vsnprintf(m.why + n, sizeof(m.why) - (size_t)n, format, args);
	va_end(args);
	emu_switch(&m.fibers[m.current].stack_at, m.scheduler);
	abort();
}

void meet(uint32_t mask, int line, const char *what, void *mine, void (*work)(void *lane[32]))
{
	meeting &w = m.warp[m.current / 32];
	const uint32_t lane = m.current % 32, generation = w.generation;

	if (w.arrived && (w.line != line || w.mask != mask))
		die("warp %u: its lanes meet at %s of line %d and %s of line %d", m.current / 32,
		    w.what, w.line, what, line);
	if (!(mask >> lane & 1))
		die("%s at line %d: lane %u is not in its own mask %x", what, line, lane, mask);
	w.line = line;
	w.mask = mask;
	w.what = what;
	w.lane[lane] = mine;
	w.arrived |= 1u << lane;
	if (w.arrived != mask) {
		begin_wait(&w.generation, generation, what, line);
		return;
	}
	work(w.lane);
	w.arrived = 0;
	w.generation++;
}

void warp_barrier(int line)
{
	meet(0xffffffffu, line, "bar.warp.sync", nullptr,
	     [](void **) { m.warp_time[m.current / 32]++; });
}

/* ---- who may touch what ---------------------------------------------------------------------- */

void allow(const void *at, size_t bytes, bool write)
{
	span &s = m.spans[(uint64_t)(uintptr_t)at];

	s.bytes = bytes;
	s.write = write;
}

void grow_old(const void *at, const void *now)
{
	m.spans[(uint64_t)(uintptr_t)at].now = (const unsigned char *)now;
}

void change_after(uint32_t loads, std::function<void()> change, bool overtaken)
{
	m.change_in = loads;
	m.change = std::move(change);
	m.overtaken = overtaken;
}

namespace {

const void *look_up(const void *at)
{
	const uint64_t address = (uint64_t)(uintptr_t)at;
	auto next = m.spans.upper_bound(address);

	if (next == m.spans.begin() || !std::prev(next)->second.now ||
	    address >= std::prev(next)->first + std::prev(next)->second.bytes)
		return at;
	return std::prev(next)->second.now + (address - std::prev(next)->first);
}

} // namespace

const void *now_at(const void *at, bool relaxed)
{
	if (m.change && relaxed && m.overtaken && m.change_in == 0) {
		const auto before = m.spans;

		m.change();
		at = look_up(at);
		m.spans = before; /* the next one came first */
		m.overtaken = false;
		m.change_in = 1;
		return at;
	}
	if (m.change && !m.change_in--) {
		m.change();
		m.change = nullptr;
	}
	return look_up(at);
}

void forbid(const void *at)
{
	m.spans.erase((uint64_t)(uintptr_t)at);
}

unsigned char *global_at(uint64_t at, uint32_t bytes, bool write, int line)
{
	auto next = m.spans.upper_bound(at);

	if (at % (bytes & -bytes))
		die("line %d: %u bytes at %#llx are not aligned", line, bytes,
		    (unsigned long long)at);
	if (next == m.spans.begin() || at + bytes > std::prev(next)->first +
						   std::prev(next)->second.bytes)
		die("line %d: %u bytes at %#llx are no memory of the device", line, bytes,
		    (unsigned long long)at);
	if (write && !std::prev(next)->second.write)
		die("line %d: %u bytes at %#llx may only be read", line, bytes,
		    (unsigned long long)at);
	return (unsigned char *)(uintptr_t)at;
}

unsigned char *shared_plain(uint64_t at)
{
	if (at >= m.shared_bytes)
		die("shared memory of %u bytes has no byte %llu", m.shared_bytes,
		    (unsigned long long)at);
	return m.shared + at;
}

namespace {

void check_race(touch &t, uint32_t word, bool write, int line)
{
	const uint32_t warp = m.current / 32, lane = m.current % 32;
	const uint32_t now = m.barrier_generation, warp_now = m.warp_time[warp];
	uint32_t others;

	if (t.written && t.write_time == now && t.writer != m.current &&
	    (t.writer / 32 != warp || t.write_warp_time == warp_now))
		die("line %d: word %u of shared memory was written by thread %u without a barrier "
		    "since", line, word, t.writer);
	others = t.read_time == now ? t.warps & ~(1u << warp) : 0;
	if (write && others)
		die("line %d: word %u of shared memory was read by warps %x without a barrier "
		    "since", line, word, others);
	others = t.read_time == now && t.read_warp == warp && t.read_warp_time == warp_now
			 ? t.lanes & ~(1u << lane) : 0;
	if (write && others)
		die("line %d: word %u of shared memory was read by lanes %x without a barrier "
		    "since", line, word, others);
	if (write) {
		t.written = true;
		t.write_time = now;
		t.write_warp_time = warp_now;
		t.writer = (uint16_t)m.current;
		return;
	}
	if (t.read_time != now)
		t.warps = t.lanes = 0;
	if (t.read_warp != warp || t.read_warp_time != warp_now)
		t.lanes = 0;
	t.read_time = now;
	t.read_warp = (uint16_t)warp;
	t.read_warp_time = warp_now;
	t.warps |= 1u << warp;
	t.lanes |= 1u << lane;
}

} // namespace

unsigned char *shared_at(uint64_t at, uint32_t bytes, bool write, int line)
{
	if (at % (bytes & -bytes) || at + bytes > m.shared_bytes)
		die("line %d: %u bytes at %llu of %u of shared memory", line, bytes,
		    (unsigned long long)at, m.shared_bytes);
	for (uint64_t word = at / 4; word < (at + bytes + 3) / 4; word++)
		check_race(m.touched[word], (uint32_t)word, write, line);
	return m.shared + at;
}

void barrier(int line)
{
	const uint32_t generation = m.barrier_generation;

	if (m.barrier_in && m.barrier_line != line)
		die("bar.sync: threads meet at line %d and line %d", m.barrier_line, line);
	m.barrier_line = line;
	if (++m.barrier_in < threads_.x) {
		begin_wait(&m.barrier_generation, generation, "bar.sync", line);
		return;
	}
	m.barrier_in = 0;
	m.barrier_generation++;
}

void mbar_init(uint64_t *bar, uint32_t count, int line)
{
	if ((uintptr_t)bar % 8 || !count)
		die("mbarrier.init at line %d: not aligned, or a count of nought", line);
	if (m.mbars.count(bar))
		die("mbarrier.init at line %d: it is in use", line);
	m.mbars[bar] = { count, count, 0, 0, false };
}

void mbar_fence()
{
	for (auto &b : m.mbars)
		b.second.fenced = true;
}

void mbar_arrive(uint64_t *bar, uint32_t bytes_expected, int line)
{
	mbarrier &b = find_mbar(bar, "mbarrier.arrive", line);

	if (!b.pending)
		die("mbarrier.arrive at line %d: more arrivals than its count of %u", line,
		    b.count);
	b.bytes += bytes_expected;
	b.pending--;
	complete(b);
}

void mbar_wait(uint64_t *bar, uint32_t parity, int line)
{
	mbarrier &b = find_mbar(bar, "mbarrier.try_wait", line);

	if (parity > 1)
		die("mbarrier.try_wait at line %d: parity %u", line, parity);
	if (b.phase == parity)
		begin_wait(&b.phase, parity, "mbarrier.try_wait", line);
}

void bulk_load(void *dst, const void *src, uint32_t bytes, uint64_t *bar, int line)
{
	unsigned char *to = (unsigned char *)dst;
	mbarrier &b = find_mbar(bar, "cp.async.bulk", line);

	if ((uintptr_t)dst % 16 || (uintptr_t)src % 16 || bytes % 16 || !bytes)
		die("cp.async.bulk at line %d: not in units of 16 bytes", line);
	if (to < m.shared || bytes > m.shared_bytes ||
	    to + bytes > m.shared + m.shared_bytes)
		die("cp.async.bulk at line %d: outside of shared memory", line);
	global_at((uint64_t)(uintptr_t)src, 16, false, line);
	global_at((uint64_t)(uintptr_t)src + bytes - 16, 16, false, line);
	if (!b.fenced)
		die("cp.async.bulk at line %d: no fence since the mbarrier was initialised", line);
	poison(dst, bytes);
	m.flying.push_back({ to, (const unsigned char *)src, bytes, bar });
}

} // namespace emu
