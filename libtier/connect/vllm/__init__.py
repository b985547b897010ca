"""The door of vLLM: a KV connector (KVConnectorBase_V1).

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "TierConnector", "kv_role": "kv_both",
        "kv_connector_module_path": "tier.vllm", "kv_load_failure_policy": "recompute"}'

kv_connector_extra_config may have: context (name; "vllm"), socket, revision (of the weights).

A page is what one KV head of one layer has of a block: a layer is [block, head, token, K and V].
The scheduler's side only looks up. The worker's side puts each layer as it is computed, and brings
a prefix layer by layer while the ones before are computed. What does not come is told to the
engine, which computes it (kv_load_failure_policy); what was computed from it is not stored.

SPDX-License-Identifier: Apache-2.0
"""
import dataclasses

import numpy as np
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1, KVConnectorMetadata)
from vllm.logger import init_logger

import tier

logger = init_logger(__name__)


@dataclasses.dataclass
class Job:
    """Blocks of a request, from the first-th on: to be loaded, or computed in this step."""
    request: str
    tokens: list  # from the first token to the last block's end
    salt: bytes
    first: int
    blocks: list  # the engine's numbers


@dataclasses.dataclass
class Metadata(KVConnectorMetadata):
    loads: list = dataclasses.field(default_factory=list)
    stores: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Store:
    """A put of blocks whose layers are being computed."""
    put: object
    job: Job
    blocks: list
    written: set = dataclasses.field(default_factory=set)


class Track:
    """What the scheduler's side knows of a request that runs."""

    def __init__(self, request):
        self.request, self.blocks = request, []
        lora = request.lora_request.lora_name if request.lora_request else ""
        self.salt = f"{request.cache_salt or ''}\0{lora}".encode() if (
            request.cache_salt or lora) else b""


class TierConnector(KVConnectorBase_V1):
    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        extra, model = self._kv_transfer_config.get_from_extra_config, vllm_config.model_config
        parallel = vllm_config.parallel_config
        if parallel.tensor_parallel_size * parallel.pipeline_parallel_size > 1:
            raise ValueError("tier.vllm: one rank only, yet")
        self.block_tokens = vllm_config.cache_config.block_size
        self.layers = model.get_num_layers(parallel)
        self.heads = model.get_num_kv_heads(parallel)
        self.row = 2 * model.get_head_size() * torch.empty(0, dtype=model.dtype).element_size()
        geometry = tier.Geometry([{"name": "kv", "kind": tier.lib.TIER_KIND_DENSE,
                                   "layers": self.layers, "groups": self.heads,
                                   "page_bytes": self.block_tokens * self.row}],
                                 block_tokens=self.block_tokens)
        self.tier = tier.Tier(extra("socket", None), name="vllm")
        self.context = self.tier.context(
            extra("context", "vllm"), geometry, fingerprint=tier.fingerprint(
                model=f"{model.model}@{extra('revision', model.revision)}",
                elements=str(model.dtype), layout="vllm block,head,token,K|V", hash="sha256",
                block_tokens=self.block_tokens))
        self.tracks, self.external = {}, []          # the scheduler's side
        self.names, self.loads, self.puts = {}, [], []  # the worker's
        self.bad_blocks, self.bad_requests = set(), set()
        self.loaded_bytes = 0

    def shutdown(self):
        self._end_loads()
        self.tier.close()

    # --- the scheduler's side: look up, and say what is to be done

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        track = self.tracks[request.request_id] = Track(request)
        if request.mm_features or not request.prompt_token_ids:
            return 0, False  # pictures are not in the keys
        tokens = request.all_token_ids[:request.num_tokens - 1]  # the last one is computed
        keys = tier.keys(list(tokens), self.block_tokens, salt=track.salt)
        usable = self.context.match(keys)[0] if len(keys) else 0
        return max(0, usable * self.block_tokens - num_computed_tokens), False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if num_external_tokens > 0:
            self.external.append((request, blocks.get_block_ids()[0], num_external_tokens))

    def build_connector_meta(self, scheduler_output):
        meta, starts = Metadata(), {}
        for new in scheduler_output.scheduled_new_reqs:
            if new.req_id in self.tracks:
                self.tracks[new.req_id].blocks = list(new.block_ids[0])
                starts[new.req_id] = new.num_computed_tokens
        cached = scheduler_output.scheduled_cached_reqs
        for i, name in enumerate(cached.req_ids):
            track, more = self.tracks.get(name), cached.new_block_ids[i]
            if track:
                kept = [] if name in cached.resumed_req_ids else track.blocks
                track.blocks = kept + list(more[0] if more else [])
                starts[name] = cached.num_computed_tokens[i]
        for request, blocks, count in self.external:
            last = starts.get(request.request_id, 0) // self.block_tokens
            first = last - count // self.block_tokens
            meta.loads.append(self._job(self.tracks[request.request_id], first, last, blocks))
        self.external = []
        for name, start in starts.items():
            track = self.tracks[name]
            first = start // self.block_tokens
            end = start + scheduler_output.num_scheduled_tokens[name]
            last = min(end, track.request.num_tokens) // self.block_tokens
            if last > first and not track.request.mm_features:
                meta.stores.append(self._job(track, first, last, track.blocks))
        return meta

    def _job(self, track, first, last, blocks):
        return Job(track.request.request_id,
                   list(track.request.all_token_ids[:last * self.block_tokens]), track.salt,
                   first, list(blocks[first:last]))

    def request_finished(self, request, block_ids):
        self.tracks.pop(request.request_id, None)
        return False, None

    # --- the worker's side: bring and put, layer by layer

    def register_kv_caches(self, kv_caches):
        self.names = {name: number for number, name in enumerate(kv_caches)}
        for name, layer in kv_caches.items():
            shape = (self.heads, self.block_tokens, self.row // layer.element_size())
            if layer.shape[1:] != shape or not layer[0].is_contiguous():
                raise ValueError(f"tier.vllm: layer {name} is {tuple(layer.shape)}, not "
                                 f"[block, {', '.join(map(str, shape))}] in order")
        self.kv = kv_caches

    def start_load_kv(self, forward_context, **kwargs):
        meta = self._get_connector_metadata()
        self.bad_requests = set()
        for job in meta.loads:
            self.loads.append(Load(self, job))

    def wait_for_layer_load(self, layer_name):
        for load in self.loads:
            load.layer(self.names[layer_name], self.kv[layer_name])

    def _put_begin(self, job):
        """A put of the blocks that are not there; none where the one before them is not either."""
        keys = tier.keys(job.tokens, self.block_tokens, salt=job.salt)
        there = self.context.match(keys)[0]
        at = max(job.first, there)
        if at == len(keys) or there < job.first:
            return
        try:
            put = self.context.put_begin(keys[at:len(keys)], depth=at,
                                         parent=keys + at - 1 if at else None)
            self.puts.append(Store(put, job, job.blocks[at - job.first:]))
        except tier.Error as e:
            logger.info("not stored: %s", e)

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        meta = self._get_connector_metadata()  # start_load_kv may come after all layers
        jobs, meta.stores = meta.stores, []
        for job in jobs:
            self._put_begin(job)
        for store in self.puts:
            rows = kv_layer[store.blocks].cpu().contiguous()
            store.put.write(rows.data_ptr(), 0, self.names[layer_name])
            store.written.add(layer_name)

    def wait_for_save(self):
        self._end_loads()
        stores, self.puts = self.puts, []
        for store in stores:
            try:
                if (store.job.request not in self.bad_requests and
                        len(store.written) == self.layers):
                    store.put.finish()
            except tier.Error as e:
                logger.info("not stored: %s", e)
            finally:
                store.put.abort()

    def _end_loads(self):
        loads, self.loads = self.loads, []
        for load in loads:
            load.end()

    def get_block_ids_with_load_errors(self):
        bad, self.bad_blocks = self.bad_blocks, set()
        return bad


class Load:
    """A prefix on its way into the engine's blocks."""

    def __init__(self, door, job):
        self.door, self.job, self.stream, self.usable = door, job, None, 0
        try:
            self._begin()
        except tier.Error as e:
            self.usable = 0
            logger.info("not loaded: %s", e)
        self._lost()

    def _begin(self):
        keys = tier.keys(self.job.tokens, self.door.block_tokens, salt=self.job.salt)
        there, found = self.door.context.match(keys)
        self.usable = max(0, there - self.job.first)  # of the job's blocks, from the first
        if self.usable:
            found = found[self.job.first:there]
            these = tier.blocks(found)
            self.pages = np.zeros((self.usable, self.door.heads, 3), np.uint32)
            self.pages[:, :, :2] = np.frombuffer(tier.ffi.buffer(these), np.uint32).reshape(
                -1, 1, 2)
            self.pages[:, :, 2] = np.arange(self.door.heads)  # of layer 0
            if max(f.tier for f in found) > tier.lib.TIER_CXL:
                self.stream = self.door.context.stream(these, mode=tier.lib.TIER_MODE_CACHE)

    def layer(self, number, kv):
        """Copy a layer's pages into the engine's blocks once they are there."""
        try:
            self._layer(number, kv)
        except tier.Error as e:
            self.usable = 0
            logger.info("not loaded: %s", e)
        self._lost()

    def _layer(self, number, kv):
        if self.stream and self.usable:
            self.usable = min(self.usable, self.stream.wait(number))
        if self.usable:
            pages = self.pages[:self.usable].copy()
            pages[:, :, 2] += number * self.door.heads
            self.usable = (self._into if kv.device.type == "cpu" else self._over)(pages, kv)
            if self.stream:
                self.stream.release(number + 1)
            self.door.loaded_bytes += self.usable * kv[0].nbytes

    def _gather(self, pages, address):
        """Returns how many blocks came."""
        return self.door.tier.reader.gather_pages(self.door.context, pages,
                                                  address) // self.door.heads

    def _into(self, pages, kv):
        """Straight into the engine's blocks, as many at once as lie one behind the other."""
        blocks, at = self.job.blocks, 0
        packed = kv.stride(0) == kv[0].numel()
        while at < len(pages):
            end = at + 1
            while packed and end < len(pages) and blocks[end] == blocks[end - 1] + 1:
                end += 1
            came = self._gather(pages[at:end], kv[blocks[at]].data_ptr())
            if came < end - at:
                return at + came
            at = end
        return at

    def _over(self, pages, kv):
        """By way of the host's memory."""
        rows = torch.empty((len(pages),) + tuple(kv.shape[1:]), dtype=kv.dtype)
        came = self._gather(pages, rows.data_ptr())
        kv[self.job.blocks[:came]] = rows[:came].to(kv.device)
        return came

    def _lost(self):
        """Tell which of the engine's blocks do not hold what they were to."""
        if self.usable < len(self.job.blocks):
            self.door.bad_blocks.update(self.job.blocks[self.usable:])
            self.door.bad_requests.add(self.job.request)

    def end(self):
        if self.stream:
            self.stream.close()
