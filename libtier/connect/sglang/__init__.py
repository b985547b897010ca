"""The door of SGLang: a storage backend of HiCache.

    --enable-hierarchical-cache --hicache-storage-backend dynamic
    --hicache-storage-backend-extra-config '{"backend_name": "tier", "module_path": "tier.sglang",
        "class_name": "HiCacheTier", "interface_v1": 1}'

extra_config may have: context (name; "sglang"), socket, staging_bytes.

A page of a host pool is a block: the ranges of memory that the pool says it lies in (keys and
values, or these of each layer) are its pages, copied from there and to there without a tensor in
between. Pools, models, dtypes, layouts and ranks are told apart by context and key. A page that
does not come is False, never an error that stops an engine.

SPDX-License-Identifier: Apache-2.0
"""
import errno
import hashlib
import itertools

import torch
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage, PoolHitPolicy, PoolName, PoolTransferResult)

import tier

STAGING_BYTES = 64 << 20


class HiCacheTier(HiCacheStorage):
    def __init__(self, storage_config, kwargs=None):
        c, extra = storage_config, storage_config.extra_config or {}
        self.name = extra.get("context", "sglang")
        self.staging_bytes = extra.get("staging_bytes", STAGING_BYTES)
        self.tier = tier.Tier(extra.get("socket"), name="sglang",
                              staging_bytes=self.staging_bytes)
        self.model, self.by_ranges = str(c.model_name), bool(extra.get("interface_v1"))
        shard = (c.pp_rank, c.pp_size, c.attn_cp_rank, c.attn_cp_size, c.dcp_rank, c.dcp_size)
        rank = () if c.is_mla_model else (c.tp_rank, c.tp_size)  # all ranks of MLA have the same
        self.shard = repr(shard + rank)
        self.state_shard = repr(shard + (c.tp_rank, c.tp_size))  # its state is each rank's own
        self.stores, self.registered_pools = {}, {}

    def close(self):
        self.tier.close()

    # --- where a pool's pages lie

    def register_mem_pool_host(self, mem_pool_host):
        super().register_mem_pool_host(mem_pool_host)
        self.register_mem_host_pool_v2(mem_pool_host, PoolName.KV)

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        """Opens what is stored of its shape, so that look-ups find what others put."""
        self.registered_pools[host_pool_name] = host_pool
        if self.by_ranges or host_pool_name != PoolName.KV:
            self._ranges(host_pool, [""], torch.arange(getattr(host_pool, "page_size", 1)))
        else:
            self._one(host_pool.get_dummy_flat_data_page())

    def _store(self, sizes, form):
        """The context of blocks with pages of these sizes."""
        text = repr((self.model, form, sizes))
        if text not in self.stores:
            parts = [{"name": f"range-{i}", "kind": tier.lib.TIER_KIND_DENSE, "layers": 1,
                      "groups": len(list(same)), "page_bytes": size}
                     for i, (size, same) in enumerate(itertools.groupby(sizes))]
            name = f"{self.name[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
            self.stores[text] = Store(self.tier.context(
                name, tier.Geometry(parts, block_tokens=1)), name, sizes)
        return self.stores[text]

    def _ranges(self, pool, keys, indices):
        """The store of a pool's pages and, page by page, the addresses of their ranges."""
        addresses, sizes = pool.get_page_buffer_meta(indices)
        count = len(addresses) // len(keys)
        form = (getattr(pool, "layout", ""), str(getattr(pool, "dtype", "")))
        return self._store(tuple(sizes[:count]), form), [
            addresses[i:i + count] for i in range(0, len(addresses), count)]

    def _keys(self, keys, pool=PoolName.KV):
        shard = self.state_shard if pool == PoolName.MAMBA else self.shard
        return tier.keys_opaque([f"{pool}\0{shard}\0{key}".encode() for key in keys])

    # --- pages of pools

    def _get(self, pool_name, keys, indices):
        store, ranges = self._ranges(self.registered_pools[pool_name], keys, indices)
        return store.load(self.tier, self._keys(keys, pool_name), ranges)

    def _set(self, pool_name, keys, indices):
        store, ranges = self._ranges(self.registered_pools[pool_name], keys, indices)
        return store.save(self._keys(keys, pool_name), ranges, self.staging_bytes)

    def _safely(self, work, pool_name, keys, indices):
        try:
            return work(pool_name, keys, indices) if len(keys) else []
        except (tier.Error, KeyError, ValueError, AssertionError):
            return [False] * len(keys)

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        return self._safely(self._get, PoolName.KV, keys, host_indices)

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        return self._safely(self._set, PoolName.KV, keys, host_indices)

    def batch_get_v2(self, transfers, extra_info=None):
        return {t.name: self._safely(self._get, t.name, t.keys or [], t.host_indices)
                for t in transfers}

    def batch_set_v2(self, transfers, extra_info=None):
        return {t.name: self._safely(self._set, t.name, t.keys or [], t.host_indices)
                for t in transfers}

    def _there(self, pool_name, keys):
        """Which of a pool's pages are stored, in any shape that was met."""
        there = [False] * len(keys)
        names = self._keys(keys, pool_name)
        for store in self.stores.values():
            there = [a or b for a, b in zip(there, store.there(names))]
        return there

    def batch_exists(self, keys, extra_info=None):
        return _leading(self._there(PoolName.KV, keys))

    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None):
        count = _leading(self._there(PoolName.KV, keys))
        hits, usable = ({PoolName.KV: count} if count else {}), set(range(1, count + 1))
        for t in pool_transfers or []:
            there = self._there(t.name, keys[:count])
            if t.hit_policy == PoolHitPolicy.ALL_PAGES:
                fits = set(range(1, _leading(there) + 1))
            elif t.hit_policy == PoolHitPolicy.TRAILING_PAGES:
                last = max(1, len(t.keys or []))
                fits = {n for n in range(1, count + 1) if all(there[max(0, n - last):n])}
            else:
                raise ValueError(f"tier.sglang: no pages by {t.hit_policy}")
            if fits:
                hits[t.name] = max(fits)
            usable &= fits
        return PoolTransferResult(max(usable, default=0), hits, sorted(usable))

    # --- single tensors, the first interface

    def _one(self, tensor):
        data = tensor.contiguous()
        return data, self._store((data.nbytes,), "tensor"), [[data.data_ptr()]]

    def set(self, key, value=None, target_location=None, target_sizes=None):
        _data, store, ranges = self._one(value)
        try:
            return store.save(self._keys([key]), ranges, self.staging_bytes)[0]
        except tier.Error:
            return False

    def get(self, key, target_location=None, target_sizes=None):
        data, store, ranges = self._one(target_location)
        try:
            if not store.load(self.tier, self._keys([key]), ranges)[0]:
                return None
        except tier.Error:
            return None
        if data is not target_location:
            target_location.copy_(data)
        return target_location

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        return all([self.set(key, value) for key, value in zip(keys, values)])

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        return [self.get(key, to) for key, to in zip(keys, target_locations)]

    def exists(self, key):
        return self._there(PoolName.KV, [key])[0]

    def clear(self):
        for store in self.stores.values():
            tier.check(tier.lib.tier_context_raise_epoch(
                self.tier.handle, store.name.encode(), tier.ffi.NULL), "clear")
        return True


class Store:
    """Blocks of one shape."""

    def __init__(self, context, name, sizes):
        self.context, self.name, self.sizes = context, name, sizes
        self.places = [(part, group) for part, (_, same) in enumerate(itertools.groupby(sizes))
                       for group in range(len(list(same)))]

    def _found(self, names):
        return self.context.match(names)[1]

    def there(self, names):
        return [f.state == tier.lib.TIER_HIT for f in self._found(names)]

    def save(self, names, ranges, staging_bytes):
        """Put what is not there, as many at once as half of the staging memory has room for."""
        there = self.there(names)
        new = [i for i, is_there in enumerate(there) if not is_there]
        most = max(1, staging_bytes // 2 // self.context.geometry.block_bytes)
        for at in range(0, len(new), most):
            self._put(names, ranges, new[at:at + most])
        return self.there(names)

    def _put(self, names, ranges, which):
        keys = tier.ffi.new("tier_key[]", [names[i] for i in which])
        put = self.context.put_begin(keys, flags=tier.lib.TIER_PUT_APART)
        try:
            for at, i in enumerate(which):
                for (part, group), size, address in zip(self.places, self.sizes, ranges[i]):
                    tier.ffi.memmove(tier.lib.tier_put_data(put.out[0], at, part, 0, group),
                                     tier.ffi.cast("char *", address), size)
            put.finish()
        except tier.Error as e:
            if e.errno != errno.EBADMSG:  # somebody else put one meanwhile
                raise
        finally:
            put.abort()

    def load(self, t, names, ranges):
        """Whether each block's pages were copied to its ranges."""
        found = self._found(names)
        hits = [i for i, f in enumerate(found) if f.state == tier.lib.TIER_HIT]
        cold = [found[i].block for i in hits if found[i].tier > tier.lib.TIER_CXL]
        if cold:
            blocks = tier.ffi.new("tier_block[]", cold)
            self.context.fetch(blocks)
        pieces = tier.ffi.new("struct tier_piece[]", [
            {"to": tier.ffi.cast("void *", address), "page": (found[i].block, page)}
            for i in hits for page, address in enumerate(ranges[i])])
        errors = tier.ffi.new("int32_t[]", len(pieces))
        tier.check(tier.lib.tier_scatter(t.reader.handle, self.context.handle, pieces,
                                         len(pieces), errors), "load")
        came, count = [False] * len(names), len(self.sizes)
        for at, i in enumerate(hits):
            came[i] = not any(errors[at * count:(at + 1) * count])
        return came


def _leading(flags):
    return next((i for i, flag in enumerate(flags) if not flag), len(flags))
