# Pages by RDMA from one guest to another, over soft-RoCE on a wire of 24 Mbit/s, so that a transfer
# takes seconds. Amid one the holder is stopped, is killed, or its wire is cut: what has been read
# by then is counted by the holder, and it is not all. The request ends in time and finds no wrong
# byte; a cut wire is found out by our deadline, before the device gives up; and when all is well
# again it comes by READ.
# peer: tests/vm/rdma_holder.sh
# modules: virtio_net crc32_generic rdma_rxe ib_uverbs sch_tbf
# seconds: 1200
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/vm/rdma_host.sh
trap lab_end EXIT

all=$((blocks * 6 * 4096))
read_in() { ctl B --json hosts | sed -n 's/.*"read_in": \([0-9]*\).*/\1/p'; }
prompt=0
next() {
	prompt=$((prompt + 1))
	tells "put $prompt" >/dev/null
}
# A next prompt comes, all of it by READ. After a failure none is tried for a while.
comes() {
	local before
	next
	before=$(read_in)
	kv B --expect $blocks --deadline 60000 read kv $prompt $blocks &&
		[ $(($(read_in) - before)) -ge $all ]
}
# amid DEED DEADLINE-MS: A does it while B reads; how much of it B has then.
amid() {
	local saw text
	next
	tells "amid $1" >/dev/null
	text=$(kv B --json --deadline "$2" read kv $prompt $blocks 2>&1) ||
		lab_fail "amid $1: $text"
	saw() { saw=$(tells saw 2>/dev/null); }
	eventually 60 saw || lab_fail "A did not $1"
	saw=$(tells saw)
	echo "$1 when $saw of $all bytes had been read: $text"
	[ "$saw" -gt 0 ] && [ "$saw" -lt $all ] || lab_fail "$1: not amid the transfer"
	grep -q "\"usable\": $blocks," <<<"$text" && lab_fail "$1: all of it has come"
	[ "$1" != cut ] || grep 'RDMA failed.*errno=110' "$LAB/B/net.log" ||
		lab_fail 'it was not our deadline that found out'
}

host_up B
eventually 300 answers up || lab_fail 'A does not come up'
rdma_up B
meet B A
eventually 120 comes || lab_fail 'nothing comes by READ'
echo "all $all bytes by READ"

amid stop 20000
tells continue >/dev/null
meet B A
eventually 120 comes || lab_fail 'stopped: nothing comes by READ again'

amid kill 20000
tells start >/dev/null
meet B A
eventually 120 comes || lab_fail 'killed: nothing comes by READ again'

amid cut 8000
eventually 60 answers up || lab_fail 'the wire stays cut'
meet B A
eventually 120 comes || lab_fail 'cut: nothing comes by READ again'
