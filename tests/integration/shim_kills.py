#!/usr/bin/env python3
"""Writers that are killed, again and again, at last with the daemon: tests/integration/
objects_programs.sh runs this under `tier run`. Each writer tells a board (a real file) what it
begins and what has returned. What a name holds then is what was told last, or what was begun
behind it: never a part of anything, and nothing that returned is lost.

usage: shim_kills.py run FOLDER BOARDS SEED ROUNDS DAEMON   the daemon's pid: it dies at the end
       shim_kills.py look FOLDER BOARDS                     behind its restart

SPDX-License-Identifier: Apache-2.0
"""
import hashlib
import os
import random
import signal
import struct
import sys
import time

WRITERS = 3
NAMES = ("a", "b", "c", "c.tmp", "sub/d")
NOTHING = 0


def blob(rng, number):
    """It says of itself whether it is whole, and which one it is."""
    data = rng.randbytes(rng.choice((0, 10, 4096, rng.randrange(30000))))
    data = struct.pack("<QQ", number, len(data)) + data
    return data + hashlib.sha1(data).digest()


def number_of(path):
    try:
        with open(path, "rb") as f:
            data = f.read()
    except FileNotFoundError:
        return NOTHING
    number, size = struct.unpack("<QQ", (data + bytes(16))[:16])
    if len(data) != 36 + size or hashlib.sha1(data[:-20]).digest() != data[-20:]:
        sys.exit(f"{path} is torn: {len(data)} bytes")
    return number


def put(rng, path, number):
    """In place, as a new version, or beside it; the last one by a rename of its own."""
    how, data = rng.randrange(3), blob(rng, number)
    flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if how else 0)
    fd = os.open(path + ".new" * (how == 2), flags, 0o644)
    for at in range(0, len(data), 5000):
        os.pwrite(fd, data[at:at + 5000], at)
    os.ftruncate(fd, len(data))
    if how != 1:
        os.fsync(fd)
    os.close(fd)
    if how == 2:
        os.rename(path + ".new", path)


def write(folder, board, seed, first):
    rng = random.Random(seed)
    told = os.open(board, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    number = first
    while True:
        number += 1
        what = rng.choice(("put", "put", "put", "move", "unlink"))
        one, other = rng.sample(NAMES, 2)
        os.write(told, f"{number} {what} {one} {other}\n".encode())
        try:
            if what == "put":
                put(rng, f"{folder}/{one}", number)
            elif what == "move":
                os.rename(f"{folder}/{one}", f"{folder}/{other}")
            else:
                os.unlink(f"{folder}/{one}")
        except FileNotFoundError:
            what = "none"
        os.write(told, f"{number} done {what}\n".encode())


class Model:
    """What each name may hold: numbers of blobs, NOTHING."""

    def __init__(self, board):
        self.may = {name: {NOTHING} for name in NAMES}
        self.late = {name: {} for name in NAMES}  # puts that never returned, and their round
        self.number = self.round = self.kept = 0
        begun = None
        lines = []
        if os.path.exists(board):
            with open(board, encoding="ascii") as f:
                lines = [line.split() for line in f if line.endswith("\n")]
        for words in lines:
            if words[1] == "done":
                self.apply(begun, words[2])
                begun = None
            elif words[1] == "round":
                if begun:
                    self.apply(begun, None)
                begun, self.round = None, self.round + 1
            else:
                begun, self.number = words, int(words[0])
        if begun:
            self.apply(begun, None)

    def apply(self, begun, done):
        """done: what came of it; None: who did it was killed."""
        number, (what, one, other) = int(begun[0]), begun[1:]
        self.kept += done is not None
        if what == "put" and done:
            self.may[one] = {number}
        elif what == "put":
            self.may[one] |= {number}
            self.late[one][number] = self.round
        elif done == "none" or (what == "unlink" and done):
            self.may[one] = {NOTHING}
        elif what == "unlink":
            self.may[one] |= {NOTHING}
        elif done:
            self.may[other] = self.holds(one) - {NOTHING}
            self.may[one] = {NOTHING}
        else:
            self.may[other] |= self.holds(one) - {NOTHING}
            self.may[one] |= {NOTHING}

    def holds(self, name):
        """The commit of who was killed may come behind what somebody else did then."""
        return self.may[name] | {n for n, r in self.late[name].items() if r + 2 > self.round}

    def look(self, folder):
        for name in NAMES:
            number = number_of(f"{folder}/{name}")
            if number not in self.holds(name):
                sys.exit(f"{folder}/{name} holds {number}, not one of {self.holds(name)}")
        return self.kept


def places(folder, boards):
    return [(f"{folder}/{w}", f"{boards}/{w}") for w in range(WRITERS)]


def look(folder, boards):
    return sum(Model(board).look(folder) for folder, board in places(folder, boards))


def one_round(folder, boards, rng, daemon):
    pids = []
    for there, board in places(folder, boards):
        first, seed = Model(board).number, rng.random()
        pids.append(os.fork())
        if pids[-1] == 0:
            try:
                write(there, board, seed, first)
            finally:
                os._exit(1)
    time.sleep(rng.uniform(0.02, 0.3))
    if daemon:  # whoever lives on has the real directory
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        os.kill(daemon, signal.SIGKILL)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    if codes != [-signal.SIGKILL] * WRITERS:
        sys.exit(f"writers ended with {codes}")
    for _, board in places(folder, boards):
        with open(board, "a", encoding="ascii") as f:
            f.write("\n0 round\n" if unfinished(board) else "0 round\n")


def unfinished(board):
    with open(board, "rb") as f:
        data = f.read()
    return data and not data.endswith(b"\n")


def main():
    what, folder, boards = sys.argv[1:4]
    if what == "run":
        rng, rounds = random.Random(int(sys.argv[4])), int(sys.argv[5])
        for there, _ in places(folder, boards):
            os.makedirs(there + "/sub", exist_ok=True)
        for i in range(rounds):
            last = i == rounds - 1
            one_round(folder, boards, rng, int(sys.argv[6]) if last else 0)
            if not last:
                look(folder, boards)
    else:
        print(look(folder, boards))


if __name__ == "__main__":
    main()
