#!/usr/bin/env python3
"""Eight processes map one file; prints how many copies of it they hold together, and fails above
1.02: each page counts by the share of it that a process has (Pss).

usage: shim_copies.py FILE

SPDX-License-Identifier: Apache-2.0
"""
import mmap
import os
import sys

PROCESSES = 8


def held(address):
    """KiB of the mapping there, by share."""
    with open("/proc/self/smaps", encoding="utf-8") as f:
        lines = iter(f)
        for line in lines:
            if line.startswith(f"{address}-"):
                return next(int(x.split()[1]) for x in lines if x.startswith("Pss:"))
    return 0


def shared_maps():
    with open("/proc/self/maps", encoding="utf-8") as f:
        return {line.split("-")[0] for line in f if " r--s " in line}


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
    return wrong or not 0.9 < copies <= 1.02


if __name__ == "__main__":
    sys.exit(main())
