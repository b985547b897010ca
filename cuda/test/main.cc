/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-test: kernels on the model of the device against the golden model, case by case, as TAP.
 *
 * usage: cuda-test [--schedules N] [--door source|ptx|device] [--plant NAME] [--list-plants]
 *                  [--only TEXT]
 *
 * With a plant the kernels make that mistake; the run then ends at the first case that finds it.
 * The device's door is opened when it is asked for; exit status 77 where there is none.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda/emu/emu.cuh"
#include "cuda/test/cases.h"

#define PAGE ((size_t)4096)

static const struct {
	const char *name, *cases; /* these begin so */
} plants[] = {
	{ "none", "" },
#define PLANT(name, cases, what) { #name, #cases },
#include "cuda/emu/plants.def"
#undef PLANT
};

static const char *const door_name[DOORS] = { "source", "ptx", "device" };

struct options {
	int door = -1; /* both of the model */
	uint32_t schedules = 2;
	const char *only = "";
};

/* ---- memory ---------------------------------------------------------------------------------- */

void *room::take_bytes(size_t bytes)
{
	if (open_door == DOOR_DEVICE) {
		unsigned char *at = device_take(bytes);

		memset(at, 0xff, bytes);
		emu::allow(at, bytes, true);
		pieces.push_back({ nullptr, bytes, at });
		return at;
	}
	/* Kernels copy in units of 16: the end lies that close to the guard. */
	const size_t used = (bytes + 15) / 16 * 16, whole = (used + PAGE - 1) / PAGE * PAGE;
	auto *map = (unsigned char *)mmap(nullptr, whole + PAGE, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED || mprotect(map + whole, PAGE, PROT_NONE)) {
		perror("cuda-test: memory");
		exit(2);
	}
	memset(map, 0xff, whole); /* NaN until it is written */
	pieces.push_back({ map, whole, map + whole - used });
	emu::allow(map + whole - used, bytes, true);
	return map + whole - used;
}

void room::freeze()
{
	for (const piece &p : pieces) {
		if (!p.map)
			continue;
		emu::allow(p.first, (size_t)(p.map + p.bytes - p.first), false);
		if (mprotect(p.map, p.bytes, PROT_READ))
			perror("cuda-test: mprotect");
	}
}

room::~room()
{
	for (const piece &p : pieces) {
		emu::forbid(p.first);
		if (p.map)
			munmap(p.map, p.bytes + PAGE);
		else
			device_give_back(p.first, p.bytes);
	}
}

/* ---- running --------------------------------------------------------------------------------- */

/* Which case runs, for the handler. */
static char running[160];

static void on_fault(int number)
{
	static const char what[] = ": a kernel reads or writes where it may not\n";

	(void)number;
	if (write(1, "not ok ", 7) < 0 || write(1, running, strlen(running)) < 0 ||
	    write(1, what, sizeof(what) - 1) < 0)
		_exit(2);
	_exit(1);
}

static void catch_faults()
{
	static char stack[64 << 10];
	stack_t other = {};
	struct sigaction action = {};

	other.ss_sp = stack;
	other.ss_size = sizeof(stack);
	sigaltstack(&other, nullptr);
	action.sa_handler = on_fault;
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGSEGV, &action, nullptr);
	sigaction(SIGBUS, &action, nullptr);
}

static std::string run_case(const cuda_case &c, uint32_t number, const options &o)
{
	for (uint32_t s = 0; s < o.schedules; s++) {
		std::string wrong = c.run(c.argument, number * o.schedules + s);

		if (!wrong.empty())
			return say("schedule %u: ", number * o.schedules + s) + wrong;
	}
	return "";
}

static double seconds()
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* PTX of kernels has no mistakes but those in assembly. */
static bool has_plant(door_kind d)
{
	return d == DOOR_SOURCE || !emu::planted ||
	       !strcmp(plants[emu::planted].cases, "wrappers");
}

static uint32_t run_door(const std::vector<cuda_case> &cases, const options &o, uint32_t &number)
{
	uint32_t failed = 0;

	for (const cuda_case &c : cases) {
		if (c.name.find(o.only) == std::string::npos ||
		    c.name.find(plants[emu::planted].cases) != 0)
			continue;
		snprintf(running, sizeof(running), "%u - %s: %s", ++number, door_name[open_door],
			 c.name.c_str());
		if (open_door == DOOR_DEVICE && c.of_model) {
			printf("ok %s # SKIP it is of the model\n", running);
			continue;
		}
		fflush(stdout);
		std::string wrong = run_case(c, number, o);

		printf("%s %s\n", wrong.empty() ? "ok" : "not ok", running);
		if (wrong.empty())
			continue;
		printf("# %s\n", wrong.c_str());
		failed++;
		if (emu::planted)
			return failed;
	}
	return failed;
}

static int run_all(const options &o)
{
	std::vector<cuda_case> cases;
	uint32_t number = 0, failed = 0;
	const double begin = seconds();

	wrappers_cases(cases);
	decode_cases(cases);
	index_cases(cases);
	layout_cases(cases);
	era_cases(cases);
	words_cases(cases);
	if (!strcmp(o.only, "whole"))
		whole_cases(cases);
	for (int d = 0; d < DOORS && !(failed && emu::planted); d++) {
		open_door = (door_kind)d;
		if ((o.door < 0 ? d != DOOR_DEVICE : o.door == d) && has_plant(open_door))
			failed += run_door(cases, o, number);
	}
	printf("1..%u\n# %u cases of %u schedules in %.1f s on %s, %u failed\n", number, number,
	       o.schedules, seconds() - begin, o.door == DOOR_DEVICE && !device_stands_in()
	       ? "the device" : "the model of the device (no GPU)", failed);
	return failed != 0;
}

static bool choose_plant(const char *name)
{
	for (int i = 1; i < emu::PLANTS; i++)
		if (!strcmp(name, plants[i].name))
			emu::planted = (emu::plant)i;
	if (!emu::planted)
		fprintf(stderr, "cuda-test: no plant is called %s; --list-plants\n", name);
	return emu::planted != emu::PLANT_none;
}

static bool choose_door(const char *name, options &o)
{
	for (int d = 0; d < DOORS; d++)
		if (!strcmp(name, door_name[d]))
			o.door = d;
	return o.door >= 0;
}

int main(int argc, char **argv)
{
	options o;

	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : nullptr;

		if (!strcmp(argv[i], "--list-plants")) {
			for (int p = 1; p < emu::PLANTS; p++)
				puts(plants[p].name);
			return 0;
		} else if (!strcmp(argv[i], "--schedules") && value && atoi(value) > 0) {
			o.schedules = (uint32_t)atoi(value);
			i++;
		} else if (!strcmp(argv[i], "--door") && value && choose_door(value, o)) {
			i++;
		} else if (!strcmp(argv[i], "--only") && value) {
			o.only = value;
			i++;
		} else if (!strcmp(argv[i], "--plant") && value) {
			if (!choose_plant(value))
				return 2;
			i++;
		} else {
			fprintf(stderr, "usage: cuda-test [--schedules N] [--door source|ptx|"
					"device] [--plant NAME] [--list-plants] [--only TEXT]\n");
			return 2;
		}
	}
	catch_faults();
	if (o.door == DOOR_DEVICE && device_begin())
		return 77;
	return run_all(o);
}
