"""The planted bugs that the simulator must find: tests/sim/plants puts them into the core, one at a
time. One or two for each check that the simulator makes. (tests/plants has those that other tests
find.)

SPDX-License-Identifier: Apache-2.0
"""

# name: (file below tierd/core, what stands there, what it becomes, and again if there is more)
PLANTS = {
    "no-fence": (
        "place/reclaim.c",
        "core_push(c, CORE_AC_FENCE)->batch = b;",
        "reclaim_fenced(c, b);"),
    "scan-sees-one-thread": (
        "place/reclaim.c",
        "if (reads && s->reader < k->open.readers_max) {",
        "if (reads && s->reader < 1) {"),
    "quarantined-bytes-kept": (
        "place/reclaim.c",
        "\t\tc->reclaim.quarantined[tier] -= bytes;\n",
        "\t\t;\n"),
    "orphans-kept": ("place/prefix_drop.c", "if (!prefix_binds(x, child)) {", "if (true) {"),
    "commit-offset-trusted": (
        "op/put_commit.c",
        "r->sqe.arg_offset > k->open.staging_bytes ||\n\t    bytes > k->open.staging_bytes "
        "- r->sqe.arg_offset)",
        "0)"),
    "crc-without-salt": (
        "op/put_commit.c",
        "store_page_seed(index_block(&x->ix, slot)->key, block_salt(x, slot),\n\t\t\t\t\t"
        "s->page)",
        "store_page_seed(index_block(&x->ix, slot)->key, 0, s->page)"),
    "fetch-deadline-ignored": (
        "op/fetch.c",
        "return r->error || r->late || r->ending;",
        "return r->error || r->ending;"),
    "early-publication": (
        "op/put_commit.c",
        "if (pending && !--block_use_make(x, slot)->missing)",
        "if (pending && --block_use_make(x, slot)->missing <= 1)"),
    "failed-read-keeps-its-segment": (
        "move/move.c",
        "bool failed = io_failed(io);\n\n\tdrive_read_end(c, io);\n\tif (failed)",
        "bool failed = io_failed(io);\n\n\tif (!failed)\n\t\tdrive_read_end(c, io);\n\t"
        "if (failed)"),
    "durable-before-flush": (
        "op/put_commit.c",
        "if (request_synced(c, r) &&",
        "if (r->syncing &&"),
    "removed-context-listed": (
        "log/catalog.c",
        "if (!x || x->closing || n == c->catalog.max)",
        "if (!x || n == c->catalog.max)"),
    "epoch-answered-at-once": (
        "context.c",
        "catalog_write(c, token, epoch);",
        "core_reply(c, token, 0, epoch);\n\tcatalog_write(c, 0, 0);"),
    "settled-before-flush": (
        "log/clean.c",
        "flush_or(dv, !k->hot, CLEAN_DATA_SYNC, CLEAN_RECORD);",
        "flush_or(c, false, CLEAN_DATA_SYNC, CLEAN_RECORD);"),
    "run-writes-the-cleaners-header": (
        "log/drive.c",
        "if (store_opening(dv->store, kind) ||",
        "for (uint32_t i = CORE_RUN_FIRST(kind); i < CORE_RUN_END(kind); i++)\n\t\t"
        "if (dv->run[i].phase == RUN_HEADER || dv->run[i].phase == RUN_HEADER_SYNC)\n\t\t\t"
        "return NULL;\n\tif ("),
    "cleaner-writes-a-header-again": (
        "log/clean.c",
        "if (store_opening(k->to->store, clean_stream(dv)))",
        "if (false)"),
    "wake-up-lost": ("log/flush.c", "request_wake_phase(c, REQUEST_SYNC);", ""),
    "cancel-too-early": (
        "op/request.c",
        "if (concerns(order, &c->requests.table[i]))\n\t\t\treturn false;",
        "if (concerns(order, &c->requests.table[i]) &&\n\t\t    order->sqe.op == "
        "ABI_OP_DRAIN)\n\t\t\treturn false;"),
    "old-epoch-recovered": ("log/recover.c", "if (v->head->epoch != x->spec.epoch ||", "if ("),
    "slot-freed-with-pages": (
        "place/block.c",
        "|| block_words(x, slot) || use->hold",
        "|| use->hold"),
    "parked-forgotten": ("op/park.c", "request_wake(c, k->by_deadline[i].r);", ";"),
    "quota-evicts-durable": (
        "place/evict_nvme.c",
        "!(m->flags & BLOCK_DURABLE) && !(w->ends",
        "!(w->ends"),
    "lead-pins-ignored": (
        "book/marks.c",
        "return use->lead_pins[tier] &&\n\t       (page",
        "return use->lead_pins[tier] > UINT16_MAX - 1 &&\n\t       (page"),
    "written-unflushed-evicted": (
        "place/evict.c",
        "return m->persist == PERSIST_CLEAN && m->settle != SETTLE_WRITTEN;",
        "return m->persist == PERSIST_CLEAN;"),
    "second-step-not-raised": (
        "place/block.c",
        "return awaited < klass ? awaited : klass;",
        "return awaited ? klass : klass;"),
    "background-passes-demand": (
        "io/sched.c",
        "if (class_count(s, ABI_CLASS_DEMAND))\n\t\treturn",
        "if (class_count(s, ABI_CLASS_DEMAND) && !s->background_ops)\n\t\treturn"),
    "depth-overrun": (
        "io/sched.c",
        "sched_device_ops(s) < c->config.device_depth",
        "sched_device_ops(s) <= c->config.device_depth"),
    "unit-failure-forgotten": ("io/sched.c", "if (!whole(unit) && !node->error)", "if (0)"),
    "pending-expires-under-its-writer": (
        "op/put.c",
        "if (!use->writers && (int32_t)(now_ms - use->expires_ms) >= 0)",
        "if ((int32_t)(now_ms - use->expires_ms) >= 0)"),
    "reservation-never-ends": (
        "op/reserve.c",
        "reservations_end(c, CORE_CLIENTS_MAX, NULL, c->now_ns);",
        ";"),
    "retained-by-another-tenant": ("op/put.c", "|| block_salt(x, slot) != p->args.salt)", ")"),
    "conversation-of-another-client": (
        "hint/conversation.c",
        "if (s && (s->client != r->client || s->client_connection != r->connection))",
        "if (0)"),
    "rotten-read-not-voided": (
        "move/move.c",
        "tombstone(c, x, index_block(&x->ix, slot)->key, core_lsn(c));\n\t\t"
        "block_drop",
        "block_drop"),
    "pin-ends-early": (
        "op/pin.c",
        "if (p->deadline_ns > c->now_ns)\n\t\t\tcontinue;",
        "if (p->deadline_ns > c->now_ns + 40 * MS)\n\t\t\tcontinue;"),
    "narrowed-under-a-writer": ("op/put_commit.c", "if (!begun)\n\t\t\tnarrow_part", "narrow_part"),
    "deletion-answered-unwritten": (
        "op/delete.c",
        "if (c->tombs[TOMBS_NEW].written + 1 < r->tomb_seq)",
        "if (c->tombs[TOMBS_NEW].written + 2 < r->tomb_seq)"),
    "uids-used-again": (
        "log/catalog.c",
        "head.next_uid = c->next_uid;",
        "head.next_uid = c->next_uid - 1;"),
    "shard-replicated-split": (
        "op/put_commit.c",
        "|| part->shard_rule == ABI_SHARD_REPLICATED",
        ""),
    "cancel-of-another-client": (
        "op/request.c",
        "if (r->phase == REQUEST_FREE || r->client != order->client ||\n\t    r->connection "
        "!= order->connection || r->seq",
        "if (r->phase == REQUEST_FREE || r->seq"),
    "stream-miss-not-told": (
        "op/stream.c",
        "if (s->count < r->sqe.count)\n\t\tr->status = ABI_STATUS_MISS;",
        ""),
    "plan-requests-not-aborted": (
        "hint/plan.c",
        "request_owner_gone(c, p);",
        ";"),
    "shards-never-expire": (
        "op/put.c",
        "c->metrics.puts_expired++;\n\t\t\tblock_drop(c, x, slot);",
        ";"),
    "limit-restored-as-pins": (
        "op/limits.c",
        "struct ledger_limit own = { limit->soft[t], limit->hard[t] };",
        "struct ledger_limit own = { limit->soft[t], limit->soft[t] };"),
    "stream-ready-before-usable": (
        "op/stream.c",
        "atomic_store_relaxed_u32(&line->usable, s->usable);\n\t/* usable before",
        "\t/* usable before"),
    "connection-outlives-client": (
        "leave.c",
        "conversation_leave(c, id, NULL, &k->conversations_leave) &&\n\t       pin_leave(c, id",
        "pin_leave(c, id"),
    "ttl-counts-down-time-twice": (
        "book/retain.c",
        "uint64_t left = lapse_ms[slot] > now_ms ? lapse_ms[slot] - now_ms : 0;",
        "uint64_t left = lapse_ms[slot] > now_ms ? (lapse_ms[slot] - now_ms) * 2 : 0;"),
    "old-sequence-opened": (
        "unit/store.c",
        "g->sequence = s->next_sequence++;",
        "g->sequence = g->sequence ? g->sequence : s->next_sequence++;"),
    "child-written-before-its-parent": (
        "log/dirty.c",
        "if (parent == ABI_SLOT_NONE || !block_queued(&x->meta[parent]) ||",
        "if (1 ||"),
    "stream-wake-lost": ("op/stream.c", "core_push(c, CORE_AC_WAKE)->wake = s->client;", ";"),
    "stream-hold-forever": (
        "op/stream.c",
        "s->until_ns = c->now_ns + c->config.stream_hold_ns;",
        "s->until_ns = UINT64_MAX;"),
    "discard-beside-others": ("log/discard.c", "if (!in_use(c, dv))", "if (in_use(c, dv) || 1)"),
    "kernels-not-waited-for": (
        "place/reclaim.c",
        "if (e[r].fence && e[r].clear < clear)",
        "if (e[r].fence && e[r].clear < clear && 0)"),
    "quarantine-of-a-user-unlimited": (
        "book/account.c",
        "c->accounts.table[k->account].held[t] > 4 * held_most(c, t))",
        "false)"),
    "quota-forgets-runs": (
        "log/writeback.c",
        "x->record_bytes + run_bytes(c, x) + bytes",
        "x->record_bytes + bytes"),
    "flushed-mark-forgets-the-cleaner": (
        "log/flush.c",
        "if (k->to == dv && k->phase >= CLEAN_HEADER && k->phase < CLEAN_STOP &&",
        "if (k->phase > CLEAN_STOP &&"),
    "flushed-mark-forgets-other-runs": (
        "log/flush.c",
        "for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)\n\t\tif (dv->run[i].phase != RUN_FREE && "
        "dv->run[i].place.lsn <= lsn)",
        "for (uint32_t i = 0; i < 2; i++)\n\t\tif (dv->run[i].phase != RUN_FREE && "
        "dv->run[i].place.lsn <= lsn)"),
    "moved-to-another-drive-unflushed": (
        "log/clean.c",
        "else if (k->to->sync_seq < k->need)",
        "else if (k->to == dv && k->to->sync_seq < k->need)"),
    "drained-while-blocks-are-there": (
        "log/drain.c",
        "else if (segment < 0 && store_is_empty(dv->store))",
        "else if (segment < 0 || !to)"),
    "needed-tombstone-given-up": (
        "unit/store.c",
        "s->segment[segment].lsn_tombstone >= *oldest;",
        "s->segment[segment].lsn_tombstone > *oldest;"),
    "slab-punched-under-a-device": (
        "unit/space.c",
        "return !s->slab[heap_slab(HEAP_EMPTY, c->heap[HEAP_EMPTY].key[0])].lent;",
        "return true;"),
    "slab-emptied-under-a-device": (
        "unit/space_evacuate.c",
        "return !slab->lent && (shunned || !slab->shunned);",
        "return shunned || !slab->shunned;",
        "slab->live > 0 && !slab->lent);",
        "slab->live > 0);"),
    "devices-end-with-the-connection": (
        "core.c",
        "k->state = 2;",
        "k->state = 2; lend_client_dead(c, id);"),
    "removed-context-forgets-devices": (
        "context.c",
        "x->lent ||",
        ""),
}
