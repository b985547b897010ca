# A host with a CXL pool: its network, the region as a device of dax, daemons; sourced by both
# guests of pool.sh. Times are long, for guests are slow. Wants NAME; B has etcd.
# SPDX-License-Identifier: Apache-2.0

LAB=$TMPDIR/lab
mkdir -p "$LAB"
. bench/hosts/lab.sh
. tests/vm/told.sh
. tests/vm/region.sh
address=([A]=10.9.1.1:7001 [B]=10.9.1.2:7001)
url=http://10.9.1.2:2379

host_up() { # NAME: all but tierd-net
	for _ in $(seq 100); do [ ! -e /sys/class/net/eth0 ] || break; sleep 0.1; done
	ip addr add "${address[$1]%:*}/24" dev eth0
	ip link set eth0 up
	region $((256 << 20))
	for _ in $(seq 100); do [ ! -e /sys/bus/dax/devices/dax0.0 ] || break; sleep 0.1; done
	echo dax0.0 >/sys/bus/dax/drivers/device_dax/new_id
	for _ in $(seq 100); do [ ! -e /dev/dax0.0 ] || break; sleep 0.1; done
	ls -l /dev/dax0.0
	tierd_up "$1" hbm.size=8MiB cxl.size=64MiB nvme.size=128MiB request.deadline=1min \
		put.deadline=1min
}
pool_up() { # NAME
	net_up "$1" --no-tls --etcd "$url" --lease 10s --pool /dev/dax0.0 --pool-grant 10s
	ctl "$1" context share kv >/dev/null
}
of_pool() { # HOST KEY
	ctl "$1" --json hosts | sed -n "/\"pool\"/,/}/s/.*\"$2\": \([0-9]*\).*/\1/p"
}
