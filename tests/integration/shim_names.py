"""Look-ups of names under `tier run`, answered from shared memory: what others put, remove, rename
is seen at once, what is looked up stays in memory, a raised epoch ends all names, and
those of a daemon that was killed end within a moment. objects.sh runs it.

  shim_names.py TIERCTL SOCKET FOLDER CONTEXT DAEMON

SPDX-License-Identifier: Apache-2.0
"""
import os
import signal
import subprocess
import sys
import time

tierctl, socket, folder, context, daemon = sys.argv[1:]
plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}


def ctl(*words, data=b""):
    return subprocess.run([tierctl, "--socket", socket, *words], env=plain, input=data,
                          check=True, stdout=subprocess.PIPE).stdout.decode()


def there(name):
    return os.access(f"{folder}/{name}", os.F_OK)


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, not {wanted}")


names = [f"look-{i}" for i in range(400)]  # more than the first index has room for
for name in names[:50]:
    ctl("object", "put", context, name, data=name.encode())
for _ in range(3):
    expect("names", [there(name) for name in names[:51]], [True] * 50 + [False])
for name in names[50:]:
    with open(f"{folder}/{name}", "wb") as file:
        file.write(name.encode())
    expect(name, (there(name), os.stat(f"{folder}/{name}").st_size), (True, len(name)))
expect("all", all(there(name) for name in names), True)
ctl("object", "remove", context, names[7])
expect("removed", there(names[7]), False)
ctl("object", "put", context, names[7], data=b"12345")
expect("put again", os.stat(f"{folder}/{names[7]}").st_size, 5)
os.rename(f"{folder}/{names[8]}", f"{folder}/moved")
expect("renamed", (there(names[8]), there("moved")), (False, True))

# 40 MiB of others come; what was looked up all the time is in memory, its neighbour is not.
mib = bytes(1 << 20)
ctl("object", "put", context, "kept", data=mib)
ctl("object", "put", context, "other", data=mib)
for i in range(33):
    expect("kept", there("kept"), True)
    ctl("object", "put", context, f"flood-{i % 4}", data=mib + bytes([i]))
    if i % 4 == 3:
        ctl("object", "put", context, f"more-{i}", data=mib * 4)
expect("kept stays", "in memory" in ctl("object", "show", context, "kept"), True)
expect("other goes", "in memory" in ctl("object", "show", context, "other"), False)

ctl("context", "epoch", context)
expect("epoch", [there(name) for name in names], [False] * 400)
ctl("object", "put", context, "last", data=b"x")
expect("last", there("last"), True)
time.sleep(0.02)
expect("last", there("last"), True)
ctl("check")
os.kill(int(daemon), signal.SIGKILL)
for _ in range(100):  # the kernel hangs up when it has taken its memory apart
    time.sleep(0.1)
    if not there("last"):
        break
expect("killed", there("last"), False)
