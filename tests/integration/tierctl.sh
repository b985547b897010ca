#!/usr/bin/env bash
# tierctl against a daemon of its own: each verb, its JSON, what it refuses and the exit statuses.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

dir=$(mktemp -d "${TMPDIR:-/tmp}/tierctl.XXXXXX")
daemon=
cleanup() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap cleanup EXIT

fail() {
	echo "tierctl: $*" >&2
	sed 's/^/  log: /' "$dir/log" >&2
	exit 1
}

# expect STATUS PATTERN ARGUMENT...: what tierctl answers, on either output.
expect() {
	local want=$1 pattern=$2 status=0
	shift 2
	text=$("$BUILD/tierctl" --socket "$dir/sock" "$@" 2>&1) || status=$?
	[ "$status" = "$want" ] || fail "$*: status $status, not $want: $text"
	grep -q -e "$pattern" <<<"$text" || fail "$*: no \"$pattern\" in: $text"
}

# refuse_word PATTERN ARGUMENT...: tierctl answers, and not with this.
refuse_word() {
	local pattern=$1 text
	shift
	text=$("$BUILD/tierctl" --socket "$dir/sock" "$@" 2>&1) || fail "$*: $text"
	if grep -q -e "$pattern" <<<"$text"; then fail "$*: \"$pattern\" in: $text"; fi
}

[ "$("$BUILD/tierd" -h | head -1)" = "$("$BUILD/tierd" --help | head -1)" ] || fail 'tierd -h'
wide=$("$BUILD/tierd" --help | awk 'length > 80 { print; exit }')
[ -z "$wide" ] || fail "tierd --help is wider than 80 columns: $wide"
wide=$("$BUILD/tierctl" --help | awk 'length > 80 { print; exit }')
[ -z "$wide" ] || fail "tierctl --help is wider than 80 columns: $wide"
expect 3 'no socket' status
start() {
	"$BUILD/tierd" --foreground --socket "$dir/sock" --store "$dir/store" \
		--set nvme.size=64MiB --set cxl.size=32MiB --set hbm.size=8MiB \
		--set nvme.buffered=yes 2>>"$dir/log" &
	daemon=$!
	for _ in $(seq 6000); do
		"$BUILD/tierctl" --socket "$dir/sock" status >/dev/null 2>&1 && return 0
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.05
	done
	fail 'the daemon does not come up'
}

stop() {
	kill "$daemon"
	wait "$daemon" || fail "the daemon ended with status $?"
	daemon=
}

# misused USAGE ARGUMENT...: what is wrong with them stands in one line, with how it is done.
misused() {
	local usage=$1
	shift
	expect 2 "^tierctl $verb: .*; usage: tierctl $verb$usage" "$@"
	[ "$(wc -l <<<"$text")" = 1 ] || fail "$*: more than a line: $text"
}

# Each verb: an option that is not there, and a word more than it takes.
misuse_all() {
	local verb
	while read -r verb; do
		misused '' $verb --frob
		misused '' $verb -z
		misused '' $verb a b c d
	done <<<'status
stat
top
trace
context list
context show
context create
context remove
context epoch
context share
context unshare
block locate
object list
object show
object get
object put
object remove
hosts epoch
hosts forget
events
hosts
quota show
quota set
policy set
policy try
pin list
evict
drain
upgrade
check
requests
clients'
	verb='context show' && misused ' NAME$' $verb
	verb=evict && misused ' CONTEXT hbm|cxl \[SIZE\]$' $verb chat
}

# Who asks for help of a verb need not have a daemon for it.
verb=evict && misused '' evict
start
misuse_all

expect 0 '^tierd ' status
expect 0 'EMULATED' status
expect 0 '512 requests, 256 puts' status
expect 0 '"user_connections": 768' --json status
expect 0 'no isolation' status
expect 0 '"capacity": 33554432' --json status
expect 0 '"capacity": 33554432' status --json
expect 1 'no context' context show chat
expect 0 'mode 0640' context create chat --preset tiny --mode 0640
expect 1 'exists' context create chat --preset tiny
expect 0 'sparse' context create own --part kv:sparse:2:2:4KiB --part i:index:2:1:2KiB --nvme none
expect 0 'mode 0600' context show own
expect 2 'NAME:KIND' context create bad --part kv:sparse:2
expect 2 'behind commas stand last=BLOCKS' context create bad --part kv:dense:1:1:4KiB,lost=1
expect 2 'preset' context create bad
expect 2 'one argument too many' context create bad --preset tiny more
expect 2 'name is missing' context create
expect 2 'tierctl context create: a value is missing behind --nvme' context create x --nvme
expect 2 'tierctl context create: no option --frob' context create x --frob
expect 2 'tierctl quota set: no option --frob' quota set own cxl --frob
expect 2 'tierctl check: no option --frob' check --frob "$dir/store"
expect 1 '' context create bad/name --preset tiny
expect 0 '^chat ' context list
expect 0 '"name": "own"' context list --json
expect 0 'epoch 2' context epoch chat
expect 1 'larger' context epoch chat 1
expect 1 'context -z: there is none' context remove -- -z
expect 0 'mode 0600' context create lean --preset tiny --hbm none
expect 1 'does not use that tier' evict lean hbm
expect 0 'removed' context remove lean
expect 1 'number of 64 bits, 7 or 0x7' quota set chat cxl --salt x
expect 2 'number' context epoch chat x
expect 2 'number' context epoch chat 0
expect 0 '"epoch": 7' --json context epoch chat 7
expect 2 '64 hex' block locate chat 12
expect 1 'no such block' block locate chat "$(printf '00%.0s' $(seq 32))"
expect 0 'no pins' pin list
expect 0 '"pins": \[\]' --json pin list
expect 0 '"contexts"' --json quota show
expect 0 'chat .*32.0M' quota set chat cxl
expect 0 'chat .*8.00M *16.0M' quota set chat cxl --soft 8MiB --hard 16MiB
expect 0 '"hard": 16777216' --json quota show chat
expect 0 '^  0x0*7 .*4.00M' quota set chat cxl --salt 7 --hard 4MiB
expect 0 'chat' quota set chat cxl --salt 7
expect 0 '^  0x0*7 .* 5.00M$' quota set chat cxl --salt 7 --pins 5MiB
expect 0 '"pin_limit": 5242880' --json quota show chat
expect 0 'chat' quota set chat cxl --salt 7
expect 1 'nothing is pinned' quota set chat nvme --pins 5MiB
expect 1 'made for' quota set chat cxl --hard 1GiB
expect 1 'shares of all contexts' quota set own cxl --soft 30MiB
expect 1 'not be below soft' quota set chat cxl --soft 9MiB --hard 8MiB
expect 1 'no context' quota set nope cxl --hard 8MiB
expect 1 'hbm, cxl or nvme' quota set chat tape --hard 8MiB
expect 1 'no such context or client' quota set --client 77 cxl --hard 8MiB
expect 1 'no such context or client' quota set --client 9223372036854775807 cxl --hard 8MiB
expect 2 'name a context and a tier' quota set chat
expect 2 'unit' quota set chat cxl --hard lots
# Tables stand in 80 columns. On a terminal that is so wide, whatever the names; in a file names are
# whole. (Paths are as long as they are.)
long=$(printf 'n%.0s' $(seq 63))
tables='status;stat;top --count 1;context list;context show chat;quota show;pin list;requests
clients;check'
wider() {
	awk '!/^(socket|store) / && length > 80 { print; exit }'
}
terminal() {
	TERM=dumb script -qec "stty cols $1; '$BUILD/tierctl' --socket '$dir/sock' $2" /dev/null |
		tr -d '\r' | sed 's/\x1b\[[0-9]*[A-Z]//g'
}
script_works() {
	command -v script >/dev/null && script -qec true /dev/null >/dev/null 2>&1
}
expect 0 '^  0xfedcba9876543210 ' quota set chat cxl --salt 0xfedcba9876543210 --hard 1023KiB
while IFS= read -r verb; do
	wide=$("$BUILD/tierctl" --socket "$dir/sock" $verb | wider)
	[ -z "$wide" ] || fail "$verb is wider than 80 columns: $wide"
done < <(tr ';' '\n' <<<"$tables")
expect 0 "$long" context create "$long" --preset tiny
expect 0 "^$long " context list
expect 0 "^$long " quota show
if script_works; then
	for verb in 'quota show' 'context list'; do
		wide=$(terminal 80 "$verb" | sed 's/…/./' | wider)
		[ -z "$wide" ] || fail "$verb is wider than a terminal of 80 columns: $wide"
		terminal 80 "$verb" | grep -q '^nn*…nn* ' || fail "$verb: no cut name"
		terminal 200 "$verb" | grep -q "^$long " || fail "$verb: a name cut in 200 columns"
	done
fi
expect 0 'removed' context remove "$long"
expect 0 'no requests' requests
expect 0 'tierctl' clients
expect 0 'put_bytes' stat
expect 0 'put_bytes' stat 'put_*'
expect 1 'no counter' stat 'pot_*'
expect 1 'no counter' --json stat 'pot_*'
expect 0 '"name": "put_bytes"' --json stat 'put_*'
refuse_word '"requests"' --json stat 'put_*'
expect 0 ' %  *share of time' stat read_idle
expect 2 'there is llama-3-70b .* tiny' context create x --preset huge
expect 1 'tierctl context show: no context' context show nope
expect 0 '"metrics"' --json stat
expect 0 'left cxl' evict chat cxl
expect 0 'left cxl' evict chat cxl 1MiB
expect 2 'unit' evict chat cxl lots
expect 2 'hbm or cxl' evict chat nvme
expect 1 'no context' evict nope cxl
expect 0 'chat: policy lru' policy set chat lru
expect 0 'policy lru' context show chat
expect 1 'must be one of: .*lru' policy set chat magic
expect 1 'no context' policy set nope lru
expect 0 'chat: [0-9]* uses in [0-9.]* s, [0-9]* blocks in CXL' policy try chat reuse --seconds 1
expect 0 '"would_read": *[0-9]' --json policy try chat reuse --seconds 1
expect 1 'must be one of: .*lru' policy try chat magic
expect 1 'must be 1 to 86400' policy try chat lru --seconds 0
expect 0 'flushed' drain
expect 0 'upgraded in .* ms to [0-9.]*: [0-9]* blocks stayed, 0 of them dirty' upgrade
expect 0 '"upgrade_ns"' --json upgrade
expect 0 'flushed' drain
expect 0 'accounted' check
expect 0 '"errors": 0' --json check
expect 0 'store  64.0 MiB; the host has allocated 64' check
expect 0 'and the host agrees' check
fallocate --punch-hole --offset 32MiB --length 1MiB "$dir/store"
expect 1 'disagreements: 1' check
expect 1 '"errors": 1' --json check
dd if=/dev/zero of="$dir/store" bs=1M seek=32 count=1 conv=notrunc status=none
expect 0 'and the host agrees' check
expect 0 'put ' top --count 2 --interval 0.1
expect 0 'over the last' top --count 1
# With --json a line a screen, each a document.
"$BUILD/tierctl" --socket "$dir/sock" --json top --count 3 --interval 0.1 | python3 -c '
import json, sys
screens = [json.loads(line) for line in sys.stdin]
assert len(screens) == 3, len(screens)
for s in screens:
    assert s["status"]["tiers"] and s["stat"]["metrics"], s
' || fail "top --json is not three documents"
expect 2 'tierctl top: no option --fast' top --fast
expect 2 'tierctl top: a value is missing behind --count' top --count
expect 2 'interval' top --interval 0
expect 0 'removed' context remove own
expect 1 'there is none' context remove own
expect 2 'there is: list show' context frob
expect 2 'no verb' frob
expect 2 'too many' status more
expect 2 'tierctl: no option --frob' --frob
expect 2 'tierctl: a value is missing behind --socket' --socket
expect 0 'usage' help
expect 2 'usage'
expect 0 'usage' --help
expect 0 '^tierctl [0-9]' --version

expect 0 'accounted' check
expect 0 '^  0x0*9' quota set chat cxl --salt 9 --soft 1MiB --hard 3MiB --pins 2MiB
stop
expect 3 '' status

# Limits of contexts and of their salts are in force again after a restart.
start
expect 0 '"hard": 16777216' --json quota show chat
expect 0 '^  0x0*9 .*1.00M *3.00M' quota show chat
expect 0 '^  0x0*9 .* 2.00M$' quota show chat
expect 0 'accounted' check
# And after a copy of the catalog rotted and was written again from the other one.
expect 0 '^  0x0*9' quota set chat cxl --salt 9 --soft 1MiB --hard 3MiB --pins 2MiB
stop
printf 'rot' | dd of="$dir/store" bs=1 seek=8300 conv=notrunc status=none
expect 1 'copy 0 of the catalog is damaged' check "$dir/store"
expect 0 'written again from the other' check --repair "$dir/store"
expect 0 'nothing is wrong' check "$dir/store"
start
expect 0 '"hard": 16777216' --json quota show chat
expect 0 '^  0x0*9 .*1.00M *3.00M' quota show chat
expect 0 'accounted' check
stop

# What a terminal shows of `top` is not wider than the terminal; in a file nothing is cut.
start
widest() {
	terminal "$1" 'top --count 1' | awk '{ n = length > n ? length : n } END { print n + 0 }'
}
if script_works; then
	[ "$(widest 60)" -le 60 ] || fail "top is $(widest 60) columns wide in 60"
	[ "$(widest 100)" -gt 60 ] || fail "top is cut at $(widest 100) columns in 100"
fi

# Who is no operator sees contexts of their own, nothing of others', and is refused the rest.
as() {
	setpriv --reuid 4021 --regid 4021 --clear-groups "$BUILD/tierctl" --socket "$dir/sock" "$@"
}
chmod 711 "$dir"
chmod 666 "$dir/sock"
# Another user may not reach the folders of this test.
if [ "$(id -u)" = 0 ] && as status >/dev/null 2>&1; then
	# theirs PATTERN ARGUMENT...: what another user is told.
	theirs() {
		local pattern=$1
		shift
		as "$@" >"$dir/out" 2>&1 || fail "another user's $*: $(cat "$dir/out")"
		grep -q -e "$pattern" "$dir/out" || fail "another user's $*: $(cat "$dir/out")"
	}
	refuse_theirs() {
		local pattern=$1
		shift
		if as "$@" >"$dir/out" 2>&1; then fail "another user's $* was answered"; fi
		grep -q -e "$pattern" "$dir/out" || fail "another user's $*: $(cat "$dir/out")"
	}
	expect 0 '^chat ' context list
	theirs '^no contexts of yours$' context list
	theirs '^contexts *0 of yours with 0 blocks' status
	refuse_theirs 'no context "chat"; tierctl context list shows yours$' context show chat
	refuse_theirs 'no context "none"; tierctl context list shows yours$' context show none
	refuse_theirs 'no context "chat"' block locate chat "$(printf '00%.0s' $(seq 32))"
	theirs 'owner 4021:4021, mode 0600' context create theirs --preset tiny
	theirs '"owner_uid": 4021' --json context create two --preset tiny
	theirs '^theirs ' context list
	if grep -q chat "$dir/out"; then fail "another user's list: $(cat "$dir/out")"; fi
	theirs '^contexts *2 of yours' status
	theirs 'room for' context show theirs
	refuse_theirs 'no such block' block locate theirs "$(printf '00%.0s' $(seq 32))"
	refuse_theirs 'only root and the daemon' stat
	refuse_theirs 'only root and the daemon' quota show theirs
	theirs 'removed' context remove theirs
	theirs 'removed' context remove two
fi
stop
