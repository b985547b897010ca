"""What a person who waits sees of long work: a line that is drawn anew, on a terminal only.

SPDX-License-Identifier: Apache-2.0
"""
import sys
import time


class Progress:
    """So many steps in all."""

    def __init__(self, total):
        self.total, self.done, self.begun = total, 0, time.monotonic()

    def step(self, what):
        self.done += 1
        left = (time.monotonic() - self.begun) / self.done * (self.total - self.done)
        report(f"  {what}: {self.done} of {self.total}, {left:.0f} s left"
               if self.done < self.total else "")


def report(line):
    """Draw the line; an empty one takes it away."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
