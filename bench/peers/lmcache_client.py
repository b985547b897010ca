"""The client of LMCache for `tierbench peers` and `peers-flash`, by the classes that its engine
stores and retrieves with: memory in this process (--how memory), with a disk behind it (disk), or
a server of its own (server), in a network namespace of its own; see client.py. `make engines
FULL=1` makes the environment.

SPDX-License-Identifier: Apache-2.0
"""
import asyncio
import contextlib
import ctypes
import importlib.metadata
import mmap
import os
import queue
import socket
import sys
import time

from client import (HOST, answer_stream, arguments, free_port, join, namespace, obey, spawn,
                    tell_address)

os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")

CHUNK, HIDDEN = 256, 64  # tokens; one layer of both: 64 KiB in bfloat16
LAYER_BYTES = 2 * CHUNK * HIDDEN * 2
GIB = 1 << 30
START_S = 60


class Store:
    """LMCache's storage manager with so many bytes of memory; disk: (folder, bytes)."""

    def __init__(self, block_bytes, memory_bytes, disk=None, url=None, asynchronous=False):
        import torch
        from lmcache.utils import CacheEngineKey
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.event_manager import EventManager
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.pin_monitor import PinMonitor
        from lmcache.v1.storage_backend.storage_manager import StorageManager

        layers = block_bytes // LAYER_BYTES
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=CHUNK, local_cpu=url is None, max_local_cpu_size=memory_bytes / GIB)
        if disk:
            config.local_disk, config.max_local_disk_size = disk[0], disk[1] / GIB
            config.extra_config = {"use_odirect": True}
        if url:
            config.remote_url, config.remote_serde = url, "naive"
        config.enable_async_loading = asynchronous
        PinMonitor.GetOrCreate(config)
        self.dtype, self.shape = torch.bfloat16, torch.Size([2, layers, CHUNK, HIDDEN])
        self.key_of = CacheEngineKey
        self.manager = StorageManager(config, LMCacheMetadata(
            model_name="bench", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
            kv_dtype=self.dtype, kv_shape=(layers, 2, CHUNK, 1, HIDDEN), chunk_size=CHUNK,
            role="worker"), EventManager(), async_lookup_server=self)
        self.loaded = queue.Queue()  # of async lookups, in their order

    def key(self, number):
        return self.key_of("bench", 1, 0, number, self.dtype)

    def put(self, keys, write, wait=False):
        """write(i, address) fills the i-th block. Returns how many there was room for beside what
        is not on the disk yet; on demand it waits, as LMCache does with force_store_wait."""
        blocks = []
        for i in range(len(keys)):
            while not (block := self.manager.allocate(self.shape, self.dtype, busy_loop=False)):
                if not wait:
                    break
                time.sleep(1e-3)
            if block is None:
                break
            write(i, block.data_ptr)
            blocks.append(block)
        self.manager.batched_put(keys[:len(blocks)], blocks)
        return len(blocks)

    def find(self, keys, pin=False):
        """How many of the first are there, and which lie where."""
        return self.manager.batched_contains(keys, pin=pin)

    def get(self, keys, read):
        """read(i, address) takes the i-th block, from the first on. Returns how many were there:
        looked up, held, brought, read and let go, as its engine does."""
        found, places = self.find(keys, pin=True)
        self.manager.touch_cache()
        done = 0
        for place, there in places.items():
            for block in self.manager.batched_get(there, place):
                if block is None:
                    found = min(found, done)
                    continue
                if done < found:
                    read(done, block.data_ptr)
                block.ref_count_down()
                done += 1
        for place, there in places.items():
            self.manager.batched_unpin(there, [place])
        return min(done, found)

    def begin(self, name, keys):
        """Begin to bring the longest prefix that is there; the store is asynchronous."""
        lengths = list(range(0, CHUNK * len(keys) + 1, CHUNK))
        asyncio.run_coroutine_threadsafe(self.manager.async_lookup_and_prefetch(
            name, keys, lengths, pin=True), self.manager.loop)

    def send_response_to_scheduler(self, name, length):
        """What LMCache calls when that has come."""
        self.loaded.put((name, length // CHUNK))

    def end(self, read):
        """Wait for what was begun first, and take it as get() does."""
        from lmcache.v1.event_manager import EventType

        name, found = self.loaded.get(timeout=START_S)
        if found == 0:
            return 0
        blocks = [block for place in self.manager.event_manager.pop_event(
            EventType.LOADING, name).result() for _, block in place]
        for i, block in enumerate(blocks):
            if i < found:
                read(i, block.data_ptr)
            if block.is_pinned:
                block.unpin()
            block.ref_count_down()
        return found

    def backend(self, name):
        return self.manager.storage_backends.get(name)

    def close(self):
        self.manager.close()


class Client:
    """Blocks between the bench's memory and the store's."""

    def __init__(self, args, url):
        self.block, self.url = args.block, url
        self.memory = mmap.mmap(args.shared_fd, args.shared_bytes)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.store = Store(args.block, args.memory, url=url,
                           disk=(args.dir, args.flash) if args.how == "disk" else None)

    def key(self, text):
        return self.store.key(int(text[:15], 16))

    def put(self, keys, offset):
        def write(i, address):
            ctypes.memmove(address, self.base + offset + i * self.block, self.block)
        if self.store.put(keys, write, wait=True) != len(keys):
            return "no room"
        remote = self.store.backend("RemoteBackend")
        while remote and any(map(remote.exists_in_put_tasks, keys)):
            time.sleep(1e-4)
        return None

    def get(self, keys, offset):
        def read(i, address):
            ctypes.memmove(self.base + offset + i * self.block, address, self.block)
        return None if self.store.get(keys, read) == len(keys) else "a block is not there"

    def find(self, keys):
        return self.store.find(keys)[0]

    def remove(self, keys):
        """The server has no way to: there, a put writes over what it has."""
        disk = self.store.backend("LocalDiskBackend")
        while disk and any(map(disk.exists_in_put_tasks, keys)):
            time.sleep(1e-3)
        for name in ("LocalCPUBackend", "LocalDiskBackend"):
            backend = self.store.backend(name)
            for key in keys if backend else ():
                if name == "LocalDiskBackend" and (there := backend.dict.get(key)):
                    backend.current_cache_size -= there.size  # which its remove() leaves out
                backend.remove(key)
        return len(keys)


def main():
    args, out = arguments(), answer_stream()
    alone, servers, url = args.join or namespace(), [], None
    with open(args.log, "ab") as log, contextlib.ExitStack() as stack:
        if args.join:
            url = join(args)
        elif args.how == "server":
            port = free_port()
            url = f"lm://{HOST}:{port}"
            servers = [spawn([sys.executable, "-m", "lmcache.v1.server", HOST, str(port)], log)]
            stack.callback(servers[0].kill)
            wait_for(port)
            tell_address(args, url, servers[0].pid)
        client = Client(args, url)
        version = importlib.metadata.version("lmcache")
        obey(client, f"{version}{'' if alone else ' (no network namespace)'}", servers, out)
        client.store.close()
    os._exit(0)  # its threads may hang on their way out


def wait_for(port):
    until = time.monotonic() + START_S
    while True:
        try:
            return socket.create_connection((HOST, port)).close()
        except OSError:
            if time.monotonic() > until:
                raise SystemExit("LMCache's server does not come up") from None
            time.sleep(0.1)


if __name__ == "__main__":
    main()
