/*
 * The decoder of what hosts and engines send to tierd-net; see net.h. Nothing here may trust a
 * member before it was judged: the bytes can be hostile.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "libtier/abi/net.h"

/* Before the items of a message; an item; how many there may be. */
static const struct net_form forms[] = {
	[NET_HELLO] = { sizeof(struct net_hello), 0, 0 },
	[NET_PROBE] = { sizeof(struct net_probe), NET_KEY_BYTES, NET_ANCHORS_MAX },
	[NET_FOUND] = { sizeof(struct net_found), 0, 0 },
	[NET_ASK] = { sizeof(struct net_ask), NET_KEY_BYTES, NET_KEYS_MAX },
	[NET_KEEP] = { sizeof(struct net_ask), NET_KEY_BYTES, NET_LOCAL_KEYS_MAX },
	[NET_GRANT] = { sizeof(struct net_grant), 0, 0 },
	[NET_PAGES] = { sizeof(struct net_pages), 4, NET_FRAME_PAGES_MAX },
	[NET_PATH] = { sizeof(struct net_path), 0, 0 },
	[NET_PLACES] = { sizeof(struct net_places), 4, NET_FRAME_PAGES_MAX },
	[NET_AT] = { sizeof(struct net_at), 4, NET_FRAME_PAGES_MAX },
	[NET_PICK] = { sizeof(struct net_pick), sizeof(struct net_pick_page),
		       NET_FRAME_PAGES_MAX },
	[NET_PICKED] = { sizeof(struct net_picked), sizeof(struct net_picked_page),
			 NET_FRAME_PAGES_MAX },
	[NET_END] = { sizeof(struct net_word), 0, 0 },
	[NET_WHOLE] = { sizeof(struct net_word), 0, 0 },
	[NET_READ] = { sizeof(struct net_word), 0, 0 },
	[NET_LAYER] = { sizeof(struct net_word), 0, 0 },
	[NET_COPIED] = { sizeof(struct net_word), 0, 0 },
	[NET_TAKEN] = { sizeof(struct net_word), 0, 0 },
	[NET_HOLD] = { sizeof(struct net_hold), sizeof(struct net_holding), NET_TAGS_MAX },
	[NET_FIND] = { sizeof(struct net_find), sizeof(uint64_t), NET_TAGS_MAX },
	[NET_HELD] = { sizeof(struct net_held), sizeof(struct net_holders), NET_TAGS_MAX },
	[NET_OFFER] = { sizeof(struct net_offer), NET_KEY_BYTES, NET_OFFER_KEYS },
	[NET_LOCATE] = { sizeof(struct net_want), NET_KEY_BYTES, NET_LOCAL_KEYS_MAX },
	[NET_PULL] = { sizeof(struct net_want), NET_KEY_BYTES, NET_LOCAL_KEYS_MAX },
	[NET_STREAM] = { sizeof(struct net_want), NET_KEY_BYTES, NET_LOCAL_KEYS_MAX },
	[NET_OPEN] = { sizeof(struct net_want), NET_KEY_BYTES, NET_LOCAL_KEYS_MAX },
	[NET_DELETE] = { sizeof(struct net_want), NET_KEY_BYTES, NET_LOCAL_KEYS_MAX },
	[NET_PLACED] = { sizeof(struct net_placed), 0, 0 },
	[NET_ADMIN] = { sizeof(struct net_admin), NET_NAME_BYTES, NET_NAMES_MAX },
	[NET_TEXT] = { sizeof(struct net_text), 1, NET_MESSAGE_MAX - sizeof(struct net_text) },
};

struct net_form net_form(uint16_t type)
{
	return type < sizeof(forms) / sizeof(forms[0]) ? forms[type] : (struct net_form){ 0 };
}

/* Where a message says how many items it has; each count lies where its struct has it. */
static uint32_t count_of(uint16_t type, const uint8_t *m)
{
	size_t at;
	uint32_t count;

	switch (type) {
	case NET_PROBE:
		at = offsetof(struct net_probe, count);
		break;
	case NET_ASK:
	case NET_KEEP:
		at = offsetof(struct net_ask, count);
		break;
	case NET_PICK:
		at = offsetof(struct net_pick, count);
		break;
	case NET_PICKED:
		at = offsetof(struct net_picked, count);
		break;
	case NET_PAGES:
	case NET_PLACES: /* both begin with one */
	case NET_AT:
		at = offsetof(struct net_pages, count);
		break;
	case NET_HOLD:
	case NET_FIND:
	case NET_HELD: /* of one form */
		at = offsetof(struct net_find, count);
		break;
	case NET_OFFER:
		at = offsetof(struct net_offer, count);
		break;
	case NET_LOCATE:
	case NET_PULL:
	case NET_STREAM:
	case NET_OPEN:
	case NET_DELETE:
		at = offsetof(struct net_want, count);
		break;
	case NET_TEXT:
		at = offsetof(struct net_text, bytes);
		break;
	case NET_ADMIN: /* it has no count but its length */
		memcpy(&count, m + offsetof(struct net_header, length), sizeof(count));
		return (count - (uint32_t)sizeof(struct net_admin)) / NET_NAME_BYTES;
	default:
		return 0;
	}
	memcpy(&count, m + at, sizeof(count));
	return count;
}

static bool zero(const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i])
			return false;
	return true;
}

/* A name of letters that are safe in logs and files, its rest zero. */
static bool name_good(const char *name, size_t bytes, bool may_be_empty)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789._-";
	size_t length = strnlen(name, bytes);

	return length < bytes && (length || may_be_empty) && strspn(name, allowed) == length &&
	       zero((const uint8_t *)name + length, bytes - length);
}

/* Items that are names. */
static bool names_good(const uint8_t *names, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!name_good((const char *)names + (size_t)i * NET_NAME_BYTES, NET_NAME_BYTES,
			       false))
			return false;
	return true;
}

static bool text_good(const char *text, size_t bytes)
{
	size_t length = strnlen(text, bytes);

	for (size_t i = 0; i < length; i++)
		if ((uint8_t)text[i] < 0x20 || text[i] == 0x7f)
			return false;
	return length < bytes;
}

static bool error_good(int32_t error)
{
	return error <= 0 && error >= -4095;
}

static bool admin_good(const struct net_admin *m)
{
	return name_good(m->verb, sizeof(m->verb), false) &&
	       name_good(m->word[0], sizeof(m->word[0]), true) &&
	       name_good(m->word[1], sizeof(m->word[1]), true);
}

static bool hello_good(const struct net_hello *h)
{
	return name_good(h->name, sizeof(h->name), false) &&
	       !(h->features & ~(uint64_t)NET_RDMA) && zero(h->reserved, sizeof(h->reserved));
}

static bool path_good(const struct net_path *p)
{
	return error_good(p->error) && p->qpn <= 0xffffff && p->psn <= 0xffffff && p->mtu <= 5 &&
	       !p->reserved && (p->error || (p->qpn && p->mtu));
}

static bool picked_good(const struct net_picked *p)
{
	return error_good(p->error) && !p->reserved && p->bytes <= NET_PICK_BYTES &&
	       (p->error ? !p->count && !p->bytes : p->count > 0);
}

/* Members of what engines and tierd-net say to each other. */
static bool engines_good(uint16_t type, const void *m)
{
	const struct net_want *want = m;
	const struct net_placed *placed = m;

	switch (type) {
	case NET_LOCATE:
	case NET_PULL:
	case NET_STREAM:
	case NET_OPEN:
	case NET_DELETE:
		return name_good(want->context, sizeof(want->context), false) &&
		       want->klass <= ABI_CLASS_SPECULATIVE && want->count > 0 &&
		       want->flags <= (type == NET_PULL ? NET_WANT_GO_ON : 0) &&
		       zero(want->reserved, sizeof(want->reserved));
	case NET_PLACED:
		return error_good(placed->error) &&
		       name_good(placed->host, sizeof(placed->host), true) &&
		       text_good(placed->text, sizeof(placed->text));
	case NET_ADMIN:
		return admin_good(m);
	default:
		return error_good(((const struct net_text *)m)->error);
	}
}

/* Members of a fixed part that is all there; m is aligned for them. */
static bool members_good(uint16_t type, const void *m)
{
	const struct net_ask *ask = m;
	const struct net_pages *pages = m;
	const struct net_word *word = m;

	switch (type) {
	case NET_HELLO:
		return hello_good(m);
	case NET_PROBE:
		return !((const struct net_probe *)m)->reserved;
	case NET_FOUND:
		return error_good(((const struct net_found *)m)->error) &&
		       !((const struct net_found *)m)->reserved;
	case NET_PICK:
		return ((const struct net_pick *)m)->count > 0 &&
		       !((const struct net_pick *)m)->reserved;
	case NET_PICKED:
		return picked_good(m);
	case NET_ASK:
	case NET_KEEP:
		return ask->klass <= ABI_CLASS_SPECULATIVE && ask->count > 0;
	case NET_GRANT:
		return error_good(((const struct net_grant *)m)->error) &&
		       !((const struct net_grant *)m)->reserved;
	case NET_PAGES:
	case NET_PLACES: /* both begin with one */
	case NET_AT:
		return pages->count > 0 && pages->bytes >= pages->count;
	case NET_PATH:
		return path_good(m);
	case NET_END:
	case NET_WHOLE:
	case NET_READ:
	case NET_TAKEN:
		return error_good(word->error) && !word->number;
	case NET_OFFER: /* a prefix that no engine could ask for is none */
		return ((const struct net_offer *)m)->count > 0 &&
		       ((const struct net_offer *)m)->depth <= NET_LOCAL_KEYS_MAX - NET_OFFER_KEYS;
	case NET_LAYER:
	case NET_COPIED:
		return !word->error && !word->number == (type == NET_LAYER);
	case NET_HOLD:
	case NET_FIND:
	case NET_HELD:
		return !((const struct net_find *)m)->reserved;
	default:
		return engines_good(type, m);
	}
}

int64_t net_check(const void *bytes, size_t have)
{
	union {
		struct net_header header;
		struct net_placed largest;
		uint64_t align;
	} m;
	struct net_form form;
	uint32_t count;

	_Static_assert(sizeof(m) >= sizeof(struct net_admin) &&
		       sizeof(m) >= sizeof(struct net_want), "room for each fixed part");
	if (have < sizeof(m.header))
		return 0;
	memcpy(&m, bytes, sizeof(m.header));
	form = net_form(m.header.type);
	if (m.header.magic != NET_MAGIC || m.header.version != NET_VERSION || m.header.reserved ||
	    !form.fixed || m.header.length < form.fixed || m.header.length > NET_MESSAGE_MAX)
		return -EPROTO;
	if (have < form.fixed)
		return 0;
	memcpy(&m, bytes, form.fixed);
	count = count_of(m.header.type, (const uint8_t *)&m);
	if (count > form.items_max || m.header.length != form.fixed + count * form.item ||
	    !members_good(m.header.type, &m))
		return -EPROTO;
	if (have < m.header.length)
		return 0;
	if (m.header.type == NET_ADMIN && !names_good((const uint8_t *)bytes + form.fixed, count))
		return -EPROTO;
	return (int64_t)m.header.length;
}
