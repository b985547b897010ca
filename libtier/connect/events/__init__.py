"""Events of a context for routers, in vLLM's format: msgpack over ZeroMQ, with a replay.

    python3 -m tier.events --context NAME [--bind tcp://*:5557] [--replay tcp://*:5558]
                           [--topic TEXT] [--integer-hashes] [--socket PATH]

What a router that reads vLLM's KV events sees: messages of three parts (topic, number, batch), the
numbers without a gap, and larger at each start of this process: who was there before sees a gap. A
batch is vLLM's KVEventBatch: BlockStored, BlockRemoved and AllBlocksCleared, as
vllm.distributed.kv_events has them.

- A block's hash is its key in tier, 32 bytes; --integer-hashes: its last 8 as a number, as vLLM
  makes them. Token ids are not known here and are left empty: route by hashes.
- The medium is the tier, in vLLM's words: GPU (HBM), CPU (CXL), STORAGE (NVMe). A block that
  moves is removed from the one and then stored in the other, so who does not look at media ends
  with the same blocks.
- Who comes late, or sees a gap, asks the replay socket, as vLLM's: for the messages from a number
  on. What is no longer kept is answered by a snapshot: AllBlocksCleared, then all blocks that are
  there, in one batch whose number is that of the last message that it covers.
- When the daemon restarts, or this process is too slow for it, subscribers are told to clear, and
  all that is there.

Wants pyzmq and msgspec. Nothing waits for a subscriber: what one does not read is dropped for it,
and it sees that by the numbers.

SPDX-License-Identifier: Apache-2.0
"""
import collections
import errno
import time

import msgspec
import tier
import zmq

EVENTS = 256  # of one call
LOOK_MS, BUSY_MS = 30, 1  # between two looks, where the last one found few events, or many
MANY, MOST = 64, 4096  # of a look; the ring has 1,024
CHECK_LOOKS = 20  # then the daemon is looked for, which may have come anew
RETRY_S = 0.2
PER_S_BITS = 16  # more messages than that in a second, for as long as it runs, are never sent
END = (-1).to_bytes(8, "big", signed=True)
MEDIUM = {tier.lib.TIER_HBM: "GPU", tier.lib.TIER_CXL: "CPU", tier.lib.TIER_NVME: "STORAGE"}
NO_KEY = bytes(32)
CLEARED = {"type": "AllBlocksCleared"}


class Publisher:
    """Numbers batches, sends them, keeps the last ones and what blocks are there."""

    def __init__(self, options):
        context = zmq.Context.instance()
        self.topic = options.topic.encode()
        self.integers = options.integer_hashes
        self.out = context.socket(zmq.PUB)
        self.out.bind(options.bind)
        self.replay = context.socket(zmq.ROUTER)
        self.replay.setsockopt(zmq.SNDHWM, 2 * options.kept)
        self.replay.bind(options.replay)
        self.number = int(time.time()) << PER_S_BITS
        self.kept = collections.deque(maxlen=options.kept)
        self.blocks = {}  # by key: (parent, medium)
        self.block_tokens = 0

    # ---- events to messages ----------------------------------------------------------------------

    def hash_of(self, key):
        return int.from_bytes(key[-8:], "big") if self.integers else key

    def stored(self, key, parent, medium):
        parent = self.hash_of(parent) if parent != NO_KEY else None
        return {"type": "BlockStored", "block_hashes": [self.hash_of(key)],
                "parent_block_hash": parent, "token_ids": [], "block_size": self.block_tokens,
                "lora_id": None, "medium": medium, "lora_name": None}

    def removed(self, key, medium):
        return {"type": "BlockRemoved", "block_hashes": [self.hash_of(key)], "medium": medium}

    def take(self, event):
        """An event of tier to those of vLLM; a block may be told of twice."""
        key, kind = bytes(tier.ffi.buffer(event.key.bytes)), event.kind
        if kind == tier.lib.TIER_EVENT_CLEARED:
            self.blocks.clear()
            return [CLEARED]
        had = self.blocks.pop(key, None)
        if kind == tier.lib.TIER_EVENT_REMOVED:
            return [self.removed(key, had[1])] if had else []
        medium = MEDIUM[event.tier]
        parent = had[0] if had and kind == tier.lib.TIER_EVENT_MOVED else \
            bytes(tier.ffi.buffer(event.parent.bytes))
        self.blocks[key] = (parent, medium)
        if had and had[1] == medium:
            return []
        return ([self.removed(key, had[1])] if had else []) + [self.stored(key, parent, medium)]

    def send(self, events):
        if not events:
            return
        payload = msgspec.msgpack.encode([time.time(), events])
        number = self.number.to_bytes(8, "big")
        self.out.send_multipart((self.topic, number, payload))
        self.kept.append((number, payload))
        self.number += 1

    # ---- who comes late --------------------------------------------------------------------------

    def snapshot(self):
        events = [CLEARED]
        events += [self.stored(key, parent, medium)
                   for key, (parent, medium) in self.blocks.items()]
        return msgspec.msgpack.encode([time.time(), events])

    def answer(self, wait_ms):
        """Requests of the replay socket; the first one is waited for."""
        while self.replay.poll(wait_ms):
            wait_ms = 0
            who, *rest = self.replay.recv_multipart()
            if len(rest) != 2 or rest[0] or len(rest[1]) != 8:
                continue  # not a request
            first = int.from_bytes(rest[1], "big")
            head = (who, b"", self.topic)
            if first < self.number - len(self.kept):
                self.replay.send_multipart((*head, (self.number - 1).to_bytes(8, "big"),
                                            self.snapshot()))
                first = self.number
            for number, payload in self.kept:
                if int.from_bytes(number, "big") >= first:
                    self.replay.send_multipart((*head, number, payload))
            self.replay.send_multipart((who, b"", b"", END, b""))


def events_of(call, handle, buffer, *rest):
    n = call(handle, buffer, EVENTS, *rest)
    if n == -errno.EOVERFLOW or n == -errno.ENOTCONN:
        return None
    return [buffer[i] for i in range(tier.check(n, "events"))]


def look(publisher, handle, buffer):
    """What has come, as one message; how many events, or None: some were lost."""
    told, count, found = [], 0, True
    while found and count < MOST:
        found = events_of(tier.lib.tier_events_read, handle, buffer, 0)
        count += len(found or [])
        for event in found or []:
            told += publisher.take(event)
    if found is None:
        return None
    publisher.send(told)
    return count


def begin(publisher, handle, buffer):
    """All that is there, to subscribers that know nothing. False: try again later."""
    events = [CLEARED]
    publisher.blocks.clear()
    while found := events_of(tier.lib.tier_events_snapshot, handle, buffer):
        for event in found:
            events += publisher.take(event)
    publisher.send(events)
    return found is not None


def follow(publisher, context):
    out = tier.ffi.new("tier_events **")
    tier.check(tier.lib.tier_events_open(context.handle, out), "events")
    handle, buffer = out[0], tier.ffi.new("struct tier_event[]", EVENTS)
    known, looks, count = False, 0, 0
    try:
        while True:
            publisher.answer(BUSY_MS if count > MANY else LOOK_MS)
            looks += 1
            if not known or looks % CHECK_LOOKS == 0:
                tier.lib.tier_check(context.tier.handle)
            if not known:
                known = begin(publisher, handle, buffer)
                if not known:
                    time.sleep(RETRY_S)
                continue
            count = look(publisher, handle, buffer)
            known, count = count is not None, count or 0
    finally:
        tier.lib.tier_events_close(handle)
