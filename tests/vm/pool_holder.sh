# The other guest of pool.sh, host A: does what it is told by a line on port 9000, and answers.
# machine: -object memory-backend-file,id=cxlm0,size=256M,share=on,mem-path=@work@/pool
# machine: -device pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1
# machine: -device cxl-rp,port=0,bus=cxl.1,id=rp13,chassis=0,slot=2
# machine: -device cxl-type3,bus=rp13,volatile-memdev=cxlm0,id=cxl-vmem0,sn=0x1
# machine: -M cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/vm/pool_host.sh

obey() { # LINE
	case $1 in
	put\ *) kv A put kv "${1#put }" 10 ;;
	cold) ctl A drain && ctl A evict kv cxl ;;
	pool\ *) of_pool A "${1#pool }" ;;
	kill) kill -KILL "$(cat "$LAB/net.pid")" ;;
	start) start ;;
	die) echo 1 >/proc/sys/kernel/sysrq; echo b >/proc/sysrq-trigger ;;
	esac
}
start() {
	pool_up A
	echo "${net_pid[A]}" >"$LAB/net.pid"
}

[ "${1-}" != obey ] || { obey_one; exit; }

host_up A
kv A put kv 0 0
echo 'tierd of A is up'
etcd_there() { curl -s -m 20 "$url/health" | grep -q true; }
eventually 300 etcd_there || lab_fail 'B has no etcd'
start
obey_all tests/vm/pool_holder.sh
