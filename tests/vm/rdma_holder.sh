# The other guest of rdma_wire.sh, host A: does what it is told by a line on port 9000, and answers.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/vm/rdma_host.sh

read_out() { ctl A --json hosts | sed -n 's/.*"read_out": \([0-9]*\).*/\1/p'; }
moves() { [ "$(read_out)" != "$1" ]; }
# amid DEED: done when B has read a frame more than now; what it had read then goes to the log.
amid() {
	local before
	before=$(read_out)
	eventually 120 moves "$before" || return 0
	echo $(($(read_out) - before)) >"$LAB/amid"
	case $1 in
	kill) kill -KILL "$(cat "$LAB/net.pid")" ;;
	stop) kill -STOP "$(cat "$LAB/net.pid")" ;;
	cut) ip link set eth0 down && sleep 20 && ip link set eth0 up ;;
	esac
}
obey() { # LINE
	case $1 in
	put\ *) kv A put kv "${1#put }" "$blocks" ;;
	amid\ *) rm -f "$LAB/amid" && (amid "${1#amid }" >"$LAB/amid.log" 2>&1 &) ;;
	saw) cat "$LAB/amid" ;;
	continue) kill -CONT "$(cat "$LAB/net.pid")" ;;
	start) start ;;
	up) ;;
	esac
}
start() {
	rdma_up A
	echo "${net_pid[A]}" >"$LAB/net.pid"
}

[ "${1-}" != obey ] || { obey_one; exit; }

host_up A
tc qdisc add dev eth0 root tbf rate 24mbit burst 64k limit 4m
start
obey_all tests/vm/rdma_holder.sh
