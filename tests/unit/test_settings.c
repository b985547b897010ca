/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every configuration key has an effect: those of the core are found in its configuration with the
 * value that was set, and a key that is in neither list below is one that nobody looks at yet.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "libtier/base/time.h"
#include "tierd/settings.h"

#define MIB (1ull << 20)
#define FIELD(f) offsetof(struct core_config, f), sizeof(((struct core_config *)0)->f)

/* A key of the core: no value here is its default, and none that of another key. */
static const struct of_core {
	const char *key, *value;
	size_t offset, bytes;
	uint64_t expected;
} of_core[] = {
	{ "salt.soft.hbm", "1MiB", FIELD(salt_limit[0].soft), 1 * MIB },
	{ "salt.soft.cxl", "2MiB", FIELD(salt_limit[1].soft), 2 * MIB },
	{ "salt.soft.nvme", "3MiB", FIELD(salt_limit[2].soft), 3 * MIB },
	{ "salt.hard.hbm", "4MiB", FIELD(salt_limit[0].hard), 4 * MIB },
	{ "salt.hard.cxl", "5MiB", FIELD(salt_limit[1].hard), 5 * MIB },
	{ "salt.hard.nvme", "6MiB", FIELD(salt_limit[2].hard), 6 * MIB },
	{ "client.soft.hbm", "7MiB", FIELD(client_limit[0].soft), 7 * MIB },
	{ "client.soft.cxl", "8MiB", FIELD(client_limit[1].soft), 8 * MIB },
	{ "client.soft.nvme", "9MiB", FIELD(client_limit[2].soft), 9 * MIB },
	{ "client.hard.hbm", "10MiB", FIELD(client_limit[0].hard), 10 * MIB },
	{ "client.hard.cxl", "50%", FIELD(client_limit[1].hard), 100 * MIB },
	{ "client.hard.nvme", "50%", FIELD(client_limit[2].hard), 200 * MIB },
	{ "salt.pinned.hbm", "13MiB", FIELD(salt_pins[0]), 13 * MIB },
	{ "salt.pinned.cxl", "25%", FIELD(salt_pins[1]), 50 * MIB },
	{ "client.pinned.hbm", "15MiB", FIELD(client_pins_bytes[0]), 15 * MIB },
	{ "client.pinned.cxl", "10%", FIELD(client_pins_bytes[1]), 20 * MIB },
	{ "dirty.percent", "31", FIELD(dirty_percent), 31 },
	{ "pin.percent", "32", FIELD(pin_percent), 32 },
	{ "quarantine.percent", "33", FIELD(quarantine_percent), 33 },
	{ "writeback.percent", "34", FIELD(writeback_percent), 34 },
	{ "client.requests", "35", FIELD(client_requests), 35 },
	{ "client.puts", "36", FIELD(client_puts), 36 },
	{ "client.pins", "37", FIELD(client_pins), 37 },
	{ "user.connections", "38", FIELD(user_connections), 38 },
	{ "nvme.depth", "39", FIELD(device_depth), 39 },
	{ "stream.share", "40", FIELD(stream_share), 40 },
	{ "request.deadline", "41ms", FIELD(request_deadline_ns), 41 * NS_PER_MS },
	{ "put.deadline", "42ms", FIELD(put_deadline_ns), 42 * NS_PER_MS },
	{ "writeback.age", "43ms", FIELD(writeback_age_ns), 43 * NS_PER_MS },
	{ "background.starve", "44ms", FIELD(starve_ns), 44 * NS_PER_MS },
	{ "stream.hold", "45ms", FIELD(stream_hold_ns), 45 * NS_PER_MS },
	{ "stream.again", "46ms", FIELD(stream_again_ns), 46 * NS_PER_MS },
	{ "background.yield", "yes", FIELD(yield), true },
	{ "nvme.admit_all", "no", FIELD(admit_all), false },
};

/* Keys of the shell; a live daemon is asked about them (tests/integration/test_shell.c). */
static const char *const of_shell[] = {
	"socket",	 "socket.mode", "store.path",	 "hbm.size",	"cxl.size",
	"nvme.size",	 "hbm.backend", "hbm.direct",	 "cxl.backend", "nvme.buffered",
	"nvme.segment",	 "staging.max", "clients.max", "workers",	"log.level",
	"metrics.port",	 "metrics.socket",
	"user.contexts", "nvme.discard", "index.size",	 "object.cxl",	"object.nvme",
	"object.path",	 "object.direct", "meta.memory", "nvme.backend", "cxl.node",
};

static struct core_config make(const struct config *config)
{
	struct core_config c = { .capacity = { 100 * MIB, 200 * MIB, 400 * MIB } };

	settings_of_core(config, &c);
	return c;
}

/* One key, however wide. */
static uint64_t value_of(const struct core_config *c, const struct of_core *k)
{
	uint64_t value = 0;

	memcpy(&value, (const uint8_t *)c + k->offset, k->bytes);
	return value;
}

static void set(struct config *config, const char *key, const char *value)
{
	char why[CONFIG_WHY_BYTES] = "";

	if (config_assign(config, key, value, why, sizeof(why)))
		fail_msg("%s", why);
}

static void test_keys_of_the_core_reach_it(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(of_core); i++) {
		const struct of_core *k = &of_core[i];
		struct core_config before, after;
		struct config config;

		config_defaults(&config, false, false);
		before = make(&config);
		set(&config, k->key, k->value);
		after = make(&config);
		if (value_of(&after, k) != k->expected || value_of(&before, k) == k->expected)
			fail_msg("%s = %s: %llu, before %llu", k->key, k->value,
				 (unsigned long long)value_of(&after, k),
				 (unsigned long long)value_of(&before, k));
		/* That, and nothing else. */
		memset((uint8_t *)&after + k->offset, 0, k->bytes);
		memset((uint8_t *)&before + k->offset, 0, k->bytes);
		if (memcmp(&before, &after, sizeof(before)) != 0)
			fail_msg("%s changes something else", k->key);
	}
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define GIB (1ull << 30)

static struct settings_unfit unfit;

/* With 16 GiB by a group's file: 15 of it are for tiers. */
static int fit(const struct config *config, uint64_t hbm, uint64_t cxl)
{
	const struct mem_limit limit = { .most = 16 * GIB, .says = "/sys/fs/cgroup/memory.max" };
	const uint64_t bytes[ABI_MEM_TIERS] = { hbm, cxl };

	memset(&unfit, 0, sizeof(unfit));
	return settings_fit(config, bytes, &limit, &unfit);
}

static void test_tiers_fit_into_the_limit(void **state)
{
	struct mem_limit limit = { .most = UINT64_MAX };
	const uint64_t most[ABI_MEM_TIERS] = { 1ull << 50, 1ull << 50 };
	struct config config;

	(void)state;
	config_defaults(&config, false, false);
	set(&config, "cxl.size", "12GiB");
	assert_int_equal(fit(&config, 0, 15 * GIB), 0);
	assert_int_equal(fit(&config, 3 * GIB, 12 * GIB), 0);
	assert_int_equal(fit(&config, 15 * GIB, 0), 0);
	assert_int_equal(fit(&config, 3 * GIB + ABI_HUGE, 12 * GIB), -ENOMEM);
	assert_int_equal(fit(&config, 3 * GIB, 12 * GIB + ABI_HUGE), -ENOMEM);
	assert_int_equal(fit(&config, 0, 15 * GIB + 1), -ENOMEM);
	assert_int_equal(fit(&config, 16 * GIB, 0), -ENOMEM);
	assert_int_equal(fit(&config, UINT64_MAX - GIB, 2 * GIB), -ENOMEM);
	assert_int_equal(settings_fit(&config, most, &limit, &unfit), 0);
}

/* What, where, how much there is and what to do. */
static void test_what_does_not_fit_is_told(void **state)
{
	struct config config;

	(void)state;
	config_defaults(&config, false, false);
	set(&config, "cxl.size", "15.5GiB");
	assert_int_equal(fit(&config, 0, 31 * GIB / 2), -ENOMEM);
	assert_string_equal(unfit.where, "--set cxl.size");
	assert_string_equal(unfit.advice, "15.5 GiB are wanted, and 15.0 GiB of the 16.0 GiB that "
			    "/sys/fs/cgroup/memory.max allows can be used: write a smaller size or "
			    "auto, or raise that limit");
	assert_int_equal(fit(&config, GIB, 31 * GIB / 2), -ENOMEM);
	assert_non_null(strstr(unfit.advice, "16.5 GiB for both tiers are wanted"));
}

/* Who chose a size can change it; where both were chosen, the larger is named. */
static void test_whose_size_is_named(void **state)
{
	struct config config;

	(void)state;
	config_defaults(&config, false, false);
	set(&config, "hbm.size", "14GiB");
	assert_int_equal(fit(&config, 14 * GIB, 4 * GIB), -ENOMEM);
	assert_string_equal(unfit.where, "--set hbm.size");
	assert_int_equal(fit(&config, 4 * GIB, 14 * GIB), -ENOMEM);
	assert_string_equal(unfit.where, "--set hbm.size");
	set(&config, "cxl.size", "4GiB");
	assert_int_equal(fit(&config, 14 * GIB, 4 * GIB), -ENOMEM);
	assert_string_equal(unfit.where, "--set hbm.size");
	assert_int_equal(fit(&config, 4 * GIB, 14 * GIB), -ENOMEM);
	assert_string_equal(unfit.where, "--set cxl.size");
	config_defaults(&config, false, false);
	set(&config, "cxl.size", "8GiB");
	assert_int_equal(fit(&config, 14 * GIB, 8 * GIB), -ENOMEM);
	assert_string_equal(unfit.where, "--set cxl.size");
}

static bool is_listed(const char *key)
{
	for (size_t i = 0; i < COUNT(of_core); i++)
		if (strcmp(of_core[i].key, key) == 0)
			return true;
	for (size_t i = 0; i < COUNT(of_shell); i++)
		if (strcmp(of_shell[i], key) == 0)
			return true;
	return false;
}

static void test_every_key_has_its_place(void **state)
{
	struct config_help key;
	uint32_t n = 0;

	(void)state;
	for (; config_key(n, &key); n++)
		if (!is_listed(key.name))
			fail_msg("nobody says where %s goes", key.name);
	assert_int_equal(n, COUNT(of_core) + COUNT(of_shell));
}

/* Auto is three quarters of all, and never none. */
static void test_connections_of_a_user_by_default(void **state)
{
	struct config config;

	(void)state;
	config_defaults(&config, false, false);
	set(&config, "clients.max", "100");
	assert_int_equal(make(&config).user_connections, 75);
	set(&config, "clients.max", "1");
	assert_int_equal(make(&config).user_connections, 1);
	set(&config, "clients.max", "6");
	assert_int_equal(make(&config).user_connections, 5);
}

static void test_what_the_status_shows(void **state)
{
	struct obs_limits shown;
	struct core_config c;
	struct config config;

	(void)state;
	config_defaults(&config, false, false);
	set(&config, "clients.max", "51");
	set(&config, "user.sessions", "52"); /* its old name */
	set(&config, "user.contexts", "53");
	set(&config, "staging.max", "54MiB");
	set(&config, "client.requests", "55");
	set(&config, "client.puts", "56");
	set(&config, "client.pins", "57");
	set(&config, "pin.percent", "58");
	set(&config, "quarantine.percent", "59");
	c = make(&config);
	shown = settings_shown(&config, &c);
	assert_int_equal(shown.clients, 51);
	assert_int_equal(shown.user_connections, 52);
	assert_int_equal(shown.user_contexts, 53);
	assert_int_equal(shown.staging_bytes, 54 * MIB);
	assert_int_equal(shown.requests, 55);
	assert_int_equal(shown.puts, 56);
	assert_int_equal(shown.pins, 57);
	assert_int_equal(shown.pin_percent, 58);
	assert_int_equal(shown.quarantine_percent, 59);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys_of_the_core_reach_it),
		cmocka_unit_test(test_every_key_has_its_place),
		cmocka_unit_test(test_tiers_fit_into_the_limit),
		cmocka_unit_test(test_what_does_not_fit_is_told),
		cmocka_unit_test(test_whose_size_is_named),
		cmocka_unit_test(test_connections_of_a_user_by_default),
		cmocka_unit_test(test_what_the_status_shows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
