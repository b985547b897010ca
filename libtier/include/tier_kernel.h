/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that read pages where they lie. What a captured graph reads is chosen while it runs, so
 * it cannot be leased page by page. Instead a reader is given to one stream, and each launch is
 * announced before it is made: no page that a kernel can find in the index changes, moves or
 * vanishes before that launch has ended. Launches of one stream end in order; another stream needs
 * another reader.
 *
 *   tier_era_open(r, &done);                  once; register the page that *done lies in
 *   ... capture: kernels, then last a node that adds one to *done, for the whole system
 *   tier_era_begin(r); launch; ...            as often as you like, without waiting
 *   synchronise the stream; tier_era_close(r);
 *
 * A host function cannot take the node's place: it is not called after an error of the device.
 * Kernels read descriptors of the index with loads of system scope. A program includes this header
 * beside tier.h, whose conventions hold.
 */
#ifndef TIER_KERNEL_H
#define TIER_KERNEL_H

#include <tier.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Give the reader to a stream. *done: the word that the stream's graphs count their launches in;
 * it lies in memory that the process may write, and stays mapped until the era is closed. Leases
 * may go on beside. Errors: -EBUSY it has one already, -EAGAIN launches of an earlier one that was
 * closed too soon have not ended. The reader's thread.
 */
int tier_era_open(tier_reader *r, uint64_t **done);

/*
 * Before each launch: store, and a fence. No system call, nothing waits. A launch that then failed
 * is told by tier_era_failed, before the next begin: the next launch has its number. Errors:
 * -ESTALE the daemon was replaced: what is launched now would read memory that nobody keeps; end
 * the stream, close, open anew and capture with the new *done. The reader's thread.
 */
int tier_era_begin(tier_reader *r);
int tier_era_failed(tier_reader *r);

/*
 * The stream has ended, by itself or by the end of its context: nothing of it runs any more, also
 * when *done does not say so, as after an error of the device. tier_reader_close does the same.
 * The reader's thread.
 */
void tier_era_close(tier_reader *r);

#ifdef __cplusplus
}
#endif

#endif
