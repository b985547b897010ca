# One guest of two does what the other tells it by a line on port 9000; sourced by both.
# SPDX-License-Identifier: Apache-2.0

tells() { # LINE: to A; its answer
	local text
	text=$(echo "$1" | timeout 120 busybox nc 10.9.1.1 9000) || true
	grep -q '^done$' <<<"$text" || lab_fail "A, told to $1: $text"
	sed '$d' <<<"$text"
}
answers() { # LINE: is A up, and answers?
	echo "$1" | timeout 20 busybox nc 10.9.1.1 9000 | grep -q done
}
# At A: obey LINE does it, in a process of its own, whose input and output are the connection.
obey_one() {
	local line
	read -r line
	obey "$line" 2>&1 </dev/null && echo done
}
obey_all() { # SCRIPT: which does one with the argument "obey"
	echo 'A is up'
	while :; do
		busybox nc -l -p 9000 -e bash "$1" obey || true
	done
}
