# Stores two blocks in a context, or finds them: stored.py put|match
# SPDX-License-Identifier: Apache-2.0
import sys
import tier

with tier.Tier() as t:
    shape = tier.Geometry([dict(name="kv", kind=tier.lib.TIER_KIND_DENSE, layers=2, groups=1,
                                page_bytes=4096)], block_tokens=16)
    c, keys, data = t.context("autopkgtest", shape), tier.keys(list(range(32)), 16), bytes(16384)
    if sys.argv[1] == "put":
        c.put(keys, data)
    count, found = c.match(keys)
    assert count == 2, count
    assert c.fetch(found) == 2  # after a stop they are on NVMe alone
    with t.reader.lease(c, found[1].block, 0) as page:
        assert bytes(page.view) == data[8192:12288]
