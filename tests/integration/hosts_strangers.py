#!/usr/bin/env python3
"""Who has no business here: what tierd-net does with them, told by what a friend still gets.

usage: hosts_strangers.py engines SOCKET          another user holds all connections that it can
       hosts_strangers.py hosts ADDR:PORT DIR NAME  so does a host without a certificate
       hosts_strangers.py certificate ADDR:PORT DIR NAME  DIR's certificate says more than NAME
       hosts_strangers.py member ADDR:PORT DIR NAME COUNT  NAME holds so many connections,
                                                  until its standard input ends
       hosts_strangers.py probe ADDR:PORT DIR NAME DIGEST  what NAME is told of a context
       hosts_strangers.py held ADDR:PORT DIR NAME DIGEST EPOCH KEY...  NAME is granted blocks, and
                                                  reads them once a line is there to read
       hosts_strangers.py etcd PORT               keeps leases, and has nothing else to say

SPDX-License-Identifier: Apache-2.0
"""
import http.server
import os
import socket
import ssl
import struct
import sys

MANY = 80
HEADER = struct.Struct("<IHHII")
HELLO, PROBE, ASK, ADMIN = 1, 2, 4, 19
GRANT = struct.Struct("<IHHIIQiIIIQQ")


def message(kind, body):
    return HEADER.pack(0x54454E54, 3, kind, HEADER.size + len(body), 0) + body


def engine(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    s.settimeout(5)
    return s


def engines(path):
    """As root it gets an answer, while user 65534 has opened 80 connections."""
    os.chdir(os.path.dirname(path))
    os.chmod(".", 0o711)
    os.seteuid(65534)
    held = [engine("tier.sock.net") for _ in range(MANY)]
    os.seteuid(0)
    friend = engine("tier.sock.net")
    friend.sendall(message(ADMIN, struct.pack("32s64s64s", b"hosts", b"", b"")))
    answered = friend.recv(65536)
    print("answered" if answered else "turned away", len(held))


def friend(address, folder, name):
    """A connection of who shows this certificate and says this name, or None: it got no HELLO."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.load_verify_locations(folder + "/ca.pem")
    tls.load_cert_chain(folder + "/cert.pem", folder + "/key.pem")
    try:
        s = tls.wrap_socket(socket.create_connection(address, 5))
        s.sendall(message(HELLO, struct.pack("<QQ64s32s", 1, 0, name.encode(), b"")))
        return s if s.recv(65536) else None
    except OSError:
        return None


def member(address, folder, name):
    return friend(address, folder, name) is not None


def hold(address, folder, name, count):
    """A member's connections, each with its HELLO answered."""
    held = [friend(address, folder, name) for _ in range(int(count))]
    print("held" if all(held) else "turned away", sum(map(bool, held)), flush=True)
    sys.stdin.read()


def probe(address, folder, name, digest):
    """The answer to a question about one key, as it came."""
    s = friend(address, folder, name)
    if s is None:
        return "turned away"
    key = bytes(32)
    s.sendall(message(PROBE, struct.pack("<QQ32sII", 1, 1, bytes.fromhex(digest), 1, 0) + key))
    return s.recv(65536).hex()


def held(address, folder, name, digest, epoch, *keys):
    """A connection on which keys were asked for: what was granted is read when a line is there."""
    s = friend(address, folder, name)
    s.settimeout(60)
    ask = struct.pack("<QQQ32sQII", 1, int(epoch), 0, bytes.fromhex(digest), 60 * 10**9, 0,
                      len(keys))
    s.sendall(message(ASK, ask + b"".join(map(bytes.fromhex, keys))))
    *_, error, blocks, layers, _, lasts, size = GRANT.unpack(s.recv(GRANT.size))
    print("held", error, blocks, flush=True)
    sys.stdin.readline()
    came = 0
    try:
        while some := s.recv(1 << 16):
            came += len(some)
    except (ConnectionError, ssl.SSLError):
        pass
    print("all came" if came >= size else "cut off", came, size)


def hosts(address, folder, name):
    held = [socket.create_connection(address, 5, ("127.0.0.2", 0)) for _ in range(MANY)]
    print("answered" if member(address, folder, name) else "turned away", len(held))


ANSWER = b'{"ID": "7", "result": {"TTL": "2"}}'


class Empty(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_):
        pass


def main():
    what, where = sys.argv[1:3]
    if what == "engines":
        engines(where)
    elif what == "etcd":
        http.server.HTTPServer(("127.0.0.1", int(where)), Empty).serve_forever()
    else:
        host, port = where.rsplit(":", 1)
        if what == "hosts":
            hosts((host, int(port)), *sys.argv[3:])
        elif what == "member":
            hold((host, int(port)), *sys.argv[3:])
        elif what == "probe":
            print(probe((host, int(port)), *sys.argv[3:]))
        elif what == "held":
            held((host, int(port)), *sys.argv[3:])
        else:
            print("answered" if member((host, int(port)), *sys.argv[3:]) else "turned away")


if __name__ == "__main__":
    main()
