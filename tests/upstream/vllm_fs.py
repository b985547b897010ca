"""pytest plug-in: vLLM's tests of its file tier, with tier's secondary tier in its place. What the
sample keeps in its folder is kept in a context of the folder's name. Where a test looks whether
the sample has a block's file, or damages it, it meets a file that is there as long as the block
is, and whose damage is the block's loss. Counts the tests that really used it.

SPDX-License-Identifier: Apache-2.0
"""
import hashlib
import os
import queue
import types

import vllm.v1.kv_offload.tiering.fs.manager as sample

import tier
from tier.vllm.tiering import SecondaryTier

USED = set()  # tests that made one


class Files:
    """The sample's names of blocks, as a view of what the store has."""

    def __init__(self, door, folder, mapper):
        self.door, self.folder, self.base_path = door, folder, mapper.base_path
        self.keys = {}

    def get_file_name(self, key):
        path = os.path.join(self.folder, key.hex())
        self.keys[path] = key
        self.show(path)
        return path

    def show(self, path):
        if self.door.context.match(tier.key_opaque(self.keys[path]))[0]:
            open(path, "wb").close()
        elif os.path.exists(path):
            os.unlink(path)

    def lose_damaged(self):
        for path, key in self.keys.items():
            if os.path.exists(path) and os.path.getsize(path):
                self.door.context.delete(tier.key_opaque(key))
                self.show(path)


class FileSystemTierManager(SecondaryTier):
    def __init__(self, root_dir, **members):
        USED.add(os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0])
        there = os.path.isdir(root_dir)  # a place that cannot be is a daemon that is not there
        super().__init__(context="up-" + hashlib.sha256(root_dir.encode()).hexdigest()[:16],
                         socket=None if there else root_dir, **members)
        self.file_mapper = Files(self, root_dir, self.file_mapper)
        # Look-ups are answered at once: nothing is ever pending or batched.
        answered = queue.Queue()
        answered.put(None)
        self._lookup_manager = types.SimpleNamespace(_pending_results=answered, _lookup_batch=[])

    @property
    def _store_job_keys(self):
        return {number: job.keys for number, job in self.jobs.items() if not job.load}

    def submit_load(self, job_metadata):
        self.file_mapper.lose_damaged()
        super().submit_load(job_metadata)


sample.FileSystemTierManager = FileSystemTierManager


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"through tier: {len(USED)}")
