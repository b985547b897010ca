/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is taken away under a lease: its device has gone or its bytes are poisoned, or the
 * daemon ended the session, for what its leases kept, and took back what it had lent. The kernel
 * says so with SIGBUS. The library has a handler for it from the first context on: what is read
 * there is zeros from then on, pages within the same 2 MiB are misses, or all of that tier's of the
 * context once that happened more than 16 times, and tier_lease_check says which leases were hit.
 * Any other SIGBUS goes to the handler that was there before. A program that sets a handler of its
 * own later calls tier_fault in it. Part of tier.h, which includes it.
 */
#ifndef TIER_TAKEN_H
#define TIER_TAKEN_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * For a handler of SIGBUS, with si_addr: 1 = tier's memory was taken there, the handler returns and
 * the program goes on; 0 = it is nothing of tier's. Safe in a signal handler. Any thread.
 */
int tier_fault(const void *address);

/*
 * After the last look at the bytes and before tier_release: were they the page's? -ENODATA its
 * memory was taken, what was read is a miss; -EINVAL the lease holds nothing. Never waits; a load
 * where nothing was ever taken. tier_gather asks by itself. Any thread.
 */
int tier_lease_check(const struct tier_lease *lease);

#ifdef __cplusplus
}
#endif

#endif
