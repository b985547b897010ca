#!/usr/bin/env python3
"""Does again what a real program did with its files (tests/integration/calls, recorded by
tests/upstream/calls), in FOLDER, and prints what came of each call:
tests/integration/objects_programs.sh compares that of `tier run` with that of a plain directory.

usage: shim_calls.py LIST FOLDER

SPDX-License-Identifier: Apache-2.0
"""
import hashlib
import mmap
import os
import sys

BYTES_MOST = 1 << 18  # of a call: its size is not what is tried here


def blob(number, count):
    return hashlib.shake_128(f"{number}".encode()).digest(count)


def told(data):
    return f"{len(data)} {hashlib.sha1(data).hexdigest()[:10]}"


class Calls:
    """Each method is a call's name; words are those of the list."""

    def __init__(self, folder):
        self.folder, self.fds, self.writes = folder, {}, 0
        self.direct = mmap.mmap(-1, BYTES_MOST)  # where O_DIRECT wants it

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, name, count):
        with open(self.path(name), "wb") as f:
            f.write(blob(name, min(int(count), BYTES_MOST)))

    def open(self, number, name, flags):
        flags = sum(getattr(os, flag) for flag in flags.split("|"))
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        self.fds[number] = os.open(self.path(name), flags, 0o666)

    def write(self, number, count):
        self.writes += 1
        count = min(int(count), BYTES_MOST)
        self.direct[:count] = blob(self.writes, count)
        return os.write(self.fds[number], memoryview(self.direct)[:count])

    def read(self, number, count):
        room = memoryview(self.direct)[:min(int(count) or 1, BYTES_MOST)]
        count = os.readv(self.fds[number], [room])
        return told(self.direct[:count])

    def pread(self, number, count, at):
        return told(os.pread(self.fds[number], min(int(count), BYTES_MOST), int(at)))

    def pwrite(self, number, count, at):
        return os.pwrite(self.fds[number], blob(at, min(int(count), BYTES_MOST)), int(at))

    def seek(self, number, at, whence):
        return os.lseek(self.fds[number], min(int(at), BYTES_MOST), getattr(os, whence))

    def mmap(self, number, count, kind):
        flags = mmap.MAP_PRIVATE if kind == "private" else mmap.MAP_SHARED
        size = os.fstat(self.fds[number]).st_size
        with mmap.mmap(self.fds[number], min(int(count), size), flags, mmap.PROT_READ) as m:
            return told(m[:])

    def dup(self, number, copy):
        self.fds[copy] = os.dup(self.fds[number])

    def close(self, number):
        os.close(self.fds.pop(number))

    def truncate(self, number, count):
        os.ftruncate(self.fds[number], min(int(count), BYTES_MOST))

    def fsync(self, number):
        os.fsync(self.fds[number])

    def fstat(self, number):
        return os.fstat(self.fds[number]).st_size

    def stat(self, name):
        st = os.stat(self.path(name))
        return f"{st.st_mode:o} {st.st_size if os.path.isfile(self.path(name)) else ''}"

    def access(self, name):
        return os.access(self.path(name), os.R_OK)

    def mkdir(self, name):
        os.makedirs(self.path(name), exist_ok=True)

    def rename(self, name, to):
        os.rename(self.path(name), self.path(to))

    def unlink(self, name):
        os.unlink(self.path(name))


def main():
    calls = Calls(sys.argv[2])
    for line in open(sys.argv[1]):
        words = line.split()
        times = int(words.pop()[1:]) if words[-1][0] == "*" else 1
        for _ in range(min(times, 100)):
            try:
                out = getattr(calls, words[0])(*words[1:])
            except OSError as e:
                out = e.strerror
            except KeyError:
                out = "not open"
            print(" ".join(words), out)
    for path, folders, files in sorted(os.walk(sys.argv[2])):  # what is left
        for name in sorted(files):
            with open(os.path.join(path, name), "rb") as f:
                print(os.path.relpath(f.name, sys.argv[2]), told(f.read()))


if __name__ == "__main__":
    main()
