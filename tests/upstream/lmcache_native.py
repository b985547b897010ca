"""pytest plug-in: LMCache's tests of its native connector, with tier's connector where they have
one that keeps objects in a dict. Counts the tests that really used it.

SPDX-License-Identifier: Apache-2.0
"""
import itertools
import os

from tier.lmcache import Connector

NUMBERS = itertools.count()
USED = set()  # tests that made a connector


class Fresh(Connector):
    """An empty store for each, as the sample has."""

    def __init__(self):
        USED.add(os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0])
        super().__init__(object_bytes=4096, context=f"upstream-{os.getpid()}-{next(NUMBERS)}",
                         threads=2, staging_bytes=1 << 20)


def pytest_collection_modifyitems(items):
    for module in {item.module for item in items}:
        if hasattr(module, "MockNativeConnector"):
            module.MockNativeConnector = Fresh


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"through tier: {len(USED)}")
