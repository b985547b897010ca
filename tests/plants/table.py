"""The planted bugs: what stands in a file, what it becomes, and the tests of which one must fail.

SPDX-License-Identifier: Apache-2.0
"""
import collections
import os

Entry = collections.namedtuple("Entry", "file old new tests quick")
PLANTS = {}

# folders that several plants name
LIBRARY = "libtier/src/"
FRONT = "tierd/front/"
SHELL = "tierd/"
BACKEND = "tierd/backend/"
OBS = "tierd/obs/"
CTL = "tierd/ctl/"
CORE = "tierd/core/"

# A file of the core goes by its name alone: here is where it lies.
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WHERE = {CORE + name: os.path.relpath(os.path.join(folder, name), TOP)
         for folder, _, files in os.walk(os.path.join(TOP, CORE)) for name in files}


def bug(name, file, old, new, *tests, quick=False):
    """One planted bug. quick: part of `make test`."""
    assert name not in PLANTS, name
    PLANTS[name] = Entry(WHERE.get(file, file), old, new, tests, quick)


# ---- leases -------------------------------------------------------------------------------------

bug("lease-not-looked-at-again", LIBRARY + "lease.c",
    "return atomic_load_acquire_u64(&at->page->word[claim->tier]) == claim->word &&",
    "return", "test_libtier_steps")
bug("lease-list-not-looked-at-again", LIBRARY + "lease.c",
    "if (unlikely(!holds(&g->at[i], &g->claim[i]))) {", "if (0) {", "test_libtier_steps")
bug("lease-generation-not-compared", LIBRARY + "lease.c",
    "if (unlikely(atomic_load_acquire_u32(&at->block->generation) != at->generation))\n"
    "\t\treturn -ESTALE;", "", "test_libtier_lease", quick=True)
bug("lease-of-an-old-epoch", LIBRARY + "lease.c",
    "block->epoch) != epoch || closed))", "block->epoch) > epoch || closed))",
    "test_libtier_lease")
bug("lease-in-a-removed-context", LIBRARY + "lease.c",
    "block->epoch) != epoch || closed))", "block->epoch) != epoch))", "test_libtier_lease")
bug("lease-of-a-pending-block", LIBRARY + "lease.c",
    "return state == ABI_BLOCK_PENDING ? -ENODATA : -ESTALE;",
    "return state == ABI_BLOCK_PENDING ? 0 : -ESTALE;", "test_libtier_lease")
bug("hazard-word-not-cleared", LIBRARY + "lease.c",
    "atomic_store_release_u64(&area->slot[hazard], 0);", "", "test_libtier_lease", quick=True)
bug("hazard-word-released-twice", LIBRARY + "lease.c",
    "if (unlikely(!area || atomic_load_relaxed_u64(&area->slot[hazard]) == 0))",
    "if (unlikely(!area))", "test_libtier_lease")
bug("high-water-not-raised", LIBRARY + "lease.c",
    "atomic_store_release_u32(&r->area->high_water, r->high_water);", "",
    "test_libtier_lease", quick=True)
bug("list-shares-one-hazard-word", LIBRARY + "lease.c",
    ".hazard = r->free[r->free_count - g->claimed - 1] };",
    ".hazard = r->free[r->free_count - 1] };", "test_libtier_lease")
bug("failed-claim-loses-its-slot", LIBRARY + "lease.c",
    "r->free[top++] = (uint16_t)g->claim[i].hazard;", "", "test_libtier_steps")
bug("lease-beyond-the-mapping", LIBRARY + "lease.c",
    "abi_word_addr(word) + bytes <= m->mem_bytes[level];",
    "abi_word_addr(word) <= m->mem_bytes[level];", "test_libtier_hostile")
bug("access-log-not-wrapped", LIBRARY + "lease.c",
    "r->access_tail & (ABI_ACCESS_LOG - 1)]", "r->access_tail & (2 * ABI_ACCESS_LOG - 1)]",
    "test_libtier_lease")
bug("list-longer-than-the-slots", LIBRARY + "lease.c",
    "if (w->count > reader_free_slots(r))", "if (w->count > ABI_HAZARD_SLOTS)",
    "test_libtier_lease")
bug("place-of-the-wrong-tier", "libtier/abi/hazard.h",
    "(uint64_t)level << ABI_ADDR_BITS |", "(uint64_t)(level & 0) << ABI_ADDR_BITS |",
    "test_libtier_lease")

# ---- readers ------------------------------------------------------------------------------------

bug("leases-forgotten-over-a-restart", LIBRARY + "reader.c",
    "(slots_held(r) > 0 && !keep_old(r))", "0", "test_libtier_attach", quick=True)
bug("memory-unmapped-under-a-lease", LIBRARY + "reader.c",
    "if (mine == number && slots_held(r) > 0)\n\t\treturn true;", "", "test_libtier_attach",
    quick=True)
bug("older-leases-not-counted", LIBRARY + "reader.c",
    "if (atomic_load_acquire_u64(&r->old[i].number) == number)\n\t\t\treturn true;", "",
    "test_libtier_attach")
bug("reader-index-not-given-back", LIBRARY + "reader.c",
    "bitmap_clear(&t->readers_used, r->index);", "", "test_libtier_lease")
bug("closed-reader-leaves-its-words", LIBRARY + "reader.c",
    "if (is_mapped(t, r->number))\n\t\t\tclear_area(r->area);", "", "test_libtier_lease")

bug("high-water-forgotten-over-a-restart", LIBRARY + "reader.c",
    "atomic_store_release_u32(&area->high_water, r->high_water);", "", "test_libtier_lives",
    quick=True)
bug("high-water-lowered", LIBRARY + "reader.c",
    "r->high_water = atomic_load_relaxed_u32(&r->area->high_water);", "r->high_water = 0;",
    "test_libtier_lives")
bug("reader-without-an-area", LIBRARY + "reader.c", "r->index >= a->readers_max || ", "",
    "test_libtier_lives")
bug("lists-tell-no-accesses", LIBRARY + "lease.c",
    "atomic_store_release_u32(&r->free_count, top);\n"
    "\tatomic_store_release_u64(&r->area->access_tail, r->access_tail);",
    "atomic_store_release_u32(&r->free_count, top);", "test_libtier_lives")
bug("last-lease-of-another-life", LIBRARY + "stream.c",
    "if (a->number != number || (remembered", "if ((remembered", "test_libtier_lives")

# ---- the index, as readers see it ---------------------------------------------------------------

bug("key-not-compared", LIBRARY + "index_read.h",
    "if (!index_equal_keys(b, key))\n\t\treturn INDEX_ABSENT;", "", "test_libtier_lease")
bug("half-a-key-compared", LIBRARY + "index_read.h",
    "for (uint32_t i = 0; i < ABI_KEY_BYTES / 8; i++)\n\t\tdiffer",
    "for (uint32_t i = 0; i < 2; i++)\n\t\tdiffer", "test_libtier_lease")
bug("bucket-not-looked-at-again", LIBRARY + "index_read.c",
    "if (atomic_load_acquire_u32(&head->seq) != seq || index_read_buckets(m) != count)",
    "if (0)", "test_libtier_steps")
bug("odd-bucket-read", LIBRARY + "index_read.c",
    "if (seq & 1)\n\t\treturn INDEX_CHANGED;", "", "test_libtier_steps")
bug("chain-leads-outside", LIBRARY + "index_read.c",
    "if (next == 0 || next > m->overflow_max)", "if (next == 0)", "test_libtier_hostile",
    quick=True)
bug("slot-leads-outside", LIBRARY + "index_read.c",
    "if (slot >= m->blocks_max)\n\t\t\tcontinue;", "", "test_libtier_hostile")
bug("bucket-count-trusted", LIBRARY + "index_read.h",
    "return count > m->buckets_max || map_closed(m) ? 0 : count;",
    "return map_closed(m) ? 0 : count;", "test_libtier_hostile")
bug("removed-context-found", LIBRARY + "index_read.h",
    "return count > m->buckets_max || map_closed(m) ? 0 : count;",
    "return count > m->buckets_max ? 0 : count;", "test_libtier_lease")
bug("overflow-lines-not-read", LIBRARY + "index_read.h",
    "return index_read_slowly(m, buckets, key, p, out);", "return false;", "test_libtier_lease")
bug("overflow-line-outside", LIBRARY + "index_read.h",
    "if (next == 0 || next > m->overflow_max)", "if (next == 0)", "test_libtier_hostile")
bug("overflow-line-left-to-the-slow-way", LIBRARY + "index_read.h",
    "if (p->line)\n\t\tindex_read_line(m, p->line, p);", "(void)m, (void)p;",
    "test_libtier_stages")
bug("third-line-not-read", LIBRARY + "index_read.h",
    "p->slot = next ? INDEX_PROBE_SLOW : INDEX_PROBE_NONE;", "p->slot = INDEX_PROBE_NONE;",
    "test_libtier_stages")
bug("changed-chain-taken-for-a-miss", LIBRARY + "index_read.c",
    "if (!(p->seq & 1) && atomic_load_acquire_u32(&p->bucket->seq) == p->seq &&\n"
    "\t\t    index_read_buckets(m) == buckets)", "if (index_read_buckets(m) == buckets)",
    "test_libtier_stages")
bug("split-taken-for-a-miss", LIBRARY + "index_read.c",
    "== p->seq &&\n\t\t    index_read_buckets(m) == buckets)", "== p->seq && buckets)",
    "test_libtier_stages")
bug("ninth-tag-not-compared", "libtier/abi/index.h",
    "(uint32_t)((uint16_t)word[4] == tag) << 8;", "0;",
    "test_libtier_stages")
bug("prefix-goes-on-behind-a-miss", LIBRARY + "match.c",
    "else\n\t\ts->ended = true;", "", "test_libtier_lease", quick=True)
bug("sidecar-not-needed-for-a-hit", LIBRARY + "match.c",
    "return (f->parts & s->map->parts_every) == s->map->parts_every ? TIER_HIT : TIER_MISS;",
    "return TIER_HIT;", "test_libtier_lease")
bug("pending-is-a-hit", LIBRARY + "match.c",
    "return TIER_PENDING;", "return TIER_HIT;", "test_libtier_lease")
bug("last-n-blocks-not-in-a-row", LIBRARY + "match.c",
    "parts >> p & 1 ? s->run[p] + 1 : 0;", "s->run[p] + (parts >> p & 1);", "test_libtier_lease")

# ---- mapping, attaching, forking ----------------------------------------------------------------

bug("index-of-another-boot-mapped", LIBRARY + "map.c",
    "if (h->boot_token != source->boot_token)\n\t\treturn broken(\"the boot token\");", "",
    "test_libtier_hostile")
bug("table-may-lie-outside", LIBRARY + "map.c",
    "count <= (bytes - offset) / item;", "count * item <= bytes - offset;",
    "test_libtier_hostile")
bug("memory-shorter-than-told", LIBRARY + "map.c",
    "if ((uint64_t)st.st_size < bytes)\n\t\treturn broken(\"a memory tier\");", "",
    "test_libtier_hostile")
bug("geometry-not-checked", LIBRARY + "map.c",
    "int rc = abi_geometry_check(&m->geometry, why, sizeof(why));", "int rc = 0;",
    "test_libtier_hostile")
bug("children-inherit-the-maps", LIBRARY + "map.c",
    "madvise(base, bytes, MADV_DONTFORK)", "madvise(base, bytes, MADV_DOFORK)",
    "test_libtier_fork")
bug("fork-not-noticed", LIBRARY + "session.c",
    "madvise(word, bytes, MADV_WIPEONFORK)", "madvise(word, bytes, MADV_KEEPONFORK)",
    "test_libtier_fork")
bug("membarrier-not-registered", LIBRARY + "session.c",
    "if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0)",
    "if (MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)", "test_libtier_attach")
bug("old-mapping-kept", LIBRARY + "attach.c",
    "struct tier_context *c = m->owner;\n\n"
    "\t\tatomic_store_release_u64(&c->map_word, (uintptr_t)m);", "", "test_libtier_attach")
bug("old-attachment-dropped-at-once", LIBRARY + "attach.c",
    "if (!is_used(t, a))\n\t\t\tattachment_drop(t, a);", "attachment_drop(t, a);",
    "test_libtier_attach")
bug("old-attachments-never-dropped", LIBRARY + "attach.c",
    "if (!is_used(t, a))\n\t\t\tattachment_drop(t, a);", "", "test_libtier_attach")
bug("requests-outlive-the-daemon", LIBRARY + "attach.c",
    "request_fail_all(t, -ENOTCONN);", "", "test_libtier_attach")
bug("region-of-another-boot", LIBRARY + "attach.c",
    "if (h->boot_token != boot_token)", "if (0)", "test_libtier_hostile")
bug("welcome-keeps-its-descriptors", LIBRARY + "attach.c",
    "rc = take_welcome(t, a);\n\t\tmessage_drop(t->message);", "rc = take_welcome(t, a);",
    "test_libtier_attach")
bug("reopened-under-any-fingerprint", LIBRARY + "context.c",
    "memcpy(q.name, c->name, sizeof(q.name));\n"
    "\tmemcpy(q.fingerprint, c->fingerprint, sizeof(q.fingerprint));\n"
    "\trc = ask_new(t, a, &q, deadline_ns);",
    "memcpy(q.name, c->name, sizeof(q.name));\n\trc = ask_new(t, a, &q, deadline_ns);",
    "test_libtier_attach")
bug("reopened-with-another-geometry", LIBRARY + "context.c",
    "if (memcmp(&m->geometry, &c->geometry.abi, sizeof(m->geometry)) != 0) {", "if (0) {",
    "test_libtier_attach")
bug("context-keeps-its-descriptors", LIBRARY + "context.c",
    "message_drop(t->message);\n\tif (rc)\n\t\treturn rc;\n\tc = context_new",
    "if (rc)\n\t\treturn rc;\n\tc = context_new", "test_libtier_attach")
bug("reopened-context-keeps-its-descriptors", LIBRARY + "context.c",
    "message_drop(t->message);\n\t}\n\tif (rc)\n\t\treturn is_fatal",
    "}\n\tif (rc)\n\t\treturn is_fatal", "test_libtier_attach")
bug("lost-context-never-found-again", LIBRARY + "session.c",
    "attach_retry_lost(t);", "", "test_libtier_attach")
bug("child-ends-the-parents-plan", LIBRARY + "plan.c",
    "if (!p || session_orphaned(p->alive))", "if (!p)", "test_libtier_fork")
bug("another-boots-plan-ended", LIBRARY + "plan.c",
    "if (p->handle && p->a == session_attachment(p->c->t))", "if (p->handle)",
    "test_libtier_attach")

# ---- socket, requests, rings --------------------------------------------------------------------

bug("cut-off-descriptors-not-told", LIBRARY + "socket.c", "(MSG_TRUNC | MSG_CTRUNC))",
    "MSG_TRUNC)", "test_libtier_edges", quick=True)
bug("cut-off-answer-taken", LIBRARY + "socket.c", "(MSG_TRUNC | MSG_CTRUNC))", "MSG_CTRUNC)",
    "test_libtier_edges")
bug("answer-of-any-length", LIBRARY + "admin.c",
    "if (bytes > REPLY_BYTES_MAX - r->bytes - 1)", "if (0)", "test_libtier_edges")
bug("text-not-terminated", LIBRARY + "admin.c", "r->text[r->bytes] = '\\0';", "",
    "test_libtier_edges")
bug("reattach-drops-context-error", LIBRARY + "context.c", "return is_fatal(rc) ? rc : 0;",
    "return 0;", "test_libtier_attach")
bug("silent-daemon-asked-each-time", LIBRARY + "attach.c",
    "if (time_now_ns() < t->retry_ns)\n\t\treturn error_note(-ENOTCONN", "if (0)\n\t\treturn "
    "error_note(-ENOTCONN", "test_libtier_edges")
bug("silent-daemon-asked-too-soon", LIBRARY + "attach.c",
    "(rc == -ETIMEDOUT ? SESSION_REATTACH_NS : SESSION_BACKOFF_NS);", "SESSION_BACKOFF_NS;",
    "test_libtier_edges")
bug("full-queue-refuses", LIBRARY + "socket.c",
    "if (errno != EAGAIN && errno != EINTR)\n\t\t\treturn explain_connect",
    "if (errno != EINTR)\n\t\t\treturn explain_connect", "test_libtier_edges")
bug("counters-beyond-the-callers", LIBRARY + "session.c",
    "size = out->size < sizeof(sum) ? out->size : sizeof(sum);", "size = sizeof(sum);",
    "test_libtier_edges")
bug("made-again-exclusively", LIBRARY + "context.c", "c->create->flags &= ~WIRE_CTX_EXCLUSIVE;",
    "", "test_libtier_edges")
bug("closed-context-stays-mapped", LIBRARY + "context.c",
    "list_each(at, &t->old)\n\t\t\tdrop_maps(list_entry(at, struct attachment, link), c);", "",
    "test_libtier_edges")
bug("usable-beyond-the-list", LIBRARY + "stream.c", "return n < s->count ? n : s->count;",
    "return n;", "test_libtier_edges")
bug("farther-layer-asked-for", LIBRARY + "stream.c", "if (!before || layer + 1 < before)",
    "if (1)", "test_libtier_edges")
bug("layer-asked-for-ever", LIBRARY + "stream.c", "if (!--s->waiters)\n\t\tatomic_store",
    "--s->waiters;\n\tif (0)\n\t\tatomic_store", "test_libtier_edges")
bug("gather-wraps-around", LIBRARY + "gather.c",
    "if (into->stride && (UINTPTR_MAX", "if (into->stride == 1 && (UINTPTR_MAX",
    "test_api_hostile")
bug("fetch-goes-on-behind-a-gap", LIBRARY + "ask.c", "if (value < n)\n\t\t\tbreak;", "",
    "test_libtier_edges")
bug("delete-counts-its-last-piece", LIBRARY + "ask.c", "deleted += value;", "deleted = value;",
    "test_libtier_edges")
bug("long-delete-from-the-front", LIBRARY + "ask.c",
    "count -= n;\n\t\ts.args = (struct request_args){ .keys = keys + count, .count = n };",
    "s.args = (struct request_args){ .keys = keys, .count = n };\n\t\tkeys += n;\n"
    "\t\tcount -= n;", "test_libtier_edges")
bug("cancel-ends-at-what-is-over", LIBRARY + "ask.c", "if (value < 0 && value != -ENOENT)",
    "if (value < 0)", "test_libtier_edges")
bug("read-goes-round-for-ever", LIBRARY + "gather.c",
    "i < rounds && on && (uint32_t)leased < count", "on && (uint32_t)leased < count",
    "test_libtier_edges")
bug("read-beyond-its-deadline", LIBRARY + "gather.c",
    "on = on && (deadline_ns == 0 || time_now_ns() < deadline_ns);", "", "test_libtier_edges")
bug("old-answer-keeps-descriptors", LIBRARY + "socket.c",
    "message_drop(answer);\n\t\t\tcontinue;", "continue;", "test_libtier_hostile", quick=True)
bug("asked-again-though-it-babbles", LIBRARY + "attach.c",
    "if (rc == -ENOTCONN || rc == -EPROTO) {", "if (rc == -ENOTCONN) {", "test_libtier_edges")
bug("plan-loses-an-access", LIBRARY + "plan.c", "at += n;", "at += n + (at ? 0 : 1);",
    "test_libtier_edges")
bug("plans-word-not-given-back", LIBRARY + "plan.c",
    "arena_free(&p->a->arena, p->start, sizeof(uint64_t));", "", "test_libtier_edges")
bug("late-answer-taken", LIBRARY + "socket.c",
    "(int32_t)(answer->header.seq - s->seq) < 0) {", "0) {", "test_libtier_hostile")
bug("signal-ends-a-wait", LIBRARY + "socket.c",
    "if (n < 0 && errno != EINTR)\n\t\t\treturn -errno;", "if (n < 0)\n\t\t\treturn -errno;",
    "test_libtier_wait")
bug("arguments-stay-in-the-arena", LIBRARY + "request.c",
    "if (rq->arg.bytes > 0)\n\t\tarena_free(&a->arena, rq->arg.start, rq->arg.bytes);\n"
    "\tif (rq->data.bytes > 0)", "if (rq->data.bytes > 0)", "test_libtier_request")
bug("put-bytes-stay-in-the-arena", LIBRARY + "request.c",
    "if (rq->data.bytes > 0)\n\t\tarena_free(&a->arena, rq->data.start, rq->data.bytes);", "",
    "test_libtier_request")
bug("completion-of-anothers-serial", LIBRARY + "request.c",
    "rq->state != REQUEST_FLYING || rq->wire_id != c.user_data)", "rq->state != REQUEST_FLYING)",
    "test_libtier_hostile")
bug("late-reserve-not-aborted", LIBRARY + "request.c",
    "abandon_put(t, c->value);", ";", "test_libtier_request")
bug("given-up-request-not-freed", LIBRARY + "request.c",
    "if (orphan)\n\t\tentry_free(&t->requests, rq);", "",
    "test_libtier_put")
bug("salt-travels-with-references", LIBRARY + "request.c",
    "args->blocks[i].generation ^ salt };", "args->blocks[i].generation };",
    "test_libtier_request")
bug("error-of-a-request-swallowed", LIBRARY + "request.c",
    ".result = c->res > 0 ? 0 : c->res,", ".result = 0,",
    "test_libtier_put")
bug("tail-before-the-entry", LIBRARY + "ring.c",
    "r->sqe[r->sq_tail & (r->sq_entries - 1)] = *entry;\n\tr->sq_tail++;\n"
    "\tatomic_store_release_u32(&r->shared->sq_tail, r->sq_tail);",
    "atomic_store_release_u32(&r->shared->sq_tail, r->sq_tail + 1);\n"
    "\tr->sqe[r->sq_tail & (r->sq_entries - 1)] = *entry;\n\tr->sq_tail++;",
    "test_libtier_wait")
bug("entry-index-not-masked", LIBRARY + "ring.c",
    "r->sqe[r->sq_tail & (r->sq_entries - 1)]", "r->sqe[r->sq_tail % (r->sq_entries + 1)]",
    "test_libtier_request")
bug("daemons-tail-trusted", LIBRARY + "ring.c",
    "if (ready > r->cq_entries)\n\t\treturn -EPROTO;", "", "test_libtier_hostile")
bug("ring-fuller-than-full", LIBRARY + "ring.c",
    "if (used == r->sq_entries)\n\t\treturn -EAGAIN;", "", "test_libtier_request")
bug("doorbell-without-a-fence", LIBRARY + "ring.c",
    "full_fence();\n\treturn atomic_load_relaxed_u32(&r->shared->sq_wake) != 0;",
    "return atomic_load_relaxed_u32(&r->shared->sq_wake) != 0;", "test_libtier_wait")
bug("wake-up-asked-without-a-fence", LIBRARY + "ring.c",
    "if (on)\n\t\tfull_fence();", "", "test_libtier_wait")
bug("sleeps-without-a-last-look", LIBRARY + "wait.c",
    "if (atomic_load_acquire_u32(&a->ring.shared->cq_tail) == head)\n\t\t\thung_up", "hung_up",
    "test_libtier_wait")
bug("waiters-not-told-of-completions", LIBRARY + "request.c",
    "if (moved)\n\t\twait_moved(t);", "", "test_libtier_request")
bug("layer-wake-up-lost", LIBRARY + "wait.c",
    "if (e[i].data.fd == a->event && t->polling)\n\t\t\tevent_signal(t->wake);", "",
    "test_libtier_wait")
bug("wait-for-two-takes-one", LIBRARY + "wait.c", "t->requests.done_count >= min ||",
    "t->requests.done_count > 0 ||", "test_libtier_lives")
bug("wait-for-ever-is-at-once", LIBRARY + "wait.c",
    "timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns", "now + timeout_ns",
    "test_libtier_lives")
bug("wake-ups-withdrawn", LIBRARY + "wait.c", "ring_ask_wake(&a->ring, t->event_fd >= 0);",
    "ring_ask_wake(&a->ring, false);", "test_libtier_lives")
bug("closed-session-waits", LIBRARY + "request.c",
    "if (rc < 0 || (!a->dead && ring_closed(&a->ring)))", "if (rc < 0)", "test_libtier_lives")
bug("daemons-head-trusted", LIBRARY + "ring.c",
    "if (used > r->sq_entries)\n\t\treturn -EPROTO;", "", "test_libtier_hostile")
bug("staging-shorter-than-told", LIBRARY + "attach.c",
    "if (bytes < ARENA_ALIGN || fstat(fd, &st) != 0 || (uint64_t)st.st_size < bytes)",
    "if (bytes < ARENA_ALIGN || fstat(fd, &st) != 0)", "test_libtier_hostile")
bug("store-before-the-socket", SHELL + "startup.c", "int rc = front_look(s->config.socket, why);",
    "int rc = 0;", "test_front_life")
bug("stream-lines-outside", LIBRARY + "attach.c",
    "count > (a->region_bytes - offset) / sizeof(struct abi_stream))", "0)",
    "test_libtier_hostile")
bug("answers-length-trusted", LIBRARY + "socket.c",
    "h->magic != WIRE_MAGIC || h->length != bytes", "h->magic != WIRE_MAGIC",
    "test_libtier_hostile")
bug("descriptors-outlive-exec", LIBRARY + "socket.c", "MSG_CMSG_CLOEXEC | MSG_DONTWAIT",
    "MSG_DONTWAIT", "test_libtier_lives")
bug("notify-not-cleared", LIBRARY + "wait.c",
    "if (e[i].data.fd == t->notify || e[i].data.fd == a->event)",
    "if (e[i].data.fd == a->event)", "test_libtier_request")

# ---- puts, reads, streams, geometry -------------------------------------------------------------

bug("refused-put-keeps-its-room", LIBRARY + "put.c",
    "rc = reserve(t, p, c, keys);\n\tif (rc) {\n\t\tunstage(t, p);",
    "rc = reserve(t, p, c, keys);\n"
    "\tif (rc) {",
    "test_libtier_put", quick=True)
bug("group-beyond-the-shard", LIBRARY + "put.c",
    "group - at->first >= at->groups)", "group - at->first > at->groups)",
    "test_libtier_request")
bug("commit-of-another-life", LIBRARY + "put.c",
    "if (p->a != session_attachment(t) || p->a->dead)", "if (session_attachment(t)->dead)",
    "test_libtier_attach")
bug("later-pieces-without-parent", LIBRARY + "put_copy.c",
    "if (s->done > 0)\n\t\tmemcpy(s->plan.args.parent,", "if (0)\n\t\tmemcpy(s->plan.args.parent,",
    "test_libtier_put")
bug("later-pieces-at-depth-0", LIBRARY + "put_copy.c",
    "s->plan.args.depth = s->depth + s->done;", "s->plan.args.depth = s->depth;",
    "test_libtier_put")
bug("dropped-piece-not-told", LIBRARY + "put_copy.c",
    "if (rc)\n\t\treturn rc; /* visible they may be, but not what was asked for */", "",
    "test_libtier_put")
bug("short-ttl-is-for-ever", LIBRARY + "put.c",
    "(uint32_t)((o.ttl_ns + NS_PER_MS - 1) / NS_PER_MS)", "(uint32_t)(o.ttl_ns / NS_PER_MS)",
    "test_libtier_lives")
bug("put-goes-on-behind-a-drop", LIBRARY + "put_copy.c",
    "s->dropped = s->dropped || completion.status == TIER_DROPPED;", "", "test_libtier_lives")
bug("gather-needs-all-slots", LIBRARY + "gather.c",
    "if (n > reader_free_slots(r))\n\t\t\tn = reader_free_slots(r);", "",
    "test_libtier_lease")
bug("gather-errors-by-group", LIBRARY + "gather.c",
    "into->error[at + i] = leases[i].error;", "into->error[i] = leases[i].error;",
    "test_libtier_lease")
bug("gathered-beyond-the-stride", LIBRARY + "gather.c",
    "return g->stride != 0 && bytes > g->stride ? 0 : bytes;", "return bytes;",
    "test_libtier_lease")
bug("released-layers-come-back", LIBRARY + "stream.c",
    "while (before >> 32 == s->generation && before < claim)",
    "while (before >> 32 == s->generation)",
    "test_libtier_wait")
bug("stream-line-not-given-back", LIBRARY + "stream.c",
    "s->a->stream_used &= ~(1ull << s->number);", "", "test_api_stream", "test_libtier_request")
bug("layer-over-with-its-first-block", LIBRARY + "stream.c",
    ">= layer[done].pages * usable(s))", ">= layer[done].pages)", "test_libtier_lives")
bug("layers-of-a-range-from-0", LIBRARY + "stream.c",
    "*first = s->range.layer_first > *first ? s->range.layer_first : *first;", "",
    "test_libtier_lives")
bug("layer-of-nothing-is-there", LIBRARY + "stream.c",
    'return error_note(-ENODATA, "stream: no block of it is left");', "return 0;",
    "test_libtier_lives")
bug("layers-wait-ignores-the-stream", LIBRARY + "stream.c",
    "submit_until(s->deadline_ns, SUBMIT_DEFAULT_NS);",
    "submit_until(0, SUBMIT_DEFAULT_NS);", "test_libtier_lives")
bug("parts-beyond-the-geometry-streamed", LIBRARY + "stream.c",
    "range->part_count > parts - range->part_first ||", "", "test_libtier_lives")
bug("put-without-its-deadline", LIBRARY + "put.c",
    ".deadline_ns = o.deadline_ns,", "", "test_libtier_lives")
bug("commit-without-its-deadline", LIBRARY + "put.c",
    ".deadline_ns = p->plan.deadline_ns,\n\t\t\t   .handle = p->handle,",
    ".handle = p->handle,", "test_libtier_lives")
bug("another-boots-put-aborted", LIBRARY + "put.c",
    "while (p->a == session_attachment(t) && submit_entry", "while (submit_entry",
    "test_libtier_lives")
bug("put-that-never-fits-waits", LIBRARY + "put_copy.c",
    "return s->plan.block_bytes <= session_attachment(t)->arena.bytes;", "return true;",
    "test_libtier_lives")
bug("whole-blocks-not-told-after-an-error", LIBRARY + "put_copy.c",
    "return s.whole > 0 ? s.whole : rc;", "return rc ? rc : s.whole;", "test_libtier_lives")
bug("session-without-its-tenant", LIBRARY + "foresight.c",
    "args->salt = o->salt;", "", "test_libtier_ask")
bug("session-without-its-return", LIBRARY + "foresight.c",
    "args->return_ns = o->return_ns;", "", "test_libtier_ask")
bug("class-of-an-ask-dropped", LIBRARY + "foresight.c",
    "if (ask->klass)\n\t\t*klass = (uint8_t)ask->klass;", "", "test_libtier_ask")
bug("range-of-a-prefetch-dropped", LIBRARY + "foresight.c",
    "if (rc == 0)\n\t\trc = ask_range(&s.entry, c, own.range);", "", "test_libtier_ask")
bug("reservation-without-its-step", LIBRARY + "reserve.c", ".step = o.step,", "",
    "test_libtier_ask")
bug("plan-without-its-times", LIBRARY + "plan.c",
    ".start_ns = o->start_ns,", ".start_ns = 0,", "test_libtier_ask")
bug("plan-begins-where-another-ended", LIBRARY + "plan.c",
    "atomic_store_release_u64(p->word, 0);", "", "test_libtier_ask")
bug("keys-behind-a-miss-not-looked-up", LIBRARY + "match.c",
    "if (s->ended && !s->found)", "if (s->ended)", "test_libtier_ask")
bug("arguments-beyond-a-message", LIBRARY + "admin.c",
    "if (args_bytes > WIRE_MESSAGE_MAX - sizeof(*question))", "if (0)", "test_libtier_ask")
bug("layers-of-a-preset-from-0", LIBRARY + "preset.c",
    '{ "sparse", TIER_KIND_SPARSE, 38, 4, KV_PAGE, 3 },',
    '{ "sparse", TIER_KIND_SPARSE, 38, 4, KV_PAGE, 0 },', "test_libtier_geometry")
bug("kind-cut-to-16-bits", LIBRARY + "geometry.c",
    "if (!fits_u16(from->kind) ||", "if (", "test_libtier_geometry")
bug("arguments-in-the-way-of-puts", LIBRARY + "arena.c",
    "if (end == ARENA_LOW)\n\t\t\t\tbreak;", "break;", "test_libtier_arena")
bug("wait-for-room-begun-anew", LIBRARY + "put_copy.c",
    "rc = put_begin(s->c, s->keys + s->done, blocks, &s->plan, &p);",
    "s->until_ns = submit_until(s->plan.deadline_ns, SUBMIT_LONG_NS);\n"
    "\trc = put_begin(s->c, s->keys + s->done, blocks, &s->plan, &p);", "test_libtier_edges")
bug("fingerprint-not-framed", LIBRARY + "key.c",
    "return add(md, &present, 1) && add_counted", "return add_counted", "test_libtier_key")
bug("reserved-bytes-of-a-part", "libtier/abi/geometry_check.c",
    "if (!all_zero(part->reserved, sizeof(part->reserved)))", "if (0)", "test_libtier_geometry")
bug("stride-not-aligned", "libtier/abi/geometry_check.c",
    "part->page_stride % page_align != 0 ||", "", "test_libtier_geometry")
bug("layers-without-end", "libtier/abi/geometry_check.c",
    "if (part->layer_first > ABI_LAYERS_MAX - part->layers)", "if (0)",
    "test_libtier_geometry")

# ---- the daemon, the core: files of their own, which find what is defined here ------------------

for part in ("daemon.py", "core.py", "obs.py"):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), part),
              encoding="utf-8") as f:
        exec(compile(f.read(), f.name, "exec"))  # pylint: disable=exec-used
