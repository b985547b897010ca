/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that tier.h had, for programs that use them. tier.h includes this.
 */
#ifndef TIER_OLD_H
#define TIER_OLD_H

#define TIER_SESSION_TURN_END TIER_CONVERSATION_TURN_END
#define TIER_SESSION_RETURN TIER_CONVERSATION_RETURN
#define TIER_SESSION_CLOSE TIER_CONVERSATION_CLOSE
#define tier_session_options tier_conversation_options

/* tier_conversation. */
int tier_session(tier_context *c, uint64_t id, uint32_t event,
		 const struct tier_conversation_options *options);

#endif
