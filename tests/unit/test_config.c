/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: defaults, files, settings, and values that cannot be used. Each refusal must
 * say where it is, what is wrong and what to write instead; nothing is taken over from a line that
 * was refused.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/unit.h"
#include "tierd/config.h"

static char why[CONFIG_WHY_BYTES];

static struct config fresh(void)
{
	struct config c;

	config_defaults(&c, true, false);
	return c;
}

/* Load a file of these bytes. */
static int load_bytes(struct config *c, const void *bytes, size_t count)
{
	char path[] = "/tmp/tier-config-XXXXXX";
	int fd = mkstemp(path);
	int rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, count), (ssize_t)count);
	close(fd);
	why[0] = '\0';
	rc = config_load(c, path, why, sizeof(why));
	unlink(path);
	if (rc) {
		/* The place comes first. */
		assert_memory_equal(why, path, strlen(path));
		assert_int_equal(why[strlen(path)], ':');
		memmove(why, why + strlen(path), strlen(why) - strlen(path) + 1);
	}
	return rc;
}

static int load_text(struct config *c, const char *text)
{
	return load_bytes(c, text, strlen(text));
}

static void test_defaults_are_usable(void **state)
{
	struct config c = fresh();

	(void)state;
	assert_int_equal(config_check(&c, why, sizeof(why)), 0);
	assert_string_equal(c.socket, "/run/tier/tier.sock");
	assert_string_equal(c.store_path, "/var/lib/tier/store");
	assert_int_equal(c.socket_mode, 0666);
	assert_int_equal(c.hbm_size.kind, UNITS_AUTO);
	assert_int_equal(c.request_deadline, 2000000000);
	assert_int_equal(c.clients_max, 1024);
	assert_int_equal(c.log_level, LOG_LEVEL_INFO);
}

static void test_defaults_of_an_ordinary_user(void **state)
{
	struct config c;

	(void)state;
	setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
	setenv("HOME", "/home/ada", 1);
	unsetenv("XDG_DATA_HOME");
	config_defaults(&c, false, true);
	assert_string_equal(c.socket, "/run/user/1000/tier.sock");
	assert_string_equal(c.store_path, "/home/ada/.local/share/tier/store");
	assert_int_equal(c.socket_mode, 0600);
	assert_int_equal(c.log_level, LOG_LEVEL_WARN);
	setenv("XDG_DATA_HOME", "/data", 1);
	unsetenv("XDG_RUNTIME_DIR");
	config_defaults(&c, false, true);
	assert_string_equal(c.store_path, "/data/tier/store");
	assert_int_equal(config_check(&c, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "--socket"));
}

/* From the environment, or with --set, a path may be of any length. */
static void test_paths_have_an_end(void **state)
{
	static char dir[2 * CONFIG_PATH_BYTES], set[sizeof(dir) + 32];
	const size_t most = CONFIG_SOCKET_BYTES - sizeof("/tier.sock");
	struct config c;

	(void)state;
	memset(dir, 'd', sizeof(dir) - 1);
	dir[0] = '/';
	setenv("XDG_RUNTIME_DIR", dir, 1);
	setenv("XDG_DATA_HOME", dir, 1);
	setenv("HOME", dir, 1);
	config_defaults(&c, false, true);
	assert_string_equal(c.socket, "");
	assert_string_equal(c.store_path, "");
	for (int over = 0; over < 2; over++) {
		dir[most + (size_t)over] = '\0';
		setenv("XDG_RUNTIME_DIR", dir, 1);
		config_defaults(&c, false, true);
		assert_int_equal(strlen(c.socket), over ? 0 : CONFIG_SOCKET_BYTES - 1);
		dir[most + (size_t)over] = 'd';
	}
	setenv("XDG_RUNTIME_DIR", "run", 1);
	setenv("HOME", "home", 1);
	config_defaults(&c, false, true);
	assert_string_equal(c.socket, "");
	assert_string_equal(c.store_path, "");
	c = fresh();
	for (int over = 0; over < 2; over++) {
		snprintf(set, sizeof(set), "socket=%.*s", CONFIG_SOCKET_BYTES - 1 + over, dir);
		assert_int_equal(config_set(&c, set, why, sizeof(why)), over ? -EINVAL : 0);
	}
	assert_non_null(strstr(why, "at most 107 bytes"));
	assert_int_equal(strlen(c.socket), CONFIG_SOCKET_BYTES - 1);
}

static void test_a_file_is_read(void **state)
{
	struct config c = fresh();

	(void)state;
	assert_int_equal(load_text(&c, "# a comment\n"
				       "socket = /tmp/x.sock\n"
				       "socket.mode = 0660\n"
				       "\n"
				       "hbm.size = 10%\n"
				       "cxl.size = 4GiB\n"
				       "cxl.node = 2, 33,1\n"
				       "nvme.buffered = yes\n"
				       "nvme.discard = off\n"
				       "workers = 7\n"
				       "log.level = debug\n"
				       "request.deadline = 20ms\n"), 0);
	assert_string_equal(c.socket, "/tmp/x.sock");
	assert_int_equal(c.socket_mode, 0660);
	assert_int_equal(c.hbm_size.kind, UNITS_PERCENT);
	assert_int_equal(c.cxl_size.value, 4ull << 30);
	assert_int_equal(c.cxl_node, 1ull << 2 | 1ull << 33 | 1 << 1);
	assert_true(c.nvme_buffered);
	assert_int_equal(c.nvme_discard, CONFIG_OFF);
	assert_int_equal(c.workers, 7);
	assert_int_equal(c.log_level, LOG_LEVEL_DEBUG);
	assert_int_equal(c.request_deadline, 20000000);
}

static void test_sections_say_the_same(void **state)
{
	struct config c = fresh();

	(void)state;
	assert_int_equal(load_text(&c, "[store]\npath = /a/b\n[cxl]\nsize = 1GiB\n"), 0);
	assert_string_equal(c.store_path, "/a/b");
	assert_int_equal(c.cxl_size.value, 1ull << 30);
}

struct bad {
	const char *text;
	const char *place; /* ":LINE:" */
	const char *says;
};

static void test_bad_files_are_explained(void **state)
{
	static const struct bad bad[] = {
		{ "cxl.size = 12 parsecs\n", ":1:", "64MiB" },
		{ "\n\ncxl.size = -5GiB\n", ":3:", "cxl.size" },
		{ "cxl.size = 99999999999999999999GiB\n", ":1:", "cxl.size" },
		{ "cxl.size =\n", ":1:", "cxl.size" },
		{ "cxl.size = 4GiB # no\n", ":1:", "a line of its own" },
		{ "hbm.size = 101%\n", ":1:", "hbm.size" },
		{ "hbm.size = 1025TiB\n", ":1:", "hbm.size" },
		{ "staging.max = 10%\n", ":1:", "staging.max" },
		{ "staging.max = 1B\n", ":1:", "from 1.00 MiB" },
		{ "request.deadline = 1us\n", ":1:", "from 1.00 ms" },
		{ "workers = 1e3\n", ":1:", "0 to 256" },
		{ "workers = 257\n", ":1:", "0 to 256" },
		{ "workers = -1\n", ":1:", "workers" },
		{ "clients.max = 0\n", ":1:", "1 to 1024" },
		{ "clients.max = auto\n", ":1:", "1 to 1024" },
		{ "clients.max = 18446744073709551617\n", ":1:", "clients.max" },
		{ "dirty.percent = 81\n", ":1:", "dirty.percent" },
		{ "writeback.age = 5\n", ":1:", "200ms" },
		{ "request.deadline = 0\n", ":1:", "request.deadline" },
		{ "socket = tier.sock\n", ":1:", "absolute" },
		{ "socket.mode = 0999\n", ":1:", "0660" },
		{ "socket.mode = 7777\n", ":1:", "0660" },
		{ "nvme.buffered = true\n", ":1:", "yes or no" },
		{ "nvme.discard = yes\n", ":1:", "auto, on or off" },
		{ "log.level = loud\n", ":1:", "debug" },
		{ "cxl.backend = ../../x\n", ":1:", "backend" },
		{ "cxl.node = 2, 2\n", ":1:", "each once" },
		{ "cxl.node = 64\n", ":1:", "below 64" },
		{ "cxl.node = 163\n", ":1:", "cxl.node" },
		{ "cxl.node = 2 3\n", ":1:", "cxl.node" },
		{ "cxl.node = 2,\n", ":1:", "cxl.node" },
		{ "cxl.node = -1\n", ":1:", "cxl.node" },
		{ "cxl_size = 4GiB\n", ":1:", "is not a key; is cxl.size meant?" },
		{ "colour = blue\n", ":1:", "is not a key; tierd --help lists" },
		{ "[cxl]\nbytes = 4GiB\n", ":2:", "is not a key" },
		{ "workers = 1\nworkers = 2\n", ":2:", "line 1" },
		{ "workers = 1\n  workers = 2\n", ":2:", "second time" },
		{ "workers 1\n", ":1:", "key = value" },
		{ "workers = 1\n[cxl\n", ":2:", "key = value" },
		{ "\x1b[31mred = 1\n", ":1:", "" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct config c = fresh();

		assert_int_equal(load_text(&c, bad[i].text), -EINVAL);
		assert_memory_equal(why, bad[i].place, strlen(bad[i].place));
		if (!strstr(why, bad[i].says))
			fail_msg("%s: does not say \"%s\"", why, bad[i].says);
		for (size_t k = 0; why[k]; k++)
			assert_true((unsigned char)why[k] >= 0x20);
	}
}

static void test_long_lines_and_nul_bytes(void **state)
{
	static const char nul[] = "workers = 1\ncxl.size = 4\0GiB\n";
	char line[400];
	struct config c = fresh();

	(void)state;
	memset(line, 'x', sizeof(line));
	memcpy(line, "store.path = /", 14);
	line[398] = '\n';
	line[399] = '\0';
	assert_int_equal(load_text(&c, line), -EINVAL);
	assert_non_null(strstr(why, "too long"));
	assert_int_equal(load_bytes(&c, nul, sizeof(nul) - 1), -EINVAL);
	assert_memory_equal(why, ":2:", 3);
	assert_non_null(strstr(why, "NUL"));
}

/* Any bytes at all: refused or taken, never a crash. */
static void test_noise(void **state)
{
	uint32_t seed = 1;

	(void)state;
	for (int round = 0; round < 300; round++) {
		struct config c = fresh();
		uint8_t bytes[300];

		for (size_t i = 0; i < sizeof(bytes); i++) {
			seed = seed * 1664525 + 1013904223;
			bytes[i] = (uint8_t)(seed >> 24);
			if (round % 2)
				bytes[i] = (uint8_t)("a.=\n [];#\t0\"%GiB"[bytes[i] % 16]);
		}
		load_bytes(&c, bytes, sizeof(bytes));
	}
}

static void test_no_file(void **state)
{
	struct config c = fresh();

	(void)state;
	assert_int_equal(config_load(&c, "/nonexistent/x.conf", why, sizeof(why)), -ENOENT);
	assert_non_null(strstr(why, "/nonexistent/x.conf"));
	assert_int_equal(config_load(&c, "/tmp", why, sizeof(why)), -EINVAL);
}

/* A file without lines, and without an end. */
static void test_an_endless_file(void **state)
{
	struct config c = fresh();

	(void)state;
	assert_int_equal(config_load(&c, "/dev/zero", why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, ":1:"));
}

static void test_settings(void **state)
{
	struct config c = fresh();

	(void)state;
	assert_int_equal(config_set(&c, "cxl.size=3GiB", why, sizeof(why)), 0);
	assert_int_equal(c.cxl_size.value, 3ull << 30);
	assert_int_equal(config_set(&c, "cxl.size", why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "key=value"));
	assert_int_equal(config_set(&c, "=5", why, sizeof(why)), -EINVAL);
	assert_int_equal(config_set(&c, "cxl.size=", why, sizeof(why)), -EINVAL);
	assert_int_equal(config_set(&c, "a.key.that.is.much.longer.than.any.key.of.ours=1", why,
				    sizeof(why)), -EINVAL);
	assert_int_equal(config_set(&c, "socket.mode=0000000000000000000000000000600", why,
				    sizeof(why)), -EINVAL);
	assert_int_equal(c.cxl_size.value, 3ull << 30);
}

static void test_values_that_do_not_fit_together(void **state)
{
	struct config c = fresh();

	(void)state;
	assert_int_equal(config_set(&c, "cxl.size=0", why, sizeof(why)), 0);
	assert_int_equal(config_check(&c, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "puts land in CXL"));
	c = fresh();
	assert_int_equal(config_set(&c, "cxl.node=2,3", why, sizeof(why)), 0);
	assert_int_equal(config_check(&c, why, sizeof(why)), 0);
	assert_int_equal(config_set(&c, "cxl.backend=numa", why, sizeof(why)), 0);
	assert_int_equal(config_check(&c, why, sizeof(why)), 0);
	assert_int_equal(config_set(&c, "cxl.backend=memfd", why, sizeof(why)), 0);
	assert_int_equal(config_check(&c, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "cxl.backend = memfd"));
	assert_int_equal(config_set(&c, "cxl.node=auto", why, sizeof(why)), 0);
	assert_int_equal(config_check(&c, why, sizeof(why)), 0);
	c = fresh();
	assert_int_equal(config_set(&c, "nvme.segment=4097B", why, sizeof(why)), 0);
	assert_int_equal(config_check(&c, why, sizeof(why)), -EINVAL);
	assert_int_equal(config_set(&c, "nvme.segment=4096", why, sizeof(why)), 0);
	assert_int_equal(config_check(&c, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "at least 1048576"));
	assert_int_equal(config_set(&c, "nvme.segment=1049088", why, sizeof(why)), 0);
	assert_int_equal(config_check(&c, why, sizeof(why)), -EINVAL);
	assert_int_equal(config_set(&c, "nvme.segment=1052672", why, sizeof(why)), 0);
	assert_int_equal(config_check(&c, why, sizeof(why)), 0);
	c = fresh();
	c.store_path[0] = '\0';
	assert_int_equal(config_check(&c, why, sizeof(why)), -EINVAL);
	assert_int_equal(config_set(&c, "nvme.size=0", why, sizeof(why)), 0);
	assert_int_equal(config_check(&c, why, sizeof(why)), 0);
}

/* The file that teaches, and the manual, know every key. */
static char *slurp(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = calloc(1, 65536);

	assert_non_null(f);
	assert_non_null(text);
	assert_true(fread(text, 1, 65535, f) > 0);
	fclose(f);
	return text;
}

static void test_every_key_is_taught(void **state)
{
	char *file = slurp("tierd/tierd.conf"), *page = slurp("docs/man/tierd.conf.5");
	struct config c = fresh();
	struct config_help key;

	(void)state;
	for (uint32_t i = 0; config_key(i, &key); i++) {
		char line[64];

		snprintf(line, sizeof(line), "\n#%s = ", key.name);
		if (!strstr(file, line))
			fail_msg("tierd.conf does not show %s", key.name);
		snprintf(line, sizeof(line), "\n#%s = %s\n", key.name, key.value);
		if (key.value[0] && !strstr(file, line))
			fail_msg("tierd.conf shows another default than %s of %s", key.value,
				 key.name);
		snprintf(line, sizeof(line), "\n.B %s", key.name);
		if (!strstr(page, line))
			fail_msg("tierd.conf(5) does not describe %s", key.name);
		assert_true(strlen(key.help) > 10);
	}
	assert_int_equal(config_load(&c, "tierd/tierd.conf", why, sizeof(why)), 0);
	/* With the marks taken off, its examples are valid values. */
	for (char *at = file; (at = strstr(at, "\n#")) != NULL; at++)
		if (at[2] != ' ' && at[2] != '\n')
			at[1] = ' ';
	for (char *at = file; (at = strstr(at, "\n ")) != NULL; at++)
		memmove(at + 1, at + 2, strlen(at + 2) + 1);
	assert_int_equal(load_text(&c, file), 0);
	free(file);
	free(page);
}

/* ---- where from ------------------------------------------------------------------------------ */

static void test_where_a_value_is_from(void **state)
{
	char path[] = "/tmp/tier-config-XXXXXX", want[80], where[80];
	int fd = mkstemp(path);
	struct config c = fresh();

	(void)state;
	assert_true(fd >= 0);
	assert_true(dprintf(fd, "# sizes\n[hbm]\nsize = 1GiB\n") > 0);
	close(fd);
	assert_string_equal(config_where(&c, "hbm.size", where, sizeof(where)), "hbm.size");
	assert_int_equal(config_set(&c, "hbm.size=3GiB", why, sizeof(why)), 0);
	assert_string_equal(config_where(&c, "hbm.size", where, sizeof(where)), "--set hbm.size");
	assert_int_equal(config_load(&c, path, why, sizeof(why)), 0);
	unlink(path);
	snprintf(want, sizeof(want), "%s:3: hbm.size", path);
	assert_string_equal(config_where(&c, "hbm.size", where, sizeof(where)), want);
	assert_string_equal(config_where(&c, "cxl.size", where, sizeof(where)), "cxl.size");
	assert_int_equal(config_set(&c, "cxl.size=lots", why, sizeof(why)), -EINVAL);
	assert_string_equal(config_where(&c, "cxl.size", where, sizeof(where)), "cxl.size");
	assert_int_equal(config_set(&c, "hbm.size=2GiB", why, sizeof(why)), 0);
	assert_string_equal(config_where(&c, "hbm.size", where, sizeof(where)), "--set hbm.size");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults_are_usable),
		cmocka_unit_test(test_defaults_of_an_ordinary_user),
		cmocka_unit_test(test_paths_have_an_end),
		cmocka_unit_test(test_a_file_is_read),
		cmocka_unit_test(test_sections_say_the_same),
		cmocka_unit_test(test_bad_files_are_explained),
		cmocka_unit_test(test_long_lines_and_nul_bytes),
		cmocka_unit_test(test_an_endless_file),
		cmocka_unit_test(test_noise),
		cmocka_unit_test(test_no_file),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_values_that_do_not_fit_together),
		cmocka_unit_test(test_every_key_is_taught),
		cmocka_unit_test(test_where_a_value_is_from),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
