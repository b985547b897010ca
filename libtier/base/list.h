/*
 * An intrusive doubly linked list: the link is a member of the object, so that linking allocates
 * nothing and unlinking needs no search. A list is circular around its head. No locking; an object
 * is on at most one list per link.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_LIST_H
#define TIER_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

/* The object of type T whose member m is at link. */
#define list_entry(link, T, m) ((T *)((char *)(link) - offsetof(T, m)))

/* Visits each link; the body may remove at, not its successor. */
#define list_each(at, head)                                                                        \
	for (struct list *at = (head)->next, *at##_next = at->next; at != (head);                  \
	     at = at##_next, at##_next = at->next)

/* An empty list; also a link that is on no list. */
static inline void list_init(struct list *l)
{
	l->next = l;
	l->prev = l;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_insert_after(struct list *at, struct list *link)
{
	link->prev = at;
	link->next = at->next;
	at->next->prev = link;
	at->next = link;
}

/* link becomes the first / the last. */
static inline void list_push_front(struct list *head, struct list *link)
{
	list_insert_after(head, link);
}

static inline void list_push_back(struct list *head, struct list *link)
{
	list_insert_after(head->prev, link);
}

/* Takes link off its list; a link that is on none stays as it is. */
static inline void list_remove(struct list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	list_init(link);
}

/* Unlinks and returns the first, or NULL when the list is empty. */
static inline struct list *list_pop_front(struct list *head)
{
	struct list *first = head->next;

	if (first == head)
		return NULL;
	list_remove(first);
	return first;
}

/* The first / the last, or NULL when the list is empty. */
static inline struct list *list_first(const struct list *head)
{
	return head->next == head ? NULL : head->next;
}

static inline struct list *list_last(const struct list *head)
{
	return head->prev == head ? NULL : head->prev;
}

/* Appends all of from to to, in order; from is empty afterwards. */
static inline void list_splice_back(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#endif
