"""The client of Mooncake Store for `tierbench peers`: starts a master of its own, and a second
process with the memory where blocks shall not lie in ours (--how tcp), in a network namespace of
its own; see client.py.

SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import importlib.metadata
import mmap
import os
import signal
import subprocess
import sys
import time

from client import (HOST, answer_stream, arguments, free_port, join, namespace, obey, spawn,
                    tell_address)

LOCAL_BUFFER = 64 << 20
START_S = 60
PACKAGE = "mooncake-transfer-engine-non-cuda"


def connect(segment_bytes, master):
    from mooncake.store import MooncakeDistributedStore

    until = time.monotonic() + START_S
    while True:
        store = MooncakeDistributedStore()
        if store.setup(HOST, "P2PHANDSHAKE", segment_bytes, LOCAL_BUFFER, "tcp", "", master) == 0:
            return store
        if time.monotonic() > until:
            raise SystemExit("Mooncake: no connection to the master")
        time.sleep(0.1)


def serve(args):
    """Only lends memory, until it is told to end."""
    store = connect(args.memory, args.master)
    print("serving", flush=True)
    signal.sigwait({signal.SIGTERM})
    store.close()


class Client:
    def __init__(self, args, memory, store):
        self.block = args.block
        self.memory, self.base = memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.store = store
        if store.register_buffer(self.base, len(memory)):
            raise SystemExit("Mooncake: the memory cannot be registered")

    @staticmethod
    def key(text):
        return text

    def _move(self, call, keys, offset, wanted):
        at = [self.base + offset + i * self.block for i in range(len(keys))]
        result = call(keys, at, [self.block] * len(keys))
        return next((f"Mooncake's code {r}" for r in result if r != wanted), None)

    def put(self, keys, offset):
        return self._move(self.store.batch_put_from, keys, offset, 0)

    def get(self, keys, offset):
        return self._move(self.store.batch_get_into, keys, offset, self.block)

    def find(self, keys):
        there = self.store.batch_is_exist(keys)
        return next((i for i, t in enumerate(there) if t != 1), len(keys))

    def remove(self, keys):
        self.store.batch_remove(keys, True)
        return len(keys)


def start_master(args):
    ports = [free_port(), free_port()]
    master = f"{HOST}:{ports[0]}"
    # By this Python, not by the one that the script names: environments are moved.
    server = spawn([sys.executable,
                    os.path.join(os.path.dirname(sys.executable), "mooncake_master"),
                    "--rpc_address", HOST, "--rpc_port", str(ports[0]), "--metrics_host", HOST,
                    "--metrics_port", str(ports[1])], open(args.log, "ab"))
    tell_address(args, master, server.pid)
    return master, [server]


def start_segment(args, master):
    """Another process that lends the memory; returns when it does."""
    argv = [sys.executable, os.path.abspath(__file__), "--how", "serve", "--master", master,
            "--memory", str(args.memory)]
    child = spawn(argv, open(args.log, "ab"), stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        if line.strip() == "serving":
            return child
    raise SystemExit("Mooncake: the process that lends memory ended")


def main():
    args = arguments("--master")
    if args.how == "serve":
        return serve(args)
    out = answer_stream()
    alone, tcp = args.join or namespace(), args.how == "tcp"
    master, servers = (join(args), []) if args.join else start_master(args)
    if tcp and servers:
        servers.append(start_segment(args, master))
    store = connect(0 if tcp else args.memory, master)
    client = Client(args, mmap.mmap(args.shared_fd, args.shared_bytes), store)
    version = importlib.metadata.version(PACKAGE)
    obey(client, f"{version}{'' if alone else ' (no network namespace)'}", servers, out)
    store.close()
    for server in reversed(servers):
        server.terminate()
        server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
