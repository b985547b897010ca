#!/usr/bin/env python3
"""A peer that lies: stands between two tierd-nets that speak bare TCP, hands on what they say, and
spoils what the holder answers as a file says that is read for each connection.

usage: hosts_evil.py LISTEN-PORT HOLDER-PORT MODE-FILE

Modes: honest; flip (a bit of a page), swap (two pages of a frame), short (half of a frame, then it
hangs up), stall (half of a frame, then nothing), replay (each frame twice), skip (each second frame
is missing), early (WHOLE before the pages), lapsed (WHOLE says that the grant did not stand), more
(more blocks than were asked for), endless (one frame for ever), noise (no message at all), huge (a
length beyond all limits), mute (no answer), drip (a byte at a time), name (another host's name).

SPDX-License-Identifier: Apache-2.0
"""
import os
import socket
import struct
import sys
import threading
import time

HELLO, GRANT, PAGES, WHOLE, PICKED = 1, 5, 6, 8, 36
BYTES_AT = {PAGES: 36, PICKED: 32}
HEADER = struct.Struct("<IHHII")


def receive(source, count):
    data = bytearray()
    while len(data) < count:
        piece = source.recv(count - len(data))
        if not piece:
            raise ConnectionError
        data += piece
    return data


def message(source):
    """(type, message, pages) of the next one that the holder says."""
    head = receive(source, HEADER.size)
    _, _, kind, length, _ = HEADER.unpack(head)
    body = head + receive(source, length - HEADER.size)
    at = BYTES_AT.get(kind)
    pages = receive(source, struct.unpack_from("<I", body, at)[0]) if at else b""
    return kind, body, pages


def swap(body, pages):
    """The first two pages of the frame change places, with their CRCs."""
    count = struct.unpack_from("<I", body, 32)[0]
    size = len(pages) // count
    if count > 1:
        pages[:2 * size] = pages[size:2 * size] + pages[:size]
        body[40:48] = body[44:48] + body[40:44]


def word(kind, body):
    """A message of one word about the grant that body is of."""
    return HEADER.pack(0x54454E54, 3, kind, 32, 0) + bytes(body[16:24]) + bytes(8)


def spoil(mode, state, kind, body, pages):
    """The bytes to send in their place, piece by piece; None ends the connection."""
    if kind == HELLO:
        if mode == "name":
            body[32:33] = b"X"
        yield body
    elif mode in ("mute", "noise", "huge") and kind != HELLO:
        if mode == "mute":
            time.sleep(600)
        yield b"\xff" * 64 if mode == "noise" else HEADER.pack(0x54454E54, 2, 3, 1 << 31, 0)
    elif kind == GRANT:
        if mode == "more":
            body[28:32] = struct.pack("<I", struct.unpack_from("<I", body, 28)[0] + 1)
        yield body
        if mode == "early":
            yield word(WHOLE, body)
    elif kind == WHOLE and mode == "lapsed":
        body[24:28] = struct.pack("<i", -116)
        yield body
    elif kind in BYTES_AT:
        yield from spoil_pages(mode, state, body, pages)
    else:
        yield body


def spoil_pages(mode, state, body, pages):
    state["frames"] = state.get("frames", 0) + 1
    if mode == "flip":
        pages[len(pages) // 2] ^= 1
    elif mode == "swap":
        swap(body, pages)
    elif mode == "skip" and state["frames"] % 2:
        return
    elif mode in ("short", "stall"):
        yield body + pages[:len(pages) // 2]
        time.sleep(600 if mode == "stall" else 0)
        yield None
    elif mode == "endless":
        while True:
            yield body + pages
    elif mode == "drip":
        for at in range(len(pages)):
            yield (body if at == 0 else b"") + pages[at:at + 1]
            time.sleep(0.02)
    yield body + pages
    if mode == "replay":
        yield body + pages


def answers(mode, holder, requester):
    state = {}
    try:
        while True:
            for piece in spoil(mode, state, *message(holder)):
                if piece is None:
                    raise ConnectionError
                requester.sendall(piece)
    except (ConnectionError, OSError):
        pass
    for s in (holder, requester):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def questions(requester, holder):
    try:
        while piece := requester.recv(65536):
            holder.sendall(piece)
    except OSError:
        pass


def main():
    port, holder_port, mode_file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    with socket.create_server(("127.0.0.1", port), reuse_port=False) as server:
        while True:
            requester, _ = server.accept()
            with open(mode_file, encoding="ascii") as f:
                mode = f.read().strip()
            try:
                holder = socket.create_connection(("127.0.0.1", holder_port))
            except OSError:
                requester.close()
                continue
            for s in (requester, holder):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=answers, args=(mode, holder, requester), daemon=True).start()
            threading.Thread(target=questions, args=(requester, holder), daemon=True).start()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        os._exit(0)
