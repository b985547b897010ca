"""The door of LMCache: a connector for its "native_plugin" L2 adapter (MP mode).

    --l2-adapter '{"type": "native_plugin", "module_path": "tier.lmcache",
                   "class_name": "Connector", "adapter_params": {"object_bytes": 33554432}}'

An object is a block, found by its whole name; its length stands in front of it. Objects of a
context have room for object_bytes, LMCache's bytes a chunk; shorter ones leave the rest unused.
What comes back is a name's own bytes, of the length asked for, or a miss; it is never an error
that stops an engine. A name's salt, its fifth field, is who the bytes are accounted to.

SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import errno
import hashlib
import os
import struct
import threading

import tier

HEAD = struct.Struct("<QQ")  # length of the object; 0
PAGE_BYTES_MAX = 16 << 20
ALIGN = 4096


class Connector:
    """The methods of LMCache's IStorageConnector; each call returns at once, its completion comes
    through event_fd and drain_completions."""

    def __init__(self, object_bytes=1 << 20, context="lmcache", socket=None, threads=4,
                 staging_bytes=0, **members):
        self.object_bytes = object_bytes
        total = object_bytes + HEAD.size
        self.pages = -(-total // PAGE_BYTES_MAX)
        self.page_bytes = -(-total // (self.pages * ALIGN)) * ALIGN
        geometry = tier.Geometry([{"name": "object", "kind": tier.lib.TIER_KIND_DENSE,
                                   "layers": 1, "groups": self.pages,
                                   "page_bytes": self.page_bytes}], block_tokens=1)
        self.tier = tier.Tier(socket, name="lmcache", readers=threads,
                              staging_bytes=staging_bytes)
        self.context = self.tier.context(context, geometry, **members)
        self.event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.threads = concurrent.futures.ThreadPoolExecutor(threads, "tier-lmcache")
        self.lock = threading.Lock()
        self.last, self.done, self.closed = 0, [], False

    # --- what LMCache calls

    def event_fd(self):
        return self.event

    def submit_batch_set(self, keys, memoryviews):
        return self._submit(self._set, keys, memoryviews)

    def submit_batch_get(self, keys, memoryviews):
        return self._submit(self._get, keys, memoryviews)

    def submit_batch_exists(self, keys):
        return self._submit(self._exists, keys)

    def submit_batch_delete(self, keys):
        return self._submit(self._delete, keys)

    def drain_completions(self):
        """(id, ok, error, a bool a key or None) of what ended since the last call."""
        try:
            os.eventfd_read(self.event)
        except BlockingIOError:
            pass
        with self.lock:
            done, self.done = self.done, []
        return done

    def close(self):
        """Returns when no byte moves any more."""
        if not self.closed:
            self.closed = True
            self.threads.shutdown()
            self.tier.close()
            os.close(self.event)

    # --- how it is done, each batch by one thread

    def _submit(self, work, *arguments):
        with self.lock:
            self.last += 1
            number = self.last
        self.threads.submit(self._run, number, work, arguments)
        return number

    def _run(self, number, work, arguments):
        try:
            ok, error, each = work(*arguments)
        except Exception as e:  # of whatever kind: LMCache must hear of the end
            ok, error, each = False, str(e), None
        with self.lock:
            self.done.append((number, ok, error, each))
        os.eventfd_write(self.event, 1)

    def _key(self, name):
        return tier.key_opaque(name.encode())

    def _set(self, names, views):
        for name, view in zip(names, views):
            key = self._key(name)
            if view.nbytes > self.object_bytes:
                raise ValueError(f"{name}: {view.nbytes} bytes; the context's objects have "
                                 f"{self.object_bytes} at most (object_bytes)")
            if self.context.match(key)[0] == 0:
                self._put(key, _salt(name), view)
        return True, "", None

    def _put(self, key, salt, view):
        put = self.context.put_begin(key, salt=salt)
        try:
            at, source, bytes_left = HEAD.size, tier.ffi.from_buffer(view), view.nbytes
            for group in range(self.pages):
                page = put.page(0, 0, 0, group)
                if group == 0:
                    HEAD.pack_into(page, 0, view.nbytes, 0)
                count = min(bytes_left, self.page_bytes - at)
                tier.ffi.memmove(page[at:at + count], source, count)
                page[at + count:] = bytes(self.page_bytes - at - count)
                source, bytes_left, at = source + count, bytes_left - count, 0
            if put.finish() == 0:
                raise RuntimeError("the daemon did not take it: it is behind")
        except tier.Error as e:
            if e.errno != errno.EBADMSG:  # somebody else put it meanwhile
                raise
        finally:
            put.abort()

    def _get(self, names, views):
        each = [self._get_one(self._key(name), view) for name, view in zip(names, views)]
        return all(each), "", each

    def _get_one(self, key, view):
        """Whether the object of that length was copied into the view."""
        usable, found = self.context.match(key)
        if not usable:
            return False
        try:
            if found[0].tier > tier.lib.TIER_CXL:
                self.context.fetch(found)
            return self._copy(found[0].block, view)
        except tier.Error:  # it left meanwhile, or the daemon did
            return False

    def _copy(self, block, view):
        at, target, bytes_left = HEAD.size, tier.ffi.from_buffer(view), view.nbytes
        for group in range(self.pages):
            with self.tier.reader.lease(self.context, block, group) as page:
                if group == 0 and HEAD.unpack_from(page.view)[0] != view.nbytes:
                    return False
                count = min(bytes_left, self.page_bytes - at)
                tier.ffi.memmove(target, page.view[at:at + count], count)
            target, bytes_left, at = target + count, bytes_left - count, 0
        return True

    def _exists(self, names):
        return True, "", [self.context.match(self._key(name))[0] == 1 for name in names]

    def _delete(self, names):
        return True, "", [self.context.delete(self._key(name)) == 1 for name in names]


def _salt(name):
    """The number that a name's salt is accounted under; 0 is the public one."""
    fields = name.split("@")
    if len(fields) < 5:
        return 0
    return int.from_bytes(hashlib.sha256(fields[4].encode()).digest()[:8], "little") | 1
