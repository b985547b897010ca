"""The client of Mooncake Store for `tierbench peers`: starts a master of its own, and a second
process with the memory where blocks shall not lie in ours, in a network namespace of its own; then
does what lines on standard input ask for and answers with the nanoseconds that it took.

    key HEX                     the next block's key
    put|get FIRST COUNT OFFSET  blocks from or to the shared memory, from OFFSET on, packed
    find|remove FIRST COUNT

Answers: "ready LABEL; PID..." once, then "ok NANOSECONDS NUMBER" or "error ERRNO TEXT".

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import ctypes
import errno
import fcntl
import importlib.metadata
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import time

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_PDEATHSIG = 1
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
LOCAL_BUFFER = 64 << 20
START_S = 60
HOST = "127.0.0.1"
PACKAGE = "mooncake-transfer-engine-non-cuda"

libc = ctypes.CDLL(None, use_errno=True)


def namespace():
    """A network of our own, with nothing but loopback: the data port listens on all addresses."""
    if libc.unshare(CLONE_NEWNET) and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        name = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(s, SIOCGIFFLAGS, name))[1]
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | IFF_UP, b""))
    return True


def free_port():
    with socket.socket() as s:
        s.bind((HOST, 0))
        return s.getsockname()[1]


def end_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def spawn(argv, log):
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                            preexec_fn=end_with_parent)


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
    store = connect(args.segment, args.master)
    print("serving", flush=True)
    signal.sigwait({signal.SIGTERM})
    store.close()


class Client:
    def __init__(self, args, memory, store):
        self.block = args.block
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.store = store
        self.keys = []
        if store.register_buffer(self.base, len(memory)):
            raise SystemExit("Mooncake: the memory cannot be registered")

    def lists(self, first, count, offset):
        at = [self.base + offset + i * self.block for i in range(count)]
        return self.keys[first:first + count], at, [self.block] * count

    def put(self, first, count, offset):
        keys, at, sizes = self.lists(first, count, offset)
        began = time.perf_counter_ns()
        result = self.store.batch_put_from(keys, at, sizes)
        return began, time.perf_counter_ns(), result, [0] * count

    def get(self, first, count, offset):
        keys, at, sizes = self.lists(first, count, offset)
        began = time.perf_counter_ns()
        result = self.store.batch_get_into(keys, at, sizes)
        return began, time.perf_counter_ns(), result, sizes

    def find(self, first, count):
        keys = self.keys[first:first + count]
        began = time.perf_counter_ns()
        there = self.store.batch_is_exist(keys)
        ended = time.perf_counter_ns()
        return began, ended, next((i for i, t in enumerate(there) if t != 1), count)

    def remove(self, first, count):
        began = time.perf_counter_ns()
        self.store.batch_remove(self.keys[first:first + count], True)
        return began, time.perf_counter_ns(), count


def answer(client, words):
    verb, numbers = words[0], [int(w) for w in words[1:]]
    if verb in ("find", "remove"):
        began, ended, number = getattr(client, verb)(*numbers)
        return f"ok {ended - began} {number}"
    began, ended, result, wanted = getattr(client, verb)(*numbers)
    if result != wanted:
        bad = next(r for r, w in zip(result, wanted) if r != w)
        code = errno.ENODATA if verb == "get" else errno.ENOSPC
        return f"error {code} {verb}: Mooncake's code {bad}"
    return f"ok {ended - began} {len(result)}"


def obey(client, out):
    for line in sys.stdin:
        words = line.split()
        if words[0] == "key":
            client.keys.append(words[1])
        else:
            print(answer(client, words), file=out, flush=True)


def start_segment(args, master, log):
    """Another process that lends the memory; returns when it does."""
    argv = [sys.executable, os.path.abspath(__file__), "--serve", "--master", master,
            "--segment", str(args.segment), "--block", "0", "--log", args.log]
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                             preexec_fn=end_with_parent, text=True)
    for line in child.stdout:
        if line.strip() == "serving":
            return child
    raise SystemExit("Mooncake: the process that lends memory ended")


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("--block", "--segment", "--memory-fd", "--memory-bytes"):
        parser.add_argument(name, type=int)
    parser.add_argument("--log", required=True)
    parser.add_argument("--master")
    parser.add_argument("--tcp", action="store_true", help="blocks lie in another process")
    parser.add_argument("--serve", action="store_true")
    return parser.parse_args()


def main():
    args = arguments()
    # The library prints what it does on standard output, which is the bench's.
    out = os.fdopen(os.dup(1), "w")
    if args.serve:
        return serve(args)
    os.dup2(2, 1)
    alone = namespace()
    log = open(args.log, "ab")
    ports = [free_port(), free_port()]
    master = f"{HOST}:{ports[0]}"
    servers = [spawn([os.path.join(os.path.dirname(sys.executable), "mooncake_master"),
                      "--rpc_address", HOST, "--rpc_port", str(ports[0]), "--metrics_host", HOST,
                      "--metrics_port", str(ports[1])], log)]
    if args.tcp:
        servers.append(start_segment(args, master, log))
    store = connect(0 if args.tcp else args.segment, master)
    memory = mmap.mmap(args.memory_fd, args.memory_bytes)
    client = Client(args, memory, store)
    version = importlib.metadata.version(PACKAGE)
    print(f"ready {version}{'' if alone else ' (no network namespace)'};",
          *[s.pid for s in servers], file=out, flush=True)
    obey(client, out)
    store.close()
    for server in reversed(servers):
        server.terminate()
        server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
