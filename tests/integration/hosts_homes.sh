#!/usr/bin/env bash
# Homes of anchors: three hosts that ask nobody but homes (--ask-all 0). What A put is found by B
# and C, who then ask A alone; what A has not any more, its homes have forgotten; a home that is
# killed has a successor that is told, and in its next life it is told again. And a memory box:
# what is stored is offered to it, and comes back from there.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

command -v openssl >/dev/null || { echo 'skipped: there is no openssl'; exit 77; }
LAB=$TMPDIR/lab
mkdir -p "$LAB"
. bench/hosts/lab.sh
trap lab_end EXIT

read -r a b c <<<"$(free_ports 3)"
address=([A]=127.0.0.1:$a [B]=127.0.0.1:$b [C]=127.0.0.1:$c)
bench/hosts/certs "$LAB/certs" A B C
net() {
	local host=$1 peer peers=()
	for peer in A B C; do
		[ "$peer" = "$host" ] || peers+=(--peer "$peer=${address[$peer]}")
	done
	shift
	net_up "$host" --tls "$LAB/certs/$host" --ask-all 0 "${peers[@]}" "$@"
}
for host in A B C; do
	tierd_up $host hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB
	net $host
	kv $host put kv 0 0
	ctl $host context share kv >/dev/null
done
for host in A B C; do
	for peer in A B C; do [ $peer = $host ] || meet $host $peer; done
done

# What the hosts' homes hold together.
entries() {
	local host sum=0 has
	for host in "$@"; do
		has=$(ctl "$host" --json hosts | grep -o '"entries": *[0-9]*')
		sum=$((sum + ${has##*[: ]}))
	done
	echo $sum
}
hold() { # ENTRIES HOST...
	local want=$1
	shift
	[ "$(entries "$@")" = "$want" ]
}
are_held() {
	eventually 60 hold "$@" || lab_fail "homes of ${*:2} hold $(entries "${@:2}"), not $1"
}
# looks HOST PROMPT LOCATED ASKED HOLDER: nothing is brought, for computing costs next to nothing.
# Where a busy machine did not answer in a look's time, it is on probation, and met again.
sees_so() {
	seen=$(kv "$1" --json --token-ns 1 read kv "$2" 50)
	grep -q "\"located\": $3, \"asked\": $4, \"host\": \"$5\"" <<<"$seen"
}
looks() {
	eventually 20 sees_so "$@" || lab_fail "$1, prompt $2: not $3 by $4 of \"$5\": $seen"
}
# brings HOST PROMPT: all 50 blocks.
brings() {
	eventually 20 kv "$1" --expect 50 read kv "$2" 50 || lab_fail "$1 does not get prompt $2"
}

# Prompts of 50 blocks have six anchors: 0, 1, 3, 7, 15, 31.
for prompt in 1 2 3 4; do kv A put kv $prompt 50; done
are_held 24 A B C
for host in B C; do looks $host 2 50 1 A; done
looks C 9 0 0 ''
[ "$(entries A)" != 24 ] && [ "$(entries B)" != 24 ] || lab_fail 'one host is the home of all'
ctl A hosts | grep -q '^a home: [0-9]* entries held, [0-9]* probes/s' || lab_fail 'no homes shown'
# Who has brought it is a holder, too, and both are asked.
brings B 1
are_held 30 A B C
looks C 1 50 2 '[AB]'
# Where a run begins whose first blocks lie elsewhere, its home is told, too.
kv A put kv 5 20
kv C --from 18 put kv 5 50
are_held 37 A B C
brings B 5
are_held 43 A B C

# What leaves A is forgotten, B's stays: a whole prompt; all but its first four blocks.
kv A drop kv 1 50
kv A --from 4 drop kv 3 50
are_held $((43 - 6 - 3)) A B C
looks C 1 50 1 B
looks C 3 4 1 A
kv A put kv 3 50
are_held 37 A B C

# A home is killed: what it was told, others are told. In its next life it is told again.
told=$(entries C)
kill -KILL "${net_pid[C]}"
{ wait "${net_pid[C]}" || true; } 2>/dev/null
found() { for prompt in 2 3 4; do sees_so B $prompt 50 1 A || return 1; done; }
eventually 60 found || lab_fail 'a home is gone, and what it was told is found no more'
net C
again() { [ "$(entries C)" -ge "$told" ]; }
eventually 60 again || lab_fail "in its next life C was told $(entries C), not $told"
for prompt in 2 3 4; do looks C $prompt 50 1 A; done
# One that stands still is found out, and its successor told; what it knows is good when it goes on.
stand_still "${net_pid[C]}"
eventually 60 found || lab_fail 'a home stands still, and what it was told is found no more'
kill -CONT "${net_pid[C]}"
meet B C
meet C B
eventually 60 again || lab_fail "after it stood still C knows $(entries C), not $told"
for prompt in 2 3 4; do looks C $prompt 50 1 A; done

# Hosts that stand still are waited for side by side: looked at, and told. These answer only once
# two of them were asked at the same time.
read -r d s0 s1 s2 <<<"$(free_ports 4)"
python3 tests/integration/hosts_silent.py "$s0" "$s1" "$s2" >"$LAB/silent.out" &
silent_pid=$!
trap 'kill $silent_pid; lab_end' EXIT
eventually 20 grep -q ready "$LAB/silent.out" || lab_fail 'no silent hosts'
address[D]=127.0.0.1:$d
tierd_up D hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB
for prompt in 1 2 3 4; do kv D put kv $prompt 50; done
net_up D --no-tls --ask-all 0 --peer "S0=127.0.0.1:$s0" --peer "S1=127.0.0.1:$s1" \
	--peer "S2=127.0.0.1:$s2"
ctl D context share kv >/dev/null
for peer in S0 S1 S2; do meet D $peer; done
eventually 60 grep -q told "$LAB/silent.out" || lab_fail 'homes are told one after another'
for peer in S0 S1 S2; do meet D $peer; done

# C is the box of the others, in a life of its own: it asks for all that they have, and then for
# what they store. What A has lost comes back, and when A is gone B has it.
for host in A B C; do
	kill "${net_pid[$host]}"
	wait "${net_pid[$host]}" || lab_fail "tierd-net of $host ended with $?"
done
for host in A B C; do net $host --box C; done
for host in A B; do meet $host C; meet C $host; done
kv A put kv 6 50
is_boxed() { kv C --json read kv "$1" 50 | grep -q '"local": 50'; }
boxed() { eventually 60 is_boxed "$1" || lab_fail "the box has not all of prompt $1"; }
for prompt in 2 3 4 6; do boxed $prompt; done
kv A drop kv 6 50
comes_back() { kv "$1" --json --expect 50 read kv "$2" 50 | grep -q '"host": "C", .*"local": 0'; }
comes_back A 6 || lab_fail 'what was lost does not come back from the box'
for pid in "${net_pid[A]}" "${tierd_pid[A]}"; do
	kill "$pid"
	wait "$pid" || lab_fail "a process of A ended with $?"
done
unset 'tierd_pid[A]' 'net_pid[A]'
eventually 60 comes_back B 3 || lab_fail 'A is gone, and the box has not what it had'
