/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that an engine names by itself: keys of many names at once. Part of tier.h, which includes
 * it.
 */
#ifndef TIER_NAMES_H
#define TIER_NAMES_H

struct tier_name {
	const void *bytes;
	size_t count;
};

/*
 * Write to out[i] what tier_key_opaque makes of names[i], with one salt for all (NULL: none). With
 * short names it takes a third of the time of as many calls. Errors: -EINVAL, -ENOMEM. Any thread.
 */
int tier_key_names(tier_key *out, const struct tier_name *names, uint32_t count,
		   const struct tier_salt *salt);

#endif
