/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds what of a context, by the salt of its puts (tier_put_options.salt). Part of tier.h,
 * which includes it.
 */
#ifndef TIER_USAGE_H
#define TIER_USAGE_H

#define TIER_USAGE_PUBLIC 0u /* what was put without a salt */
#define TIER_USAGE_OTHER 1u  /* all salts for whom there was no account free, together */
#define TIER_USAGE_SALT 2u

struct tier_usage {
	uint64_t salt;             /* TIER_USAGE_SALT */
	uint64_t used[TIER_COUNT]; /* bytes of its blocks in each tier */
	uint64_t pinned[2];        /* of these in HBM, in CXL */
	uint32_t uses;             /* its blocks and sessions */
	uint32_t kind;             /* TIER_USAGE_* */
};

/*
 * Write at most count accounts of the context of that name to out, at most 512 in all. Returns how
 * many. Errors: -ENOENT no such context for our credentials, -ENOTSUP the daemon is older, -EINVAL,
 * -ENOTCONN. Blocks. Any thread.
 */
int64_t tier_usage_salts(tier *t, const char *name, struct tier_usage *out, uint32_t count);

#endif
