"""The planted bugs that the simulator must find: tests/sim/plants puts them into the core, one at a
time. (tests/plants has those of the rest, which other tests find.)

SPDX-License-Identifier: Apache-2.0
"""
import os

# name: (file below tierd/core, what stands there, what it becomes, and again if there is more)
PLANTS = {
    "scan-skipped": ("reclaim.c", "b->held[i] = 1;", "b->held[i] = 0;"),
    "scan-table-not-probed": ("reclaim.c", "for (; t->at[at]; at = (at + 1) % TABLE)",
                              "if (t->at[at])"),
    "no-fence": ("reclaim.c", "core_push(c, CORE_AC_FENCE)->batch = b;",
                 "memset(b->held, 0, b->count);\n\tcore_push(c, CORE_AC_SCAN)->batch = b;"),
    "scan-misses-high-slots": ("reclaim.c", "if (high > ABI_HAZARD_SLOTS)\n\t\thigh = "
                               "ABI_HAZARD_SLOTS;", "if (high > 256)\n\t\thigh = 256;"),
    "scan-sees-one-thread": ("reclaim.c", "k->state && r < k->open.readers_max; r++)",
                             "k->state && r < 1; r++)"),
    "quarantined-bytes-kept": ("reclaim.c", "\t\tc->quarantined[tier] -= bytes;\n", "\t\t;\n"),
    "orphans-kept": ("prefix.c", "if (!prefix_binds(x, child)) {", "if (true) {"),
    "waiting-orphans-forgotten": ("prefix.c", "if (!c->waiting.count || c->now_ns < "
                                  "c->waiting_next_ns)\n\t\treturn;", "if (left)\n\t\treturn;"),
    "pinned-orphan-dropped": ("prefix.c", "!use->writers && !block_use_is_pinned(use);",
                              "!use->writers;"),
    "siblings-forgotten": ("prefix.c", "index_block(&x->ix, b->parent)->child = e.next;",
                           "index_block(&x->ix, b->parent)->child = ABI_SLOT_NONE;"),
    "failed-copy-published": ("put_copy.c",
                              "if (copy->res || x->meta[slot].flags & BLOCK_DROPPED) {",
                              "if (x->meta[slot].flags & BLOCK_DROPPED) {"),
    "old-epoch-acknowledged": ("put.c", "return r->put->epoch != r->ctx->spec.epoch ? "
                               "-ESTALE : 0;", "return 0;"),
    "commit-offset-trusted": ("put.c", "r->sqe.arg_offset > k->open.staging_bytes ||\n\t    "
                              "bytes > k->open.staging_bytes - r->sqe.arg_offset)", "0)"),
    "crc-without-salt": ("put_copy.c", "store_page_seed(index_block(&x->ix, slot)->key, "
                         "block_salt(x, slot),\n\t\t\t\t\ts->page)",
                         "store_page_seed(index_block(&x->ix, slot)->key, 0, s->page)"),
    "put-of-another-client": ("put.c", "p->client != r->client || p->committing)",
                              "p->committing)"),
    "generation-ignored": ("block_list.c", "return b->generation == ref.generation && b->state",
                           "return b->state"),
    "read-context-not-open": ("request.c", "if (!r->ctx || r->ctx->closing || "
                              "!bit_get(k->attached, r->ctx->index))",
                              "if (!r->ctx || r->ctx->closing)"),
    "fetch-deadline-ignored": ("fetch.c", "if (r->error || r->late || r->ctx->closing) {",
                               "if (r->error || r->ctx->closing) {"),
    "catalog-one-slot": ("catalog.c", "(c->catalog_sequence & 1) * s->catalog_bytes",
                         "0 * s->catalog_bytes"),
    "dropped-segment-forgotten": ("drop.c", "\t\t\twriteback_again(c, x, slot);\n", ""),
    "pin-quota-not-returned": ("pin.c", "\taccount_give(c, owner->account, owner, "
                               "ACCOUNT_PINS);\n", ""),
    "leases-end-with-socket": ("reclaim.c", "for (uint32_t r = 0; k->state &&",
                               "for (uint32_t r = 0; k->state == 1 &&"),
    "scan-misses-last-client": ("reclaim.c",
                                "for (uint32_t i = 0; i < c->clients_high; i++) {\n"
                                "\t\tstruct client *k",
                                "for (uint32_t i = 0; i + 1 < c->clients_high; i++) {\n"
                                "\t\tstruct client *k"),
    "early-publication": ("put_copy.c", "if (pending && !--block_use_make(x, slot)->missing)",
                          "if (pending && --block_use_make(x, slot)->missing <= 1)"),
    "sidecar-not-awaited": ("put.c", "use->missing = p->whole;",
                            "use->missing = p->whole - 2;"),
    "failed-write-taken": ("writeback.c", "io->res < 0 || (uint64_t)io->res != io->bytes)",
                           "io->res == -EBADMSG)"),
    "failed-read-keeps-its-segment": ("move.c",
                                      "bool failed = io_failed(io);\n\n\tstore_read_end(c->store, "
                                      "store_segment_of(c->store, io->offset));\n\tif (failed)",
                                      "bool failed = io_failed(io);\n\n\tif (!failed)\n\t\t"
                                      "store_read_end(c->store, store_segment_of(c->store, "
                                      "io->offset));\n\tif (failed)"),
    "stream-hold-counted-on": ("stream_end.c",
                               "block_use_make(s->ctx, slot)->streams--;", ""),
    "claim-count-not-returned": ("claim.c", "account_give(c, r->account, claimant(c, r), "
                                 "ACCOUNT_CLAIMS);", "claimant(c, r);"),
    "conversation-counted-on": ("session.c", "account_give(c, k->account, k, ACCOUNT_SESSIONS)",""),
    "waiting-tail-dangles": ("wait.c", "if (c->space_tail == r)\n\t\tc->space_tail = tail;",
                             ""),
    "short-read-taken": ("move.c", "io->res < 0 || (uint64_t)io->res != io->bytes",
                         "io->res < 0"),
    "checksum-ignored": ("move.c", "else if (io->bad_mask >> i & 1) {\n\t\t\tpage_bad",
                         "else if (io->bad_mask >> i & 0) {\n\t\t\tpage_bad"),
    "record-before-data": ("writeback.c", "if (run->phase != RUN_DATA || run->outstanding)",
                           "if (run->phase != RUN_DATA)"),
    "durable-before-flush": ("put.c", "if (c->sync_seq + 1 >= r->sync_seq &&",
                             "if (r->sync_seq &&"),
    "put-before-its-epoch": ("put.c", "c->sync_seq + 1 >= r->sync_seq && epoch_listed(c, r->ctx)",
                             "c->sync_seq + 1 >= r->sync_seq"),
    "failed-flush-believed": ("flush.c", "runs_again(c);\n\tunflushed_again(c);\n"
                              "\tfor (uint32_t i = 0; i < TOMBS_KINDS; i++)\n"
                              "\t\tc->tombs[i].written = c->tombs[i].flushed;\n"
                              "\tcatalog_again(c);", ""),
    "removed-context-listed": ("catalog.c", "if (!x || x->closing || n == c->catalog_max)",
                               "if (!x || n == c->catalog_max)"),
    "catalog-not-written-again": ("flush.c", "\tcatalog_again(c);\n", ""),
    "epoch-answered-at-once": ("context.c", "catalog_write(c, token, epoch);",
                               "core_reply(c, token, 0, epoch);\n\tcatalog_write(c, 0, 0);"),
    "catalog-answers-what-came-later": ("catalog.c", "c->sync_seq < c->catalog_sync)\n\t\treturn;",
                                        "c->sync_seq < c->catalog_sync)\n\t\treturn;\n"
                                        "\tc->catalog_flying = c->catalog_tokens;"),
    "run-survives-failed-flush": ("flush.c", "run->failed = run->doubtful = true;", ";"),
    "recovered-data-trusted": ("put.c", "&& m->settle != SETTLE_RECOVERED;", ";"),
    "flushed-lsn-too-far": ("flush.c", "? 0 : lsn_complete(c);", "? 0 : store_lsn(c->store);"),
    "flushed-lsn-not-frozen": ("flush.c", "if (!c->flushed_frozen)", "if (c)"),
    "old-copy-freed-before-flush": ("clean.c", "flush_then(c, CLEAN_RECORD_SYNC);",
                                    "batch_over(c, true);"),
    "settled-before-flush": ("clean.c", "flush_or(c, !k->hot, CLEAN_DATA_SYNC, CLEAN_RECORD);",
                             "flush_or(c, false, CLEAN_DATA_SYNC, CLEAN_RECORD);"),
    "cleaner-loses-tombstones": ("clean.c", "if (b[i].salt < oldest)", "if (oldest)"),
    "cleaner-trusts-what-it-reads": ("clean_copy.c", "io->verify = 1;", ""),
    "moved-block-not-accounted": ("clean.c", "\t\t\tblock_unwritten(c, x, slot);\n", ""),
    "cleaned-over-failed-flush": ("flush.c", "\tclean_flush_failed(c);\n", ""),
    "flush-covers-what-came-later": ("flush.c", "c->sync_seq = c->sync_started;",
                                     "c->sync_seq = c->write_seq;"),
    "wake-up-lost": ("flush.c", "request_wake_phase(c, REQUEST_SYNC);", ""),
    "joiners-not-woken": ("request.c",
                          "else if (!r->answered && r->phase == REQUEST_RUN)\n"
                          "\t\trequest_wake(c, r);", ""),
    "dirty-evicted": ("evict.c",
                      "return m->persist == PERSIST_CLEAN && m->settle != SETTLE_WRITTEN;",
                      "return true;"),
    "pin-ignored": ("evict.c", "if (use->hold || use->pins[tier])", "if (use->hold)"),
    "pin-released-twice": ("pin.c", "\t\tuse->pins[p->tier]--;\n",
                           "\t\tuse->pins[p->tier]--;\n\t\tif (use->pins[p->tier])\n"
                           "\t\t\tuse->pins[p->tier]--;\n"),
    "cancel-too-early": ("request.c", "if (concerns(order, &c->request[i]))\n\t\t\treturn false;",
                         "if (concerns(order, &c->request[i]) &&\n"
                         "\t\t    order->sqe.op == ABI_OP_DRAIN)\n\t\t\treturn false;"),
    "deletion-forgotten": ("tombs.c", "if (!context_has_nvme(c, x))", "if (x)"),
    "evicted-key-undeletable": ("delete.c", "if (!tombstone(c, x, key,",
                                "if (slot != ABI_SLOT_NONE && !tombstone(c, x, key,"),
    "old-epoch-recovered": ("recover.c", "if (v->head->epoch != x->spec.epoch ||", "if ("),
    "slot-freed-with-pages": ("block.c", "|| block_words(x, slot) || use->hold",
                              "|| use->hold"),
    "place-charged-twice": ("reclaim.c", "\tspace_free(x->space[tier], (b->place[i] & "
                            "ABI_ADDR_MASK) << ABI_UNIT_SHIFT);\n", ""),
    "counter-forgotten": ("block.c", "\tx->nvme_bytes -= bytes;\n", ""),
    "claim-committed-at-once": ("claim.c", "\tr->parked = true;\n\tclaim_park(c, r);",
                                "\tfetch_begin(c, r);"),
    "expired-session-keeps-staging": ("session.c", "s->state = SESSION_FADED;\n"
                                      "\t\twake_at(c, s, s->expires_ns);",
                                      "s->state = SESSION_AWAY;\n\t\ts->use_ns = c->now_ns;\n"
                                      "\t\ts->patience_ns = c->now_ns + 5000 * MS;\n"
                                      "\t\twake_at(c, s, c->now_ns + 500 * MS);"),
    "plan-position-trusted": ("plan.c", "word < p->belady.count ? (uint32_t)word : "
                              "p->belady.count;", "(uint32_t)word;"),
    "plan-marks-forgotten": ("plan.c", "if (!p->wrong)\n\t\tlet_go(p);", ""),
    "return-marks-forgotten": ("session.c", "s->landed = false;\n\tawait(c, s, false);",
                               "s->landed = false;\n\tc->sessions.awaited -= s->awaited;\n"
                               "\ts->awaited = false;"),
    "claim-forgotten": ("claim.c", "request_wake(c, k->by_deadline[i].r);", ";"),
    "staged-not-taken-out": ("reclaim.c", "stage_leave(c, x, slot, tier, page_stride(x, page));",
                             ""),
    "watermark-before-the-last-extent": ("stream.c",
                                         "if (page_state(d, s->tier) != ABI_PAGE_ABSENT)\n"
                                         "\t\treturn MOVE_UNDER_WAY;",
                                         "if (page_state(d, s->tier) != ABI_PAGE_ABSENT)\n"
                                         "\t\treturn MOVE_THERE;"),
    "joiner-drops-anothers-page": ("stream_page.c",
                                   "if (stream_page_claims(d, tier) || "
                                   "!stream_page_charged(d, tier))",
                                   "d->claim[tier] &= CLAIM_POOL;\n"
                                   "\tif (!stream_page_charged(d, tier))"),
    "stream-page-in-eviction-order": ("block.c",
                                      "use->streamed[tier]++; /* never in the eviction order */",
                                      "use->streamed[tier]++,\n"
                                      "\t\tblock_enter_policy(c, x, slot, tier);"),
    "window-ignored": ("stream.c", "uint32_t layer = s->dropped / s->per_layer + s->window;",
                       "uint32_t layer = s->layers;"),
    "let-go-while-it-comes": ("stream_end.c",
                              "if (page_state(d, s->tier) == ABI_PAGE_FILLING ||",
                              "if ((page_state(d, s->tier) == ABI_PAGE_FILLING && s->over) ||"),
    "evacuation-takes-dirty": ("evacuate.c", "!evict_may(c, x, slot, e->tier) ||",
                               "block_use(x, slot)->hold || block_use(x, slot)->pins[e->tier] ||"),
    "evacuation-ignores-holds": ("evacuate.c",
                                 "BLOCK_DROPPED || block_use(x, slot)->hold > 1)",
                                 "BLOCK_DROPPED)"),
    "evacuated-segment-used": ("space.c", "if (segment->state != SEGMENT_TAKEN)\n\t\t"
                               "return FILL_NONE;",
                               "if (segment->state != SEGMENT_TAKEN && segment->state != "
                               "SEGMENT_EVACUATED)\n\t\treturn FILL_NONE;"),
    "segment-reused-before-punch": ("space.c", "\treturn (int64_t)(empty_withdraw(s, klass) * "
                                    "s->segment_bytes);",
                                    "\tuint32_t seg = empty_withdraw(s, klass);\n"
                                    "\tuint64_t at = seg * s->segment_bytes;\n"
                                    "\tspace_punched(s, at);\n\ts->segment[seg].state = "
                                    "SEGMENT_UNUSED;\n\ts->taken++;\n\ts->punching++;\n"
                                    "\ts->pool->used += s->segment_bytes;\n"
                                    "\treturn (int64_t)at;"),
    "quota-evicts-durable": ("evict.c", "!(m->flags & BLOCK_DURABLE) && !(w->ends",
                             "!(w->ends"),
    "memory-victim-ignores-hbm-pins": ("evict.c", "return !use->pins[ABI_TIER_HBM] && "
                                       "!use->head_pins[ABI_TIER_CXL] &&\n\t       "
                                       "!use->head_pins[ABI_TIER_HBM];", "return true;"),
    "head-pins-ignored": ("marks.c", "return use->head_pins[tier] &&\n\t       (page",
                          "return use->head_pins[tier] > UINT16_MAX - 1 &&\n\t       (page"),
    "written-unflushed-evicted": ("evict.c", "return m->persist == PERSIST_CLEAN && m->settle != "
                                  "SETTLE_WRITTEN;", "return m->persist == PERSIST_CLEAN;"),
    "sync-tombs-queued": ("flush.c", "c->tombs[i].sync = c->tombs[i].written;",
                          "c->tombs[i].sync = c->tombs[i].queued;"),
    "failed-catalog-takes-other-slot": ("catalog.c", "/* the same slot again: the sequence was not "
                                        "used */\n\t\tc->catalog_sequence--;", ""),
    "bad-record-ends-segment": ("store_recover.c", "\t\t\tbad = CURSOR_BAD;\n"
                                "\t\t\tcontinue;", "\t\t\tbad = CURSOR_BAD;\n"
                                "\t\t\tbreak;"),
    "access-entry-slot-trusted": ("evict.c", "if (!x || slot >= x->ix.slots_used || "
                                  "!bit_get(k->attached, index))",
                                  "if (!x || !bit_get(k->attached, index))"),
    "salt-not-paid-back": ("block.c", "quota_sub(c, x, slot, tier, page_stride(x, page));", ""),
    "salt-limit-forgotten": ("evict.c",
                             "return quota_left(c, x, slot, tier) < page_stride(x, page);",
                             "return quota_left(c, x, slot, tier) < 1;"),
    "salt-limit-not-on-nvme": ("evict.c", "while (quota_left(c, x, slot, ABI_TIER_NVME) < bytes)",
                               "while (quota_left(c, x, slot, ABI_TIER_NVME) + bytes < bytes)"),
    "moved-page-published-early": ("evacuate.c", "\tif (!held)\n\t\tblock_hold(x, slot);\n",
                                   "\tif (!held)\n\t\tblock_hold(x, slot);\n"
                                   "\tif (copy->count == 1)\n"
                                   "\t\tindex_page(&x->ix, slot, page)->word[e->tier] =\n"
                                   "\t\t\tabi_word((uint64_t)to, ABI_PAGE_READY, "
                                   "abi_word_version(d->word[e->tier]));\n"),
    "old-place-freed-at-once": ("reclaim.c",
                                "c->batch_open->stray[c->batch_open->count - 1] = CORE_STRAY;",
                                "c->batch_open->stray[c->batch_open->count - 1] = CORE_STRAY;\n"
                                "\tspace_free(x->space[tier], page_addr(index_page(&x->ix, slot, "
                                "page), tier));"),
    "parked-under-a-reader": ("space_evacuate.c",
                              "bitmap_find_set(space_segment_bits(s, seg), last, "
                              "begin / c->stride) == last;", "last > 0;"),
    "reservation-returned-twice": ("reserve.c", "\tr->left[klass] -= places;\n", ""),
    "reserved-place-given-away": ("space.c", "c->wanting = c->free == c->reserved &&",
                                  "c->wanting = c->free == 0 &&"),
    "evicted-while-copied": ("evict.c", "if (use->hold || use->pins[tier])",
                             "if (use->pins[tier])"),
    "raised-class-lost": ("move.c", "while (sched_raise(c, abi_nvme_offset(d->nvme), "
                          "r->sqe.klass, r->deadline_ns))", "while (0)"),
    "direct-read-unverified": ("move.c", "b->io->verify = 1;",
                               "b->io->verify = tier == ABI_TIER_CXL;"),
    "direct-read-published-twice": ("move.c", "piece_came(c, io, i, ABI_TIER_HBM);",
                                    "piece_came(c, io, i, ABI_TIER_HBM);\n"
                                    "page_came(c, r->ctx, io->priv.slot[i], "
                                    "io->priv.page[i], ABI_TIER_HBM);"),
    "direct-read-published-below": ("move.c", "page_came(c, r->ctx, io->priv.slot[i], "
                                    "io->priv.page[i], tier);",
                                    "page_came(c, r->ctx, io->priv.slot[i], io->priv.page[i], "
                                    "ABI_TIER_CXL);"),
    "rotten-read-costs-good-block": ("move.c", "ABI_TIER_CXL) != ABI_PAGE_READY) {\n"
                                     "\t\tpage_bad(", "ABI_TIER_COUNT - 1) < 99) {\n"
                                     "\t\tpage_bad("),
    "failed-path-ends-the-fetch": ("move.c", "if (undone || r->path_bad & PATH_COPY)",
                                   "if (true)"),
    "claim-ends-under-a-read": ("stream_end.c", "if (page_state(d, s->tier) == "
                                "ABI_PAGE_FILLING ||\n\t    (", "if (("),
    "other-path-with-no-copy-there": ("path.c", "return c->config.direct && d->nvme & "
                                      "ABI_NVME_PRESENT &&", "return c->config.direct &&"),
    "direct-read-of-freed-segment": ("move.c", "store_read_begin(c->store, store_segment_of("
                                     "c->store, b->io->offset));\n\tsched_io",
                                     "if (b->io->priv.done != direct_done)\n"
                                     "\t\tstore_read_begin(c->store, store_segment_of(c->store, "
                                     "b->io->offset));\n\tsched_io"),
    "dropped-segment-takes-pinned": ("drop.c", "} else if (!block_use_is_pinned(use)) {",
                                     "} else {"),
    "second-step-not-raised": ("block.c", "return awaited < klass ? awaited : klass;",
                               "return awaited ? klass : klass;"),
    "failed-copy-left-to-others": ("put.c", "!r->sync_seq && shard_gap(r, &state)", "0"),
    "cleaned-without-gain": ("clean.c", "/ GAIN_VICTIMS) + DEAD_LEAST;", "* 0);"),
    "raised-queue-kept": ("sched.c", "node->klass = (uint8_t)klass;\n\tif (!node->deadline_ns",
                          "if (!node->deadline_ns"),
    "starvation-bound-broken": ("sched.c", "klass] >= most;",
                                "klass] >= 100 * most;"),
    "background-passes-demand": ("sched.c", "if (class_count(s, ABI_CLASS_DEMAND))\n\t\treturn",
                                 "if (class_count(s, ABI_CLASS_DEMAND) && !s->background_ops)\n"
                                 "\t\treturn"),
    "large-units-beside-demand": ("sched.c", "SCHED_UNIT_BUSY : SCHED_UNIT_BYTES;",
                                  "SCHED_UNIT_BYTES : SCHED_UNIT_BYTES;"),
    "depth-overrun": ("sched.c", "sched_device_ops(c->sched) < c->config.device_depth",
                      "sched_device_ops(c->sched) <= c->config.device_depth"),
    "withdrawn-never-ends": ("sched.c", "if (!node->flying)\n\t\t\tcut_end(c, io_of(node));", ""),
    "salt-pins-not-given-back": ("pin.c", "ledger_unpin(&x->salts, block_account(x, "
                                 "slot), tier, before);", ""),
    "client-pins-not-counted": ("pin.c", "ledger_pin(&c->owners, p->owner, p->tier, bytes);", ""),
    "retention-not-recorded": ("writeback.c", "block[n].keep = retain_word(c, x, slot);", ""),
    "retention-not-recovered": ("retain.c", "keep(x, slot, disk_keep_priority(word));",
                                "keep(x, slot, 0);"),
    "ttl-longer-by-clock-set-back": ("retain.c",
                                     "retain_clock(c, c->retain.newest_ms);", ""),
    "queued-not-counted": ("sched_queue.c", "\ts->queued--;\n", ""),
    "unit-failure-forgotten": ("sched.c", "if (!whole(unit) && !node->error)", "if (0)"),
    "older-tombstone-wins": (
        "recover.c",
        "if (slot == ABI_SLOT_NONE || *lsn_of(c, n->ctx, slot) > n->lsn)",
        "if (slot == ABI_SLOT_NONE)"),
    "recovered-salt-lost": (
        "recover.c",
        "quota_name(c, x, slot, v->block[i].salt, LEDGER_NONE);",
        "quota_name(c, x, slot, 0, LEDGER_NONE);"),
    "proven-after-one-read": (
        "prove.c",
        "if (p->page == x->ix.pages_per_block)\n\t\t\tproven",
        "if (p->page)\n\t\t\tproven"),
    "disproven-not-buried": (
        "prove.c",
        "if (!tombstone(c, x, index_block(&x->ix, slot)->key, store_lsn(c->store))) {",
        "if (0) {"),
    "stage-claim-kept": (
        "stream_end.c",
        "stream_drop_stage(c, s, i, &at);\n\tif (s->item",
        "if (s->item"),
    "stream-window-not-given-back": (
        "stream_end.c",
        "stream_window_end(c, s);\n\tif (s->request)",
        "if (s->request)"),
    "dead-while-read": (
        "store.c",
        "if (g->state != STORE_SEALED || g->live || g->reads || "
        "g->pending)\n\t\t\tcontinue;\n\t\tif (g->lsn",
        "if (g->state != STORE_SEALED || g->live || g->pending)\n\t\t\tcontinue;\n\t\tif (g->lsn"),
    "reservation-over-the-quota": (
        "reserve.c",
        "if (!r || quota_left(c, x, slot, ABI_TIER_CXL) < page_stride(x, page))",
        "if (!r)"),
    "plan-of-another-client": (
        "plan.c",
        "p->id == r->sqe.handle && p->client == r->client &&\n\t\t\t       p->client_session == "
        "r->session",
        "p->id == r->sqe.handle"),
    "failed-move-published": (
        "evacuate.c",
        "if (copy->res || x->meta[slot].flags & BLOCK_DROPPED ||",
        "if (x->meta[slot].flags & BLOCK_DROPPED ||"),
    "cleaner-reads-forgotten": (
        "clean_copy.c",
        "\tif (h->reads)\n\t\treturn;\n",
        ""),
    "cleaner-short-read-taken": (
        "clean_copy.c",
        "if (io->res < 0 || (uint64_t)io->res != io->bytes || io->bad_mask)",
        "if (io->res < 0 || io->bad_mask)"),
    "run-mixes-parts": (
        "writeback.c",
        "b->parent == before && b->parts == p->parts &&",
        "b->parent == before &&"),
    "run-mixes-durability": (
        "writeback.c",
        "block_account(x, slot) == block_account(x, before) &&\n\t       (x->meta[slot].flags & "
        "BLOCK_DURABLE) == (x->meta[before].flags & BLOCK_DURABLE)",
        "block_account(x, slot) == block_account(x, before)"),
    "tombstones-skip-after-failed-flush": (
        "writeback.c",
        "if (t->written == run->tomb_first)\n\t\t\tt->written += run->tombs;",
        "t->written = run->tomb_first + run->tombs;"),
    "hbm-eviction-ignores-head-pins": (
        "evict.c",
        "!= ABI_PAGE_READY ||\n\t\t    pin_holds(x, slot, page, tier) ||",
        "!= ABI_PAGE_READY ||"),
    "usable-prefix-one-too-long": (
        "fetch.c",
        "if (ref < first_bad)\n\t\t\tfirst_bad = ref;",
        "if (ref + 1 < first_bad)\n\t\t\tfirst_bad = ref + 1;"),
    "stream-released-trusted": (
        "stream_end.c", "layers = layers < s->layers ? layers : s->layers;", ""),
    "disproven-after-one-try": (
        "prove.c", "if (try_again(c))\n\t\treturn;\n\tif (!tombstone",
        "try_again(c);\n\tif (!tombstone"),
    "pending-expires-under-its-writer": (
        "put.c",
        "if (!use->writers && (int32_t)(now_ms - use->expires_ms) >= 0)",
        "if ((int32_t)(now_ms - use->expires_ms) >= 0)"),
    "moved-page-not-verified": (
        "evacuate.c",
        "if (copy->checksum && copy->item[i].crc != d->crc)\n\t\treturn false; /* "
        "memory that rots is not spread */",
        ""),
    "run-mixes-accounts": (
        "writeback.c",
        "block_account(x, slot) == block_account(x, before) &&",
        ""),
    "pin-of-a-pending-block": (
        "pin.c",
        "if (!block_alive(r->ctx, *ref) ||\n\t    index_block(&r->ctx->ix, "
        "ref->slot)->state != ABI_BLOCK_COMMITTED)",
        "if (!block_alive(r->ctx, *ref))"),
    "pin-budget-of-others": (
        "pin.c",
        "if (x->pinned[t] + more > pin_budget(c, x, t) / share)\n\t\treturn "
        "ABI_LIMIT_CONTEXT;",
        ""),
    "pin-budget-of-a-salt": (
        "pin.c",
        "if (over(x->salts.account[account].pinned[t] + more, quota_pins(c, x, "
        "account, t)))\n\t\treturn ABI_LIMIT_SALT;",
        ""),
    "reservation-never-ends": (
        "reserve.c",
        "reservations_end(c, CORE_CLIENTS_MAX, NULL, c->now_ns);",
        ";"),
    "retained-by-another-tenant": (
        "put.c",
        "|| block_salt(x, slot) != p->args.salt)",
        ")"),
    "session-of-another-client": (
        "session.c",
        "if (s && (s->client != r->client || s->client_session != r->session)) {",
        "if (0) {"),
    "rotten-read-not-buried": (
        "move.c",
        "tombstone(c, x, index_block(&x->ix, slot)->key, "
        "store_lsn(c->store));\n\t\tblock_drop",
        "block_drop"),
    "pin-ends-early": (
        "pin.c",
        "p->deadline_ns > now_ns))\n\t\t\tcontinue;",
        "p->deadline_ns > now_ns + 40 * MS))\n\t\t\tcontinue;"),
    "plan-outlives-client": (
        "plan.c",
        "plans_end(c, client, NULL);",
        "(void)client;"),
    "kept-counter": (
        "retain.c",
        "x->kept_blocks += m->keep == 0;\n\tm->keep |= KEEP_TTL;",
        "m->keep |= KEEP_TTL;"),
    "share-counts-not-itself": (
        "ledger.c",
        "if (!a->used[tier])\n\t\tplain++;",
        "if (a->used[tier])\n\t\tplain++;"),
    "pin-forgets-generation": (
        "pin.c",
        "if (index_block(&p->ctx->ix, ref.slot)->generation != "
        "ref.generation)\n\t\treturn;\n\tbefore",
        "before"),
    "narrowed-under-a-writer": (
        "put.c",
        "if (part_begun(x, slot, part))\n\t\t\tcontinue;",
        ""),
    "direct-used-forgotten": (
        "stage.c",
        "c->metrics.prefetch_used += take(c, x, slot, tier, UINT64_MAX);",
        "take(c, x, slot, tier, UINT64_MAX);"),
    "deletion-answered-unwritten": (
        "delete.c",
        "if (c->tombs[TOMBS_NEW].written + 1 < r->tomb_seq)",
        "if (c->tombs[TOMBS_NEW].written + 2 < r->tomb_seq)"),
    "uids-used-again": (
        "catalog.c",
        "head.next_uid = c->next_uid;",
        "head.next_uid = c->next_uid - 1;"),
    "claims-not-returned": (
        "reserve.c",
        "claim_set(c, r, 0);",
        ""),
    "reservation-outlives-client": (
        "reserve.c",
        "reservations_end(c, client, NULL, 0);",
        "(void)client;"),
    "shard-replicated-split": (
        "put_shard.c",
        "|| part->shard_rule == ABI_SHARD_REPLICATED",
        ""),
    "limits-second-lost": (
        "catalog.c",
        "out ? out + n : NULL",
        "out"),
    "cancel-of-another-client": (
        "request.c",
        "if (r->phase == REQUEST_FREE || r->client != order->client ||\n\t    r->session != "
        "order->session || r->seq",
        "if (r->phase == REQUEST_FREE || r->seq"),
    "tombstone-bound-low": (
        "delete.c",
        "c->store ? store_lsn(c->store) : 0",
        "c->store ? store_lsn(c->store) - 1 : 0"),
    "stream-miss-not-told": (
        "stream.c",
        "if (s->count < r->sqe.count)\n\t\tr->status = ABI_STATUS_MISS;",
        ""),
    "old-reference-lives": (
        "block_list.c",
        "b->state != ABI_BLOCK_FREE &&\n\t       b->epoch == (uint32_t)x->spec.epoch;",
        "b->state != ABI_BLOCK_FREE;"),
    "staged-taken-twice": (
        "stage.c",
        "c->staged.bytes -= there;",
        "c->staged.bytes -= there / 2 * 2 / 2;"),
    "quota-left-larger": (
        "quota.c",
        "return salt < owner ? salt : owner;",
        "return salt > owner ? salt : owner;"),
    "plain-drifts": (
        "ledger.c",
        "if (!a->limit[tier].soft)\n\t\tl->plain[tier]--;\n\taccount_settle",
        "account_settle"),
    "priority-inherited-by-slot": (
        "quota.c",
        "x->kept_blocks -= m->keep != 0;\n\tm->keep = 0;",
        "x->kept_blocks -= m->keep != 0;"),
    "plan-requests-not-aborted": (
        "plan.c",
        "c->request[i].owner = NULL;\n\t\t\trequest_abort(c, &c->request[i], -ECANCELED);",
        ";"),
    "shards-never-expire": (
        "put.c",
        "c->metrics.puts_expired++;\n\t\t\tblock_drop(c, x, slot);",
        ";"),
    "claim-starts-too-late": (
        "claim.c",
        "q->start_ns = next = latest_start(k, end < next ? end : next, ns, &returns);",
        "q->start_ns = next = q->deadline_ns;"),
    "pin-never-ends-by-time": (
        "pin.c",
        "pins_end(c, CORE_CLIENTS_MAX, NULL, c->now_ns);",
        "pins_end(c, CORE_CLIENTS_MAX, NULL, 0);"),
    "limit-restored-as-pins": (
        "limits.c",
        "struct ledger_limit own = { limit->soft[t], limit->hard[t] };",
        "struct ledger_limit own = { limit->soft[t], limit->soft[t] };"),
    "soft-sum-drifts": (
        "ledger.c",
        "l->soft_sum[tier] += limit.soft - a->limit[tier].soft;",
        "l->soft_sum[tier] += limit.soft;"),
    "pin-outlives-its-client": (
        "pin.c",
        "pins_end(c, client, NULL, 0);",
        "(void)client;"),
    "deletion-answered-unflushed": (
        "delete.c",
        "|| c->sync_seq + 1 >= r->sync_seq",
        "|| r->sync_seq"),
    "moved-place-leaks": (
        "evacuate.c",
        "} else {\n\t\t\tspace_free(x->space[tier], to);",
        "} else {"),
    "account-freed-in-use": (
        "ledger.c",
        "if (i < LEDGER_FIRST || a->uses || a->limited)",
        "if (i < LEDGER_FIRST || a->limited)"),
    "moving-bytes-kept": (
        "evacuate.c",
        "x->moving[tier] -= copy->item[i].bytes;",
        ""),
    "catalog-sequence-used-up": (
        "catalog.c",
        "c->catalog_dirty = true; /* the same slot again: the sequence was not used "
        "*/\n\t\tc->catalog_sequence--;",
        "c->catalog_dirty = true;"),
    "stream-ready-before-usable": (
        "stream.c",
        "atomic_store_relaxed_u32(&line->usable, s->usable);\n\t/* usable before",
        "\t/* usable before"),
    "ttl-begins-anew": (
        "retain.c",
        "lapse(x, slot, (uint32_t)(c->now_ns / MS) + ttl_ms);",
        "lapse(x, slot, (uint32_t)(c->now_ns / MS) + 2 * ttl_ms);"),
    "claims-forget-order": (
        "claim.c",
        "for (; i && k->by_deadline[i - 1].deadline_ns > r->use_ns; i--)",
        "for (; 0; i--)"),
    "degraded-pin-not-told": (
        "pin.c",
        "r->status = ABI_STATUS_DROPPED; /* the others are not protected */",
        ";"),
    "catalog-epoch-too-new": ("catalog.c", "x->epoch_listed = x->epoch_listing;",
                              "x->epoch_listed = x->spec.epoch;"),
    "session-outlives-client": ("session.c", "sessions_end(c, client, NULL);", "(void)client;"),
    "session-pin-leaks-over-turns": (
        "session.c",
        "let_go(c, s);\n\trefs_keep(c, s, r);",
        "refs_keep(c, s, r);"),
    "urgent-kept": ("block.c", "use->urgent = 0;", ""),
    "ttl-counts-down-time-twice": (
        "retain.c",
        "uint64_t left = lapse_ms[slot] > now_ms ? lapse_ms[slot] - now_ms : 0;",
        "uint64_t left = lapse_ms[slot] > now_ms ? (lapse_ms[slot] - now_ms) * 2 : 0;"),
    "old-sequence-opened": (
        "store.c",
        "g->sequence = s->next_sequence++;",
        "g->sequence = g->sequence ? g->sequence : s->next_sequence++;"),
    "dead-with-tombstones": (
        "store.c",
        "if (g->lsn_tombstone < oldest_elsewhere(&o, i))\n\t\t\treturn i;",
        "return i;"),
    "settled-a-flush-early": (
        "flush.c",
        "if (u->seq > c->sync_seq)\n\t\t\tbreak;",
        "if (u->seq > c->sync_seq + 1)\n\t\t\tbreak;"),
    "unit-verify-forgotten": (
        "sched.c",
        "unit->verify = io->verify;",
        ""),
    "direct-flag-forgotten": (
        "sched.c",
        "unit->direct = io->direct;",
        ""),
    "usable-at-deadline-too-much": (
        "stream.c",
        "uint32_t usable = s->done == items(s) ? s->usable : usable_at_deadline(s);",
        "uint32_t usable = s->usable;"),
    "epoch-swept-from-the-middle": (
        "context.c",
        "x->sweeping = true;\n\tx->sweep_slot = 0;",
        "x->sweeping = true;"),
    "removed-context-keeps-its-puts": (
        "context.c",
        "put_context_gone(c, x);",
        ""),
    "claim-of-an-old-stream": (
        "stream_end.c",
        "bool ours = claim >> 32 == s->generation;",
        "bool ours = true;"),
    "rotten-page-not-buried": (
        "clean_copy.c",
        "tombstone(c, x, index_block(&x->ix, slot)->key, "
        "store_lsn(c->store)))\n\t\tblock_drop(c, x, slot);",
        "store_lsn(c->store))\n\t\tblock_drop(c, x, slot);"),
    "freed-frozen-too-early": (
        "flush.c",
        "if (t->written + 1 < c->thaw_tombs || c->catalog_dirty || "
        "c->catalog_running)\n\t\treturn true;",
        ""),
    "thawed-with-doubts": (
        "flush.c",
        "if (c->doubts || c->prover.left) {",
        "if (c->prover.left) {"),
    "child-written-before-its-parent": (
        "admit.c",
        "if (parent == ABI_SLOT_NONE || !block_queued(&x->meta[parent]) ||",
        "if (1 ||"),
    "gone-on-over-data": (
        "store_recover.c",
        "g->data_next = view.data_end ? view.data_end : s->super.summary_bytes;",
        "g->data_next = s->super.summary_bytes;"),
    "gone-on-over-records": (
        "store_recover.c",
        "find_end(s, &m, g, behind);",
        "find_end(s, &m, g, DISK_SECTOR);\n\tg->record_next = DISK_SECTOR;"),
    "tombstones-forgotten-at-start": (
        "recover.c",
        "store_tombs_found(c->store, n->segment, n->lsn < n->at ? n->lsn : n->at);",
        ";"),
    "stream-wake-lost": ("stream.c", "core_push(c, CORE_AC_WAKE)->wake = s->client;", ";"),
    "stream-hold-forever": ("stream.c", "s->until_ns = c->now_ns + c->config.stream_hold_ns;",
                            "s->until_ns = UINT64_MAX;"),
    "punched-wrong-tier": ("evacuate.c", "\trange->tier = tier;\n", "\trange->tier = !tier;\n"),
    "thawed-unproven": ("flush.c", "if (c->doubts || c->prover.left) {", "if (c->doubts) {"),
    "discard-before-its-flush": ("discard.c", "d->need = ++c->write_seq;", "d->need = 0;"),
    "discard-over-failed-flush": ("flush.c", "discard_flush_failed(c);", ""),
    "discard-beside-others": ("discard.c", "if (!in_use(c))", "if (in_use(c) || 1)"),
    "discard-of-the-summary": ("discard.c", "d->next = c->config.super.summary_bytes;",
                               "d->next = DISK_SECTOR;"),
    "run-of-two-sessions": ("writeback.c", "quota_left_of(c, x, chain, n, ABI_TIER_NVME) <",
                            "quota_left(c, x, slot, ABI_TIER_NVME) <"),
    "cached-keep-their-slots": ("recover.c", "} while (full && make_way(c, x));", "} while (0);"),
    "missing-page-said-ready": ("fetch.c", "p[r->held].slot = ABI_SLOT_NONE;\n\t\tr->status = "
                                "ABI_STATUS_MISS;", "p[r->held].slot = ABI_SLOT_NONE;"),
    "who-may-read-writes": ("request.c", "!bit_get(k->writable, r->ctx->index))",
                            "!bit_get(k->attached, r->ctx->index))"),
}

# A file goes by its name alone: here is where it lies, below tierd/core.
CORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tierd/core")
WHERE = {name: os.path.relpath(os.path.join(folder, name), CORE)
         for folder, _, files in os.walk(CORE) for name in files}
PLANTS = {name: (WHERE.get(file, file), *pieces) for name, (file, *pieces) in PLANTS.items()}
