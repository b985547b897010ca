"""The planted bugs of core and policies that unit tests find, since the simulator's worlds do not
show them: table.py takes them in, and has bug() and the names of folders. (tests/sim/plants has the
others.)

SPDX-License-Identifier: Apache-2.0
"""

# ---- requests, accounts, foresight ---------------------------------------------------------------

bug("leased-place-freed-with-its-page", CORE + "reclaim.c",
    "\t\tpage_lets_go(c, x, b, i);\n\t}\n\tb->stray[i] = CORE_STRAY_HELD;",
    "\t\tspace_free(x->space[tier], (b->place[i] & ABI_ADDR_MASK) << ABI_UNIT_SHIFT);\n"
    "\t\tpage_lets_go(c, x, b, i);\n\t}\n\tb->stray[i] = CORE_STRAY_HELD;",
    "test_core_fetch")
bug("losses-not-looked-for", CORE + "fetch.c",
    "if (r->losses != sched_losses(c) || r->leaving)", "if (r->leaving)", "test_core_fetch",
    quick=True)
bug("unit-mask-not-shifted", CORE + "sched.c",
    "io->bad_mask |= unit->bad_mask << unit->priv.node.cut;",
    "io->bad_mask |= unit->bad_mask;", "test_core_sched", quick=True)
bug("yielding-has-as-much-of-a-gap", CORE + "sched_gap.c",
    "(c->config.yield ? HITS_MOST_YIELDING : HITS_MOST) / 100;",
    "(c->config.yield ? HITS_MOST : HITS_MOST) / 100;", "test_core_sched", quick=True)
bug("told-to-move-and-dropped", CORE + "admit.c",
    "(m->persist == PERSIST_WANTED ||\n\t\t\t\t\t\tblock_use_is_pinned(block_use(x, slot)))",
    "block_use_is_pinned(block_use(x, slot))", "test_core_admit")
bug("move-without-room-tried-on", CORE + "migrate.c",
    "if (r->wanted && r->ctx->meta[slot].persist == PERSIST_REFUSED)", "if (0)",
    "test_core_admit")
bug("more-than-his-share-for-ever", CORE + "stream_window.c",
    "\t\thurry_others(c, s);\n", "", "test_core_stream")
bug("all-of-a-user-hurried", CORE + "stream_window.c",
    "for (const struct stream *i = c->stream; i <= s; i++)",
    "for (const struct stream *i = c->stream; i < c->stream + c->streams_high; i++)",
    "test_core_stream")
bug("quota-evicts-pinned", CORE + "evict.c",
    "!block_use_is_pinned(use) &&\n\t       quota_within", "quota_within", "test_core_pin",
    quick=True)
bug("pin-budget-of-a-client", CORE + "pin.c",
    "limit = ABI_LIMIT_CLIENT;", ";", "test_core_pin", quick=True)
bug("stored-put-called-cancelled", CORE + "put.c", "put_done(r, trouble) ? 0 : trouble", "trouble",
    "test_core_put")
bug("part-of-a-block-moved-down", CORE + "request.c",
    "q->tier != ABI_TIER_HBM && (q->part_count || q->layer_count)", "0", "test_core_migrate")
bug("late-put-was-never-there", CORE + "put.c", "put_expired(c, r) ? -ETIMEDOUT : -ENOENT",
    "-ENOENT", "test_core_put")
bug("drain-waits-for-claims", CORE + "request.c", "return !r->parked;", "return true;",
    "test_core_request")
bug("removed-contexts-hold-nothing", CORE + "quota.c", "held_by_removed(&h, x, tier);", "",
    "test_core_room")
bug("what-others-hold-not-told", CORE + "quota.c", "space_may_take(x->space[tier]))", "0)",
    "test_core_room")
bug("pin-charged-each-claim", CORE + "pin.c", "more = bytes > kept ? bytes - kept : 0;",
    "more = bytes | (kept & 0);", "test_core_pin", quick=True)
bug("lost-block-stays-charged", CORE + "pin.c",
    "use->head_layers[tier] = 0;\n\t\tcharge_anew(c, x, slot, tier, before);",
    "use->head_layers[tier] = 0;\n\t\t(void)before;", "test_core_pin", quick=True)
bug("head-kept-when-its-block-is-not-charged", CORE + "pin.c",
    "return use->head_pins[tier] ? pin_block_bytes(", "return 0 ? pin_block_bytes(",
    "test_core_pin", quick=True)
bug("foresight-shares-beyond-its-half", CORE + "pin.c", "if (more || p->layers)", "if (more)",
    "test_core_pin", quick=True)
bug("giver-that-cannot-give", CORE + "quota.c", "if (can_give(c, y, tier)) {",
    "if (has > share) {", "test_core_reserve")
bug("windows-all-of-one-user", CORE + "stream_window.c",
    "return c->users > 1 ? pool / 4 * 3 : pool;", "return c->users > 1 ? pool : pool;",
    "test_core_stream")
bug("windows-squeezed-for-anothers-own", CORE + "stream_window.c",
    "return waiting->account == s->account || user_may(c, waiting);",
    "return waiting->account == s->account || c;", "test_core_stream")
bug("claims-all-of-one-user", CORE + "claim.c",
    "far || !account_may(c, k, ACCOUNT_CLAIMS) ||",
    "far || k->used[ACCOUNT_CLAIMS] >= CLAIMS_CLIENT_MAX ||", "test_core_request")
bug("staging-beyond-its-users-claims", CORE + "claim.c",
    "CLAIMS_MAX && account_user_may(c, account, ACCOUNT_CLAIMS);",
    "CLAIMS_MAX && account < UINT32_MAX;", "test_core_session")
bug("reads-of-returns-not-foreseen", CORE + "claim.c",
    "q->from_ns + (uint64_t)((double)q->bytes * o->read_ns);", "q->from_ns;",
    "test_bench_foresight")
bug("who-stays-away-is-expected", CORE + "claim.c",
    "while (k->returns && c->now_ns >", "while (k->returns && 0 >", "test_bench_foresight")
bug("who-is-back-is-expected", CORE + "session.c",
    "\tclaim_expect_no_more(c, s);\n\tunpin(c, s);\n\trest", "\tunpin(c, s);\n\trest",
    "test_bench_foresight")
bug("deleted-blocks-unproven", CORE + "recover.c",
    " ||\n\t\t    index_block(&x->ix, slot)->state != ABI_BLOCK_COMMITTED", "", "test_core_orphans")
bug("durable-put-waits-for-the-cache-log", CORE + "put.c",
    "if (m->persist == PERSIST_REFUSED || block_queued(m)) {",
    "if (m->persist == PERSIST_REFUSED) {", "test_core_flush", quick=True)
bug("failed-record-not-doubted", CORE + "writeback.c",
    "if (durable && (run->doubtful || run->phase == RUN_RECORD))",
    "if (durable && run->doubtful)", "test_core_flush", quick=True)
bug("one-full-context-stops-all", CORE + "writeback.c",
    "x->full_retry_ns = c->now_ns + FULL_RETRY_NS;",
    "c->write_retry_ns = c->now_ns + FULL_RETRY_NS;", "test_core_full", quick=True)
bug("first-context-always-first", CORE + "writeback.c",
    "c->write_context[log] = i + 1;", "", "test_core_full", quick=True)
bug("no-room-never-given-up", CORE + "writeback.c",
    "if (writeback_full(c, x))\n\t\t\tadmit_give_up(c, x);", "", "test_core_full", quick=True)
bug("put-refused-as-room-comes", CORE + "evict.c",
    "(x->dirty_bytes || flush_frees(c))",
    "((x->dirty_bytes && !writeback_full(c, x)) || flush_frees(c))", "test_core_full", quick=True)
bug("put-fails-before-its-blocks-go", CORE + "request.c",
    "!r->put && tombs_full(c))", "(r->put ? writeback_full(c, r->ctx) : tombs_full(c)))",
    "test_core_reopen")
bug("late-deletion-waits-on", CORE + "delete.c", "!r->error && !r->late) {", "!r->error) {",
    "test_core_orphans", quick=True)
bug("small-share-emptied", CORE + "evict.c",
    "ROOM_MIN < (st.live + st.available + st.punching) / 64",
    "ROOM_MIN < c->pool[tier].capacity / 64", "test_core_room")
bug("put-takes-more-than-it-lacks", CORE + "put_copy.c", "bytes * pages_ahead(r)",
    "bytes * CORE_SEGMENTS_IO | (pages_ahead(r) & 0)", "test_core_room")
bug("full-for-ever", CORE + "writeback.c",
    "x->full_since_ns = 0; /* of what is no longer there; this one has its try */", "",
    "test_core_full", quick=True)
bug("failed-put-stays-visible", CORE + "admit.c",
    "!(x->meta[x->dirty.head].flags & BLOCK_DURABLE));",
    "(x->meta[x->dirty.head].flags &= (uint8_t)~BLOCK_DURABLE, true));", "test_core_full",
    quick=True)
bug("flush-for-room-forgotten", CORE + "evict.c",
    "sync_want(c); /* nobody else may */", "", "test_core_flush", quick=True)
bug("quota-evicts-held", CORE + "evict.c",
    "m->persist == PERSIST_CLEAN && !use->hold &&", "m->persist == PERSIST_CLEAN &&",
    "test_core_pin", quick=True)
bug("access-log-of-a-context-not-opened", CORE + "evict.c",
    "slot >= x->ix.slots_used || !bit_get(k->attached, index))", "slot >= x->ix.slots_used)",
    "test_core_request")
bug("stream-to-any-tier", CORE + "request.c",
    "case ABI_OP_STREAM:\n\tcase ABI_OP_SESSION:\n\tcase ABI_OP_PLAN:\n"
    "\t\treturn ABI_MEM_TIERS;",
    "case ABI_OP_SESSION:\n\tcase ABI_OP_PLAN:\n\t\treturn ABI_MEM_TIERS;",
    "test_core_stream_pages", quick=True)
bug("place-over-a-boundary-punched", CORE + "space_evacuate.c",
    "uint64_t last = (end + c->stride - 1) / c->stride;", "uint64_t last = end / c->stride;",
    "test_core_space_evacuate")
bug("last-unit-beyond-its-segment", CORE + "space_evacuate.c",
    "(last < units ? last * s->unit_bytes : s->segment_bytes)", "(last * s->unit_bytes)",
    "test_core_space_evacuate")
bug("claim-ready-and-not-protected", CORE + "claim.c",
    "r->status == ABI_STATUS_LATE || claim_over(c, r))", "c->now_ns >= r->deadline_ns)",
    "test_core_request")
bug("late-refusal-of-an-index-counts", CORE + "evict.c",
    "range->offset < area.end &&\n\t\t    range->offset < x->index_ready[i])",
    "range->offset < area.end)", "test_core_areas")
bug("stripes-begin-at-the-first-block", CORE + "fetch.c",
    "*ref = start + i % per_layer / part->groups;", "*ref = i % per_layer / part->groups;",
    "test_core_fetch")
bug("block-that-went-is-usable", CORE + "fetch.c",
    "if (ref.slot == ABI_SLOT_NONE || !fetch_block_there(r->ctx, ref))\n\t\treturn false;",
    "if (ref.slot == ABI_SLOT_NONE || !fetch_block_there(r->ctx, ref))\n\t\treturn true;",
    "test_core_fetch")
bug("page-behind-the-last-one", CORE + "fetch.c",
    "p[r->held].page < r->ctx->ix.pages_per_block",
    "p[r->held].page <= r->ctx->ix.pages_per_block", "test_core_fetch")
bug("one-part-too-many", CORE + "fetch.c",
    "part - q->part_first < q->part_count", "part - q->part_first <= q->part_count",
    "test_core_fetch")
bug("failed-prefetch-counted-as-used", CORE + "stage.c",
    "c->metrics.prefetch_failed += take", "c->metrics.prefetch_used += take", "test_core_fetch")
bug("lifted-limit-stays", CORE + "limits.c",
    "x->plan.quota[q->tier] = hard ? hard : most;",
    "if (hard)\n\t\tx->plan.quota[q->tier] = hard;", "test_core_quota")
bug("limit-not-told-to-the-space", CORE + "limits.c",
    "space_limit(x->space[q->tier], x->plan.quota[q->tier]);", ";", "test_core_quota")
bug("own-share-counted-twice", CORE + "limits.c",
    "if (c->context[i] != x && quota_shares(", "if (quota_shares(", "test_core_quota")
bug("bound-one-rank-low", CORE + "predict.c",
    "return ranked(c, rank - 1);", "return ranked(c, rank > 1 ? rank - 2 : 0);",
    "test_core_predict")
bug("hand-back-teaches-nothing", CORE + "reserve.c",
    "predict_tell(&c->predict, &r->key, r->upper, blocks);", "", "test_core_reserve")
bug("outputs-cut-off-where-room-was", CORE + "reserve.c",
    "blocks_of(r, r->drawn + r->beside);", "blocks_of(r, r->drawn);", "test_core_reserve")
bug("pinned-bytes-claimed", CORE + "reserve.c",
    "x->pinned[ABI_TIER_CXL] + c->quarantined[ABI_TIER_CXL];",
    "c->quarantined[ABI_TIER_CXL];", "test_core_reserve")
bug("window-begins-with-the-last", CORE + "think.c",
    "*low = quantile(t, 0.01, false);", "*low = quantile(t, 0.99, false);",
    "test_core_session")
bug("ready-only-if-staged", CORE + "session.c",
    "uint32_t ready = layers_ready(c, s);", "uint32_t ready = s->landed ? layers_ready(c, s) : 0;",
    "test_core_session")
bug("ready-with-a-part-missing", CORE + "session.c",
    "(landed || !pages_ready(s, ref.slot, layers, &look))", "landed", "test_core_session")
bug("closed-session-keeps-its-stage", CORE + "session.c",
    "let_go(c, s);\n\t\tgive_back(c, s);\n\t\tforget(c, s);\n\t\trequest_end",
    "let_go(c, s);\n\t\tforget(c, s);\n\t\trequest_end", "test_core_session")
bug("wrong-plan-lets-go-each-look", CORE + "plan.c",
    "if (p->wrong)\n\t\treturn; /* it has let go: what blocks are marked for now is not its own */",
    "", "test_core_plan")
bug("what-leaves-unread-was-right", CORE + "plan.c", "judge_access(c, p, op->after);", "",
    "test_core_plan")
bug("plan-is-always-right", CORE + "plan.c", "(used ? TRUST_ONE / 16 : 0)",
    "TRUST_ONE / 16", "test_core_plan")
bug("plan-loads-a-few-times", CORE + "plan.c", "p->flying--;", ";", "test_core_plan")
bug("times-of-the-first-accesses", CORE + "plan.c", "p->time_us[at] = a[i].time_us;",
    "p->time_us[i] = a[i].time_us;", "test_core_plan")
bug("position-beyond-the-staging", CORE + "plan.c",
    "args->position_offset > k->open.staging_bytes - 8)",
    "args->position_offset > k->open.staging_bytes)", "test_core_plan")
bug("plan-evicts-what-is-being-read", CORE + "plan.c",
    "if (op->after >= p->position)", "if (op->after > p->position)", "test_core_plan")
bug("use-seen-in-hbm-only", CORE + "stage.c",
    "for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)\n\t\tc->metrics.prefetch_used",
    "for (uint32_t tier = 0; tier < 1; tier++)\n\t\tc->metrics.prefetch_used",
    "test_core_fetch")
bug("plans-all-of-one-user", CORE + "plan.c", "if (!p || !account_may(c, k, ACCOUNT_PLANS))",
    "if (!p || k->used[ACCOUNT_PLANS] >= PLANS_CLIENT_MAX)", "test_core_plan")
bug("reservations-all-of-one-user", CORE + "reserve.c",
    "if (!account_may(c, &c->client[client], ACCOUNT_RESERVATIONS))", "if (0)",
    "test_core_reserve")
bug("reservation-for-ever", CORE + "reserve.c", "end < most ? end : most;", "end;\n\t(void)most;",
    "test_core_reserve")
bug("streams-all-of-one-user", CORE + "stream.c",
    "account_may(c, k, ACCOUNT_STREAMS) ? stream_get(c) : NULL;", "k ? stream_get(c) : NULL;",
    "test_core_stream_pages")
bug("stream-for-ever", CORE + "stream.c", "r->deadline_ns = c->now_ns + CLAIM_HORIZON_NS;", ";",
    "test_core_stream_pages")
bug("whoever-is-stalest-is-forgotten", CORE + "session.c",
    "c->client[s->client].account != account ||", "(account & !account) ||",
    "test_core_session")
bug("references-all-of-one-user", CORE + "session.c",
    "forget(c, stalest(c, fullest, true));", "return NULL;", "test_core_session")
bug("turns-keep-their-chunks", CORE + "session.c",
    "uint32_t *link = &s->chunks;\n\n\trefs_free(c, s);",
    "uint32_t *link = &s->chunks;\n\n\ts->chunks = s->blocks = 0;", "test_core_session")
bug("think-time-of-another-salt", CORE + "think.c", "&& set[i].salt == salt)", ")",
    "test_core_session")
bug("begun-layer-not-in-use", CORE + "stream_window.c",
    "uint32_t end = (s->issue + s->per_layer - 1) / s->per_layer;",
    "uint32_t end = s->issue / s->per_layer;", "test_core_stream")
bug("narrowed-by-layers-alone", CORE + "put.c",
    "x->spec.geometry.part[part].layers * x->spec.geometry.part[part].groups;",
    "x->spec.geometry.part[part].layers;", "test_core_put")
bug("other-bytes-under-a-stored-key", CORE + "put_copy.c",
    "if (!pending && d->crc != copy->item[i].crc) {", "if (0) {", "test_core_put")
bug("stream-again-never", CORE + "stream.c",
    "now_ms - x->streamed_ms[slot] < c->config.stream_again_ns / MS;",
    "now_ms - x->streamed_ms[slot] < 0;", "test_core_stream_pages")
bug("stream-again-always", CORE + "stream.c",
    "bool again = m->streamed &&\n\t\t\t     now_ms - x->streamed_ms[slot] < "
    "c->config.stream_again_ns / MS;", "bool again = true;", "test_core_stream_pages")
bug("stream-horizon-forgotten", CORE + "stream.c",
    "bool again = m->streamed &&\n\t\t\t     now_ms - x->streamed_ms[slot] < "
    "c->config.stream_again_ns / MS;", "bool again = m->streamed;", "test_core_stream_pages")
bug("fetch-adopts-nothing", CORE + "fetch.c",
    "stream_page_adopt(c, r->ctx, ref.slot, page, r->sqe.tier); /* not a stream's alone */", "",
    "test_core_stream_pages")
bug("joiner-adopts-nothing", CORE + "stream.c",
    "if (s->mode == ABI_MODE_CACHE)\n\t\tstream_page_adopt(c, s->ctx, at.slot, at.page, "
    "s->tier);", "", "test_core_stream_pages")
bug("migrate-waits-for-pinned", CORE + "migrate.c",
    "if (block_use(x, slot)->pins[tier] || block_use(x, slot)->head_pins[tier])",
    "if (block_use(x, slot)->head_pins[tier])", "test_core_migrate")
bug("migrate-takes-heads", CORE + "migrate.c",
    "if (block_use(x, slot)->pins[tier] || block_use(x, slot)->head_pins[tier])",
    "if (block_use(x, slot)->pins[tier])", "test_core_migrate")
bug("migrate-late-not-told", CORE + "migrate.c",
    "if (r->late && r->cursor < r->sqe.count)\n\t\tr->status = ABI_STATUS_LATE;", "",
    "test_core_migrate", quick=True)
bug("heads-leave-with-the-rest", CORE + "evict.c",
    "(!heads && heads_holds(x, slot, page, tier)))", "0)", "test_core_heads")
bug("heads-are-never-let-go", CORE + "evict.c",
    "\tif (!gone && c->sessions.count) /* wishes", "\tif (0) /* wishes", "test_core_heads")
bug("heads-before-ranks", CORE + "evict.c", "quota_rank(c, x, slot, w->tier) < RANK_NORMAL);",
    "0);", "test_core_heads")
bug("heads-go-to-who-talks-most", CORE + "heads.c",
    " /\n\t\t\t    c->account[account].used[ACCOUNT_REFS];", ";", "test_core_heads")
bug("heads-take-all-room", CORE + "heads.c", "/ 100 * QUOTA_PROMISES_PERCENT;", ";",
    "test_core_heads")
bug("heads-do-not-come-back", CORE + "session.c",
    "s->kept > s->staged + s->head / GROWTH_SHARE)", "0)", "test_core_heads")
bug("session-not-staged", CORE + "session.c",
    "s->state == SESSION_AWAY && c->now_ns < s->patience_ns) {\n\t\tstage(c, s);",
    "s->state == SESSION_AWAY && c->now_ns < s->patience_ns) {\n\t\twake_at(c, s, "
    "s->patience_ns);",
    "test_core_session")
bug("leased-bytes-add-up-by-scans", CORE + "account.c",
    "memset(k->held, 0, sizeof(k->held));\n\t\tfor", "for", "test_core_evacuate")
bug("streamed-page-leaves-under-a-put", CORE + "stream_page.c",
    "|| use->hold > use->streams;", ";", "test_core_stream_pages")
bug("migrated-copy-stays-in-hbm", CORE + "migrate.c",
    "evict_block(c, r->ctx, slot, ABI_TIER_HBM);", ";", "test_core_migrate")
bug("flush-settles-another-life", CORE + "flush.c",
    "index_block(&x->ix, u->ref.slot)->generation != u->ref.generation ||\n", "",
    "test_core_flush")
bug("account-used-again-while-charged", CORE + "account.c",
    "if (a->used[kind])\n\t\t\treturn false;", ";", "test_core_fetch")

# ---- what a crash left unfinished ---------------------------------------------------------------

bug("crash-seals-its-segments", CORE + "store_recover.c",
    "g->unfinished = g->header_done =", "g->header_done =", "test_core_reopen", quick=True)
bug("gone-on-over-torn-records", CORE + "store_recover.c",
    "g->record_next = at + step;", "", "test_core_reopen", quick=True)
bug("gone-on-over-data-of-torn-records", CORE + "store_recover.c",
    "g->data_next < r->data_offset + r->data_bytes)", "0)", "test_core_reopen")
bug("gone-on-behind-what-says-nothing", CORE + "store_recover.c",
    "if (!head_is_ours(s, m, at))\n\t\t\treturn;", "if (!head_is_ours(s, m, at))\n\t\t\tcontinue;",
    "test_core_reopen")
bug("stale-record-revived", CORE + "store_recover.c",
    "if (r->lsn <= before->lsn_end)", "if (0)", "test_core_reopen", quick=True)
bug("gone-on-without-a-record", CORE + "store_recover.c",
    "g->lsn_first && m->bytes", "m->bytes", "test_core_reopen")
bug("gone-on-with-part-of-a-summary", CORE + "store_recover.c",
    "g->lsn_first && m->bytes == s->super.summary_bytes", "g->lsn_first != 0",
    "test_core_reopen")
bug("victim-gone-on-with", CORE + "store.c",
    "g->state != STORE_SEALED || g->reads || g->pending ||\n\t\t    g->log != log_of(stream))",
    "g->state != STORE_SEALED || g->log != log_of(stream))", "test_core_reopen", quick=True)
bug("puts-take-the-cleaners", CORE + "store.c",
    "if (g->moved != (stream == STORE_CLEANED) && !any)", "if (0)", "test_core_reopen")
bug("cleaner-takes-only-its-own", CORE + "store.c",
    "if (i == ABI_SLOT_NONE && !room && stream == STORE_CLEANED)", "if (0)",
    "test_core_reopen")
bug("tombstones-carried-after-each-crash", CORE + "recover.c",
    "store_tombs_forget(c->store);", "", "test_core_reopen")
bug("late-runs-forgotten", CORE + "recover.c",
    "if (!err && full && v->log == DISK_LOG_DURABLE)",
    "if (!err && full && v->log > DISK_LOG_DURABLE)", "test_core_reopen")
bug("late-runs-bring-back-the-deleted", CORE + "recover.c",
    "!is_void(c, tombs, x, v.block[i].key, v.head->lsn))", "c)", "test_core_reopen")
bug("quota-of-less-than-its-segments", CORE + "context.c",
    "if (!quota[t] || quota[t] >= c->config.capacity[t] || quota[t] >= least)", "if (1)",
    "test_core_quota")
bug("nearest-tombstone-kept", CORE + "recover.c",
    "return a->lsn > b->lsn ? -1 : 1;", "return a->lsn < b->lsn ? -1 : 1;", "test_core_clean")
bug("child-written-before-its-parent", CORE + "admit.c",
    "if (parent == ABI_SLOT_NONE || !block_queued(&x->meta[parent]) ||", "if (1 ||",
    "test_core_writeback", quick=True)
bug("put-back-behind-all-that-is-dirty", CORE + "drop.c",
    "writeback_again(c, x, slot);", "writeback_enqueue(c, x, slot);", "test_core_writeback")
bug("carried-tombstones-not-flushed", CORE + "clean.c",
    "if (t->flushed < k->tombs) {", "if (t->written < k->tombs) {",
    "test_core_clean", quick=True)
bug("deletions-take-the-last-segment", CORE + "store.c",
    "err = append(s, STORE_CLEANED, need, 1, run);",
    "err = append(s, STORE_CLEANED, need, 0, run);",
    "test_core_clean")
bug("deletions-fill-the-cleaners-segment", CORE + "store.c",
    "\tif (store_free(s))\n\t\terr = append(", "\tif (1)\n\t\terr = append(",
    "test_core_reopen")
bug("pieces-take-the-last-segment", CORE + "clean.c",
    "bool may = !k->hot && store_may_name_absent(c->store);", "bool may = false;",
    "test_core_holes")
bug("holes-have-data", CORE + "recover.c",
    "uint32_t nth = disk_there_below(v->head, i);", "uint32_t nth = i;", "test_core_holes",
    quick=True)
bug("failed-batch-keeps-its-room", CORE + "clean.c",
    "store_append_undo(c->store, &k->run[i].place);",
    "store_append_done(c->store, &k->run[i].place, false);", "test_core_holes")
bug("half-a-block-is-none", CORE + "clean.c",
    "k->budget = c->segment_blocks[segment].count + k->spare;",
    "k->budget = c->segment_blocks[segment].count;", "test_core_tiny")
bug("cache-goes-round-whole", CORE + "clean.c",
    "k->spare = k->budget > 0;", "k->spare = true;", "test_core_tiny")
bug("tombstones-carried-in-circles", CORE + "store.c",
    "if (g->lsn_tombstone >= oldest_elsewhere(o, segment))\n\t\trecords =", "if (0)\n\t\trecords =",
    "test_core_tombs")
bug("tombstones-keep-each-other", CORE + "store.c", "if (need->block_bytes && !g->lsn_first)",
    "if (!g->lsn_first)", "test_core_tombs", quick=True)
bug("deletion-begins-with-the-first", CORE + "delete.c", "(left - 1) * ABI_KEY_BYTES",
    "(r->sqe.count - left) * ABI_KEY_BYTES", "test_core_orphans", quick=True)
bug("full-cache-segment-stays-open", CORE + "store.c",
    "stream == STORE_CACHE || (small", "(small", "test_core_tiny")
bug("cache-keeps-what-promises-need", CORE + "store.c",
    "stream == STORE_CACHE || (small && store_oldest(s, DISK_LOG_CACHE) < 0)",
    "stream == STORE_CACHE", "test_core_tiny")
bug("full-segments-stay-open", CORE + "store.c",
    "\t\tseal_full(s, STORE_CLEANED);\n", "", "test_core_clean")
bug("carried-tombstones-wait-for-others", CORE + "store.c",
    "if (carried)\n\t\treturn append(s, STORE_CLEANED, need, 0, run);", "",
    "test_core_reopen")

# ---- what demand adds to the device --------------------------------------------------------------

bug("large-demand-piles-up", CORE + "sched.c",
    "node->bytes > SCHED_SMALL_BYTES ? SCHED_BUDGET_DEMAND_NS :", "0 ? SCHED_BUDGET_DEMAND_NS :",
    "test_core_sched")

# ---- slots that come ----------------------------------------------------------------------------

bug("full-table-refuses-at-once", CORE + "put.c",
    "if (err != -ENOSPC || !slots_come(c, x)) {", "if (1) {", "test_core_orphans")
bug("head-of-a-begun-block", CORE + "heads.c", "if (layers && !fetch_block_there(s->ctx, *ref))",
    "if (layers && !block_alive(s->ctx, *ref))", "test_core_heads")
bug("what-others-begin-with-goes-first", CORE + "recover.c",
    "slot = 0; prefix_rules(x) && slot < x->ix.slots_used; slot++) {\n\t\tuint32_t",
    "slot = UINT32_MAX; slot < x->ix.slots_used; slot++) {\n\t\tuint32_t",
    "test_core_reopen")
bug("waits-into-another-epoch", CORE + "put.c",
    "else if (!r->error && r->epoch != r->ctx->spec.epoch)", "else if (0)", "test_core_orphans")
bug("deletion-told-by-what-left", CORE + "request.c",
    "r->sqe.op == ABI_OP_DELETE || !r->total ?", "!r->total ?", "test_obs")

# ---- which segments are emptied -----------------------------------------------------------------

bug("full-segments-stay", CORE + "space.c",
    "fill == FILL_EMPTY : fill > FILL_EMPTY;", "fill == FILL_EMPTY : fill > FILL_EMPTY &&\n"
    "\t\tfill != FILL_FULL;", "test_core_space_evacuate")
bug("only-the-emptiest-may-go", CORE + "space_evacuate.c",
    "for (uint32_t i = 1; i < heap->count; i++) {", "for (uint32_t i = 1; i < 0; i++) {",
    "test_core_space_evacuate")
bug("only-room-of-a-class-emptied", CORE + "space_evacuate.c",
    "(leaves_room(&s->klass[k]) ? 0 : s->segment_bytes);", "0;", "test_core_space_evacuate")
bug("kept-segment-compacted-again", CORE + "evacuate.c",
    "\tif (leased)\n\t\tspace_shun(s, segment);\n", "", "test_core_evacuate")
bug("emptied-segment-not-hoped-for", CORE + "evacuate.c", " || has_emptied(e));", ");",
    "test_core_evacuate")
bug("pages-move-before-others-leave", CORE + "evacuate.c",
    "e->again = lacks && !e->forced && e->walks < LOOKS_MAX;", "e->again = false;",
    "test_core_evacuate")
bug("evacuation-beyond-its-goal", CORE + "evacuate.c",
    "return wanted(c, held > e->goal ? held - e->goal : 0);", "return EVACUATE_SEGMENTS;",
    "test_core_evacuate")
bug("own-empty-segments-not-given", CORE + "evacuate.c",
    "\tlet_stay(e, 0);\n\tchoose(e, still_wanted(c));\n",
    "\tuint32_t n = still_wanted(c);\n\n\tlet_stay(e, 0);\n\tchoose(e, n);\n",
    "test_core_quota")
bug("shunned-for-ever", CORE + "space.c",
    "\tunshun(s, seg);\n", "\tif (0)\n\t\tunshun(s, seg);\n", "test_core_space_evacuate")
bug("all-shunned-none-goes", CORE + "space_evacuate.c",
    "&& !cheapest(s, except, true, &best))", ")", "test_core_space_evacuate")

# ---- more than the tier -------------------------------------------------------------------------

bug("put-refused-while-a-fetch-holds", CORE + "put_copy.c",
    "(r->ctx->put_copies || request_holds(c, r->ctx))", "r->ctx->put_copies",
    "test_core_room")
bug("put-refused-while-puts-copy", CORE + "put_copy.c",
    "(r->ctx->put_copies || request_holds(c, r->ctx))", "request_holds(c, r->ctx)",
    "test_core_rivals")
bug("put-keeps-what-becomes-durable", CORE + "put_copy.c",
    "put_let_go(c, r->put);", "", "test_core_rivals")
bug("cached-stream-takes-all", CORE + "stream_window.c",
    "if (s->mode != ABI_MODE_CACHE)\n\t\treturn UINT32_MAX;", "if (1)\n\t\treturn UINT32_MAX;",
    "test_core_stream")
bug("doubt-after-the-next-flush", CORE + "flush.c",
    "\tflushed_doubts(c);\n\tx->meta[slot].settle", "\tc->doubts++;\n\tx->meta[slot].settle",
    "test_core_flush", quick=True)
bug("doubt-ends-without-a-tombstone", CORE + "flush.c",
    "if (tombstone(c, x, index_block(&x->ix, slot)->key, up_to_lsn))\n", "", "test_core_flush",
    quick=True)
bug("full-queue-ends-a-doubt", CORE + "flush.c",
    "if (tombstone(c, x, index_block(&x->ix, slot)->key, up_to_lsn))",
    "tombstone(c, x, index_block(&x->ix, slot)->key, up_to_lsn);", "test_core_flush")
bug("doubt-counted-twice", CORE + "flush.c", "c->doubts -= u->doubted != 0;", "",
    "test_core_flush")
bug("tombstone-of-a-doubt-voids-all", CORE + "writeback.c",
    "doubt ? run->place.lsn - 1 : 0", "doubt ? run->place.lsn : 0", "test_core_flush")
bug("hidden-older-record-forgotten", CORE + "recover.c",
    "if (lsn > v->head->lsn && is_unsure(v))", "if (0)", "test_core_flush")
bug("replaced-older-record-forgotten", CORE + "recover.c",
    "if (x->meta[slot].settle == SETTLE_RECOVERED)\n\t\t\thide(", "if (0)\n\t\t\thide(",
    "test_core_flush")
bug("header-before-its-catalog", CORE + "writeback.c", " && catalog_voids(c, run->voids);", ";",
    "test_core_flush", quick=True)
bug("removal-that-no-header-waits-for", CORE + "context.c",
    "\tc->voids++;\n\tx->closing", "\tx->closing", "test_core_flush", quick=True)
bug("doubted-twice-written-once", CORE + "flush.c",
    "if (x->meta[slot].settle == SETTLE_DOUBT)\n\t\treturn;", "", "test_core_flush")
bug("first-tombstone-bounds-all", CORE + "store.c", "run->bound > g->lsn_tombstone)",
    "!g->lsn_tombstone)", "test_core_store")
bug("page-not-released-was-used", CORE + "stream_end.c",
    "} else if (i < s->released * s->per_layer) {", "} else if (i <= s->released * s->per_layer) {",
    "test_core_stream_pages")
bug("user-takes-the-whole-table", CORE + "account.c", "return table[kind] / 4 * 3;",
    "return table[kind];", "test_core_pin")
bug("parked-prefetch-counts-the-wrong-tier", CORE + "claim.c",
    "out->bytes = r->sqe.tier == ABI_TIER_HBM ? copy : read;", "out->bytes = read;", "test_obs")
bug("parked-prefetch-tells-nothing", CORE + "request.c",
    "if (r->parked)\n\t\t\tclaim_view(c, r, out);", "", "test_obs")
bug("overflow-area-left-in-small-pages", CORE + "evict.c",
    "if (from + ABI_HUGE > end)", "if (i == 1 || from + ABI_HUGE > end)", "test_core_areas")
bug("index-prepared-over-and-over", CORE + "evict.c",
    "x->index_ready[i] = end;", "", "test_core_areas")
bug("discard-spares-none", CORE + "store.c", "return n > spared ? best", "return n ? best",
    "test_core_discard")
bug("discard-not-there-asked-again", CORE + "discard.c", "d->off = res == -EOPNOTSUPP;", "",
    "test_core_discard", quick=True)
bug("discarded-again-after-each-start", CORE + "store_recover.c",
    "g->stale = g->data_next > s->super.summary_bytes;", "g->stale = true;", "test_core_discard")
bug("discarded-opened-first", CORE + "store.c", "return g->lsn_on_disk ? g->lsn_on_disk : "
    "UINT64_MAX - 1;", "return g->lsn_on_disk;", "test_core_discard")
bug("tombstones-of-contexts-by-turns", CORE + "tombs.c",
    "if (at->context_uid != uid && kind == TOMBS_NEW)", "if (at->context_uid != uid)",
    "test_core_tombs")
bug("stores-in-use-never-discarded", CORE + "discard.c",
    "uint64_t from = quiet < late ? quiet : late;", "uint64_t from = late ? quiet : 0;",
    "test_core_discard")
bug("late-discards-without-a-pause", CORE + "discard.c", "d->held_ns = c->now_ns;\n\tif (d->phase",
    "if (d->phase", "test_core_discard")
bug("late-since-ever", CORE + "discard.c",
    "d->held_ns = c->now_ns; /* it was quiet until now */", ";", "test_core_discard")

# ---- the recount finds what it is there for ------------------------------------------------------

bug("holds-not-recounted", CORE + "audit_work.c", "if (n->holds != use->hold)", "if (0)",
    "test_core_audit")
bug("writers-not-recounted", CORE + "audit_work.c", "if (n->writers != use->writers)", "if (0)",
    "test_core_audit")
bug("marks-not-recounted", CORE + "audit_work.c", "if (n->marks[t] != use->planned[t])",
    "if (0)", "test_core_audit")
bug("heads-not-recounted", CORE + "audit_work.c",
    "if (n->heads[t] != use->heads[t].count || n->layers[t] > use->heads[t].layers ||\n"
    "\t\t    !use->heads[t].count != !use->heads[t].layers)", "if (0)", "test_core_audit")
bug("missing-pages-not-recounted", CORE + "audit.c",
    "if (b->state == ABI_BLOCK_PENDING && missing != block_use(x, slot)->missing)", "if (0)",
    "test_core_audit")
bug("operations-of-requests-not-recounted", CORE + "audit_work.c",
    "f->request[i] != c->request[i].outstanding)", "0)", "test_core_audit")
bug("device-not-recounted", CORE + "audit_work.c", "\taudit_device(a);\n", "",
    "test_core_audit")
bug("conversations-not-recounted", CORE + "audit_work.c", "\taudit_sessions(a);\n", "",
    "test_core_audit")
bug("claims-not-recounted", CORE + "audit_work.c",
    'audit_compare(a, "host", "claims", parked, c->claims.count);', "(void)parked;",
    "test_core_audit")
bug("index-not-recounted", CORE + "audit_tables.c", "\t\taudit_index(a, x);\n", "",
    "test_core_audit")
bug("charges-of-another-user", CORE + "audit_held.c", "n->user[account].used[kind]++;",
    "n->user[0].used[kind] += kind != ACCOUNT_PINS;", "test_core_audit")
bug("segments-in-use-not-recounted", CORE + "audit.c", "if (n[i] != use->kept(a->c->store, i))",
    "if (0)", "test_core_audit")
bug("catalog-written-for-another", CORE + "actions.c",
    "io->priv.owner = NULL; /* not everyone sets one: what is withdrawn is named by it */", "",
    "test_core_catalog")

# ---- who leaves next ----------------------------------------------------------------------------

bug("walk-begins-as-in-the-last-epoch", "tierd/policy/reuse_order.c",
    "\tr->front.known = false;\n\tmemset", "\tmemset", "test_policy_front")
bug("walk-begins-where-a-leaf-came", "tierd/policy/reuse_order.c",
    "\tr->front.known = false;\n\tbit_set", "\tbit_set", "test_policy_front")

# ---- lanes of tenants ----------------------------------------------------------------------------

bug("all-tenants-in-one-lane", CORE + "lane.c", "return account % LANES;",
    "return 0;", "test_core_lane", quick=True)
bug("clients-have-no-lanes", CORE + "lane.c", "\t\t\treturn owner % LANES;\n",
    "\t\t\tbreak;\n", "test_core_lane")
bug("tenants-of-two-lanes-are-one", CORE + "tenants.c", " && e->lane == lane;", ";",
    "test_core_block_use")
bug("lanes-by-number-not-by-need", CORE + "lane.c", "i && o->over[i - 1] < over;", "0;",
    "test_core_lane")
bug("walk-goes-on-in-another-lane", CORE + "evict.c",
    " ||\n\t    block_lane(x, stays) != w->lane)", ")", "test_core_lane")
bug("clients-limit-in-one-lane", CORE + "evict.c",
    "while (!gone && !w->cursor && ++w->lane < LANES);", "while (0);", "test_core_lane")
bug("limits-walk-does-not-go-round", CORE + "evict.c", "if (!gone && !w.cursor && !whole)",
    "if (0)", "test_core_lane")
bug("lane-of-another-salt-untold", CORE + "audit_tables.c",
    "if (e->lane >= LANES || (e->account && e->lane != e->account % LANES))", "if (0)",
    "test_core_audit")
bug("lanes-bytes-not-counted", CORE + "lane.c", "bytes += l->policy->state_used(",
    "bytes = l->policy->state_used(", "test_core_lane")
bug("sparse-lane-is-dense", "tierd/policy/reuse.c",
    "\tif (size->sparse)\n\t\treturn size->most > 0;\n", "", "test_policy_memory")
bug("limits-walk-goes-on-where-nobody-is", CORE + "evict.c",
    "if (w.cursor && !x->meta[w.cursor - 1].there[tier].ordered)", "if (0)", "test_core_lane")
bug("claims-not-looked-at-after-a-wait", CORE + "reserve.c",
    "if (!err && !claimable(c, q->ctx, a->p95))",
    "if (!err && q->since_ns == c->now_ns && !claimable(c, q->ctx, a->p95))",
    "test_core_reserve")
