/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room in memory for objects, and how much of it one user may have: three quarters of what is a
 * table (names, descriptors, uploads), and of CXL while others have contexts of objects, too. What
 * is open cannot be taken back, so it is refused before.
 */
#include <errno.h>
#include <unistd.h>

#include "tierd/object/memfile.h"
#include "tierd/object/object_priv.h"

#define PROBES_MAX 64u /* of versions that may be open, for one that has to find room */
#define LEAVE_MAX 256u /* that leave at once, for one */

static bool fits_ever(const struct objects *o, const struct object_account *a, uint64_t charge)
{
	return charge <= o->table.most[OBJECT_CXL] && charge <= a->quota[OBJECT_CXL];
}

int make_room(struct objects *o, struct object_account *a, uint64_t has, uint64_t wants)
{
	return make_room_of(o, a, has, wants, UINT64_MAX);
}

/* -EUSERS: its user's share. */
static int lack(const struct objects *o, const struct object_account *a, uint64_t bytes)
{
	int rc = object_room(&o->table, a, OBJECT_CXL, bytes);

	if (rc)
		return rc;
	if (!object_user_room(&o->table, a, bytes) ||
	    (a->user && a->user->resident >= object_share(o->resident_most)))
		return -EUSERS;
	return o->table.resident >= o->resident_most ? -EMFILE : 0;
}

/* Who leaves for it: where all that comes first is open, its own. */
static struct object *leaver(const struct objects *o, const struct object_account *a, int lacks,
			     bool own)
{
	if (lacks == -EDQUOT)
		return object_victim(&o->table, a);
	return own || lacks == -EUSERS ? object_victim_of_user(&o->table, a) :
					 object_victim(&o->table, NULL);
}

int make_room_of(struct objects *o, struct object_account *a, uint64_t has, uint64_t wants,
		 uint64_t promised_ns)
{
	int lacks = 0;

	if (wants <= has)
		return 0;
	if (!fits_ever(o, a, wants))
		return -EFBIG;
	for (uint32_t probes = 0, gone = 0; probes < 2 * PROBES_MAX;) {
		struct object *x;

		lacks = lack(o, a, wants - has);
		if (lacks == 0)
			return 0;
		x = leaver(o, a, lacks, probes >= PROBES_MAX);
		if (!x || x->promised_ns > promised_ns)
			return lacks;
		if (!memfile_is_ours(x->fd)) {
			object_touch(&o->table, x);
			probes++;
			continue;
		}
		if (gone++ == LEAVE_MAX) {
			o->goes_on = true;
			return -EAGAIN;
		}
		close(object_drop(&o->table, x));
		o->stats.evicted++;
	}
	return lacks == -EMFILE ? -ENOSPC : lacks;
}

bool name_room(const struct object_account *a)
{
	return !a->user || a->user->objects < object_share(OBJECTS_MAX);
}

/* Of this user's: looked at only when one user alone could have too many. */
static uint32_t uploads_of(const struct objects *o, uint32_t uid)
{
	uint32_t n = 0;

	list_each(at, &o->uploads)
		n += list_entry(at, struct upload, link)->uid == uid;
	return n;
}

int upload_room(const struct objects *o, const struct task *t)
{
	const uint32_t share = (uint32_t)object_share(OBJECTS_UPLOADS_MAX);

	if (o->upload_count >= OBJECTS_UPLOADS_MAX)
		return -EMFILE;
	if (t->limited && o->upload_count >= share && uploads_of(o, t->uid) >= share)
		return -EUSERS;
	return 0;
}
