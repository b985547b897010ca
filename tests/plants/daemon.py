"""The planted bugs of the daemon: table.py takes them in, and has bug() and the names of folders.

SPDX-License-Identifier: Apache-2.0
"""

# ---- what clients are given ---------------------------------------------------------------------

bug("shared-memory-not-sealed", FRONT + "grant.c",
    "F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL", "F_SEAL_GROW | F_SEAL_SEAL",
    "test_front_ring")
bug("seals-may-be-added", FRONT + "grant.c",
    "F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL", "F_SEAL_SHRINK | F_SEAL_GROW",
    "test_front_ring")
bug("context-memory-not-sealed", BACKEND + "mem_common.c",
    "F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL", "F_SEAL_GROW | F_SEAL_SEAL",
    "test_backend_mem")
bug("memory-for-others-to-open", BACKEND + "mem_common.c",
    "fchmod(fd, 0600) || ftruncate", "fchmod(fd, 0666) || ftruncate", "test_backend_mem",
    quick=True)
bug("removed-memory-not-emptied", BACKEND + "mem_common.c",
    "fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)region->bytes);",
    "", "test_backend_mem")
bug("stop-empties-what-is-leased", BACKEND + "mem_common.c",
    "\tmunmap(region->addr, region->bytes);\n\tclose(region->fd);",
    "\tfallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,\n"
    "\t\t  (off_t)region->bytes);\n"
    "\tmunmap(region->addr, region->bytes);\n\tclose(region->fd);",
    "test_shell_memory", "test_api_death")
bug("stop-leaves-the-removed", SHELL + "memory.c",
    "m->retired = made->next;\n\t\tmemory_unmake(m, made);",
    "m->retired = made->next;\n\t\tleave(m, made);", "test_shell_memory")
bug("descriptors-of-a-context-leak", FRONT + "context.c",
    "for (uint32_t i = 0; i < FRONT_CONTEXT_FDS; i++)\n\t\tclose(fd[i]);", "",
    "test_front_socket")
bug("descriptors-are-hoarded", FRONT + "grant.c",
    "if (count && is_behind(s))\n\t\treturn -EAGAIN;", "", "test_front_socket")

# ---- who may do what ----------------------------------------------------------------------------

bug("everyone-is-an-operator", FRONT + "listen.c",
    "s->operator_ = peer.uid == 0 || peer.uid == geteuid();", "s->operator_ = true;",
    "test_front_socket")
bug("group-of-root-is-an-operator", FRONT + "listen.c",
    "s->operator_ = peer.uid == 0 ||", "s->operator_ = peer.uid == 0 || peer.gid == 0 ||",
    "test_front_socket")
bug("credentials-not-asked", FRONT + "listen.c",
    "s->uid = peer.uid;", "s->uid = geteuid();", "test_front_socket")
bug("groups-not-asked", FRONT + "listen.c", "s->gid = peer.gid;", "s->gid = 0;",
    "test_isolation_memory")
bug("overflow-uid-taken", FRONT + "listen.c",
    "if (peer.uid == OVERFLOW_UID) {", "if (0) {", "test_front_socket")
bug("verbs-for-everyone", "tierd/obs/verbs.c",
    "if (!verb->everyone && !q->operator_)", "if (0)", "test_front_socket")
bug("contexts-of-others-listed", OBS + "verbs.c",
    "return q->operator_ || stats->spec.owner_uid == q->uid;", "return true;", "test_obs",
    quick=True)
bug("owner-by-the-groups-number", OBS + "verbs.c",
    "stats->spec.owner_uid == q->uid;", "stats->spec.owner_gid == q->uid;", "test_obs")
bug("asked-by-the-groups-number", FRONT + "admin.c", ".uid = s->uid, .now_ns",
    ".uid = s->gid, .now_ns", "test_isolation_memory")
bug("anothers-context-found-by-name", OBS + "verbs.c",
    "id = find_context(a->o->core, a->question, name);",
    "id = obs_context_id(a->o->core, name);", "test_obs")
bug("contexts-of-others-counted", OBS + "status.c",
    "if (a->question->operator_)\n\t\treturn;\n\tstats->contexts = 0;",
    "return;\n\tstats->contexts = 0;", "test_obs", quick=True)
bug("anyone-removes-a-context", FRONT + "context.c",
    "if (rc == 0 && (view.owner || s->operator_))", "if (rc == 0)", "test_front_socket")
bug("fingerprints-not-compared", FRONT + "context.c",
    "return memcmp(m->fingerprint, spec->fingerprint, sizeof(m->fingerprint)) == 0;",
    "return true;", "test_front_socket")
bug("geometries-not-compared", FRONT + "context.c",
    "else if (memcmp(&m->geometry, &view->spec->geometry, sizeof(m->geometry)) != 0)",
    "else if (0)", "test_front_socket")
bug("socket-mode-not-applied", FRONT + "listen.c",
    "if (chmod(at.sun_path, f->config.socket_mode) || listen", "if (listen",
    "test_front_socket", "test_front_session")

# ---- limits -------------------------------------------------------------------------------------

bug("one-context-too-many", FRONT + "context.c",
    "return count < f->config.user_contexts;", "return count <= f->config.user_contexts;",
    "test_api_limits")
bug("sessions-of-a-user-not-counted", FRONT + "control.c",
    "if (!lobby->operator_)", "if (0)", "test_api_limits")
bug("staging-not-clamped", FRONT + "session.c",
    "if (staging > f->config.staging_max)\n\t\tstaging = f->config.staging_max;", "",
    "test_front_session")
bug("readers-not-clamped", FRONT + "session.c",
    "s->readers_max = readers < ABI_READERS_MAX ? readers : ABI_READERS_MAX;",
    "s->readers_max = readers;",
    "test_front_session")
bug("client-puts-not-applied", SHELL + "settings.c",
    "c->client_puts = config->client_puts;", "",
    "test_api_limits")
bug("client-requests-not-applied", SHELL + "settings.c",
    "c->client_requests = config->client_requests;", "",
    "test_api_limits")
bug("quarantine-percent-not-applied", SHELL + "settings.c",
    "c->quarantine_percent = config->quarantine_percent;", "", "test_api_limits")
bug("pins-limit-not-applied", SHELL + "settings.c", "c->client_pins = config->client_pins;", "",
    "test_settings", quick=True)
bug("yield-not-applied", SHELL + "settings.c", "c->yield = config->background_yield;", "",
    "test_settings")
bug("share-of-another-tier", SHELL + "settings.c",
    "units_resolve(&config->salt_pinned[t], c->capacity[t], 0);",
    "units_resolve(&config->salt_pinned[t], c->capacity[0], 0);", "test_settings")
bug("hard-taken-for-soft", SHELL + "settings.c",
    "c->client_limit[t].hard = units_resolve(&config->client_hard[t], all, 0);",
    "c->client_limit[t].hard = units_resolve(&config->client_soft[t], all, 0);",
    "test_settings")
bug("status-shows-anothers-limit", SHELL + "settings.c", ".puts = c->client_puts,",
    ".puts = c->client_requests,", "test_settings")
bug("least-value-not-checked", SHELL + "config.c",
    "if (value < k->min || value > k->max)\n\t\treturn -ERANGE;\n\t*out = (uint32_t)value;",
    "if (value > k->max)\n\t\treturn -ERANGE;\n\t*out = (uint32_t)value;", "test_config",
    quick=True)
bug("key-set-twice", SHELL + "config.c", "if (k && *line) {", "if (0) {", "test_config")
bug("line-of-a-key-forgotten", SHELL + "config.c", "*line = load->line_number;", "",
    "test_config")
bug("command-line-not-told", SHELL + "config.c",
    "config->line[k - keys] = CONFIG_COMMAND_LINE;", "", "test_config")
bug("tiers-fit-one-by-one", SHELL + "settings.c", "if (hbm <= room && cxl <= room - hbm)",
    "if (hbm <= room && cxl <= room)", "test_settings", quick=True)
bug("tiers-take-all-memory", SHELL + "settings.c",
    "limit->most - limit->most / SETTINGS_MEMORY_SPARE;", "limit->most;", "test_settings")
bug("limit-of-the-nearest-group", BACKEND + "mem_limit.c", "if (most < out->most) {",
    "{", "test_backend_mem_limit")
bug("index-not-asked-for-again", SHELL + "dispatch.c",
    "refuse_prepare(s, &range);\n\t\t\treturn;", "return;", "test_dispatch")
bug("cache-of-files-is-no-room", BACKEND + "mem_limit.c",
    "used = used > cache ? used - cache : 0;", "(void)cache;", "test_backend_mem_limit")
bug("settings-before-the-file", SHELL + "startup.c",
    "if (file)\n\t\trc = config_load(&s->config, file, why, sizeof(why));\n"
    "\tif (rc == 0)\n\t\trc = apply_options(s, why, sizeof(why));",
    "rc = apply_options(s, why, sizeof(why));\n\tif (rc == 0 && file)\n"
    "\t\trc = config_load(&s->config, file, why, sizeof(why));",
    "test_shell")

bug("descriptors-as-they-come", SHELL + "kernel.c",
    "limit.rlim_cur = limit.rlim_max;", "", "test_shell")
bug("long-recovery-without-more-time", SHELL + "notify.c",
    "\\nEXTEND_TIMEOUT_USEC=60000000", "", "test_recover")
bug("recovery-without-a-word", SHELL + "recover.c",
    "if (time_now_ns() - told < NS_PER_S)", "if (time_now_ns() > 0)", "test_recover")
bug("store-open-to-others", BACKEND + "nvme_file.c",
    "if (fstat(o->fd, &st) == 0 && st.st_mode & 077)",
    "if (fstat(o->fd, &st) == 0 && st.st_mode & 07)", "test_backend_nvme_file")

# ---- messages, sessions -------------------------------------------------------------------------

bug("reserved-bytes-not-looked-at", FRONT + "control.c",
    "!control_zero(f->in.ctx.reserved, sizeof(f->in.ctx.reserved)))", "0)",
    "test_front_socket")
bug("length-not-compared", FRONT + "control.c",
    "if (h->length != bytes)\n\t\treturn \"the message's length is not what was sent\";", "",
    "test_front_socket")
bug("name-without-an-end", FRONT + "context.c",
    "return len < bytes && strspn(word, allowed) == len &&",
    "return strnlen(word, bytes) == len && strspn(word, allowed) >= len &&",
    "test_front_socket")
bug("creators-wait-for-ever", FRONT + "control.c",
    "if (p.kind == PENDING_CREATE)\n\t\tcontext_retry(f, t);", "", "test_front_socket")
bug("long-answer-stops", FRONT + "admin.c",
    "watch_socket(f, s, EPOLLOUT);\n\t\t\treturn;", "return;", "test_front_socket")
bug("silent-peers-stay", FRONT + "session.c",
    "t->now_ns - s->since_ns > SESSION_GREETING_NS)\n\t\t\tsession_free(f, s);", "0)\n"
    "\t\t\tsession_free(f, s);", "test_front_session", quick=True)
bug("leases-end-with-the-socket", FRONT + "session.c",
    "if (!atomic_load_acquire_u32(&s->header->goodbye))\n\t\treturn false;", "",
    "test_front_session", quick=True)
bug("quiet-with-a-hazard-word", FRONT + "session.c",
    "if (atomic_load_acquire_u64(&r->slot[k]))", "if (0)",
    "test_front_session")
bug("high-water-of-a-client-trusted", FRONT + "session.c", "k < high && k < ABI_HAZARD_SLOTS",
    "k < high", "test_front_session", quick=True)
bug("process-death-not-told", FRONT + "session.c",
    "if (s->state == SESSION_GONE)\n\t\tdead(f, t, s);", "", "test_front_session",
    "test_api_death")
bug("staging-unmapped-under-a-job", FRONT + "session.c",
    "f->config.ops->jobs_passed(f->config.shell, s->mark))", "1)", "test_front_session",
    quick=True)
bug("closed-not-told", FRONT + "session.c",
    "atomic_store_release_u32(&s->header->closed, 1);", "", "test_front_socket")
bug("running-daemons-socket-taken", FRONT + "listen.c",
    "== 0 || errno != ECONNREFUSED) {", "!= 0 && errno != ECONNREFUSED) {", "test_front_life")

# ---- the daemon's side of the rings -------------------------------------------------------------

bug("one-client-takes-the-turn", FRONT + "ring_in.c",
    "if (most > SESSION_TAKE_MAX)\n\t\tmost = SESSION_TAKE_MAX;", "", "test_front_session",
    quick=True)
bug("first-client-always-first", FRONT + "ring_in.c",
    "list_remove(first);\n\t\tlist_push_back(&f->watched, first);", "", "test_front_session")
bug("callers-without-a-descriptor-stay", FRONT + "listen.c",
    "if (errno == EMFILE || errno == ENFILE)\n\t\t\tturn_away(f);", "", "test_front_session")
bug("spare-descriptor-used-once", FRONT + "listen.c",
    "f->spare_fd = open(\"/dev/null\", O_RDONLY | O_CLOEXEC);", "f->spare_fd = -1;",
    "test_front_session")
bug("taken-index-not-masked", FRONT + "ring_in.c",
    "s->sq[s->sq_head & (s->sq_entries - 1)]", "s->sq[s->sq_head % (s->sq_entries + 1)]",
    "test_front_ring")
bug("clients-head-trusted", FRONT + "ring_in.c",
    "return w->ready <= s->sq_entries && unread <= s->cq_entries &&\n"
    "\t       w->room <= s->cq_entries;", "return w->ready <= s->sq_entries;",
    "test_front_ring", "test_front_session")
bug("clients-tail-trusted", FRONT + "ring_in.c",
    "return w->ready <= s->sq_entries && unread", "return unread", "test_front_ring")
bug("more-completions-than-room", FRONT + "ring_in.c",
    "if (most > w.room)\n\t\tmost = w.room;", "", "test_front_session", "test_front_ring")
bug("parks-without-a-last-look", FRONT + "ring_in.c",
    "if (atomic_load_acquire_u32(&s->header->sq_tail) != s->sq_head) {", "if (0) {",
    "test_front_session")
bug("parked-without-asking", FRONT + "ring_in.c",
    "atomic_store_relaxed_u32(&s->header->sq_wake, 1);", "", "test_front_ring")
bug("closing-takes-requests", FRONT + "ring_in.c",
    "uint32_t budget = f->closing ? 0 : FRONT_TAKE_MAX;", "uint32_t budget = FRONT_TAKE_MAX;",
    "test_front_session")
bug("requests-end-at-the-wrap", FRONT + "ring_in.c",
    "w->ready = atomic_load_acquire_u32(&s->header->sq_tail) - s->sq_head;",
    "w->ready = atomic_load_acquire_u32(&s->header->sq_tail);\n"
    "\tw->ready = w->ready > s->sq_head ? w->ready - s->sq_head : 0;", "test_front_session")
bug("completions-end-at-the-wrap", LIBRARY + "ring.c",
    "uint32_t ready = atomic_load_acquire_u32(&r->shared->cq_tail) - r->cq_head;",
    "uint32_t tail = atomic_load_acquire_u32(&r->shared->cq_tail), ready = tail - r->cq_head;\n\n"
    "\tif (tail < r->cq_head)\n\t\treturn -EPROTO;", "test_libtier_request")
bug("tail-before-the-completion", FRONT + "ring_out.c",
    "s->cq[s->cq_tail & (s->cq_entries - 1)] = *cqe;\n\ts->cq_tail++;\n\ts->in_flight--;\n"
    "\ts->posted++;\n\tatomic_store_release_u32(&s->header->cq_tail, s->cq_tail);",
    "atomic_store_release_u32(&s->header->cq_tail, s->cq_tail + 1);\n"
    "\ts->cq[s->cq_tail & (s->cq_entries - 1)] = *cqe;\n\ts->cq_tail++;\n\ts->in_flight--;\n"
    "\ts->posted++;",
    "test_front_session")
bug("last-wake-ups-lost", FRONT + "ring_out.c",
    "if (count)\n\t\tring_out_signal(f, fd, count);", "", "test_front_session")
bug("wake-up-by-write", FRONT + "ring_out.c", "f->aio = aio;", "f->aio = 0;",
    "test_front_ring")
bug("wakes-who-does-not-wait", FRONT + "ring_out.c",
    "if (!must && atomic_load_relaxed_u32(&s->header->cq_wait) == 0)\n\t\t\tcontinue;", "",
    "test_front_session")
bug("layers-do-not-wake", FRONT + "ring_out.c", "s->must_wake = true;\n\towe(f, s);", "",
    "test_api_stream")

# ---- workers, memory ----------------------------------------------------------------------------

bug("job-told-before-it-is-done", SHELL + "worker.c",
    "carry_out(job);\n\t\tfinish(p, job);", "finish(p, job);\n\t\tcarry_out(job);",
    "test_tsan_worker")
bug("loop-sleeps-over-a-job", SHELL + "worker.c",
    "if (p->reaped == 0 && atomic_load_relaxed_u32(&p->done) == 0)\n\t\treturn true;",
    "return true;", "test_tsan_worker")
bug("finished-job-wakes-nobody", SHELL + "worker.c",
    "if (atomic_load_relaxed_u32(&p->loop_sleeps) && atomic_exchange_u32(&p->loop_sleeps, 0))",
    "if (0)", "test_tsan_worker")
bug("checksum-not-compared", SHELL + "worker.c",
    "!= piece->crc)", "== ~piece->crc)", "test_tsan_worker", quick=True)
bug("checksum-without-its-seed", SHELL + "worker.c",
    "crc32c(piece->seed, piece->addr, piece->bytes)", "crc32c(0, piece->addr, piece->bytes)",
    "test_tsan_worker")
bug("classes-are-not-told-apart", SHELL + "worker.c",
    "BRIEF_QUEUE : 1u + job->klass;", "BRIEF_QUEUE : 1u;", "test_tsan_worker", quick=True)
bug("copies-wait-for-discards", SHELL + "worker.c", "return PATIENT_QUEUE;",
    "return 1u + job->klass;", "test_tsan_worker")
bug("files-discarded-by-themselves", SHELL + "startup.c", "want == CONFIG_ON);",
    "want != CONFIG_OFF);", "test_api_recount")
bug("cleanup-before-demand", SHELL + "worker.c",
    "struct queue *q = &p->queue[k];",
    "struct queue *q = &p->queue[seat->first + seat->end - 1 - k];",
    "test_tsan_worker")
bug("a-class-in-another-order", SHELL + "worker.c",
    "atomic_store_relaxed_u32(&q->slot[tail % WORKER_JOBS_MAX], (uint32_t)(job - p->job));",
    "q->slot[tail % WORKER_JOBS_MAX] = q->slot[(tail - (tail > q->head)) % WORKER_JOBS_MAX];\n"
    "\tq->slot[(tail - (tail > q->head)) % WORKER_JOBS_MAX] = (uint32_t)(job - p->job);",
    "test_tsan_worker")
bug("closing-pool-drops-jobs", SHELL + "worker.c",
    "if (atomic_load_acquire_u32(&p->stop))\n\t\t\treturn pop(p, seat);",
    "if (atomic_load_acquire_u32(&p->stop))\n\t\t\treturn NULL;", "test_tsan_worker")
bug("jobs-passed-too-early", SHELL + "worker.c",
    "return !first || list_entry(first, const struct job, link)->number > mark;",
    "return !first || list_entry(first, const struct job, link)->number >= mark;",
    "test_tsan_worker")
bug("memory-unmapped-under-a-copy", SHELL + "memory.c",
    "if (!worker_passed(workers, made->mark)) {", "if (0) {", "test_shell_memory", quick=True)
bug("memory-of-another-context", SHELL + "memory.c",
    "return made && made->id == id ? made : NULL;", "return made;", "test_shell_memory")
bug("checksum-of-the-source", BACKEND + "mem_common.c",
    "crc = crc32c(crc, dst, n);", "crc = crc32c(crc, src, n);", "test_backend_mem")
bug("range-not-checked", BACKEND + "mem_common.c",
    "bytes <= region->bytes - offset &&", "", "test_backend_mem")
bug("wrong-place-punched", SHELL + "holes.c",
    "s->mem[tier]->punch(region, hole.offset, hole.bytes)",
    "s->mem[tier]->punch(region, hole.offset - (hole.offset ? ABI_HUGE : 0), hole.bytes)",
    "test_isolation_exhaust")
bug("holes-not-looked-for", SHELL + "holes.c",
    "if (resident <= 0 || (uint64_t)resident <= taken)", "if (resident)",
    "test_isolation_exhaust")
bug("index-holes-kept", SHELL + "holes.c",
    "at = lseek(region->fd, at, SEEK_DATA);", "at = -1;", "test_isolation_exhaust")

# ---- device -------------------------------------------------------------------------------------

bug("short-transfer-taken-as-whole", BACKEND + "nvme.c",
    "if (op->done == io->bytes)", "if (res > 0)", "test_backend_nvme", quick=True)
bug("rest-at-the-wrong-offset", BACKEND + "nvme.c",
    "uint64_t offset = io->offset + op->done;", "uint64_t offset = io->offset;",
    "test_backend_nvme")
bug("rest-into-the-wrong-memory", BACKEND + "nvme.c", "at += skip;", "", "test_backend_nvme")
bug("interrupted-transfer-fails", BACKEND + "nvme.c",
    "if ((res == -EAGAIN || res == -EINTR) && op->retries++ < RETRIES_MAX)", "if (0)",
    "test_backend_nvme")
bug("end-of-file-tried-for-ever", BACKEND + "nvme.c",
    "if (res == 0 || op->done % LOGICAL_SECTOR)\n\t\treturn finish(d, op, -EIO);", "",
    "test_backend_nvme")
bug("patience-is-not-renewed", BACKEND + "nvme.c", "op->retries = 0;", "", "test_backend_nvme")
bug("flushes-use-up-operations", BACKEND + "nvme.c",
    "*token = op->token;\n\t\top_put(d, op);", "*token = op->token;", "test_backend_nvme")
bug("file-may-grow", BACKEND + "nvme.c",
    "if (offset > d->store.bytes || bytes > d->store.bytes - offset)",
    "if (offset > d->store.bytes)",
    "test_backend_nvme_file", "test_backend_nvme")
bug("store-not-locked", BACKEND + "nvme_file.c",
    "if (fcntl(o->fd, F_OFD_SETLK, &whole) == 0) {", "if (1) {", "test_backend_nvme_file")
bug("store-not-filled", BACKEND + "nvme_file.c",
    "rc = fill_holes(o->options, o->fd, want);", "rc = 0;", "test_backend_nvme_file")
bug("failed-store-left-behind", BACKEND + "nvme_file.c",
    "unlink(options->path);", ";", "test_backend_nvme_file")
bug("end-of-a-file-is-success", "libtier/base/file.c",
    "return n ? -errno : -ENODATA;", "return n ? -errno : 0;", "test_base_file", quick=True)
bug("interrupted-write-fails", "libtier/base/file.c",
    "ssize_t n = pwrite(fd, at, bytes, (off_t)offset);\n\n\t\tif (n < 0 && errno == EINTR)\n"
    "\t\t\tcontinue;\n\t\tif (n <= 0)\n\t\t\treturn n ? -errno : -EIO;\n\t\tat += n;",
    "ssize_t n = pwrite(fd, at, bytes, (off_t)offset);\n\n\t\tif (n <= 0)\n"
    "\t\t\treturn n ? -errno : -EIO;\n\t\treturn 0;", "test_base_file")
bug("read-not-verified", SHELL + "dispatch.c",
    "if (io->write || !io->verify ||", "if (io->write || io->verify ||",
    "test_shell")
bug("fence-skipped", SHELL + "dispatch.c",
    "long rc = syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);", "long rc = 0;",
    "test_shell")

bug("region-keeps-addresses", BACKEND + "mem_common.c",
    "if (room - before - bytes)\n\t\tmunmap(at + bytes, room - before - bytes);",
    "",
    "test_backend_mem")
bug("region-not-aligned", BACKEND + "mem_common.c",
    "before = (ABI_HUGE - (uintptr_t)all % ABI_HUGE) % ABI_HUGE;",
    "before = 0;",
    "test_backend_mem", quick=True)
bug("regions-in-core-dumps", BACKEND + "mem_common.c",
    "madvise(addr, bytes, MADV_DONTDUMP); /* clients' data has no place in a core dump */",
    "",
    "test_backend_mem")
bug("region-keeps-its-descriptor", BACKEND + "mem_common.c",
    "\tclose(region->fd);\n\t*region",
    "\t*region",
    "test_backend_mem")
bug("wake-ups-beyond-a-batch-lost", FRONT + "ring_out.c",
    "ring_out_signal(f, fd, count);\n\t\t\tcount = 0;", "count = 0;", "test_front_session")
bug("completions-over-reader-areas", FRONT + "grant.c",
    "page_up((uint64_t)s->cq_entries * sizeof(struct abi_cqe));",
    "page_up((uint64_t)s->sq_entries * sizeof(struct abi_cqe));", "test_front_session")
bug("older-clients-taken", FRONT + "control.c",
    "if (h->version != ABI_VERSION)", "if (h->version > ABI_VERSION)", "test_front_socket")
bug("removed-contexts-keep-their-memory", SHELL + "serve.c",
    "memory_retire(s->memory, id, s->workers);", "", "test_api_recount")
bug("pin-without-an-end-has-none", OBS + "status.c",
    "pin.deadline_ns == UINT64_MAX ? 0 : pin.deadline_ns;", "pin.deadline_ns;",
    "test_tierctl")
bug("evicted-bytes-not-told", OBS + "verbs.c",
    '"freed", obs_number(value)', '"freed", obs_number(0)', "test_tierctl")
bug("evict-asked-for-everything", CTL + "cmd_block.c",
    'json_object_set_new(args, "bytes", json_integer((json_int_t)bytes));', ";", "test_tierctl")
bug("cxl-shown-as-nvme", CTL + "cmd_context.c",
    '"tiers.2.live"', '"tiers.1.live"', "test_tierctl")
bug("totals-shown-as-rates", CTL + "cmd_top.c",
    "(value - (old <= value ? old : 0)) / seconds", "value / seconds", "test_tierctl")
bug("rates-since-the-first-screen", CTL + "cmd_top.c",
    "json_decref(*before);\n\t\t*before = json_incref(stat);",
    "if (!*before)\n\t\t\t*before = json_incref(stat);", "test_tierctl")
bug("no-daemon-is-a-refusal", CTL + "ask.c",
    "return error == -ENOTCONN || error == -ECONNREFUSED ? CTL_NO_DAEMON : CTL_FAILED;",
    "return CTL_FAILED;", "test_tierctl")
bug("reserved-shown-as-dirty", CTL + "cmd_quota.c",
    '{ "cxl.dirty", "cxl.quarantined", "cxl.reserved",',
    '{ "cxl.reserved", "cxl.quarantined", "cxl.dirty",', "test_tierctl")
bug("long-names-widen-the-table", CTL + "grid.c",
    "shrink(g, '~', NAME_LEAST, most);", ";", "test_ctl_show", "tierctl.sh")
bug("names-cut-in-files", CTL + "grid.c",
    "if (terminal)\n\t\tshrink(g, '~'", "shrink(g, '~'", "test_ctl_show", "tierctl.sh")
bug("names-counted-by-bytes", CTL + "grid.c",
    "count += begins_letter(*text);", "count++;", "test_ctl_show")
bug("text-not-wrapped", CTL + "grid.c",
    "shrink(g, '=', TEXT_LEAST, most);", ";", "test_ctl_show", "tierctl.sh")
bug("bytes-without-their-unit", CTL + "show.c",
    "if (*unit == 'B')", "if (*unit)", "test_ctl_show")
bug("part-needed-by-all", CTL + "context_spec.c", "part->hit_rule = TIER_HIT_LAST;", "",
    "test_ctl_spec")
bug("replicated-part-sharded", CTL + "context_spec.c",
    "part->shard_rule = TIER_SHARD_REPLICATED;", "", "test_ctl_spec")
bug("option-of-a-part-said-twice", CTL + "context_spec.c", "if (last && !part->hit_rule &&",
    "if (last &&", "test_ctl_spec")
bug("windows-tokens-dropped", CTL + "context_spec.c",
    "part->kind_arg = (uint32_t)number;", "", "test_ctl_spec")
bug("pages-of-the-wrong-tier-located", CTL + "cmd_block.c",
    '"hbm", "cxl", "nvme" };\n\tchar a', '"cxl", "hbm", "nvme" };\n\tchar a', "test_tierctl")
bug("operators-are-strangers-too", FRONT + "context.c",
    "if (rc && s->operator_) {", "if (0) {", "test_front_operator")
bug("only-root-operates", FRONT + "listen.c",
    "peer.uid == 0 || peer.uid == geteuid();", "peer.uid == 0;", "test_front_operator")
bug("removal-of-the-hidden-not-told", "tierd/core/context.c",
    "core_context_free(c, x);\n\tcore_reply(c, token, 0, id);",
    "core_context_free(c, x);\n\t(void)token;\n\t(void)id;",
    "test_front_operator", "test_core_catalog")
bug("refused-context-keeps-its-memory", SHELL + "serve.c",
    "memory_unmake(s->memory, made);", "", "test_dispatch", quick=True)
bug("unlisted-context-can-be-found", "tierd/core/context.c",
    "!x || x->closing || !x->listed || strcmp(x->spec.name, name)",
    "!x || x->closing || strcmp(x->spec.name, name)", "test_core_catalog")
bug("age-by-the-wall-clock", CTL + "cmd_list.c",
    "ctl_age(cell, one, column->member, time_now_ns())",
    "ctl_age(cell, one, column->member, (uint64_t)time(NULL) * NS_PER_S)", "test_tierctl")
bug("age-in-microseconds", CTL + "show.c",
    "units_print_ns(text, now_ns - since)", "units_print_ns(text, (now_ns - since) / 1000)",
    "test_ctl_show")
bug("deadline-shown-as-age", OBS + "status.c",
    '(int)r.done, "since_ns", obs_number(r.since_ns)',
    '(int)r.done, "since_ns", obs_number(r.deadline_ns)', "test_tierctl")
bug("uptime-since-the-host-began", OBS + "status.c",
    "obs_number(q->now_ns - o->started_ns)", "obs_number(q->now_ns)", "test_tierctl")
bug("latency-in-microseconds", FRONT + "ring_out.c",
    "hist_record(&f->latency[k], time_now_ns() - sample->since_ns);",
    "hist_record(&f->latency[k], (time_now_ns() - sample->since_ns) / 1000);", "test_tierctl")
bug("latency-columns-exchanged", CTL + "cmd_status.c",
    '"p99_ns", "p999_ns", "max_ns" };', '"p999_ns", "p99_ns", "max_ns" };', "test_ctl_show")
bug("mean-shown-as-median", OBS + "status.c",
    "obs_number(hist_quantile(h, 0.5))", "obs_number((uint64_t)hist_mean(h))", "test_obs")
bug("in-flight-not-recounted", FRONT + "audit.c",
    'compare(&r, "requests in flight", s->taken - s->posted, s->in_flight);', ";",
    "test_front_session")
bug("sessions-of-the-core-not-compared", FRONT + "audit.c",
    'compare(&r, "open ones that the core knows", open, core.clients);', "", "test_front_session")
bug("backends-without-a-word", CTL + "cmd_status.c", "\tshow_backends(status, to);\n", "",
    "test_ctl_show")
bug("help-wider-than-a-terminal", SHELL + "main.c",
    "at > HELP_TEXT && at + 1 + length > HELP_COLUMNS", "at < 0", "tierctl.sh")
bug("contexts-of-another-group", FRONT + "context.c",
    "spec->owner_gid = s->gid;", "spec->owner_gid = s->uid;", "test_front_socket")
bug("a-quantile-for-another", OBS + "status.c",
    "obs_number(hist_quantile(h, 0.99))", "obs_number(hist_quantile(h, 0.9))", "test_obs")
bug("facts-beyond-their-room", OBS + "verbs.c",
    "if (o->facts == OBS_FACTS_MAX)\n\t\treturn;", "", "test_obs")
bug("pinned-shown-as-dirty", OBS + "verbs.c",
    'obs_number(s->dirty), "pinned", obs_number(s->pinned)',
    'obs_number(s->pinned), "pinned", obs_number(s->dirty)', "test_tierctl")
bug("client-of-another-number", OBS + "quota.c",
    "q->key = client;", "q->key = (uint32_t)client;", "test_obs")
bug("path-beyond-its-room", SHELL + "config.c",
    "if (text[0] != '/' || bytes > k->max)", "if (text[0] != '/')", "test_config")
bug("environment-beyond-its-room", SHELL + "config.c",
    "|| dir_bytes + strlen(tail) >= out_bytes)", "|| dir_bytes + strlen(tail) > out_bytes)",
    "test_config")
bug("odd-segments-taken", SHELL + "config.c",
    "if (config->nvme_segment % 4096 ||", "if (config->nvme_segment % 512 ||", "test_config")
bug("rank-rounded-down", "libtier/base/hist.c",
    "if ((double)rank < q * (double)count)\n\t\trank++;", "", "test_base_hist")
bug("cut-store-not-told", SHELL + "recount.c",
    "if (b.bytes < r->out->store_bytes)", "if (0)", "test_api_recount")
bug("punches-take-all-jobs", SHELL + "dispatch.c",
    "if (region && worker_jobs_free(s->workers) > JOBS_KEPT) {",
    "if (region && worker_jobs_free(s->workers) > 0) {", "test_dispatch", quick=True)
bug("not-punched-without-a-job", SHELL + "dispatch.c",
    "res = s->mem[a->range.tier]->punch(region, a->range.offset, a->range.bytes);", "res = 0;",
    "test_dispatch")
bug("extents-beyond-an-answer", BACKEND + "nvme_file.c",
    "while (from < to) {", "if (from < to) {", "test_backend_nvme_file")
bug("automatic-size-without-a-bound", BACKEND + "nvme_file.c",
    "(share < AUTO_BYTES_MAX ? share : AUTO_BYTES_MAX)", "share", "test_backend_nvme_file")
bug("last-hole-told", BACKEND + "nvme_file.c",
    "if (lost && !out->holes)",
    "if (lost)",
    "test_api_recount")
bug("new-file-not-synced", BACKEND + "nvme_file.c",
    "if (rc == 0 && fsync(o->fd))\n\t\trc = -errno;",
    "",
    "test_recover")
bug("flush-of-nothing", BACKEND + "nvme.c",
    "return fdatasync(d->store.fd) ? -errno : 0;",
    "return 0;",
    "test_recover")
bug("failed-flush-not-told", SHELL + "dispatch.c",
    "event.sync.token = token;\n\t\tevent.sync.res = res;",
    "event.sync.token = token;\n\t\tevent.sync.res = 0;",
    "test_dispatch", quick=True)
bug("refused-operation-not-told", SHELL + "dispatch.c",
    "p->deferred_head++;\n\t\tif (rc)\n\t\t\tfail(s, &d, rc);",
    "p->deferred_head++;",
    "test_dispatch")
bug("flushes-never-over", SHELL + "dispatch.c",
    "} else if (token) {\n\t\ts->dispatch.ios--;",
    "} else if (token) {",
    "test_dispatch")
bug("who-comes-passes-who-waits", SHELL + "dispatch.c",
    "int rc = p->deferred_head != p->deferred_tail ? -EAGAIN : submit(s, &d);",
    "int rc = submit(s, &d);",
    "test_dispatch")
bug("refused-operation-under-way", SHELL + "dispatch.c",
    "s->dispatch.ios--;\n\tif (d->io) {",
    "if (d->io) {",
    "test_dispatch")
bug("refused-operation-tried-again", SHELL + "dispatch.c",
    "p->deferred_head++;\n\t\tif (rc)",
    "if (rc)",
    "test_dispatch")
bug("refused-flush-is-success", SHELL + "dispatch.c",
    "event.sync.token = d->token;\n\tevent.sync.res = rc;",
    "event.sync.token = d->token;\n\tevent.sync.res = 0;",
    "test_dispatch")

# ---- start, stop, store -------------------------------------------------------------------------

bug("stops-without-writing", SHELL + "loop.c",
    "if (core_drain(s->core, SHELL_TOKEN_DRAIN))\n\t\tsettle(s);", "settle(s);",
    "test_shell")
bug("sessions-not-ended-at-stop", SHELL + "loop.c",
    "front_end_all(s->front, &l->turn, -ESHUTDOWN);", "", "test_front_life")
bug("idle-loop-spins", SHELL + "loop.c",
    "return hopeful == 0 && t->now_ns - l->busy_ns >= awake;", "return false;",
    "test_front_ring")
bug("size-limit-kills", SHELL + "main.c", "signal(SIGXFSZ, SIG_IGN);", "", "test_front_life")
bug("ready-not-told", SHELL + "startup.c", "notify_ready(status);", "",
    "test_shell")
bug("stopping-not-told", SHELL + "loop.c", "notify_stopping();", "",
    "test_shell")
bug("older-catalog-taken", SHELL + "recover.c",
    "(*best)->sequence > head->sequence)", "(*best)->sequence < head->sequence)",
    "test_front_life", "test_store_repair")
bug("damaged-super-block-kept", SHELL + "recover.c",
    "rc = s->block->pwrite(s->device, buf, DISK_SECTOR, 0);", "rc = 0;", "test_front_life")
bug("cut-off-store-taken", SHELL + "recover.c",
    "if (super->segment_offset + super->segment_count * super->segment_bytes >\n"
    "\t    s->block->bytes(s->device))", "if (0)", "test_front_life")
bug("uids-given-again", SHELL + "recover.c",
    "s->core_config.next_uid = best->next_uid;", "s->core_config.next_uid = 0;",
    "test_shell")
bug("unreadable-super-block-stops", SHELL + "recover.c", "if (first != -EPROTO)",
    "if (first == -EBADMSG)", "test_recover")
bug("catalog-of-the-wrong-slot", SHELL + "recover.c",
    "if (one || (head->sequence & 1) != slot)", "if (one)", "test_recover")
bug("torn-catalog-kept", SHELL + "recover.c", "rc = void_torn(s, bytes, best);", "rc = 0;",
    "test_recover")
bug("store-replaced-under-a-daemon", SHELL + "format.c",
    "rc = hold(s, s->config.store_path, &former);", "rc = 0;\n\tformer = NULL;",
    "test_front_life")
bug("link-to-the-store-replaced", SHELL + "format.c",
    "rc = follow(s->config.store_path, real);",
    "rc = 0;\n\tsnprintf(real, sizeof(real), \"%s\", s->config.store_path);",
    "test_front_life")
bug("punched-before-it-is-backed", SHELL + "dispatch.c",
    "if (!prepare_hold_punch(&s->dispatch.prepare, job))", "if (1)", "test_dispatch", quick=True)
bug("held-punch-forgotten", SHELL + "dispatch.c",
    "while ((punch = prepare_release_punch(p)))", "while ((punch = NULL))", "test_dispatch")
bug("tier-larger-than-the-host", SHELL + "startup.c",
    "return check_fit(s, bytes, &limit);", "return 0;", "test_front_life")
bug("no-copy-of-the-super-block", SHELL + "format.c",
    "rc = s->block->pwrite(s->device, buf, DISK_SECTOR, DISK_SECTOR);", "rc = 0;",
    "test_front_life")

bug("copy-of-the-super-block-not-read", SHELL + "recover.c",
    "rc = read_sector(s, buf, DISK_SECTOR, super);",
    "rc = read_sector(s, buf, 0, super);",
    "test_recover")
bug("super-block-not-judged", SHELL + "recover.c",
    "rc = store_super_check(super, why, sizeof(why));",
    "rc = 0;",
    "test_recover", quick=True)
bug("catalog-of-another-store", SHELL + "recover.c",
    "int one = disk_catalog_open(bytes + slot * slot_bytes, slot_bytes, id, &head,",
    "int one = disk_catalog_open(bytes + slot * slot_bytes, slot_bytes, ((const struct "
    "disk_catalog *)(bytes + slot * slot_bytes))->store_id, &head,",
    "test_recover")
bug("torn-catalog-voided-for-now", SHELL + "recover.c",
    "return rc ? rc : s->block->flush(s->device);\n}\n\nstatic int read_catalog",
    "return rc;\n}\n\nstatic int read_catalog",
    "test_recover")
bug("failed-start-keeps-the-store", SHELL + "recover.c",
    "if (rc) {\n\t\trecover_store_close(s);\n\t\treturn rc;\n\t}",
    "if (rc)\n\t\treturn rc;",
    "test_recover")
bug("catalog-numbers-begin-anew", SHELL + "recover.c",
    "s->core_config.catalog_sequence = best->sequence;",
    "",
    "test_recover")
bug("unreadable-segment-is-the-one-before", SHELL + "recover.c",
    "memset(summary, 0, super->summary_bytes);\n\t}\n\trc = core_recover",
    "}\n\trc = core_recover",
    "test_recover", quick=True)
bug("last-segment-not-read", SHELL + "recover.c",
    "i < super->segment_count && !s->formatted && rc == 0",
    "i + 1 < super->segment_count && !s->formatted && rc == 0",
    "test_recover")
bug("summaries-counted-as-room", SHELL + "recover.c",
    "super->segment_count * (super->segment_bytes - super->summary_bytes);",
    "super->segment_count * super->segment_bytes;",
    "test_recover", "tierctl.sh", "test_front_life")
bug("first-limit-not-restored", SHELL + "recover.c",
    "for (uint32_t i = 0; i < s->catalog.limits; i++)",
    "for (uint32_t i = 1; i < s->catalog.limits; i++)",
    "tierctl.sh")
bug("geometry-of-the-catalog-trusted", SHELL + "recover.c",
    "int rc = abi_geometry_check(&spec->geometry, why, sizeof(why));",
    "int rc = 0;",
    "test_recover")
bug("summaries-read-unflushed", SHELL + "recover.c",
    "rc = s->block->flush(s->device);\n\tif (rc)\n\t\treturn recover_explain(s, rc, \"the store "
    "cannot be flushed\"",
    "rc = 0;\n\tif (rc)\n\t\treturn recover_explain(s, rc, \"the store cannot be flushed\"",
    "test_recover")
bug("context-that-cannot-be-made-is-skipped", SHELL + "recover.c",
    "why, \"errno=%d\", -rc);\n\t\t\treturn rc;",
    "why, \"errno=%d\", -rc);",
    "test_recover")
bug("super-block-before-its-catalog", SHELL + "format.c",
    "if (rc == 0)\n\t\trc = s->block->flush(s->device);\n\tdisk_super_seal",
    "disk_super_seal",
    "test_recover")
bug("new-store-not-flushed", SHELL + "format.c",
    "return rc ? rc : s->block->flush(s->device);\n}\n\nstatic int sync_folder",
    "return rc;\n}\n\nstatic int sync_folder",
    "test_recover")
bug("name-of-the-store-not-durable", SHELL + "format.c",
    "if (rc == 0)\n\t\t\trc = sync_folder(real);",
    "",
    "test_recover")
bug("failed-format-left-behind", SHELL + "format.c",
    "if (rc)\n\t\t\tunlink(options->path);",
    "",
    "test_recover")
bug("left-over-not-cut", SHELL + "format.c",
    "if (s->block->bytes(left) > options->bytes &&", "if (!s->block &&", "test_recover")
bug("replaced-store-kept-open", SHELL + "format.c",
    "\ts->block->close(former);\n",
    "",
    "test_recover")
bug("all-stores-have-one-id", SHELL + "format.c",
    "rc = store_super_plan(super, s->block->bytes(s->device), s->config.nvme_segment, id);",
    "rc = store_super_plan(super, s->block->bytes(s->device), s->config.nvme_segment, 1);",
    "test_recover")
bug("link-text-not-ended", SHELL + "format.c",
    "to[len] = '\\0';",
    "",
    "test_front_life")

# ---- the log -----------------------------------------------------------------------------------

bug("line-without-an-end", "libtier/base/log.c",
    "line->text[line->len++] = '\\n';",
    "",
    "test_base_log")
bug("log-changes-errno", "libtier/base/log.c",
    "\terrno = saved;\n",
    "",
    "test_base_log")
bug("interrupted-line-is-lost", "libtier/base/log.c",
    "if (n < 0 && errno != EINTR)",
    "if (n < 0)",
    "test_base_log")
bug("log-of-another-month", "libtier/base/log.c",
    "utc.tm_mon + 1,",
    "utc.tm_mon,",
    "test_base_log")
bug("values-forge-lines", "libtier/base/log.c",
    "\t\tdisarm(&line, from, false);\n",
    "",
    "test_base_log")
bug("longest-line-overruns", "libtier/base/log.c",
    "(size_t)len < room ? (size_t)len : room - 1;",
    "(size_t)len;",
    "test_base_log")
bug("delete-not-disarmed", "libtier/base/log.c",
    "if (c < 0x20 || c == 0x7f)",
    "if (c < 0x20)",
    "test_base_log")
bug("piece-of-a-line-twice", "libtier/base/log.c",
    "at += n;\n\t\t\tleft",
    "left",
    "test_base_log")
bug("log-of-other-milliseconds", "libtier/base/log.c",
    "(int)(now.tv_nsec / 1000000));",
    "(int)(now.tv_nsec / 1000000 % 100));",
    "test_base_log")

# ---- what operators see and ask ----------------------------------------------------------------

bug("salt-of-more-than-64-bits", "tierd/obs/quota.c",
    "return errno || *end ? -EINVAL : 0;",
    "return *end ? -EINVAL : 0;",
    "test_obs")
bug("negative-limits-taken", "tierd/obs/quota.c",
    "if (!json_is_integer(value) || json_integer_value(value) < 0)",
    "if (!json_is_integer(value))",
    "test_obs")
bug("negative-bytes-evicted", "tierd/obs/verbs.c",
    "(!json_is_integer(bytes) || json_integer_value(bytes) < 0))",
    "!json_is_integer(bytes))",
    "test_obs")
bug("holders-without-nvme", "tierd/obs/quota.c",
    "for (uint32_t t = 0; t < TIERS_HELD; t++) {\n\t\tjson_t *here",
    "for (uint32_t t = 0; t + 1 < TIERS_HELD; t++) {\n\t\tjson_t *here",
    "test_obs")
bug("live-shown-as-used", "tierd/obs/verbs.c",
    "\"used\", obs_number(s->used), \"live\",\n\t\t\t\tobs_number(s->live)",
    "\"used\", obs_number(s->live), \"live\",\n\t\t\t\tobs_number(s->used)",
    "test_obs", quick=True)
bug("leased-in-one-tier-alone", "tierd/obs/status.c",
    "obs_number(v.quarantined[ABI_TIER_HBM] + v.quarantined[ABI_TIER_CXL]));",
    "obs_number(v.quarantined[ABI_TIER_CXL]));",
    "test_obs")
bug("names-with-control-bytes", "tierd/obs/verbs.c",
    "byte < 0x20 || byte >= 0x7f ? '?' : (char)byte;",
    "(char)byte;",
    "test_front_socket", "test_obs")
bug("sessions-that-ended-share", "tierd/obs/status.c",
    "n.shared += q->session[i].open && q->session[i].uid == o->uid;",
    "n.shared += q->session[i].uid == o->uid;",
    "test_obs")
bug("request-by-anothers-name", "tierd/obs/status.c",
    "\"nop\",\t \"put-reserve\",",
    "\"put-reserve\", \"nop\",",
    "test_obs")
bug("amplification-the-other-way", "tierd/obs/status.c",
    "(double)(l->written + l->again) / (double)l->written : 1;",
    "(double)l->written / (double)(l->written + l->again) : 1;",
    "test_obs")
bug("context-by-part-of-its-name", "tierd/obs/verbs.c",
    "strncmp(stats.spec.name, name, ABI_NAME_BYTES) != 0)",
    "strncmp(stats.spec.name, name, strlen(name)) != 0)",
    "test_obs")
bug("check-that-failed-is-success", "tierd/ctl/cmd_block.c",
    "return rc == CTL_OK && !clean ? CTL_FAILED : rc;",
    "return rc;",
    "tierctl.sh")
bug("word-without-an-end", "tierd/ctl/context_spec.c",
    "strlen(value) >= 32)",
    "strlen(value) > 32)",
    "test_ctl_spec")
bug("absent-tiers-shown", "tierd/ctl/cmd_status.c",
    "if (json_is_false(json_at(one, \"present\")))\n\t\t\tcontinue;",
    "",
    "test_ctl_show")
bug("failing-store-not-shown", "tierd/ctl/cmd_status.c",
    "json_is_true(json_at(one, \"failing\")) ? \" (FAILING)\" : \"\");",
    "\"\");",
    "test_ctl_show")
bug("epoch-0-taken", "tierd/ctl/cmd_context.c",
    "*argv[1] == '-' || !epoch)",
    "*argv[1] == '-')",
    "tierctl.sh")
bug("hard-sent-as-soft", "tierd/ctl/cmd_quota.c",
    "c == 'S' ? \"soft\" : c == 'H' ? \"hard\" : \"pins\",",
    "c == 'S' ? \"hard\" : c == 'H' ? \"soft\" : \"pins\",",
    "tierctl.sh")

# ---- repair -------------------------------------------------------------------------------------

bug("good-super-block-overwritten", "tierd/ctl/repair.c",
    "l->super = super[rc[0] ? 1 : 0];", "l->super = super[rc[0] ? 0 : 1];", "test_store_repair")
bug("renewed-catalog-is-older", "tierd/ctl/repair.c", "head.sequence++;", "head.sequence--;",
    "test_store_repair")
bug("repairs-under-a-daemon", "tierd/ctl/repair.c",
    "if (fcntl(l->fd, F_OFD_SETLK, &all) == 0)\n\t\t\treturn 0;",
    "fcntl(l->fd, F_OFD_SETLK, &all);\n\t\treturn 0;",
    "test_store_repair")
bug("rotten-pages-not-found", "tierd/ctl/repair.c",
    "crc32c(seed, l->page, bytes) != *crc;", "0;", "test_store_repair")
bug("pages-read-at-the-wrong-place", "tierd/ctl/repair.c",
    "v->data_offset + (uint64_t)at)", "v->data_offset)", "test_store_repair")
bug("pages-of-the-first-parts-size", "tierd/ctl/repair.c", "while (p >= g->part[part].page_base",
    "if (0 && p >= g->part[part].page_base", "test_store_repair")
bug("catalog-cut-off-is-lost", "tierd/ctl/repair.c",
    "if (rc[slot] == 0 || rc[slot] == -ENODATA)", "if (rc[slot] == 0)", "test_store_repair")
bug("unused-catalog-is-a-fault", "tierd/ctl/repair.c",
    "bad = rc[slot] == -EBADMSG && never_written(at) ? bad : (int)slot;", "bad = (int)slot;",
    "test_store_repair")
bug("length-not-given-back", "tierd/ctl/repair.c",
    "(off_t)(need - l->bytes)),", "(off_t)(1)),", "test_store_repair")
