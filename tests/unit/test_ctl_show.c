/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tierctl shows of a document: units, missing members, hostile texts, tables; the status of a
 * daemon that tells everything and of one that tells nothing.
 */
#include "tierd/ctl/ctl.h"
#include "tests/lib/unit.h"

#include <stdlib.h>
#include <string.h>

static json_t *parse(const char *text)
{
	json_t *document = json_loads(text, 0, NULL);

	assert_non_null(document);
	return document;
}

static void test_members(void **state)
{
	json_t *d = parse("{\"a\":{\"b\":[1,{\"c\":1536}]},\"t\":\"x\\u0007y\",\"n\":null,"
			  "\"neg\":-1,\"yes\":true,\"no\":false,\"ns\":1500}");
	char cell[CTL_CELL];

	(void)state;
	assert_string_equal(ctl_count(cell, d, "a.b.1.c"), "1536");
	assert_string_equal(ctl_bytes(cell, d, "a.b.1.c"), "1.50 KiB");
	assert_string_equal(ctl_ns(cell, d, "ns"), "1.50 us");
	assert_string_equal(ctl_text(cell, d, "t"), "x?y");
	assert_string_equal(ctl_yes(cell, d, "yes"), "yes");
	assert_string_equal(ctl_yes(cell, d, "no"), "no");
	assert_string_equal(ctl_yes(cell, d, "t"), "-");
	assert_string_equal(ctl_count(cell, d, "n"), "-");
	assert_string_equal(ctl_count(cell, d, "neg"), "-");
	assert_string_equal(ctl_count(cell, d, "a.b.7.c"), "-");
	assert_string_equal(ctl_count(cell, d, "not.there"), "-");
	assert_string_equal(ctl_text(cell, NULL, "a"), "-");
	assert_string_equal(ctl_bytes(cell, d, "a"), "-");
	json_decref(d);
}

static void test_deadlines(void **state)
{
	json_t *d = parse("{\"never\":0,\"past\":5,\"soon\":2000}");
	char cell[CTL_CELL];

	(void)state;
	assert_string_equal(ctl_deadline(cell, d, "never", 1000), "never");
	assert_string_equal(ctl_deadline(cell, d, "past", 1000), "past");
	assert_string_equal(ctl_deadline(cell, d, "soon", 1000), "1.00us");
	assert_string_equal(ctl_deadline(cell, d, "x", 1000), "-");
	json_decref(d);
}

static void test_ages(void **state)
{
	json_t *d = parse("{\"never\":0,\"new\":1000,\"old\":1000000,\"later\":4000000000,"
			  "\"late\":1753000000000000000}");
	char cell[CTL_CELL];

	(void)state;
	assert_string_equal(ctl_age(cell, d, "never", 3000000000), "-");
	assert_string_equal(ctl_age(cell, d, "new", 1250), "250ns");
	assert_string_equal(ctl_age(cell, d, "old", 3001000000), "3.00s");
	assert_string_equal(ctl_age(cell, d, "later", 3000000000), "-");
	assert_string_equal(ctl_age(cell, d, "late", 1753000000000000012), "12ns");
	assert_string_equal(ctl_age(cell, d, "x", 1000), "-");
	json_decref(d);
}

/* Each figure is another one: no column stands for its neighbour. */
static void test_latencies(void **state)
{
	static const char wanted[] =
		"latency  class   count     mean      p50      p99   p99.9     max\n"
		"request  demand      7  3.00 us  2.00 us  50.0 ms  600 ms  7.00 s\n"
		"flush    -           1        -    40 ns        -       -       -\n";
	json_t *d = parse("[{\"name\":\"request\",\"class\":\"demand\",\"count\":7,"
			  "\"mean_ns\":3000,\"p50_ns\":2000,\"p99_ns\":50000000,"
			  "\"p999_ns\":600000000,\"max_ns\":7000000000},"
			  "{\"name\":\"none\",\"class\":null,\"count\":0},"
			  "{\"name\":\"flush\",\"class\":null,\"count\":1,\"p50_ns\":40}]");
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	(void)state;
	assert_int_equal(ctl_show_latencies(d, to, 0), 0);
	fclose(to);
	assert_string_equal(text, wanted);
	free(text);
	json_decref(d);
}

static char *printed(struct grid *g, uint32_t terminal)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	assert_int_equal(grid_print(g, to, terminal), 0);
	fclose(to);
	return text;
}

static void test_grid(void **state)
{
	static const char *const heads[] = { "name", ">bytes", "note" };
	struct grid *g = grid_new(heads, 3);
	char *text;

	(void)state;
	for (int i = 0; i < 60; i++) {
		grid_add(g, i == 3 ? "a long name" : "n");
		grid_add(g, "1");
		grid_add(g, "x");
	}
	assert_int_equal(grid_rows(g), 60);
	text = printed(g, 0);
	assert_int_equal(strncmp(text, "name         bytes  note\n", 25), 0);
	assert_non_null(strstr(text, "\na long name      1  x\n"));
	free(text);
	grid_add(NULL, "x");
	assert_int_equal(grid_rows(NULL), 0);
	assert_int_not_equal(grid_print(NULL, stdout, 0), 0);
	text = printed(grid_new(heads, 3), 0);
	assert_string_equal(text, "");
	free(text);
}

static char *named(const char *name, uint32_t terminal)
{
	static const char *const heads[] = { ">n", "~name", "note" };
	struct grid *g = grid_new(heads, 3);

	grid_add(g, "1");
	grid_add(g, name);
	grid_add(g, "x");
	grid_add(g, "20");
	grid_add(g, "b");
	grid_add(g, "yy");
	return printed(g, terminal);
}

/* Names give way last, in their middle, by letters and not bytes; in a file they stay whole. */
static void test_a_name_is_cut_on_a_terminal(void **state)
{
	static const char name[] = "abcdefghijklmnopqrst";
	static const struct {
		const char *name;
		uint32_t terminal;
		const char *text;
	} cases[] = {
		{ name, 0, " n  name                  note\n 1  abcdefghijklmnopqrst  x\n"
			   "20  b                     yy\n" },
		{ name, 30, " n  name                  note\n 1  abcdefghijklmnopqrst  x\n"
			    "20  b                     yy\n" },
		{ name, 29, " n name                 note\n 1 abcdefghijklmnopqrst x\n"
			    "20 b                    yy\n" },
		{ name, 20, " n name         note\n 1 abcdef…pqrst x\n20 b            yy\n" },
		{ "äöüäöüäöüäöüäöüäöüäö", 20,
		  " n name         note\n 1 äöüäöü…äöüäö x\n20 b            yy\n" },
		{ name, 2, " n name     note\n 1 abcd…rst x\n20 b        yy\n" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		char *text = named(cases[i].name, cases[i].terminal);

		assert_string_equal(text, cases[i].text);
		free(text);
	}
}

/* In a file the line is 80 columns, as on most terminals; a name is whole there all the same. */
static void test_a_wide_name_in_a_file(void **state)
{
	char name[CTL_CELL], *text;

	(void)state;
	memset(name, 'n', 100);
	name[100] = '\0';
	text = named(name, 0);
	assert_non_null(strstr(text, name));
	assert_non_null(strstr(text, "n x\n"));
	free(text);
}

static void test_text_is_wrapped(void **state)
{
	static const char *const heads[] = { "name", "=meaning" };
	static const char words[] = "one two three four five six seven eight";
	static const char *const wanted[] = {
		"name  meaning\na     one two three four five six seven eight\nb     c\n",
		"name  meaning\na     one two three\n      four five six\n      seven eight\n"
		"b     c\n",
	};
	static const uint32_t terminals[] = { 45, 22 };

	(void)state;
	for (size_t i = 0; i < COUNT(wanted); i++) {
		struct grid *g = grid_new(heads, 2);
		char *text;

		grid_add(g, "a");
		grid_add(g, words);
		grid_add(g, "b");
		grid_add(g, "c");
		text = printed(g, terminals[i]);
		assert_string_equal(text, wanted[i]);
		free(text);
	}
}

/* A word that has no room in a line has one of its own. */
static void test_a_long_word_is_not_broken(void **state)
{
	static const char *const heads[] = { "=meaning" };
	struct grid *g = grid_new(heads, 1);
	char *text;

	(void)state;
	grid_add(g, "one a-word-of-twenty-one! two");
	text = printed(g, 4);
	assert_string_equal(text, "meaning\none\na-word-of-twenty-one!\ntwo\n");
	free(text);
}

static void test_short_bytes(void **state)
{
	static const struct {
		const char *document, *text;
	} cases[] = { { "{\"b\":0}", "0" },
		      { "{\"b\":1023}", "1023" },
		      { "{\"b\":1024}", "1.00K" },
		      { "{\"b\":67108864}", "64.0M" },
		      { "{\"b\":1072693248}", "1023M" },
		      { "{\"b\":5497558138880}", "5.00T" },
		      { "{\"b\":9223372036854775807}", "8.00E" },
		      { "{\"b\":\"x\"}", "-" },
		      { "{}", "-" } };
	char cell[CTL_CELL];

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		json_t *d = parse(cases[i].document);

		assert_string_equal(ctl_bytes_short(cell, d, "b"), cases[i].text);
		assert_true(strlen(cell) <= 5);
		json_decref(d);
	}
}

static void show(const char *document, const char *const *wanted, size_t count)
{
	json_t *status = parse(document);
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	assert_int_equal(ctl_show_status(status, to, 0), 0);
	fclose(to);
	for (size_t i = 0; i < count; i++)
		assert_non_null(strstr(text, wanted[i]));
	assert_null(strstr(text, "remote"));
	free(text);
	json_decref(status);
}

static void test_status(void **state)
{
	static const char *const wanted[] = { "tierd 1.2.3", "EMULATED", "no isolation", "1.00G",
					      "shmem", "host (EMULATED)\n",
					      "\n  hbm                d\n",
					      "file (FAILING)\n",
					      "\n  nvme               e\n" };
	static const char *const nothing[] = { "tierd -", "\n\n\nhost\n" };
	static const char *const memory[] = { "store      none: nothing survives a restart\n" };
	static const char *const store[] = { "/s, 9 segments", "2 orphaned blocks dropped, 3" };

	(void)state;
	show("{\"version\":\"1.2.3\",\"isolation\":{\"isolated\":false,\"text\":\"no isolation\"},"
	     "\"tiers\":[{\"tier\":\"hbm\",\"present\":true,\"emulated\":true,\"backend\":\"host\","
	     "\"detail\":\"d\",\"capacity\":1073741824},"
	     "{\"tier\":\"nvme\",\"present\":true,\"failing\":true,\"backend\":\"file\","
	     "\"detail\":\"e\"},{\"tier\":\"remote\",\"present\":false}],"
	     "\"kernel\":{\"huge pages\":\"shmem never\"}}",
	     wanted, COUNT(wanted));
	show("{}", nothing, COUNT(nothing));
	show("{\"store\":null}", memory, COUNT(memory));
	show("{\"store\":{\"path\":\"/s\",\"segments\":9},"
	     "\"recovery\":{\"blocks_orphaned\":2,\"blocks_unreached\":3}}",
	     store, COUNT(store));
	show("{\"tiers\":7,\"kernel\":[1]}", nothing, COUNT(nothing));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_ages),
		cmocka_unit_test(test_latencies),
		cmocka_unit_test(test_grid),
		cmocka_unit_test(test_a_name_is_cut_on_a_terminal),
		cmocka_unit_test(test_a_wide_name_in_a_file),
		cmocka_unit_test(test_text_is_wrapped),
		cmocka_unit_test(test_a_long_word_is_not_broken),
		cmocka_unit_test(test_short_bytes),
		cmocka_unit_test(test_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
