#!/usr/bin/env python3
"""Hosts that answer only once two of them were asked at the same time: who asks one after the other
is answered by none.

usage: hosts_silent.py FIRST-PORT...    (host number i, from 0 on, is called Si and listens on the
                                         i-th port; prints "told" once two were told side by side)

SPDX-License-Identifier: Apache-2.0
"""
import select
import socket
import struct
import sys

HEADER = struct.Struct("<IHHII")
MAGIC, VERSION, HELLO, PROBE, FOUND, HOLD, HELD = 0x54454E54, 3, 1, 2, 3, 9, 11


def say(s, kind, body):
    s.sendall(HEADER.pack(MAGIC, VERSION, kind, HEADER.size + len(body), 0) + body)


class Host:
    """One connection of the host that asks."""

    def __init__(self, number, s):
        self.number, self.socket, self.data, self.waits = number, s, b"", None

    def take(self):
        """The next message's type, if one is whole: then an answer is due."""
        if len(self.data) < HEADER.size:
            return
        kind, length = HEADER.unpack_from(self.data)[2:4]
        if len(self.data) < length:
            return
        self.waits = (kind, self.data[16:24], kind == HOLD and self.data[24:28] == bytes(4))
        self.data = self.data[length:]

    def answer(self):
        kind, number, _ = self.waits
        self.waits = None
        if kind == HELLO:
            say(self.socket, HELLO,
                struct.pack("<QQ64s32x", 7 + self.number, 0, b"S%d" % self.number))
        elif kind == PROBE:
            say(self.socket, FOUND, number + struct.pack("<iIIIQ", 0, 0, 0, 0, 0))
        elif kind == HOLD:
            say(self.socket, HELD, number + bytes(8))


def main():
    listeners = [socket.create_server(("127.0.0.1", int(port))) for port in sys.argv[1:]]
    hosts, both = {}, set()
    print("ready", flush=True)
    while True:
        for s in select.select(listeners + list(hosts), [], [])[0]:
            if s in listeners:
                new = s.accept()[0]
                hosts[new] = Host(listeners.index(s), new)
                continue
            try:
                data = s.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                hosts.pop(s).socket.close()
                continue
            hosts[s].data += data
            hosts[s].take()
        for kind in (HELLO, HOLD):
            # A HOLD of nothing only says that its sender lives, and is answered.
            asked = {h.number for h in hosts.values()
                     if h.waits and h.waits[0] == kind and not h.waits[2]}
            if len(asked) > 1 and kind not in both:
                both.add(kind)
                print("told" if kind == HOLD else "met", flush=True)
        for h in hosts.values():
            if h.waits and (h.waits[0] in both | {PROBE} or h.waits[2]):
                h.answer()


main()
