"""The planted bugs around the simulator: what stands in a file, what it becomes, and the tests of
which one must fail. One or two for each kind of test.

SPDX-License-Identifier: Apache-2.0
"""
import collections

Entry = collections.namedtuple("Entry", "file old new tests")
PLANTS = {}

# folders that several plants name
LIBRARY = "libtier/src/"
FRONT = "tierd/front/"
SHELL = "tierd/"
BACKEND = "tierd/backend/"
OBS = "tierd/obs/"
CORE = "tierd/core/"


def bug(name, file, old, new, *tests):
    """One planted bug, and the tests that run until one of them fails."""
    assert name not in PLANTS, name
    PLANTS[name] = Entry(file, old, new, tests)


# ---- the library ---------------------------------------------------------------------------------

bug("lease-not-looked-at-again", LIBRARY + "lease.c",
    "return atomic_load_acquire_u64(&at->page->word[attempt->tier]) == attempt->word &&",
    "return", "test_libtier_steps")
bug("lease-generation-not-compared", LIBRARY + "lease.c",
    "if (unlikely(atomic_load_acquire_u32(&at->block->generation) != at->generation))\n"
    "\t\treturn -ESTALE;", "", "test_libtier_lease")
bug("hazard-word-not-cleared", LIBRARY + "lease.c",
    "atomic_store_release_u64(&area->slot[hazard], 0);", "", "test_libtier_lease")
bug("leases-forgotten-over-a-restart", LIBRARY + "reader.c",
    "(slots_held(r) > 0 && !keep_old(r))", "0", "test_libtier_attach")
bug("high-water-forgotten-over-a-restart", LIBRARY + "reader.c",
    "atomic_store_release_u32(&area->high_water, r->high_water);", "", "test_libtier_lives")
bug("chain-leads-outside", LIBRARY + "index_read.c",
    "if (next == 0 || next > m->overflow_max)", "if (next == 0)", "test_libtier_hostile")
bug("ninth-tag-not-compared", "libtier/abi/index.h",
    "(uint32_t)((uint16_t)word[4] == tag) << 8;", "0;",
    "test_libtier_stages")
bug("cut-off-descriptors-not-told", LIBRARY + "socket.c", "(MSG_TRUNC | MSG_CTRUNC))",
    "MSG_TRUNC)", "test_libtier_edges")
bug("salt-travels-with-references", LIBRARY + "request.c",
    "args->blocks[i].generation ^ salt };", "args->blocks[i].generation };",
    "test_libtier_request")
bug("doorbell-without-a-fence", LIBRARY + "ring.c",
    "full_fence();\n\treturn atomic_load_relaxed_u32(&r->shared->sq_wake) != 0;",
    "return atomic_load_relaxed_u32(&r->shared->sq_wake) != 0;", "test_libtier_wait")
bug("refused-put-keeps-its-room", LIBRARY + "put.c",
    "rc = reserve(t, p, c, keys);\n\tif (rc) {\n\t\tunstage(t, p);",
    "rc = reserve(t, p, c, keys);\n"
    "\tif (rc) {",
    "test_libtier_put")
bug("frame-out-of-its-turn", "tierd/net/proto.c",
    "if (m->layer != at->layer || m->first != at->at)", "if (m->layer != at->layer)",
    "test_net_proto")
bug("end-of-a-file-is-success", "libtier/base/file.c",
    "return n ? -errno : -ENODATA;", "return n ? -errno : 0;", "test_base_file")

# ---- the daemon around the core ------------------------------------------------------------------

bug("memory-for-others-to-open", BACKEND + "mem_common.c",
    "fchmod(fd, 0600) || ftruncate", "fchmod(fd, 0666) || ftruncate", "test_backend_mem")
bug("credentials-not-asked", FRONT + "listen.c",
    "s->uid = peer.uid;", "s->uid = geteuid();", "test_front_socket")
bug("contexts-of-others-listed", OBS + "verbs.c",
    "return q->operator_ || stats->spec.owner_uid == q->uid;", "return true;", "test_obs")
bug("pins-limit-not-applied", SHELL + "settings.c", "c->client_pins = config->client_pins;", "",
    "test_settings")
bug("least-value-not-checked", SHELL + "config.c",
    "if (value < k->min || value > k->max)\n\t\treturn -ERANGE;\n\t*out = (uint32_t)value;",
    "if (value > k->max)\n\t\treturn -ERANGE;\n\t*out = (uint32_t)value;", "test_config")
bug("leases-end-with-the-socket", FRONT + "connection.c",
    "if (!atomic_load_acquire_u32(&s->header->goodbye))\n\t\treturn false;", "",
    "test_front_connection")
bug("handover-not-told", FRONT + "connection.c",
    "f->handing ? ABI_CLOSED_HANDOVER : ABI_CLOSED);", "ABI_CLOSED);", "test_front_connection")
bug("accepted-and-not-awaited", FRONT + "connection.c",
    "if (f->greeting)\n\t\treturn false;", "", "test_front_connection")
bug("successor-awaited-after-any-end", LIBRARY + "attach.c",
    "if (ring_handed_over(&a->ring)) {", "if (ring_closed(&a->ring)) {", "test_libtier_lives")
bug("one-client-takes-the-turn", FRONT + "ring_in.c",
    "if (most > CONNECTION_TAKE_MAX)\n\t\tmost = CONNECTION_TAKE_MAX;", "", "test_front_connection")
bug("checksum-not-compared", SHELL + "worker.c",
    "!= piece->crc)", "== ~piece->crc)", "test_tsan_worker")
bug("memory-unmapped-under-a-copy", SHELL + "memory.c",
    "if (!worker_passed(workers, made->mark)) {", "if (0) {", "test_shell_memory")
bug("short-transfer-taken-as-whole", BACKEND + "nvme.c",
    "if (op->done == op->io->bytes)", "if (*res > 0)", "test_backend_nvme")
bug("failed-flush-not-told", SHELL + "dispatch.c",
    "event.sync.token = token;\n\t\tevent.sync.res = res;",
    "event.sync.token = token;\n\t\tevent.sync.res = 0;",
    "test_dispatch")
bug("super-block-not-judged", SHELL + "recover.c",
    "rc = store_super_check(super, why, sizeof(why));",
    "rc = 0;",
    "test_recover")

# ---- the core, what no world of the simulator shows ----------------------------------------------

bug("losses-not-looked-for", CORE + "op/fetch.c",
    "if (r->losses != sched_losses(c) || r->leaving)", "if (r->leaving)", "test_core_fetch")
bug("unit-mask-not-shifted", CORE + "io/sched.c",
    "io->bad_mask |= unit->bad_mask << unit->priv.node.cut;",
    "io->bad_mask |= unit->bad_mask;", "test_core_sched")
bug("quota-evicts-pinned", CORE + "place/evict_nvme.c",
    "!block_use_is_pinned(use) &&\n\t       quota_within", "quota_within", "test_core_pin")
bug("failed-record-not-suspected", CORE + "log/writeback.c",
    "if (durable && (run->suspect || run->phase == RUN_RECORD))",
    "if (durable && run->suspect)", "test_core_flush")
bug("one-full-context-stops-all", CORE + "log/writeback.c",
    "d->full_retry_ns = c->now_ns + FULL_RETRY_NS;",
    "core_home(c)->write_retry_ns = c->now_ns + FULL_RETRY_NS;", "test_core_full")
bug("late-deletion-waits-on", CORE + "op/delete.c", "!r->error && !r->late) {", "!r->error) {",
    "test_core_orphans")
bug("streams-keep-a-full-cache", CORE + "place/evict.c",
    "w->streamed ? block_use(x, slot)->streams : 0", "0", "test_core_stream_full")
bug("streams-fill-a-context", CORE + "op/stream_window.c",
    "return user_may(c, s) && context_may(s);", "return user_may(c, s);",
    "test_core_stream_full")
bug("stream-to-any-tier", CORE + "op/stream.c",
    "\t.generation = true,\n\t.tiers = ABI_MEM_TIERS,", "\t.generation = true,",
    "test_core_stream_pages")
bug("migrate-late-not-told", CORE + "op/migrate.c",
    "if (r->late && r->cursor < r->sqe.count)\n\t\tr->status = ABI_STATUS_LATE;", "",
    "test_core_migrate")
bug("stale-record-revived", CORE + "unit/store_recover.c",
    "if (r->lsn <= before->lsn_end)", "if (0)", "test_core_reopen")
bug("carried-tombstones-not-flushed", CORE + "log/clean.c",
    "if (t->flushed < k->tombs) {", "if (t->written < k->tombs) {",
    "test_core_clean")
bug("deletion-writes-the-cleaners-header", CORE + "unit/store.c",
    "if (store_opening(s, STORE_CLEANED))\n\t\treturn -EBUSY;", "", "test_core_clean")
bug("holes-have-data", CORE + "log/recover.c",
    "uint32_t nth = disk_there_below(v->head, i);", "uint32_t nth = i;", "test_core_holes")
bug("former-slot-taken-twice", CORE + "unit/former.c", "bitmap_clear(f->kept, slot);", "",
    "test_core_former")
bug("header-before-its-catalog", CORE + "log/writeback.c", " && catalog_voids(c, run->voids);", ";",
    "test_core_flush")
bug("discard-not-there-asked-again", CORE + "log/discard.c", "d->off = res == -EOPNOTSUPP;", "",
    "test_core_discard")
bug("holds-not-recounted", CORE + "audit/audit_work.c", "if (n->holds != use->hold)", "if (0)",
    "test_core_audit")
bug("old-reference-lives", CORE + "book/block_list.c",
    "b->state != ABI_BLOCK_FREE &&\n\t       b->epoch == (uint32_t)x->spec.epoch;",
    "b->state != ABI_BLOCK_FREE;", "test_core_walks")
bug("old-epoch-acknowledged", CORE + "op/put.c",
    "if (!p->res && p->epoch != p->ctx->spec.epoch) {", "if (0) {", "test_core_walks")
bug("old-epoch-taken-for-want-of-room", CORE + "op/put_commit.c",
    "return r->put->epoch != r->ctx->spec.epoch ? -ESTALE : 0;", "return 0;", "test_core_flush")
bug("all-tenants-in-one-lane", CORE + "book/quota.c", "return account % LANES;",
    "return 0;", "test_core_lane")

# ---- what a client writes is read once; wake-ups; two of a kind ----------------------------------

bug("entry-read-twice", FRONT + "ring_in.c",
    "sample_begin(f, s, &event.request.sqe, t->now_ns);",
    "sample_begin(f, s, &s->sq[(s->sq_head - 1) & (s->sq_entries - 1)], t->now_ns);",
    "test_front_reads")
bug("arguments-read-twice", CORE + "op/request.c",
    "memcpy(r->arg, k->open.staging + q->arg_offset, need);\n\treturn 0;",
    "memcpy(r->arg, k->open.staging + q->arg_offset, need);\n"
    "\treturn k->open.staging[q->arg_offset] == r->arg[0] ? 0 : -EFAULT;",
    "test_core_reads")
bug("wish-behind-the-last-look", LIBRARY + "wait.c",
    "if (!connection_attachment(t)->dead)\n\t\tfollow(q, connection_attachment(t));\n"
    "\tsubmit_collect(t);",
    "submit_collect(t);\n"
    "\tif (!connection_attachment(t)->dead)\n\t\tfollow(q, connection_attachment(t));",
    "test_libtier_wait")
bug("tail-read-after-it-was-judged", FRONT + "ring_in.c",
    "if (most > w.ready)\n\t\tmost = w.ready;",
    "if (most > w.ready)\n"
    "\t\tmost = atomic_load_acquire_u32(&s->header->sq_tail) - s->sq_head;",
    "test_front_reads")
bug("gap-in-the-first-block-only", CORE + "op/put_commit.c",
    "for (; p->gap < p->done; p->gap++) {", "for (; p->gap < 1; p->gap++) {", "test_core_put")
bug("tombstones-of-two-contexts-are-one", CORE + "log/recover.c",
    "if (!i || n->ctx != n[-1].ctx || memcmp(n->key, n[-1].key, ABI_KEY_BYTES))",
    "if (!i || memcmp(n->key, n[-1].key, ABI_KEY_BYTES))", "test_core_tombs")
bug("tombstones-sorted-without-contexts", CORE + "log/recover.c",
    "if (a->ctx != b->ctx)\n\t\treturn a->ctx->index < b->ctx->index ? -1 : 1;", "",
    "test_core_tombs")

bug("questions-of-a-user-without-a-bound", FRONT + "watch.c",
    "if (*spent >= USER_NS)\n\t\treturn;", "", "test_front_shares")
bug("questions-of-all-users-bounded-as-one", FRONT + "watch.c",
    "all->user[i].uid != uid", "0", "test_front_shares")
bug("unread-answers-of-a-connection-alone", FRONT + "admin.c",
    "unread(f, &s->uid) > UNREAD_MAX", "s->text_bytes > UNREAD_MAX", "test_front_shares")

# ---- memory that devices have --------------------------------------------------------------------

DEVICE = LIBRARY + "device.c"
LEND = CORE + "place/lend.c"

bug("chunk-of-another-user-not-emptied", "tierd/backend/cuda.c",
    "if (pool->owner[chunk] == owner || pool->owner[chunk] == NO_OWNER) {", "if (1) {",
    "test_backend_cuda")
bug("exported-chunk-not-made-anew", "tierd/backend/cuda.c",
    "if (rc == 0 && (pool->exported[chunk] || !pool->handle[chunk]))", "if (0)",
    "test_backend_cuda")
bug("hbm-for-every-user", LEND,
    "if (range->tier == ABI_TIER_HBM && k->open.uid != x->spec.owner_uid)", "if (0)",
    "test_api_gpu")
bug("slab-left-once-for-all", LEND,
    "if (!--c->evict.lends.table[*link - 1].times)", "if (1)", "test_front_slab")
bug("nobody-is-asked-for-slabs", LEND, "c->evict.lends.to[client].recalls++;", "",
    "test_core_descs")
bug("dead-devices-keep-slabs", CORE + "core.c", "lend_client_dead(c, id);\n\tfor", "for",
    "test_api_gpu")
bug("slab-left-under-a-launch", DEVICE,
    "if (!t->slab[i].leaves || t->slab[i].era > done)", "if (!t->slab[i].leaves)",
    "test_api_gpu")
bug("hbm-mapped-for-writing", DEVICE, ".flags = CUDA_ACCESS_READ };",
    ".flags = CUDA_ACCESS_READ_WRITE };", "test_api_gpu")
bug("half-mapped-slab-kept", DEVICE, "if (rc) {\n\t\tunmap_pieces(d, at, bytes, made);",
    "if (rc) {", "test_api_gpu")
bug("stale-block-has-an-address", DEVICE,
    "if (atomic_load_acquire_u32(&b->generation) != generation)", "if (0)", "test_api_gpu")
bug("address-without-a-launch", DEVICE,
    "if (atomic_load_acquire_u64(&d->r->era_area->era_done) >= d->r->era_begin)", "if (0)",
    "test_api_gpu")
bug("device-of-a-former-daemon", DEVICE,
    "if (connection_attachment(d->c->t)->number != d->number ||\n"
    "\t    context_map(d->c)->number != d->number)", "if (0)", "test_api_gpu")


# ---- objects: what a crash leaves of their catalog and files -------------------------------------

OBJECT = "tierd/object/"
CRASH = "test_object_crash"

bug("record-believed-without-its-file", OBJECT + "files.c",
    "if (r.early && r.lsn > settled && !f->config.is_void(f->config.arg, &r))", "if (false)", CRASH)
bug("record-settled-by-itself", OBJECT + "files.c",
    "job->record.settled = f->settled;", "job->record.settled = f->lsn;", CRASH)
bug("voided-record-stays", OBJECT + "files.c", "if (f->voided || (f->end", "if ((f->end", CRASH)
bug("file-of-an-early-record-not-flushed", OBJECT + "files.c",
    "flush_all(&f->flush, b->file, b->files + 1);",
    "flush_all(&f->flush, &b->file[b->files], 1);", CRASH)
bug("former-version-goes-before-the-flush", OBJECT + "files.c",
    "if (f->due_ns || list_empty(&f->unlinks))", "if (list_empty(&f->unlinks))", CRASH)
bug("files-swept-before-the-catalog-is-flushed", OBJECT + "files.c",
    "return fdatasync(f->catalog) ? -errno : 0;", "return 0;", CRASH)
bug("names-made-ahead-not-flushed", OBJECT + "files.c",
    "if (rc == 0 && fsync(f->folder))", "if (false)", CRASH)
bug("new-catalog-not-flushed", OBJECT + "files.c",
    "if (fdatasync(fd) || renameat(", "if (renameat(", CRASH)
bug("commit-answered-before-the-flush", OBJECT + "files.c",
    "(b->wanted || time_now_ns() >= f->due_ns)", "time_now_ns() >= f->due_ns", CRASH)
bug("sync-of-a-folder-flushes-nothing", OBJECT + "files.c",
    "job->kind == OBJECT_FLUSH ||\n\t\t\t    (job->kind", "(job->kind", CRASH)

# ... and what several clients see of them
CLIENTS = "test_object_clients"

bug("open-object-evicted", OBJECT + "room.c",
    "if (!memfile_is_ours(x->fd)) {\n\t\t\tobject_touch(", "if (0) {\n\t\t\tobject_touch(", CLIENTS)
bug("own-objects-not-sought-behind-others", OBJECT + "room.c",
    "return own || lacks == -EUSERS ?", "return lacks == -EUSERS ?", "test_object_room")
bug("memory-of-objects-without-shares", OBJECT + "table.c",
    "return !a->user || a->user->accounts == t->accounts || a->user->cxl + bytes <= share;",
    "(void)share;\n\treturn true;", "test_object_room")
bug("open-version-not-held", OBJECT + "object.c",
    "x->state == OBJECT_RESIDENT && !memfile_is_ours(x->fd)", "0", CLIENTS)
bug("copy-evicts-what-it-copies", OBJECT + "upload.c",
    "rc = job->other < 0 ? job->other : make_room(o, t->account, 0, charge);",
    "close(job->other); rc = make_room(o, t->account, 0, charge);"
    "if (rc == 0) { job->other = fcntl(x->fd, F_DUPFD_CLOEXEC, 0);"
    "rc = job->other < 0 ? -ENOMEM : 0; }", CLIENTS)
bug("upload-of-an-old-epoch-kept", OBJECT + "object.c",
    "} else if (t->object->epoch < t->account->epoch) {", "} else if (0) {", CLIENTS)
bug("bringing-has-no-deadline", OBJECT + "turn.c",
    "(t->stage == TASK_WAITING || t->stage == TASK_BLOCKED) && t->asked",
    "t->stage == TASK_BLOCKED && t->asked", CLIENTS)
bug("higher-priority-leaves-first", OBJECT + "table.c",
    "list_first(a ? &a->leaving[i] : &t->leaving[i]);",
    "list_first(a ? &a->leaving[3 - i] : &t->leaving[3 - i]);", CLIENTS)
bug("last-opened-leaves-first", OBJECT + "table.c",
    "list_push_back(&t->leaving[o->priority], &o->link);",
    "list_push_front(&t->leaving[o->priority], &o->link);", CLIENTS)
bug("failed-put-keeps-its-room", OBJECT + "upload.c",
    "object_give(&o->table, t->account, OBJECT_NVME, t->reserved);", "", CLIENTS)
bug("quota-with-a-page-to-spare", OBJECT + "table.c",
    "a->used[tier] > quota - bytes)", "a->used[tier] > quota - bytes + 4096)", CLIENTS)
bug("uploads-uncharged", OBJECT + "turn.c", "uploads_watch(o);", "", CLIENTS)
bug("lapsed-objects-stay-charged", OBJECT + "turn.c",
    "if ((lapsed(o, x) || x->epoch < x->account->epoch) && !in_log(o, x))", "if (0)", CLIENTS)
bug("mapped-upload-not-copied", OBJECT + "datafile.c",
    "rc = copy_upload(job, mem);", "rc = 0;", CLIENTS)
bug("exclusive-commit-replaces", OBJECT + "object.c",
    "u->flags & WIRE_OBJ_EXCLUSIVE && seen(o, t, t->name, t->name_bytes)) {\n\t\tundo",
    "0) {\n\t\tundo", CLIENTS)
bug("index-has-a-name-that-moved", OBJECT + "object.c",
    "index_update(o, t->account, x->name, x->name_bytes);\n\tlet_go", "let_go", CLIENTS)
bug("file-of-a-removed-object-stays", OBJECT + "object.c",
    "remove_file(o, x->version);\n\tlet_go(o, x);\n\to->stats.removed++;",
    "let_go(o, x);\n\to->stats.removed++;", CLIENTS)
bug("what-lapsed-brings-back-what-was-before", OBJECT + "files.c",
    "&& !f->config.is_void(f->config.arg, &r))", ")", CLIENTS)
bug("void-record-believed", OBJECT + "table.c", "DISK_OBJECT_REMOVE || is_void)",
    "DISK_OBJECT_REMOVE)", CLIENTS)
bug("old-epoch-shares-an-upload", OBJECT + "upload.c",
    "!u->unlinked && u->epoch >= u->account->epoch &&", "!u->unlinked &&", CLIENTS)
bug("failed-read-removes", OBJECT + "object.c",
    "else if (job->res == -EBADMSG)\n\t\tdrop_dead", "else if (job->res)\n\t\tdrop_dead", CLIENTS)
bug("epoch-heard-of-at-the-next-question", OBJECT + "ask.c",
    "if (a)\n\t\traise_epoch(o, a, epoch);",
    "(void)epoch;\n\tif (a)\n\t\tindex_drop(o, a);", CLIENTS)
bug("contexts-that-are-gone-stay-counted", OBJECT + "turn.c",
    "object_account_done(&o->table, a);", "", CLIENTS)
