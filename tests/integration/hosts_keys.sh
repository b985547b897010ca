#!/usr/bin/env bash
# Three hosts of one authority. What A shares with B by name is not there for C, in the words that
# C gets of what is not there at all, and nobody tells or asks C of it. Certificates are exchanged
# while all run: a good one ends nothing, one that is none changes nothing, and who is struck out
# (crl.pem) is out at once, of what it holds open, too.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

command -v openssl >/dev/null || { echo 'skipped: there is no openssl'; exit 77; }
LAB=$TMPDIR/lab
mkdir -p "$LAB"
. bench/hosts/lab.sh
trap lab_end EXIT

read -r a b c <<<"$(free_ports 3)"
address=([A]=127.0.0.1:$a [B]=127.0.0.1:$b [C]=127.0.0.1:$c)
small=(hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB)

# on HOST EXPECT CONTEXT PROMPT PATTERN
on() { wants 0 "$5" kv "$1" --json --expect "$2" read "$3" "$4" 50; }
up() { # HOST [OPTION...]
	local host=$1 peer peers=()
	shift
	for peer in A B C; do
		[ "$peer" = "$host" ] || peers+=(--peer "$peer=${address[$peer]}")
	done
	net_up "$host" "${peers[@]}" "$@"
}
down() {
	kill "${net_pid[$1]}"
	wait "${net_pid[$1]}" || lab_fail "tierd-net of $1 ended with $?"
}
# are_told COUNT: so many anchors are held by all homes together.
are_told() {
	local host sum=0
	for host in A B C; do
		sum=$((sum + $(ctl $host --json hosts | python3 -c 'import json, sys
print(json.load(sys.stdin)["homes"]["entries"])')))
	done
	[ $sum = "$1" ]
}
# finds HOST PROMPT: of kv, once its homes are told.
finds() {
	found() { kv "$host_" --json --expect 50 read kv "$prompt_" 50 | grep -q '"host": "A"'; }
	host_=$1 prompt_=$2
	eventually 20 found || lab_fail "$1 does not find prompt $2"
}
stranger() { python3 tests/integration/hosts_strangers.py probe "$@"; }

# Homes in this fleet: C is one of what all may see.
bench/hosts/certs "$LAB/certs" A B C
for host in A B C; do
	tierd_up $host "${small[@]}"
	up $host --tls "$LAB/certs/$host" --ask-all 1
	for context in kv secret; do kv $host put $context 0 0; done
	ctl $host context share kv >/dev/null
done
wants 2 'neither' ctl A context share secret --with
wants 2 'begin with' ctl A context share secret --with A,,B
wants 0 'that were named' ctl A context share secret --with A,B
wants 0 'that were named' ctl B context share secret strict --with A,B
wants 0 'with the other hosts' ctl C context share secret
for host in A B C; do
	for peer in A B C; do [ $host = $peer ] || meet $host $peer; done
done

# A's for B alone. C, which has a context like it and shares it with all, is a stranger.
kv A put secret 1 50
on B 50 secret 1 '"host": "A".*"status": "ready"'
kv B put secret 2 50
on A 50 secret 2 '"host": "B".*"status": "ready"'
on C 0 secret 1 '"located": 0.*"status": "missed"'
# Homes are told of the six anchors of each prompt of kv, and of nothing that was put before them.
for prompt in 1 2 3; do kv A put kv $prompt 50; done
eventually 10 are_told 18 || lab_fail 'homes are told of something else than kv'
kv A put kv 4 50
eventually 10 are_told 24 || lab_fail 'homes are told of something else than kv, or not of it'
# What C has of it nobody asks for: a key is told to no other.
kv C put secret 3 50
on B 0 secret 3 '"located": 0, "asked": 1, '
# The same words as of a digest that nobody has; and of its own name's certificate alone.
digest() { ctl "$1" --json hosts | python3 -c 'import json, sys
print(next(c["digest"] for c in json.load(sys.stdin)["contexts"] if c["name"] == sys.argv[1]))' \
	"${2:-secret}"; }
keys_of() { # CONTEXT: of A, which has one prompt in it
	ctl A --json events "$1" | python3 -c 'import json, sys
print(*(e["key"] for e in sorted(map(json.loads, sys.stdin), key=lambda e: e["depth"])))'
}
none=$(printf '%064d' 0)
[ "$(digest A)" = "$(digest C)" ] || lab_fail 'the contexts differ'
other=$(stranger "${address[A]}" "$LAB/certs/C" C "$none")
[ "$(stranger "${address[A]}" "$LAB/certs/C" C "$(digest A)")" = "$other" ] ||
	lab_fail 'C is told that a context is there'
[ "$(stranger "${address[A]}" "$LAB/certs/B" B "$(digest A)")" != "$other" ] ||
	lab_fail 'B is told that no context is there'
wants 0 'turned away' stranger "${address[A]}" "$LAB/certs/C" B "$(digest A)"

# It is kept, and no more than it was.
down A
up A --tls "$LAB/certs/A" --ask-all 1
for peer in B C; do meet A $peer; meet $peer A; done
kv A put secret 5 50
on B 50 secret 5 '"status": "ready"'
on C 0 secret 5 '"located": 0'
grep -qx 'secret strict with A,B' "$LAB/B/shared" || lab_fail 'B does not keep who is named'

# New certificates while all run: what is under way and what is idle goes on, new ones are asked for
# from then on.
serial() { openssl x509 -noout -serial -in "$LAB/certs/$1/cert.pem"; }
shown() { # the serial number that A shows
	openssl s_client -connect "${address[A]}" -cert "$LAB/certs/C/cert.pem" \
		-key "$LAB/certs/C/key.pem" </dev/null 2>/dev/null | openssl x509 -noout -serial
}
said() { grep -c "$2" "$LAB/$1/net.log" || true; }
reload() { # HOST PATTERN
	local before
	before=$(said "$1" "$2")
	kill -HUP "${net_pid[$1]}"
	once_more() { [ "$(said "$host_" "$pattern_")" -gt "$before" ]; }
	host_=$1 pattern_=$2
	eventually 20 once_more || lab_fail "$1 does not say: $2"
}
was=$(shown)
bench/hosts/certs "$LAB/certs" A
reload A 'new certificates are in use.*connections_ended=0'
[ "$was" != "$(serial A)" ] && [ "$(shown)" = "$(serial A)" ] || lab_fail 'A shows the old one'
kv A put secret 6 50
on B 50 secret 6 '"status": "ready"'
# What is none changes nothing.
cp "$LAB/certs/A/key.pem" "$LAB/key.pem"
cp "$LAB/certs/B/key.pem" "$LAB/certs/A/key.pem"
reload A 'the old certificates stay'
cp "$LAB/key.pem" "$LAB/certs/A/key.pem"
kv A put secret 7 50
on B 50 secret 7 '"status": "ready"'

# Struck out: B is out by A's list, and C goes on. Of what it was granted it gets what lies in the
# sockets, which is less than all.
kv A put kv 8 50
finds C 8
kv A put big 0 0
ctl A context share big --with B >/dev/null
kv A put big 1 800
holds() { # HOST: a grant of all of big, of which it reads nothing until it is out
	rm -f "$LAB/out" "$LAB/held"
	# shellcheck disable=SC2046 # words: digest, epoch, keys
	(for ((i = 0; i < 600; i++)); do [ ! -e "$LAB/out" ] || break; sleep 0.05; done; echo) |
		python3 tests/integration/hosts_strangers.py held "${address[A]}" "$LAB/certs/$1" \
			"$1" "$(digest A big)" 1 $(keys_of big) >"$LAB/held" 2>&1 &
	held=$!
	granted() { grep -q 'held 0 800' "$LAB/held"; }
	eventually 20 granted || lab_fail "$1 holds no grant: $(cat "$LAB/held")"
}
is_cut_off() {
	touch "$LAB/out"
	wait $held && grep -q 'cut off' "$LAB/held" ||
		lab_fail "$1 was sent all: $(cat "$LAB/held")"
}
holds B
bench/hosts/certs --revoke "$LAB/certs" B
cp "$LAB/certs/crl.pem" "$LAB/certs/A/crl.pem"
reload A 'new certificates are in use.*connections_ended=[1-9]'
is_cut_off B
kv A put secret 9 50
on B 0 secret 9 '"status": "missed"'
kv A put kv 9 50
wants 0 'turned away' stranger "${address[A]}" "$LAB/certs/B" B "$none"
finds C 9
shows() { ctl A --json hosts | grep -A3 '"name": "B"' | grep -q '"state": "probation"'; }
eventually 20 shows || lab_fail 'A still asks B'

# Who is forgotten is no member: what it is being sent ends with the next frame.
ctl A context share big --with C >/dev/null
holds C
ctl A hosts forget C >/dev/null
is_cut_off C

# Bare, nobody proves a name: what is shared by name is not shared, and cannot be.
down A
up A --no-tls
wants 1 'proves a name' ctl A context share secret --with A,B
grep -q 'cannot be told apart' "$LAB/A/net.log" || lab_fail 'A does not say why'
ctl A --json hosts | grep -q '"secret"' && lab_fail 'secret is shared with all'
wants 0 'with the other hosts' ctl A context share secret
