/*
 * The intrusive list: order, removal during a visit, splicing; and the scope-exit attributes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/cleanup.h"
#include "libtier/base/list.h"
#include "tests/lib/unit.h"

#include <fcntl.h>
#include <string.h>

struct item {
	int number;
	struct list link;
};

/* The numbers of the list, forwards and backwards alike, as a string of digits. */
static void assert_order(const struct list *head, const char *digits)
{
	size_t n = strlen(digits);
	const struct list *at = head;

	for (size_t i = 0; i < n; i++) {
		at = at->next;
		assert_int_equal(list_entry(at, const struct item, link)->number, digits[i] - '0');
	}
	assert_ptr_equal(at->next, head);
	at = head;
	for (size_t i = n; i > 0; i--) {
		at = at->prev;
		assert_int_equal(list_entry(at, const struct item, link)->number,
				 digits[i - 1] - '0');
	}
	assert_ptr_equal(at->prev, head);
}

static void test_order(void **state)
{
	struct item items[5];
	struct list head;

	(void)state;
	list_init(&head);
	assert_true(list_empty(&head));
	assert_null(list_first(&head));
	assert_null(list_last(&head));
	assert_null(list_pop_front(&head));
	for (int i = 0; i < 5; i++)
		items[i].number = i;
	list_push_back(&head, &items[1].link);
	list_push_back(&head, &items[3].link);
	list_push_front(&head, &items[0].link);
	list_insert_after(&items[1].link, &items[2].link);
	assert_order(&head, "0123");
	list_remove(&items[1].link);
	list_remove(&items[1].link); /* on no list: nothing happens */
	assert_order(&head, "023");
	assert_ptr_equal(list_pop_front(&head), &items[0].link);
	assert_ptr_equal(list_first(&head), &items[2].link);
	assert_ptr_equal(list_last(&head), &items[3].link);
	assert_order(&head, "23");
}

static void test_remove_while_visiting(void **state)
{
	struct item items[6];
	struct list head;
	int seen = 0;

	(void)state;
	list_init(&head);
	for (int i = 0; i < 6; i++) {
		items[i].number = i;
		list_push_back(&head, &items[i].link);
	}
	list_each(at, &head) {
		if (list_entry(at, struct item, link)->number % 2)
			list_remove(at);
		seen++;
	}
	assert_int_equal(seen, 6);
	assert_order(&head, "024");
}

static void test_splice(void **state)
{
	struct item items[4];
	struct list a, b;

	(void)state;
	list_init(&a);
	list_init(&b);
	list_splice_back(&a, &b);
	assert_order(&a, "");
	for (int i = 0; i < 4; i++) {
		items[i].number = i;
		list_push_back(i < 2 ? &a : &b, &items[i].link);
	}
	list_splice_back(&a, &b);
	assert_order(&a, "0123");
	assert_order(&b, "");
	list_splice_back(&b, &a);
	assert_order(&b, "0123");
}

/* The descriptor is open inside, closed outside; the memory is the leak checker's to judge. */
static int open_in_scope(bool keep)
{
	int fd CLEANUP_CLOSE = open("/dev/null", O_RDONLY);
	char *text CLEANUP_FREE = strdup("scope");
	int number = fd;

	assert_true(fd >= 0);
	assert_non_null(text);
	if (keep) {
		free(take_ptr(text));
		assert_null(text);
		return take_fd(&fd);
	}
	return number;
}

static void test_cleanup(void **state)
{
	int fd = open_in_scope(false);

	(void)state;
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_int_equal(errno, EBADF);
	fd = open_in_scope(true);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_remove_while_visiting),
		cmocka_unit_test(test_splice),
		cmocka_unit_test(test_cleanup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
