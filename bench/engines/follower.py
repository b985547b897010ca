"""Who follows a bridge (python3 -m tier.events) as a router does: a set of blocks by their hashes.
Where vLLM is installed its own types decode every message.

SPDX-License-Identifier: Apache-2.0
"""
import random

import msgspec
import zmq

try:
    from vllm.distributed.kv_events import KVEventBatch
    BATCH = msgspec.msgpack.Decoder(KVEventBatch)
except ImportError:
    BATCH = None

END = (-1).to_bytes(8, "big", signed=True)
WAIT_S = 60


class Subscriber:
    """Knows blocks by their hashes. loses: this share of messages, before they are looked at."""

    def __init__(self, folder, loses=0.0):
        context = zmq.Context.instance()
        self.folder, self.loses, self.random = folder, loses, random.Random(28)
        self.blocks, self.next, self.asked, self.messages = set(), 0, 0, 0
        self.snapshots = self.replays = 0  # answers
        self.socket = context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.connect(f"ipc://{folder}/pub")
        self.socket.setsockopt(zmq.SUBSCRIBE, b"kv")

    def apply(self, number, payload):
        self.messages += 1
        if BATCH:
            BATCH.decode(payload)
        for event in msgspec.msgpack.decode(payload)[1]:
            kind = event["type"]
            if kind == "BlockStored":
                self.blocks.update(event["block_hashes"])
            elif kind == "BlockRemoved":
                self.blocks.difference_update(event["block_hashes"])
            elif kind == "AllBlocksCleared":
                self.blocks.clear()
            else:
                raise SystemExit(f"an event {kind}")
        self.next = number + 1

    def ask_again(self):
        """All messages from the next one on, or a snapshot where they are no longer kept."""
        self.asked += 1
        first = True
        dealer = zmq.Context.instance().socket(zmq.DEALER)
        dealer.setsockopt(zmq.RCVTIMEO, WAIT_S * 1000)
        dealer.setsockopt(zmq.RCVHWM, 0)
        dealer.connect(f"ipc://{self.folder}/replay")
        dealer.send_multipart((b"", self.next.to_bytes(8, "big")))
        while True:
            _, topic, number, payload = dealer.recv_multipart()
            if number == END:
                break
            if topic != b"kv":
                raise SystemExit(f"a replay under the topic {topic}")
            number = int.from_bytes(number, "big")
            if first:
                self.snapshots += number > self.next
                self.replays += number == self.next
            first = False
            self.apply(number, payload)
        dealer.close()

    def read(self):
        """What has come."""
        while self.socket.poll(0):
            _, number, payload = self.socket.recv_multipart()
            number = int.from_bytes(number, "big")
            if self.random.random() < self.loses or number < self.next:
                continue
            if number > self.next:
                self.ask_again()
            if number == self.next:
                self.apply(number, payload)
