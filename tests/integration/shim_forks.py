# Threads make and close files while others fork; each child makes one, too.
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import threading
import time

folder = sys.argv[1]


def make(name, flags=os.O_TRUNC):
    os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_WRONLY | flags))


def busy(name):
    fd = os.open(f"{folder}/{name}", os.O_CREAT | os.O_WRONLY)
    while True:
        os.close(os.dup(fd))


for i in range(3):
    threading.Thread(target=busy, args=(f"busy{i}",), daemon=True).start()
time.sleep(0.1)
for i in range(100):
    child = os.fork()
    if child == 0:
        make("child")
        os._exit(0)
    for _ in range(1000):
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        print(f"child {i} hangs", file=sys.stderr)
        os._exit(1)
os._exit(0)
