#!/usr/bin/env python3
"""Eight processes map one file; prints how many copies of it they hold together, and fails above
1.02: each page counts by the share of it that a process has (Pss). Where the host gives huge pages
when it is asked, the file is in huge pages.

usage: shim_copies.py FILE

SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import mmap
import os
import sys

PROCESSES = 8
HUGE = 2 << 20
COLLAPSE = 25  # MADV_COLLAPSE


def held(address, what="Pss:"):
    """KiB of the mapping there, by share."""
    with open("/proc/self/smaps", encoding="utf-8") as f:
        lines = iter(f)
        for line in lines:
            if line.startswith(f"{address}-"):
                return next(int(x.split()[1]) for x in lines if x.startswith(what))
    return 0


def shared_maps():
    with open("/proc/self/maps", encoding="utf-8") as f:
        return {line.split("-")[0] for line in f if " r--s " in line}


def in_huge_pages(fd, size):
    """KiB of huge pages, mapped where they can be; and whether the host gives one of our own."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p

    def mapped(fd, size, prot):
        fixed = mmap.MAP_SHARED | 0x10
        room = libc.mmap(None, ctypes.c_size_t(size + HUGE), 0, 0x22, -1, ctypes.c_long(0))
        at = (room + HUGE - 1) // HUGE * HUGE
        assert libc.mmap(ctypes.c_void_p(at), ctypes.c_size_t(size), prot, fixed, fd,
                         ctypes.c_long(0)) == at
        return at

    def huge(at, size):
        for i in range(at, at + size, 4096):
            ctypes.string_at(i, 1)
        return held(f"{at:x}", "ShmemPmdMapped:")

    own = os.memfd_create("huge")
    os.ftruncate(own, HUGE)
    at = mapped(own, HUGE, mmap.PROT_READ | mmap.PROT_WRITE)
    ctypes.memset(at, 1, HUGE)
    given = libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(HUGE), COLLAPSE) == 0
    return huge(mapped(fd, size, mmap.PROT_READ), size), given


def main():
    ready, say_ready = os.pipe()
    go, say_go = os.pipe()
    end, say_end = os.pipe()
    told, tell = os.pipe()
    for _ in range(PROCESSES):
        if os.fork():
            continue
        fd = os.open(sys.argv[1], os.O_RDONLY)
        before = shared_maps()
        m = mmap.mmap(fd, 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
        address = (shared_maps() - before).pop()
        os.write(say_ready, b"x")
        os.read(go, 1)
        os.write(tell, held(address).to_bytes(8, "little"))
        os.read(end, 1)
        os._exit(len(m) == 0)
    for _ in range(PROCESSES):
        os.read(ready, 1)
    os.write(say_go, b"x" * PROCESSES)
    kib = sum(int.from_bytes(os.read(told, 8), "little") for _ in range(PROCESSES))
    os.write(say_end, b"x" * PROCESSES)
    wrong = any(os.wait()[1] for _ in range(PROCESSES))
    copies = kib * 1024 / os.path.getsize(sys.argv[1])
    print(f"# {PROCESSES} processes map it: {copies:.3f} copies")
    huge, given = in_huge_pages(os.open(sys.argv[1], os.O_RDONLY), os.path.getsize(sys.argv[1]))
    print(f"# {huge} KiB of it in huge pages" + ("" if given else ", the host gives none"))
    return wrong or not 0.9 < copies <= 1.02 or (given and not huge)


if __name__ == "__main__":
    sys.exit(main())
