#!/usr/bin/env bash
# tierctl size: its numbers are those of arithmetic done here, and what is no number is refused.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

size() { "$BUILD/tierctl" --json size "$@"; }

size --model msa-428b --users 16 --tokens 1048576 --active 1 --turns 4 --new 1000 \
	>"$TMPDIR/msa.json"
size --model llama-3.1-8b --users 1000 --tokens 8000 --shared 1000 --active 400 \
	>"$TMPDIR/llama.json"
python3 - "$TMPDIR" <<'PY'
import json
import sys

msa, llama = (json.load(open(f"{sys.argv[1]}/{n}.json")) for n in ("msa", "llama"))
# 60 layers of 2 KiB a token, of 57 an index key of 256 bytes; 8,192 blocks.
token = 60 * 2048 + 57 * 256
assert msa["token_bytes"] == token and msa["blocks"] == 16 * 8192
assert msa["stored_bytes"] == 16 * token << 20
assert msa["cxl_bytes"] == 4 * token << 20
assert msa["hbm_bytes"] == (3 * 2048 + 57 * 256 << 20) + 57 * 2048 * 64 * 128
assert abs(msa["nvme_bytes"] / (msa["stored_bytes"] / 0.85) - 1) < 1e-6
assert msa["table_bytes"] == 16 * 8192 * (282 + 32 * (60 * 4 + 57))
assert msa["written_bytes_a_day"] == 16 * 4 * 1000 * token
# 63 blocks a conversation, of these 7 in common; more compute at a time than a quarter holds.
block = 32 * 8 * 65536
assert llama["blocks"] == 7 + 1000 * 56 and llama["conversation_bytes"] == 63 * block
assert llama["cxl_bytes"] == 400 * 63 * block == llama["hbm_bytes"]
PY

refuse() {
	local status=0
	"$BUILD/tierctl" size "$@" >"$TMPDIR/out" 2>&1 || status=$?
	[ "$status" != 0 ] || { echo "size: accepted: $*" >&2; exit 1; }
	[ -s "$TMPDIR/out" ] || { echo "size: refused without a word: $*" >&2; exit 1; }
}
refuse
refuse --model msa-428b
refuse --model none --users 1
refuse --model tiny --users -1
refuse --model tiny --users 1e15
refuse --model llama-3-70b --users 1e9 --tokens 1e9
refuse --model tiny --users 3 --tokens 10 --shared 11
refuse --model tiny --users 3 more
refuse --model tiny --users

"$BUILD/tierctl" size --model tiny --users 3 >"$TMPDIR/out"
grep -q '^nvme ' "$TMPDIR/out"
