# Several hosts on this one, for the demonstration and the tests; sourced, never run. A host is a
# tierd and a tierd-net with a folder of their own, $LAB/NAME, and perhaps a network namespace.
# Everything that was started ends with the shell. Wants BUILD, and LAB, an empty folder.
# SPDX-License-Identifier: Apache-2.0

# daemon_uid[NAME], engine_uid[NAME]: users of their own, where root starts it all.
declare -A tierd_pid net_pid space address daemon_uid engine_uid
etcd_pid=

# at NAME COMMAND...: in the host's network.
at() {
	local name=$1
	shift
	if [ -n "${space[$name]:-}" ]; then
		TIER_SOCKET=$LAB/$name/tier.sock nsenter -n -t "${space[$name]}" -- "$@"
	else
		TIER_SOCKET=$LAB/$name/tier.sock "$@"
	fi
}

# user UID: the words that make a command another user's; none for UID "".
user() { [ -z "$1" ] || echo "setpriv --reuid $1 --regid $1 --clear-groups --"; }
# shellcheck disable=SC2046 # words
ctl() { local name=$1; shift; at "$name" $(user "${engine_uid[$name]:-}") "$BUILD/tierctl" "$@"; }
# shellcheck disable=SC2046
kv() { local name=$1; shift; at "$name" $(user "${engine_uid[$name]:-}") "$BUILD/hosts-kv" "$@"; }

# eventually SECONDS COMMAND...
eventually() {
	local tries=$(($1 * 20))
	shift
	for ((i = 0; i < tries; i++)); do
		"$@" >/dev/null 2>&1 && return 0
		sleep 0.05
	done
	return 1
}

lab_fail() {
	echo "hosts: $*" >&2
	for log in "$LAB"/*/*.log; do
		[ -s "$log" ] && tail -n 12 "$log" | sed "s|^|  ${log#"$LAB"/}: |" >&2
	done
	exit 1
}

# wants STATUS PATTERN COMMAND...
wants() {
	local status=0 want=$1 pattern=$2 text
	shift 2
	text=$("$@" 2>&1) || status=$?
	[ "$status" = "$want" ] || lab_fail "$*: status $status: $text"
	grep -q -e "$pattern" <<<"$text" || lab_fail "$*: no \"$pattern\" in: $text"
}

# background LOG NAME COMMAND...: in the background, in the host's network.
background() {
	local log=$1 name=$2
	shift 2
	if [ -n "${space[$name]:-}" ]; then
		TIER_SOCKET=$LAB/$name/tier.sock nsenter -n -t "${space[$name]}" -- "$@" \
			>>"$log" 2>&1 &
	else
		TIER_SOCKET=$LAB/$name/tier.sock "$@" >>"$log" 2>&1 &
	fi
}

# tierd_up NAME [KEY=VALUE...]
tierd_up() {
	local name=$1 setting settings=()
	shift
	mkdir -p "$LAB/$name"
	for setting in socket="$LAB/$name/tier.sock" store.path="$LAB/$name/store" \
		nvme.buffered=yes "$@"; do
		settings+=(--set "$setting")
	done
	[ -z "${daemon_uid[$name]:-}" ] || chown "${daemon_uid[$name]}" "$LAB/$name"
	# shellcheck disable=SC2046
	background "$LAB/$name/tierd.log" "$name" $(user "${daemon_uid[$name]:-}") \
		"$BUILD/tierd" --foreground "${settings[@]}"
	tierd_pid[$name]=$!
	eventually 300 ctl "$name" status || lab_fail "tierd of $name does not come up"
}

# net_up NAME [OPTION...]
net_up() {
	local name=$1
	shift
	# shellcheck disable=SC2046
	background "$LAB/$name/net.log" "$name" $(user "${daemon_uid[$name]:-}") \
		"$BUILD/tierd-net" --name "$name" --listen "${address[$name]}" \
		--state "$LAB/$name/shared" "$@"
	net_pid[$name]=$!
	eventually 60 ctl "$name" hosts || lab_fail "tierd-net of $name does not come up"
}

# stand_still PID: SIGSTOP, until each of its threads stands.
threads_stand() { ! grep -hs '^State:' /proc/"$1"/task/*/status | grep -qv 'T (stopped)'; }
stand_still() {
	kill -STOP "$1"
	eventually 20 threads_stand "$1" || lab_fail "process $1 does not stop"
}

# sees NAME PEER: has it met the other one?
sees() {
	ctl "$1" --json hosts | grep -A3 "\"name\": \"$2\"" | grep -q '"state": "up"'
}
meet() { eventually 60 sees "$1" "$2" || lab_fail "$1 does not meet $2"; }

# What A put last is a prompt of 50 blocks in the context kv; each read of it is a line of $calls
# that begins with what is done to the hosts meanwhile, $mode.
prompt=0
mode=
calls=$LAB/calls
new_prompt() {
	prompt=$((prompt + 1))
	kv A put kv $prompt 50
}
# reads EXPECT DEADLINE-MS: the prompt that A has; EXPECT "" = whatever comes in time is right.
reads() {
	local text status=0
	text=$(kv B --json ${1:+--expect "$1"} --deadline "$2" read kv "$prompt" 50 2>&1) ||
		status=$?
	[ "$status" = 0 ] || lab_fail "$mode: prompt $prompt: status $status: $text"
	echo "$mode $text" >>"$calls"
}

lab_end() {
	local pid status=0
	trap - EXIT
	for pid in "${net_pid[@]}" "${tierd_pid[@]}" $etcd_pid; do
		kill -CONT "$pid" 2>/dev/null || true
		kill "$pid" 2>/dev/null || true
	done
	for pid in "${net_pid[@]}" "${tierd_pid[@]}"; do
		wait "$pid" || { status=$?; echo "hosts: process $pid ended with $status" >&2; }
	done
	for pid in "${space[@]}"; do
		[ "$pid" = $$ ] || kill "$pid" 2>/dev/null || true
	done
	wait || true
	[ "$status" = 0 ] || (lab_fail "a process ended badly") || exit 1
}

# Ports that nobody listens on; another test may take one meanwhile, and then this one says so.
free_ports() {
	python3 - "$1" <<-'PY'
	import socket, sys
	held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
	print(*(s.getsockname()[1] for s in held))
	PY
}
