/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a request, and the operations that need no header of their own.
 * A last part of state.h, which includes it.
 */
#ifndef TIERD_CORE_OP_OP_H
#define TIERD_CORE_OP_OP_H

/* request.c */
void request_take(struct core *c, uint32_t client, const struct abi_sqe *sqe);
struct request *request_own(struct core *c, struct context *x);
void request_order(struct core *c, struct request *r);
void request_answer(struct core *c, struct request *r, int res, uint64_t value, uint64_t aux);
void request_end(struct core *c, struct request *r, int res, uint64_t value, uint64_t aux);
void request_landed(struct core *c, struct request *r);
void request_abort(struct core *c, struct request *r, int error);
void request_run(struct core *c);
void request_walk(struct core *c);
void request_tick(struct core *c);
void request_flush_failed(struct core *c, const struct drive *dv);
void request_sync_from(struct core *c, struct request *r, uint32_t devices);
bool request_synced(const struct core *c, const struct request *r);
void request_sync_want(struct core *c, const struct request *r);
bool request_of_context(const struct core *c, const struct context *x);
bool request_holds(const struct core *c, const struct context *x);
void request_client_gone(struct core *c, uint32_t client);
void request_context_gone(struct core *c, const struct context *x);
uint64_t request_next_deadline(const struct core *c);

/* fetch.c, pin.c, delete.c: steps of their requests */
void fetch_begin(struct core *c, struct request *r);
void fetch_step(struct core *c, struct request *r);
bool fetch_release(struct core *c, struct request *r);
void fetch_resolve(struct core *c, struct request *r);
uint64_t fetch_range_bytes(const struct request *r);
uint32_t fetch_range_pages(const struct request *r);
bool fetch_block_there(const struct context *x, struct abi_block_ref ref);
uint64_t pin_block_bytes(const struct context *x, uint32_t slot, uint32_t layers);
void pin_lost(struct core *c, struct context *x, uint32_t slot);
void pin_until(struct core *c, struct pin *p, uint64_t deadline_ns);
int64_t pin_take(struct core *c, struct pin_ask *ask);
bool fetch_outranks(const struct core *c, const struct request *r);
void pin_request(struct core *c, struct request *r);
void unpin_request(struct core *c, struct request *r);
void pin_end(struct core *c, struct pin *p);
void pin_drop(struct core *c, uint64_t id);
bool pin_leave(struct core *c, uint32_t client, const struct context *x, struct meter_pass *pass);
void pin_work(struct core *c);
void pin_tick(struct core *c);
uint64_t pin_next(const struct core *c);
void delete_begin(struct core *c, struct request *r);
void delete_step(struct core *c, struct request *r);

/* stream.c, stream_window.c, stream_end.c */
int stream_memory(struct core *c);
bool stream_item(const struct stream *s, uint32_t i, uint32_t *block, uint32_t *page);
void stream_drop_stage(struct core *c, struct stream *s, uint32_t i, const struct abi_page_ref *at);
void stream_begin(struct core *c, struct request *r);
void stream_step(struct core *c, struct request *r);
void stream_lost(struct request *r, uint32_t slot);
void stream_detach(struct request *r);
void stream_work(struct core *c);
void stream_tick(struct core *c);
uint64_t stream_next(const struct core *c);
void stream_over(struct core *c, struct stream *s);
void stream_client_gone(struct core *c, uint32_t client);
void stream_context_gone(struct core *c, const struct context *x);
bool stream_of_context(const struct core *c, const struct context *x);
int stream_window_plan(struct core *c, struct stream *s, uint64_t wanted);
uint32_t stream_window_blocks(const struct stream *s);
bool stream_admit(struct core *c, struct stream *s);
void stream_window_end(struct core *c, struct stream *s);
void stream_window_moved(struct core *c, struct stream *s);

#endif
