"""The door of vLLM's offloading: a secondary tier behind its host memory.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec", ...,
            "secondary_tiers": [{"type": "SecondaryTier", "module_path": "tier.vllm.tiering"}]}}'

A tier's entry may have: context (name; "vllm-offload"), socket, n_read_threads, n_write_threads,
staging_bytes, enable_kv_events, locality.

A row of the host memory is a block, found by the engine's own key. Models, dtypes and layouts lie
in contexts of their own, told apart as the engine tells its files apart. A look-up is answered at
once, from shared memory; what did not come is a miss for all requests that asked before.

SPDX-License-Identifier: Apache-2.0
"""
import errno
import hashlib

from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (
    Locality, LookupResult, Medium, OffloadingEvent, RequestOffloadingContext)
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager
from vllm.v1.kv_offload.tiering.fs.thread_pool import DualQueueThreadPool

import tier

logger = init_logger(__name__)
PAGE_BYTES_MAX = 16 << 20


class SecondaryTier(SecondaryTierManager):
    medium = Medium.STORAGE

    def __init__(self, offloading_spec, primary_kv_view, tier_type, context="vllm-offload",
                 socket=None, n_read_threads=4, n_write_threads=4, staging_bytes=0,
                 enable_kv_events=False, locality=None, backpressure_detector=None):
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality(locality) if locality is not None else None
        wanted = offloading_spec.kv_events_config.enable_kv_cache_events
        self.events = [] if enable_kv_events and wanted else None
        # Which bytes are interchangeable: what the engine's own files are told apart by.
        self.file_mapper = FileMapper.from_offloading_spec(
            root_dir=context, offloading_spec=offloading_spec,
            blocks_per_file=offloading_spec.blocks_per_chunk, parallel_agnostic=True)
        self.row = self.block_size_bytes
        self.rows = primary_kv_view.nbytes // self.row
        # The address alone: the engine's view, which the base class has, keeps the memory.
        self.base = int(tier.ffi.cast("uintptr_t", tier.ffi.from_buffer(
            primary_kv_view, require_writable=True)))
        self.pages = _pages(self.row)
        geometry = tier.Geometry([{"name": "row", "kind": tier.lib.TIER_KIND_DENSE, "layers": 1,
                                   "groups": self.pages, "page_bytes": self.row // self.pages}],
                                 block_tokens=1)
        name = hashlib.sha256(self.file_mapper.base_path.encode()).hexdigest()[:16]
        self.tier = tier.Tier(socket, name="vllm", readers=n_read_threads + n_write_threads,
                              staging_bytes=staging_bytes)
        self.context = self.tier.context(f"{context[:40]}-{name}", geometry)
        # Requests that asked: keys that did not come since. Jobs under way.
        self.failed, self.jobs = {}, {}
        self._pool = DualQueueThreadPool(n_read_threads, n_write_threads, "tier-vllm")

    # --- the scheduler's thread

    def on_new_request(self, req_context):
        return RequestOffloadingContext()

    def on_request_finished(self, req_context):
        self.failed.pop(req_context.req_id, None)

    def lookup(self, key, req_context):
        if key in self.failed.setdefault(req_context.req_id, set()):
            return LookupResult.MISS
        there = self.context.match(tier.key_opaque(key))[0]
        return LookupResult.HIT if there else LookupResult.MISS

    def submit_store(self, job_metadata):
        self._submit(self._pool.enqueue_store, self._store, job_metadata, load=False)

    def submit_load(self, job_metadata):
        self._submit(self._pool.enqueue_load, self._load, job_metadata, load=True)

    def _submit(self, enqueue, work, metadata, load):
        job = Job(metadata, load)
        self.jobs[metadata.job_id] = job
        enqueue(metadata.job_id, 1, [lambda: work(job)])

    def get_finished_jobs(self):
        return [self._finished(*done) for done in self._pool.get_finished()]

    def _finished(self, number, success, seconds):
        job = self.jobs.pop(number)
        came = job.keys[:job.came] if job.load and not success else []
        if job.load and not success:
            for failed in self.failed.values():
                failed.update(job.keys[job.came:])
        elif success and job.keys and self.events is not None and not job.load:
            self.events.append(OffloadingEvent(keys=job.keys, medium=self.medium, removed=False,
                                               locality=self.locality))
        return JobResult(job_id=number, success=success, successful_keys=tuple(came) or None,
                         transfer_time=seconds, transfer_bytes=len(job.keys) * self.row or None)

    def take_events(self):
        events, self.events = self.events or [], None if self.events is None else []
        return events

    def drain_jobs(self):
        self._pool.wait_idle()

    def shutdown(self):
        self._pool.shutdown(wait=True)
        self.tier.close()

    # --- the pool's threads; what they raise makes the job a failed one

    def _row(self, number):
        if not 0 <= number < self.rows:
            raise IndexError(f"row {number} of {self.rows}")
        return self.base + number * self.row

    def _store(self, job):
        """What is not there yet; rows side by side in one call."""
        new = [(key, self._row(number)) for key, number in zip(job.keys, job.rows)
               if not self.context.match(tier.key_opaque(key))[0]]
        while new:
            run = next((i for i in range(1, len(new)) if new[i][1] != new[0][1] + i * self.row),
                       len(new))
            names = tier.keys_opaque([key for key, _ in new[:run]])
            if self.context.put_at(names, new[0][1], flags=tier.lib.TIER_PUT_APART) < run:
                raise OSError(errno.EAGAIN, "the daemon did not take it: it is behind")
            new = new[run:]

    def _load(self, job):
        rows, names = [self._row(number) for number in job.rows], tier.keys_opaque(job.keys)
        for i, row in enumerate(rows):
            there, found = self.context.match(names[i:i + 1])
            if there and found[0].tier > tier.lib.TIER_CXL:
                there = self.context.fetch(found)
            pages = tier.ffi.new("struct tier_page[]", [
                (found[0].block, i) for i in range(self.pages)])
            if not there or self.tier.reader.gather_pages(self.context, pages, row) < self.pages:
                raise OSError(errno.ENOENT, "a block has gone")
            job.came += 1


class Job:
    def __init__(self, metadata, load):
        self.keys, self.load, self.came = list(metadata.keys), load, 0
        self.rows = [int(number) for number in metadata.chunk_ids]


def _pages(row):
    """Into how many equal pages a row is cut: as few as their largest size allows."""
    for pages in range(-(-row // PAGE_BYTES_MAX), 65537):
        if row % (pages * 4096) == 0:
            return pages
    raise ValueError(f"tier.vllm.tiering: a row of {row} bytes cannot be cut into pages")
