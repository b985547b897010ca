/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose a context is. Names are one space for all users, and whoever makes a name first has it: a
 * context that is there may be another user's, who reads what is put in it. So tier_context_create
 * opens by itself what is ours, or an operator's (root's, the daemon's own user's), and refuses
 * what is another's, with -EEXIST and a text that names the owner, unless TIER_OPEN_FOREIGN says
 * that this is meant. After a restart of the daemon a handle goes on with a context of the same
 * owner, or with none. Part of tier.h, which includes it.
 */
#ifndef TIER_OWNER_H
#define TIER_OWNER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of tier_context_options. */
#define TIER_CREATE_EXCLUSIVE 1u /* -EEXIST if the context is there */
#define TIER_OPEN_FOREIGN 2u     /* open one that is there also when it is another user's */

/*
 * As tier_context_open, and -EEXIST unless the context is of the user `owner`. The text names whose
 * it is. -ENOTSUP: the daemon is older and cannot say. Blocks. Any thread.
 */
int tier_context_open_of(tier *t, const char *name, uint32_t owner, const uint8_t fingerprint[32],
			 tier_context **out);

/*
 * The user (uid) that owns the open context: who made it, and may remove it. Errors: -ENOTSUP the
 * daemon is older and did not say. Any thread.
 */
int tier_context_owner(const tier_context *c, uint32_t *uid);

#ifdef __cplusplus
}
#endif

#endif
