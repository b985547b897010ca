/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages for kernels: where a GPU finds them. HBM of a context is for processes of the user that
 * owns it; it is mapped for reading, a slab at its first use. Memory of the CXL tier is registered
 * likewise, and serves where a page is not in HBM, or HBM is another user's.
 *
 *   tier_device_open(c, r, &d);          r has an era (tier_kernel.h), a CUDA context is current
 *   tier_era_begin(r);
 *   tier_device_pages(d, pages, n, at);  where they are for this launch
 *   launch; ...                          until it has ended no page of it changes or moves
 *   tier_device_close(d);                when nothing of the stream runs any more
 *
 * Kernels can find pages by themselves, while they run: tier_device_view.
 *
 * The current context's device must be the daemon's, or one that reaches its memory: elsewhere HBM
 * cannot be mapped, and pages are read from CXL. A program includes this header beside tier.h,
 * whose conventions hold.
 */
#ifndef TIER_DEVICE_H
#define TIER_DEVICE_H

#include <tier.h>
#include <tier_view.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tier_device tier_device;

struct tier_device_page {
	uint64_t address; /* on the device; 0 = none, and error says why */
	uint32_t bytes;
	uint16_t tier; /* TIER_HBM or TIER_CXL */
	uint16_t reserved;
	int32_t error; /* -ENODATA not where this device reads: fetch it; -ESTALE; -EINVAL */
	uint32_t reserved1;
};

/*
 * A context for the device of the stream that the reader's era is of. Loads the CUDA driver. Close
 * it before context and reader. Errors: -EINVAL the reader has no era, or is of another connection;
 * -ENODEV no driver here, or no CUDA context is current; -ENOSYS the driver is too old; -ENOTSUP
 * the daemon is; -ENOMEM. The reader's thread.
 */
int tier_device_open(tier_context *c, tier_reader *r, tier_device **out);

/*
 * Where pages are, for the launch that was announced last; out: an entry a page. What is used the
 * first time is mapped now: the daemon is asked and the driver called, which may wait. Returns how
 * many have an address. Errors as a whole: -EINVAL no launch is announced; -ESTALE the daemon was
 * replaced: close and open anew; -EOWNERDEAD. The reader's thread, with the same CUDA context.
 */
int tier_device_pages(tier_device *d, const struct tier_page *pages, uint32_t count,
		      struct tier_device_page *out);

/*
 * *address: where a struct tier_device_view (tier_view.h) is on the device, until the device is
 * closed: a graph may have it captured. The index is registered, whole. A kernel finds pages by
 * their words, as they are when it reads them: what has moved since the launch was announced it
 * finds where it is now, and within the launch it stays there. It finds them in slabs that
 * tier_device_pages has been asked about, and no page of others.
 *
 * Ask again before a launch, which is a load as a rule: when the daemon wants the index back it is
 * let go, and kernels find nothing until it is registered anew. Errors: -EAGAIN it is wanted back;
 * -EDQUOT the daemon has no room for a whole index (index.size), or devices have too much; -ENOTSUP
 * the daemon is older, or the device registers no read-only memory; -ESTALE, -ENOMEM, -EOWNERDEAD.
 * After -EAGAIN and -EDQUOT *address holds, and kernels find nothing for now. The reader's thread.
 */
int tier_device_view(tier_device *d, uint64_t *address);

/*
 * Let go of slabs that the daemon wants back, but for those that launches under way may read.
 * tier_device_pages does so by itself; a stream that rests calls this now and then, or its slabs
 * keep others waiting. Returns how many are still to go. A load where nothing is wanted. Errors as
 * above. The reader's thread.
 */
int tier_device_give_back(tier_device *d);

/* Unmaps all. Nothing of the stream may run. NULL is fine. tier_close does the same. */
void tier_device_close(tier_device *d);

#ifdef __cplusplus
}
#endif

#endif
