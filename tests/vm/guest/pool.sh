# A CXL pool between two guests: one type-3 device, which both have by one file, as a device of dax.
# What A puts, B reads through it, each byte compared with its generator. A's daemon is killed, then
# all of A: reads end in time, nothing wrong is read, and what A owned comes back to use. (The
# emulator's memory is coherent: a flush left out shows in tests/model and in the simulator.)
# peer: tests/vm/pool_holder.sh
# modules: virtio_net libnvdimm cxl_acpi cxl_pci cxl_mem cxl_port device_dax dax_cxl
# machine: -object memory-backend-file,id=cxlm0,size=256M,share=on,mem-path=@work@/pool
# machine: -device pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1
# machine: -device cxl-rp,port=0,bus=cxl.1,id=rp13,chassis=0,slot=2
# machine: -device cxl-type3,bus=rp13,volatile-memdev=cxlm0,id=cxl-vmem0,sn=0x1
# machine: -M cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G
# seconds: 900
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/vm/pool_host.sh
trap lab_end EXIT

bytes=$((10 * 6 * 4096))
owns() { # HOST N
	local n
	n=$([ "$1" = A ] && tells 'pool ours' || of_pool B ours)
	[ "${n:-0}" -ge "$2" ]
}
reads() { # PROMPT EXPECT PATTERN
	wants 0 "$3" kv B --json --expect "$2" --deadline 10000 read kv "$1" 10
}
by_pool() { # PROMPT
	local before
	before=$(of_pool B bytes_in)
	reads "$1" 10 '"status": "ready"'
	[ $(($(of_pool B bytes_in) - before)) = $bytes ] || lab_fail "$1 did not come by the pool"
}

host_up B
kv B put kv 0 0
"$BUILD/tierd-net" --pool-extent 48MiB --pool-format /dev/dax0.0
etcd --data-dir "$LAB/etcd" --listen-client-urls http://0.0.0.0:2379 \
	--advertise-client-urls "$url" --logger zap >"$LAB/etcd.log" 2>&1 &
etcd_pid=$!
echo 'B has etcd'
eventually 300 answers 'pool ours' || lab_fail 'A does not come up'
eventually 120 owns A 4 || lab_fail 'A owns nothing of the pool'
pool_up B
meet B A
echo 'both hosts are up, and A owns 4 of 5 extents'
# What A shares is known to B some time after A is.
tells 'put 11' >/dev/null
eventually 60 kv B --expect 10 --deadline 10000 read kv 11 10 || lab_fail 'B knows nothing of kv'

tells 'put 1' >/dev/null
by_pool 1
tells 'put 2' >/dev/null
tells cold >/dev/null
by_pool 2
for prompt in 3 4 5 6 7 8; do tells "put $prompt" >/dev/null; done
for prompt in 3 4 5 6 7 8; do by_pool $prompt; done
ctl B --json hosts | sed -n '/"pool"/,/}/p'

tells 'put 9' >/dev/null
kv B --json --deadline 10000 read kv 9 10 >"$LAB/9.out" 2>&1 &
reader=$!
tells kill >/dev/null
wait $reader || lab_fail "a read while A's daemon was killed: $(cat "$LAB/9.out")"
cat "$LAB/9.out"
tells 'put 10' >/dev/null
reads 10 0 '"status": "missed"'
tells start >/dev/null
meet B A
eventually 120 owns A 1 || lab_fail 'A owns nothing after its restart'
by_pool 10
echo 'the daemon of A was killed, and its next life owns its extents again'

eventually 120 owns B 1 || lab_fail 'B owns nothing'
tells 'put 11' >/dev/null
kv B --json --deadline 10000 read kv 11 10 >"$LAB/11.out" 2>&1 &
reader=$!
echo die | timeout 5 busybox nc 10.9.1.1 9000 || true
wait $reader || lab_fail "a read while A died: $(cat "$LAB/11.out")"
cat "$LAB/11.out"
reads 12 0 '"status": "missed"'
eventually 120 owns B 4 || lab_fail 'what A owned does not come back'
echo 'A died, and B owns what A did'
