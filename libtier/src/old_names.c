/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions by names that they had (tier_old.h), for programs that were built with these.
 */
#include <tier.h>

int tier_session(tier_context *c, uint64_t id, uint32_t event,
		 const struct tier_conversation_options *options)
{
	return tier_conversation(c, id, event, options);
}
