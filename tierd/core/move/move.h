/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a page comes: NVMe to CXL, to HBM from either.
 * A last part of state.h, which includes it.
 */
#ifndef TIERD_CORE_MOVE_MOVE_H
#define TIERD_CORE_MOVE_MOVE_H

/* move.c */
enum move_state move_read(struct core *c, struct request *r, struct mover *b, uint32_t slot,
			  uint32_t page);
enum move_state move_promote(struct core *c, struct request *r, struct mover *b, uint32_t slot,
			     uint32_t page);
enum move_state move_direct(struct core *c, struct request *r, struct mover *b, uint32_t slot,
			    uint32_t page);
bool move_goes_on(const struct mover *b, const struct abi_page *d, uint32_t bytes);
uint64_t move_direct_building(const struct mover *b, const struct abi_page *d, uint32_t bytes);
void move_submit_copy(struct core *c, struct request *r, struct mover *b);
int move_make_room(struct core *c, struct request *r, const struct mover *b, uint64_t bytes);
void move_submit(struct core *c, struct request *r, struct mover *b);
void move_join(struct core *c, const struct request *r, uint32_t slot, const struct abi_page *d);

/* path.c */
#define PATH_DIRECT 1u /* NVMe -> HBM */
#define PATH_COPY 2u   /* CXL -> HBM */
enum move_state path_to_hbm(struct core *c, struct request *r, struct mover *b, uint32_t slot,
			    uint32_t page);
bool path_direct(const struct core *c, const struct request *r, const struct abi_page *d);
void path_failed(struct core *c, struct request *r, uint32_t path);
void path_repair(struct core *c, struct context *x, uint32_t slot);

#endif
