#!/usr/bin/env python3
"""Random sequences of what programs do with files, each in a folder of its own, with what came of
each step printed: tests/integration/objects_programs.sh runs it below a plain directory and under
`tier run`, and compares. Several processes share the sequences out.

usage: shim_sequences.py FOLDER SEED SEQUENCES PROCESSES

SPDX-License-Identifier: Apache-2.0
"""
import errno
import hashlib
import mmap
import os
import random
import shutil
import stat
import sys

STEPS = 40
NAMES = ("a", "b", "c.tmp", "sub/d", "sub/e", "sub/deep/f", "none/g")


def digest(data):
    return f"{len(data)} {hashlib.sha1(data).hexdigest()[:10]}"


def blob(rng, most=20000):
    return rng.randbytes(rng.choice((0, 1, rng.randrange(most), 4096, 4097)))


class Sequence:
    """One sequence: each step is a method, chosen at random, and returns what is to be compared."""

    def __init__(self, folder, seed):
        self.rng = random.Random(seed)
        self.folder, self.used = folder, []
        os.makedirs(os.path.join(folder, "sub/deep"))
        self.steps = sorted(n for n in dir(self) if n.startswith("do_"))

    def name(self):
        self.used.append(self.rng.choice(NAMES))
        return os.path.join(self.folder, self.used[-1])

    def do_write(self):
        with open(self.name(), "wb") as f:
            return f.write(blob(self.rng))

    def do_append(self):
        with open(self.name(), "ab") as f:
            f.write(blob(self.rng, 500))
            return f.tell()

    def do_patch(self):
        with open(self.name(), "r+b") as f:
            f.seek(self.rng.randrange(30000))
            return f.write(blob(self.rng, 500))

    def do_exclusive(self):
        with open(self.name(), "xb") as f:
            return f.write(blob(self.rng))

    def do_read(self):
        with open(self.name(), "rb") as f:
            return digest(f.read())

    def do_pread(self):
        fd = os.open(self.name(), os.O_RDONLY)
        try:
            return digest(os.pread(fd, self.rng.randrange(5000), self.rng.randrange(9000)))
        finally:
            os.close(fd)

    def do_map(self):
        """Written through a shared mapping, seen by read."""
        with open(self.name(), "r+b") as f:
            size = os.fstat(f.fileno()).st_size
            if not size:
                return "empty"
            with mmap.mmap(f.fileno(), size) as m:
                m[size // 2] = self.rng.randrange(256)
            return digest(f.read())

    def do_replace(self):
        name = self.name()
        with open(name + ".new", "wb") as f:
            f.write(blob(self.rng))
            f.flush()
            os.fsync(f.fileno())
        os.replace(name + ".new", name)
        return os.path.getsize(name)

    def do_rename(self):
        os.rename(self.name(), self.name())

    def do_copy(self):
        return os.path.relpath(shutil.copy(self.name(), self.name()), self.folder)

    def do_unlink(self):
        os.unlink(self.name())

    def do_truncate(self):
        os.truncate(self.name(), self.rng.randrange(9000))

    def do_stat(self):
        s = os.stat(self.name())
        return s.st_size, stat.filemode(s.st_mode), s.st_nlink

    def do_same_inode(self):
        name = self.name()
        with open(name, "rb") as f:
            return os.path.samestat(os.fstat(f.fileno()), os.stat(name))

    def do_access(self):
        name = self.name()
        return os.access(name, os.R_OK), os.access(name, os.X_OK), os.path.exists(name)

    def do_chmod(self):
        name = self.name()
        os.chmod(name, self.rng.choice((0o600, 0o644, 0o755)))
        os.utime(name, (1000, 123456789))
        return oct(os.stat(name).st_mode), os.stat(name).st_mtime

    def do_list(self):
        return [(sorted(d), sorted(f)) for _, d, f in sorted(os.walk(self.folder))]

    def do_rmdir(self):
        os.rmdir(os.path.join(self.folder, "sub/deep"))
        os.mkdir(os.path.join(self.folder, "sub/deep"))

    def do_open_and_unlink(self):
        """A file without a name is its holder's."""
        name = self.name()
        with open(name, "w+b") as f:
            f.write(b"nameless")
            os.unlink(name)
            f.seek(0)
            return f.read(), os.path.exists(name)

    def do_keep_open(self):
        """Who has it open keeps it, whatever becomes of the name."""
        with open(self.name(), "rb") as f:
            for step in (self.do_write, self.do_unlink, self.do_rename):
                try:
                    step()
                except OSError:
                    pass
            return "kept"

    def do_child(self):
        """A child writes through what it inherited, and the parent reads it when it has ended."""
        name = self.name()
        fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
        pid = os.fork()
        if pid == 0:
            os.lseek(fd, 0, os.SEEK_END)
            os.write(fd, b"child")
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(fd)
        with open(name, "rb") as f:
            return digest(f.read())

    def do_two_writers(self):
        """Two descriptors of one file see each other."""
        name = self.name()
        with open(name, "ab+") as a, open(name, "r+b") as b:
            a.write(b"first")
            a.flush()
            b.seek(0)
            return digest(b.read())

    def run(self):
        for i in range(STEPS):
            step, self.used = self.rng.choice(self.steps), []
            try:
                result = getattr(self, step)()
            except OSError as e:
                result = errno.errorcode.get(e.errno, e.errno)
            yield f"{i} {step}({', '.join(self.used)}) {result}"
        yield f"end {self.do_list()}"


def main():
    folder, seed, count, processes = sys.argv[1], *map(int, sys.argv[2:5])
    pids = []
    for p in range(processes):
        pid = os.fork()
        if pid:
            pids.append(pid)
            continue
        with open(f"{sys.argv[5]}.{p}", "w", encoding="utf-8") as out:
            for n in range(p, count, processes):
                for line in Sequence(os.path.join(folder, str(n)), seed * 100003 + n).run():
                    print(n, line, file=out)
        os._exit(0)
    return any(os.waitpid(pid, 0)[1] for pid in pids)


if __name__ == "__main__":
    sys.exit(main())
