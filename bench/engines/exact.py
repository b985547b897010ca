"""Whether a state that comes from tier is the engine's own: for each prompt the same tokens, and
the same logits bit by bit, as an undisturbed run that splits its prefill at the same token.

SPDX-License-Identifier: Apache-2.0
"""
import random
import signal
import time

import numpy as np

import engine
import prompts
import tier
from progress import Progress, report
from service import Service, counter
from tier.llama import Door, lib

ANSWER = 6  # tokens
PLACES = ("memory", "nvme", "restart", "kill -9")


class Reference:
    """A prompt, where its prefill is split, and what an undisturbed run says."""

    def __init__(self, model, number):
        self.tokens = model.tokens(f"Story {number * 37}. " + prompts.story(number, 6 + number % 6))
        rng = random.Random(number)
        # Ends of a block and a lone tail are among them.
        self.split = rng.choice((32, 64, len(self.tokens) - 1, rng.randrange(8, 30),
                                 rng.randrange(33, len(self.tokens))))
        self.split = min(self.split, len(self.tokens) - 1)
        self.answer, self.logits = None, []

    def run(self, context):
        context.clear()
        context.decode(self.tokens[:self.split])
        context.decode(self.tokens[self.split:])
        self.answer = context.answer(ANSWER, self.logits)


class Opened:
    """The door on a connection of its own, as a newly started engine has it."""

    def __init__(self, connection, model, context):
        self.connection = connection
        self.pages = 2 * model.layers  # of a block
        context.clear()
        context.decode(model.tokens("a few tokens"))
        self.door = Door(self.connection, model.NAME, context.handle, model.lib._handle,
                         flags=lib.TIER_LLAMA_DURABLE)

    def close(self):
        self.door.close()
        self.connection.close()


def store(door, context, reference):
    """Store the first tokens of what the context holds now; durable puts may have to wait."""
    end = time.monotonic() + 60
    while True:
        try:
            return door.store(context.handle, reference.tokens[:reference.split])
        except tier.Error as e:
            if e.errno != 11 or time.monotonic() > end:
                raise
            time.sleep(0.05)


def load(opened, context, reference, from_nvme):
    """Why this run does not count, or None."""
    context.clear()
    before = counter(opened.connection, "read_bytes"), opened.connection.counters()["leases"]
    loaded = opened.door.load(context.handle, reference.tokens)
    told = opened.door.loaded()
    read = counter(opened.connection, "read_bytes") - before[0]
    leases = opened.connection.counters()["leases"] - before[1]
    if loaded != reference.split:
        return f"{loaded} of {reference.split} tokens came from tier"
    logits = []
    context.decode(reference.tokens[loaded:])
    answer = context.answer(ANSWER, logits)
    computed = len(reference.tokens) - loaded + ANSWER - 1
    if context.computed() != computed:
        return f"the engine computed {context.computed()} tokens, not {computed}"
    pages = told["blocks"] * opened.pages
    if leases != pages:
        return f"{leases} pages were read, not {pages}"
    if read != (told["bytes"] if from_nvme else 0):
        return f"the daemon read {read} bytes from NVMe; the state has {told['bytes']}"
    if answer != reference.answer:
        return f"tokens {answer}, not {reference.answer}"
    for one, other in zip(logits, reference.logits):
        if not np.array_equal(one.view(np.uint32), other.view(np.uint32)):
            return f"logits differ by {np.abs(one - other).max()}"
    return None


def run(build, count, library=None):
    """Print `exact N of M` and say whether all are."""
    model = engine.Model(library)
    context = engine.Context(model, 512)
    references = [Reference(model, number) for number in range(count)]
    exact, progress = 0, Progress(count * (1 + len(PLACES)))
    with Service(build, cxl_size="256MiB", nvme_size="768MiB", nvme_buffered="yes") as service:
        opened = Opened(service.start(), model, context)
        for reference in references:
            reference.run(context)
            stored = store(opened.door, context, reference)
            if stored != reference.split:
                raise SystemExit(f"stored {stored} of {reference.split} tokens")
            progress.step("references")
        for place in PLACES:
            opened = move(opened, service, model, context, place)
            good = 0
            for number, reference in enumerate(references):
                why = load(opened, context, reference, place != "memory")
                good += why is None
                progress.step(f"from {place}")
                if why:
                    report("")
                    print(f"  prompt {number}, {place}: {why}")
            report("")
            print(f"  from {place:8} {good} of {count}", flush=True)
            exact += good
        opened.close()
        service.stop()
    print(f"exact {exact} of {count * len(PLACES)}")
    return exact == count * len(PLACES)


def move(opened, service, model, context, place):
    """Have what is stored lie only where `place` says."""
    if place == "nvme":
        opened.connection.admin("drain")
        opened.connection.admin("evict", context="llama", tier="cxl")
    elif place != "memory":
        opened.close()
        service.stop(signal.SIGTERM if place == "restart" else signal.SIGKILL)
        return Opened(service.start(), model, context)
    return opened
