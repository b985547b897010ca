"""A tierd of one's own for benchmarks of engines: started in a folder, stopped, killed, asked.

SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil
import signal
import subprocess
import tempfile
import time

import tier

START_S = 120  # a daemon that is alive and not there after it fails the run


class Service:
    """In a new folder below $TMPDIR; settings of tierd.conf by name, with "_" for "."."""

    def __init__(self, build, **settings):
        self.dir = tempfile.mkdtemp(prefix="tier-engines.")
        self.socket = os.path.join(self.dir, "s")
        self.log = os.path.join(self.dir, "tierd.log")
        settings = {"socket": self.socket, "store_path": os.path.join(self.dir, "store"),
                    "hbm_size": "0", **settings}
        self.command = [os.path.join(build, "tierd"), "--foreground"]
        for name, value in settings.items():
            self.command += ["--set", f"{name.replace('_', '.')}={value}"]
        self.daemon = None

    def start(self):
        """Returns a connection to it."""
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen(self.command, stdout=log, stderr=log)
        end = time.monotonic() + START_S
        while self.daemon.poll() is None and time.monotonic() < end:
            try:
                return tier.Tier(self.socket, name="engines")
            except tier.Error:
                time.sleep(0.02)
        with open(self.log, encoding="utf-8", errors="replace") as log:
            raise SystemExit(f"tierd did not come up:\n{log.read()[-4000:]}")

    def stop(self, how=signal.SIGTERM):
        """End it; SIGTERM must end it well."""
        if self.daemon:
            self.daemon.send_signal(how)
            status = self.daemon.wait()
            self.daemon = None
            if status != (0 if how == signal.SIGTERM else -how):
                raise SystemExit(f"tierd ended with status {status}, see {self.log}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.daemon:
            self.daemon.kill()
            self.daemon.wait()
        if kind is None:
            shutil.rmtree(self.dir)


def counter(t, name):
    """One of the daemon's counters, by its name in `tierctl stat`."""
    return next(m["value"] for m in t.admin("stat")["metrics"] if m["name"] == name)
