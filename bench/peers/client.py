"""What the Python clients of `tierbench peers` have in common: they do what lines on standard input
ask for and answer with the nanoseconds that it took.

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
HOST = "127.0.0.1"

libc = ctypes.CDLL(None, use_errno=True)


def namespace():
    """A network of our own, with nothing but loopback: servers may listen on all addresses."""
    if libc.unshare(CLONE_NEWNET) and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        name = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(s, SIOCGIFFLAGS, name))[1]
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | IFF_UP, b""))
    return True


def tell_address(args, address, server):
    """For who joins: where the servers are, and a process in whose network."""
    with open(os.path.join(args.dir, "address"), "w", encoding="utf-8") as file:
        file.write(f"{server} {address}")


def join(args):
    """Enter the network of the first client; the address of its servers."""
    with open(os.path.join(args.dir, "address"), encoding="utf-8") as file:
        server, address = file.read().split()
    for kind in ("user", "net"):
        there = f"/proc/{server}/ns/{kind}"
        if os.stat(there).st_ino == os.stat(f"/proc/self/ns/{kind}").st_ino:
            continue
        with open(there, encoding="utf-8") as file:
            if libc.setns(file.fileno(), 0):
                raise SystemExit(f"{kind} namespace: {os.strerror(ctypes.get_errno())}")
    return address


def free_port():
    with socket.socket() as s:
        s.bind((HOST, 0))
        return s.getsockname()[1]


def _end_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def spawn(argv, log, **how):
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log,
                            preexec_fn=_end_with_parent, **{"stdout": log, **how})


def arguments(*more):
    parser = argparse.ArgumentParser()
    for name in ("--block", "--memory", "--flash", "--shared-fd", "--shared-bytes"):
        parser.add_argument(name, type=int)
    for name in ("--how", "--log", "--dir", *more):
        parser.add_argument(name)
    parser.add_argument("--join", action="store_true")
    return parser.parse_args()


def answer_stream():
    """Where answers go; what libraries print on standard output goes to the log."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def timed(work, *arguments):
    began = time.perf_counter_ns()
    result = work(*arguments)
    return time.perf_counter_ns() - began, result


def _answer(client, verb, first, count, *offset):
    """client.put and client.get return None, or why they failed; the others a number."""
    took, result = timed(getattr(client, verb), client.keys[first:first + count], *offset)
    if verb in ("put", "get"):
        if result:
            return f"error {errno.ENODATA if verb == 'get' else errno.ENOSPC} {verb}: {result}"
        result = count
    return f"ok {took} {result}"


def obey(client, label, servers, out):
    print(f"ready {label};", *[s.pid for s in servers], file=out, flush=True)
    client.keys = []
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "key":
            client.keys.append(client.key(words[0]))
        else:
            print(_answer(client, verb, *map(int, words)), file=out, flush=True)
