"""python3 -m tier.events: see __init__.py.

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import signal
import sys

import tier
import zmq
from tier import events


def main():
    p = argparse.ArgumentParser(prog="python3 -m tier.events", description="Publishes what becomes "
                                "of a context's blocks, in vLLM's format: msgpack over ZeroMQ.")
    p.add_argument("--context", required=True)
    p.add_argument("--bind", default="tcp://*:5557", help="publishes there [%(default)s]")
    p.add_argument("--replay", default="tcp://*:5558", help="answers there [%(default)s]")
    p.add_argument("--topic", default="")
    p.add_argument("--kept", type=int, default=10000, metavar="N",
                   help="messages that the replay has [%(default)s]")
    p.add_argument("--integer-hashes", action="store_true",
                   help="hashes as 64-bit numbers, not as the 32 bytes of keys")
    p.add_argument("--socket", help="of tierd")
    options = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        publisher = events.Publisher(options)
        t = tier.Tier(options.socket, name="events")
        context = t.open(options.context)
        publisher.block_tokens = context.geometry.block_tokens
        events.follow(publisher, context)
    except tier.Error as e:
        sys.exit(f"tier.events: {e.strerror}")
    except zmq.ZMQError as e:
        sys.exit(f"tier.events: {e}")
    except KeyboardInterrupt:
        pass


main()
