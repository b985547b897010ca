/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ITME's turn sweep: what the model and the run with real bytes share.
 *
 * Ratios, fixed beforehand from ITME's published figures. Its normalised times at turn 5 (recompute
 * 1, all in HBM 1/3.02, ITME 1/1.81) give, with D = the work of a turn beside its prefix and P =
 * the recomputation of its prefix: (D + P) / D = 3.02 and (D + P) / (D + X) = 1.81, so P(5) = 2.02
 * D and the restoring of a prefix X = 0.331 P. Hence, a block: recompute 1 : copy to the GPU 0.331
 * : device 0.331 * 22 / 18 = 0.405 (22 GB/s of a CXL module, 18 of the hybrid device's flash). Fast
 * memory is full during turn 9 or 10, as theirs. Also with the device half and twice as fast.
 */
#ifndef TIER_BENCH_MODEL_ITME_H
#define TIER_BENCH_MODEL_ITME_H

#define ITME_TALKS 16u
#define ITME_TURNS 35u
#define ITME_NEW_BLOCKS 2u /* a turn */
#define ITME_COPY 0.331    /* of a block's recomputation */
#define ITME_DEVICE 0.405  /* likewise */
#define ITME_BOX 0.583     /* likewise: 12.5 GB/s of a network of 100 Gbit/s */
/* A turn's own work, in recomputations of a block; turn 5 has 4 turns' blocks before it. */
#define ITME_WORK (4 * ITME_NEW_BLOCKS / 2.02)
#define ITME_FULL_TURNS 9.5 /* of all conversations, in fast memory */
#define ITME_FITS 9u /* turns: until then all is in fast memory */
#define ITME_GAIN 1.357
#define ITME_LATE_TURN 22u /* from here on ITME's baseline has nothing left in memory */
#define ITME_BLOCKS (ITME_TURNS * ITME_NEW_BLOCKS) /* of a conversation, in the end */

#endif
