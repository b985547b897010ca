/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The user's side of the optional Linux module tier_mem (kernel-mod/): requests on /dev/tier_mem
 * and on the descriptors that it gives. docs/kernel-mod.md says what they promise.
 *
 *   /dev/tier_mem --CREATE--> owner's descriptor --SHARE--> a reader's, one a client
 *        | STATUS               | FILL PUNCH REVOKE          (mmap, read-only)
 *                               | COMMIT LEAVE  --GRANT--> a writer's, of some slots (mmap)
 *                                                            any of the three: DMABUF
 *
 * A region is a row of slots of 2 MiB. A slot is empty, or holds one chunk: 2 MiB of the module's
 * pool. Every descriptor of a region is mapped at the same offsets.
 *
 * K1  A reader's or writer's touch of an empty slot is SIGBUS and never takes memory. The owner's
 *     own touch fills the slot, as FILL does.
 * K2  What is filled reads as zeros, whoever had it before.
 * K3  After REVOKE(client) nobody reads through a descriptor of that client, whichever process has
 *     it or a mapping of it; other clients see a fault at most.
 * K4  After COMMIT(slots) nobody stores into them through a grant; the bytes stay, readers go on.
 *     With -EBUSY somebody may still store: a device has them pinned, a thread is about to unmap.
 * K5  A chunk that somebody still holds (a pin) is nobody else's until he lets go.
 * K6  A slot whose memory was lost (device gone) or is poisoned is SIGBUS for all, its owner too,
 *     until it is punched: it never reads as zeros by itself.
 * K7  The last descriptor, mapping or dma-buf of the owner gone without LEAVE revokes everything.
 *
 * Errors of all requests: -EFAULT; -EINVAL for what is out of range and for reserved fields that
 * are not 0; -ENOTTY for a request that this descriptor does not know.
 */
#ifndef TIER_ABI_TIER_MEM_H
#define TIER_ABI_TIER_MEM_H

#ifdef __KERNEL__
#include <linux/ioctl.h>
#include <linux/types.h>
#else
#include <stdint.h>
#include <sys/ioctl.h>
#endif

#define TIER_MEM_DEVICE "/dev/tier_mem"
#define TIER_MEM_VERSION 1u
#define TIER_MEM_CHUNK (2u << 20)
#define TIER_MEM_SLOTS_MAX (1u << 24) /* of a region: 32 TiB */
#define TIER_MEM_LABEL_BYTES 128u

/* CREATE: returns the owner's descriptor. */
struct tier_mem_create {
	uint64_t bytes; /* in: a multiple of TIER_MEM_CHUNK, not 0 */
	uint64_t reserved;
	char label[TIER_MEM_LABEL_BYTES]; /* in: NUL-terminated, shown in /proc/PID/maps */
};

/* FILL, PUNCH, GRANT, COMMIT, DMABUF: slots [first, first + count). */
struct tier_mem_slots {
	uint32_t first;
	uint32_t count; /* in: at least 1 */
	/*
	 * out. FILL: slots that are filled when it ends. PUNCH: chunks that were given back.
	 * GRANT, DMABUF: 0. COMMIT: slots that are pinned.
	 */
	uint32_t done;
	uint32_t held; /* out, PUNCH: of those in done, how many somebody still holds (K5) */
};

/* SHARE, REVOKE: a client is any number of the owner's. */
struct tier_mem_client {
	uint64_t client;
	uint32_t descriptors; /* out, REVOKE: how many were revoked by it */
	/*
	 * out, REVOKE: slots that somebody may still read (a device, a pipe). Asked again, when
	 * there is nothing more to revoke: how many of them have been so at every look since.
	 */
	uint32_t pinned;
};

/* STATUS, in chunks unless it says otherwise. total = free + used + held + retired. */
struct tier_mem_status {
	uint32_t version; /* TIER_MEM_VERSION */
	uint32_t sources; /* DAX devices, and ordinary memory as one */
	uint64_t total;
	uint64_t free;
	uint64_t used;    /* in slots, or on the way there */
	uint64_t held;    /* taken from their slots, and somebody still holds them */
	uint64_t retired; /* poisoned: out of use for good */
	uint64_t ordinary; /* of total: ordinary memory, a test bed */
	uint64_t regions; /* that there are */
	uint64_t fills;   /* since the module was loaded: slots filled, */
	uint64_t punches; /* ... slots emptied, */
	uint64_t revokes; /* ... descriptors revoked, */
	uint64_t commits; /* ... COMMITs, */
	uint64_t busy;    /* ... of them -EBUSY, */
	uint64_t lost;    /* ... slots that lost their memory under a context */
	uint64_t reserved[3];
};

#define TIER_MEM_IOC 0xd6

/* On /dev/tier_mem. CREATE: -ENOMEM, -EMFILE. */
#define TIER_MEM_STATUS _IOR(TIER_MEM_IOC, 0x10, struct tier_mem_status)
#define TIER_MEM_CREATE _IOW(TIER_MEM_IOC, 0x11, struct tier_mem_create)

/* On the owner's descriptor. */
/* Slots that are full stay as they are. -ENOMEM: no chunk is free; -EIO: one is lost (K6). */
#define TIER_MEM_FILL _IOWR(TIER_MEM_IOC, 0x20, struct tier_mem_slots)
/* Slots that are empty stay so. */
#define TIER_MEM_PUNCH _IOWR(TIER_MEM_IOC, 0x21, struct tier_mem_slots)
/* Returns a read-only descriptor of the whole region. -EMFILE, -ENOMEM. */
#define TIER_MEM_SHARE _IOW(TIER_MEM_IOC, 0x22, struct tier_mem_client)
#define TIER_MEM_REVOKE _IOWR(TIER_MEM_IOC, 0x23, struct tier_mem_client)
/* Returns a descriptor that may write them. -EBUSY: another grant has one of them. */
#define TIER_MEM_GRANT _IOWR(TIER_MEM_IOC, 0x24, struct tier_mem_slots)
/* Every grant that has one of them ends. -EBUSY: they are pinned, bytes may still change (K4). */
#define TIER_MEM_COMMIT _IOWR(TIER_MEM_IOC, 0x25, struct tier_mem_slots)
/* What readers have stays theirs when the owner goes; the memory goes with the last of them. */
#define TIER_MEM_LEAVE _IO(TIER_MEM_IOC, 0x26)

/* On each of them: slots that it may touch, as a dma-buf of its mode. -EIDRM: it was revoked. */
#define TIER_MEM_DMABUF _IOW(TIER_MEM_IOC, 0x30, struct tier_mem_slots)

#endif
