# Bugs that are planted into the kernel module tier_mem (plants.py), each of which one of the
# programs that ask it must find.
# modules: vgem
# build: kernel-mod kernel-plants
# seconds: 600
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. tests/vm/kmod.sh
planted=${ko/kernel-mod/kernel-plants}

# With the unmapping left out a put in place is no commit: the writer goes on.
insmod "$planted" ram_chunks=48 plant="$(tests/vm/plants.py --list |
	sed -n 's/ commit-unmaps-nothing .*//p')"
daemon 80MiB
said=$("$BUILD/vm/place" 20 2>&1) || true
grep 'changed after commit' <<<"$said" || fail "a byte that changes was not found: $said"
kill "$daemon"
wait "$daemon" || fail 'the daemon ends badly'
rmmod tier_mem

missed=0
found=0
while read -r number name program; do
	insmod "$planted" ram_chunks=48 plant="$number"
	case $program in
	module) arguments=(4 3) ;;
	model) arguments=(4 40 100) ;;
	pins) arguments=(4) ;;
	hostile) arguments=(4 300 1) ;;
	storm) arguments=(4 60 1) ;;
	esac
	status=0
	said=$(timeout 30 "$BUILD/vm/$program" "${arguments[@]}" 2>&1) || status=$?
	if [ "$status" -ne 1 ] && [ "$status" -ne 139 ]; then # what is not said is not found
		echo "plant $name: not found, status $status"
		missed=$((missed + 1))
	else
		echo "plant $name: $(tail -n 1 <<<"$said")"
		found=$((found + 1))
	fi
	for _ in $(seq 50); do
		rmmod tier_mem 2>/dev/null && break
		sleep 0.1
	done
done < <(tests/vm/plants.py --list)
echo "$found planted bugs were found, $missed were not"
[ "$missed" -eq 0 ] || fail 'a planted bug was not found'
