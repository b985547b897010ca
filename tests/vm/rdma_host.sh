# A host with soft-RoCE on its wire; sourced by both guests of rdma_wire.sh.
# SPDX-License-Identifier: Apache-2.0

LAB=$TMPDIR/lab
mkdir -p "$LAB"
. bench/hosts/lab.sh
. tests/vm/told.sh
address=([A]=10.9.1.1:7001 [B]=10.9.1.2:7001)
blocks=400 # 9,830,400 bytes: five frames, of which four lie to be read at a time

host_up() { # NAME: all but tierd-net
	for _ in $(seq 100); do [ ! -e /sys/class/net/eth0 ] || break; sleep 0.1; done
	ip addr add "${address[$1]%:*}/24" dev eth0
	ip link set eth0 up
	rdma link add rxe0 type rxe netdev eth0
	tierd_up "$1" hbm.size=8MiB cxl.size=128MiB nvme.size=256MiB request.deadline=1min \
		put.deadline=1min
	kv "$1" put kv 0 0
}
rdma_up() { # NAME
	local other=A
	[ "$1" = B ] || other=B
	net_up "$1" --no-tls --rdma rxe0 --peer "$other=${address[$other]}"
	ctl "$1" context share kv >/dev/null
}
