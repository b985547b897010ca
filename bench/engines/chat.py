"""Conversations that outgrow fast memory, beside slot files of the engine's own: one for each,
overwritten each turn, and read from the device when its user is back.

SPDX-License-Identifier: Apache-2.0
"""
import os
import time

import engine
import prompts
import tier
from progress import Progress
from service import Service
from tier.llama import Door

TALKS, TURNS = 8, 4
SYSTEM, TURN, ANSWER = 512, 32, 8  # tokens; a turn's with its answer
FAST = 11 << 20  # bytes of memory: a third of what is stored; one conversation does not fit
GOALS = (("bytes of own slot files / bytes stored", 2.5, "at least"),
         ("prompt tokens not computed, of those seen before", 0.99, "at least"),
         ("p95 time to first token, tier / own slot files", 1.25, "at most"))


class Way:
    """One way to keep conversations, and how their turns went."""

    def __init__(self, context, system):
        self.context = context
        self.held = [list(system) for _ in range(TALKS)]
        self.first, self.seen, self.spared, self.answers = [], 0, 0, []

    def turn(self, number, talk, said):
        """Compute a turn's prompt behind what is found of it, then its answer; keep all."""
        tokens = self.held[talk] + said
        seen = len(self.held[talk]) if number else 0
        self.context.clear()
        begun = time.perf_counter()
        there = self.load(number, talk, tokens)
        self.context.decode(tokens[there:])
        self.context.logits()
        if number:  # of first turns all but the shared beginning is new
            self.first.append(time.perf_counter() - begun)
        self.seen, self.spared = self.seen + seen, self.spared + min(there, seen)
        answer = self.context.answer(ANSWER)
        self.context.decode(answer[-1:])  # the next turn begins with all of it
        self.answers += answer
        self.held[talk] = tokens + answer
        self.keep(talk)

    def p95(self):
        return sorted(self.first)[int(len(self.first) * 0.95)]


class Files(Way):
    """A slot file of the engine's own for each, overwritten each turn."""

    def __init__(self, context, system, folder):
        super().__init__(context, system)
        self.paths = [os.path.join(folder, f"slot-{talk}.bin") for talk in range(TALKS)]

    def load(self, number, talk, tokens):
        if number == 0:
            return 0
        drop(self.paths[talk])
        return len(self.context.restore(self.paths[talk], len(tokens)))

    def keep(self, talk):
        self.context.save(self.paths[talk], self.held[talk])

    def bytes(self):
        return sum(os.path.getsize(path) for path in self.paths)


class Ours(Way):
    """The door."""

    def __init__(self, context, system, door):
        super().__init__(context, system)
        self.door, self.whence = door, [0] * 4

    def load(self, number, talk, tokens):
        there = self.door.load(self.context.handle, tokens)
        self.whence = [a + b for a, b in zip(self.whence, self.door.loaded()["from"])]
        return there

    def keep(self, talk):
        """As beside other work: what the daemon does not take at once is put again."""
        end = time.monotonic() + 60
        while self.door.store(self.context.handle, self.held[talk]) < len(self.held[talk]):
            if time.monotonic() > end:
                raise SystemExit("tierd did not take a conversation in a minute")
            time.sleep(0.02)


def drop(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def texts(model):
    """The system prompt, and what each user says in each turn."""
    system = model.tokens("Rules. " + prompts.story(99, SYSTEM // 7))[:SYSTEM]
    says = [[model.tokens(f"{talk} {turn}: " + prompts.story(100 + talk * TURNS + turn, 6))
             [:TURN - ANSWER] for turn in range(TURNS)] for talk in range(TALKS)]
    return system, says


def stored_bytes(t):
    """Bytes of all blocks, where they are whole: padding counts."""
    context = t.admin("context", context="llama")
    return context["blocks"] * context["block_bytes"]


def run(build):
    model = engine.Model()
    context = engine.Context(model, SYSTEM + TALKS * TURN + 64)
    system, says = texts(model)
    progress = Progress(TALKS * TURNS)
    with Service(build, cxl_size=FAST, nvme_size="512MiB") as service:
        service.start().close()
        t = tier.Tier(service.socket, name="chat", staging_bytes=4 << 20)
        context.decode(system[:2])
        door = Door(t, model.NAME, context.handle, model.lib._handle)
        ours, own = Ours(context, system, door), Files(context, system, service.dir)
        for turn in range(TURNS):
            for talk in range(TALKS):  # side by side, and who comes first changes
                for way in (ours, own) if talk % 2 else (own, ours):
                    way.turn(turn, talk, says[talk][turn])
                progress.step("turns")
        size, whence = own.bytes(), ours.whence
        stored = stored_bytes(t)
        door.close()
        t.close()
        service.stop()
    print(f"{TALKS} conversations of {TURNS} turns behind {SYSTEM} tokens that all share; "
          f"{FAST >> 20} MiB of fast memory")
    print(f"  own slot files {size / 1e6:.1f} MB, stored {stored / 1e6:.1f} MB, "
          f"{stored / FAST:.1f} x fast memory; blocks came from memory {whence[1]}, from NVMe "
          f"{whence[2]}")
    print(f"  time to first token, p95: tier {ours.p95() * 1e3:.0f} ms, own slot files "
          f"{own.p95() * 1e3:.0f} ms; the same answers: {ours.answers == own.answers}")
    good = True
    values = (size / stored, ours.spared / ours.seen, ours.p95() / own.p95())
    for (name, goal, how), value in zip(GOALS, values):
        met = value >= goal if how == "at least" else value <= goal
        good = good and met
        print(f"  {name}: {value:.3f}, {how} {goal} {'met' if met else 'MISSED'}")
    return good
