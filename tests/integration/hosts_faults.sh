#!/usr/bin/env bash
# What a peer can do to the one that asks it: lie, fall silent, die. Whatever it does, no wrong byte
# is served (R1: each byte read is compared), no call ends later than its deadline, the peer is
# on probation (R4), and once it is honest again its blocks are hits. ROUNDS=n: all of it n times
# (make hosts-test); figures of how late calls were at the end, also to the file FIGURES.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

LAB=$TMPDIR/lab
mkdir -p "$LAB"
. bench/hosts/lab.sh
rounds=${ROUNDS:-1}
late_max_ms=${LATE_MAX_MS:-400} # a loaded machine runs late; the figures are printed
evil_pid=
trap 'kill $evil_pid 2>/dev/null; lab_end' EXIT

read -r a b c e <<<"$(free_ports 4)"
address=([A]=127.0.0.1:$a [B]=127.0.0.1:$b [C]=127.0.0.1:$c)
echo honest >"$LAB/mode"
python3 tests/integration/hosts_evil.py "$e" "$a" "$LAB/mode" &
evil_pid=$!

new_tierd() { tierd_up "$1" hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB; }
for host in A B; do new_tierd $host; done
net_a() { net_up A --no-tls --peer "B=${address[B]}"; }
net_a
net_up B --no-tls --peer "A=127.0.0.1:$e" # through the liar
for host in A B; do
	kv $host put kv 0 0
	ctl $host context share kv >/dev/null
done

# Connections of the mode before end: the liar reads its mode for each.
lie() {
	mode=$1
	meet B A
	echo "$mode" >"$LAB/mode"
	ctl B hosts forget A >/dev/null
	kill "${net_pid[B]}"
	wait "${net_pid[B]}" || lab_fail "$mode: tierd-net of B ended with $?"
	net_up B --no-tls --peer "A=127.0.0.1:$e"
	[ "$mode" = name ] || meet B A
	new_prompt
}
streams() { # DEADLINE
	local text
	text=$(kv B --json --expect 0 --deadline "$1" stream kv $prompt 50 2>&1) ||
		lab_fail "$mode, streamed: $text"
	[ $mode != lapsed ] || grep -q '"layers": [1-9].* "here": 0' <<<"$text" ||
		lab_fail "lapsed, streamed: no layer came, or what lapsed is here: $text"
}
on_probation() { ctl B --json hosts | grep -q '"state": "probation"'; }
be_honest() {
	echo honest >"$LAB/mode"
	meet B A
	reads 50 20000
}

for ((round = 0; round < rounds; round++)); do
	# Nothing of what it says may be believed.
	for mode in flip swap short replay skip early more endless noise huge name; do
		lie $mode
		reads 0 400
		eventually 10 on_probation || lab_fail "$mode: it is not on probation"
		be_honest
	done
	# It is in order to say that a grant did not stand: a miss, and no probation.
	lie lapsed
	reads 0 400
	on_probation && lab_fail 'lapsed: it is on probation'
	echo honest >"$LAB/mode"
	# Of a stream from afar some layers may have come by then; none of it is good (R7).
	for mode in lapsed flip stall; do
		lie $mode
		streams "$([ $mode = lapsed ] && echo 20000 || echo 400)"
		echo honest >"$LAB/mode"
	done
	# Silence: the deadline, once; the next one does not wait.
	for mode in mute stall drip; do
		lie $mode
		reads 0 300
		be_honest
	done
	# Single pages: no wrong one is given, and each list ends by its deadline.
	for mode in flip stall replay; do
		lie $mode
		echo "$mode $(kv B --deadline 400 --steps 3 pages kv $prompt 50)" >>"$calls"
		tail -n 1 "$calls" | grep -q '"came": 0' || lab_fail "$mode: single pages came"
		echo honest >"$LAB/mode"
	done
	reading() { grep -q reading "$LAB/picks"; }
	for mode in stop-holder-amid-picks kill-holder-amid-picks; do
		meet B A
		new_prompt
		rm -f "$LAB/enough" "$LAB/picks"
		kv B --deadline 400 --until "$LAB/enough" --gap 20 pages kv $prompt 50 \
			>"$LAB/picks" 2>&1 &
		client=$!
		eventually 30 reading || lab_fail "$mode: no page is read"
		if [ $mode = stop-holder-amid-picks ]; then
			stand_still "${net_pid[A]}"
		else
			kill -KILL "${net_pid[A]}"
			{ wait "${net_pid[A]}" || true; } 2>/dev/null
		fi
		touch "$LAB/enough"
		wait $client || lab_fail "$mode: $(cat "$LAB/picks")"
		kill -CONT "${net_pid[A]}" 2>/dev/null || true
		grep -q '"came": [1-9].*"\(missed\|late\)": [1-9].*"over": 0' "$LAB/picks" ||
			lab_fail "$mode: $(cat "$LAB/picks")"
		echo "$mode $(tail -n 1 "$LAB/picks")" >>"$calls"
	done
	net_a
	meet B A
	# Death of the holder while pages travel, then of the requester.
	mode=kill-holder
	new_prompt
	kv B --deadline 1000 read kv $prompt 50 >/dev/null 2>&1 &
	client=$!
	kill -KILL "${net_pid[A]}"
	{ wait "${net_pid[A]}" || true; } 2>/dev/null
	wait $client || lab_fail "$mode: wrong"
	net_a
	be_honest
	mode=stop-holder
	meet B A
	new_prompt
	stand_still "${net_pid[A]}"
	reads 0 300
	kill -CONT "${net_pid[A]}"
	be_honest
	mode=stop-holders-tierd
	new_prompt
	stand_still "${tierd_pid[A]}"
	reads '' 300
	kill -CONT "${tierd_pid[A]}"
	be_honest
	# The holder's tierd dies and comes back, and only the peer asks its tierd-net.
	mode=kill-holders-tierd
	kill -KILL "${tierd_pid[A]}"
	{ wait "${tierd_pid[A]}" || true; } 2>/dev/null
	new_tierd A
	new_prompt
	comes_back() { kv B --json --expect 50 --deadline 5000 read kv $prompt 50; }
	eventually 20 comes_back || lab_fail "$mode: nothing is served any more"
	# Another host has it, too: what this one spoils comes from there.
	mode=flip
	tierd_up C hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB
	net_up C --no-tls --peer "B=${address[B]}"
	kv C put kv 0 0
	ctl C context share kv >/dev/null
	echo flip >"$LAB/mode"
	kill "${net_pid[B]}"
	wait "${net_pid[B]}" || lab_fail "$mode: tierd-net of B ended with $?"
	net_up B --no-tls --peer "A=127.0.0.1:$e" --peer "C=${address[C]}"
	new_prompt
	kv C put kv $prompt 49
	meet B A
	meet B C
	reads 49 20000
	grep -q '"local": 0, "usable": 49.*' <<<"$(tail -n 1 "$calls")" || lab_fail 'not from C'
	for pid in "${net_pid[C]}" "${tierd_pid[C]}"; do
		kill "$pid"
		wait "$pid" || lab_fail "a process of C ended with $?"
	done
	unset 'tierd_pid[C]' 'net_pid[C]'
	echo honest >"$LAB/mode"
	# The one that asks stands still: its engine's call ends all the same, without an answer.
	mode=stop-requester
	new_prompt
	stand_still "${net_pid[B]}"
	reads 0 300
	kill -CONT "${net_pid[B]}"
	be_honest
	mode=kill-requester
	new_prompt
	kv B --deadline 1000 read kv $prompt 50 >/dev/null 2>&1 &
	client=$!
	kill -KILL "${net_pid[B]}"
	{ wait "${net_pid[B]}" || true; } 2>/dev/null
	wait $client || true
	net_up B --no-tls --peer "A=127.0.0.1:$e"
	be_honest
done
python3 - "$calls" "$late_max_ms" <<'PY' | tee -a "${FIGURES:-/dev/null}"
import json
import sys

late = []
for line in open(sys.argv[1], encoding="ascii"):
    mode, text = line.split(" ", 1)
    late.append((json.loads(text)["late_ns"] / 1e6, mode))
late.sort()
print(f"{len(late)} calls, 0 wrong bytes; past their deadline by "
      f"{late[len(late) // 2][0]:.1f} ms (p50), {late[int(len(late) * 0.999)][0]:.1f} ms (p99.9), "
      f"{late[-1][0]:.1f} ms ({late[-1][1]}) at most")
sys.exit(late[-1][0] > float(sys.argv[2]))
PY
