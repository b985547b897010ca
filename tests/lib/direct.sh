# For shell tests of tierbench, whose daemon wants O_DIRECT; sourced, never run.
# SPDX-License-Identifier: Apache-2.0

# direct_tmpdir: TMPDIR, or another folder that has it; skips the test where none has.
direct_tmpdir() {
	local base probe
	for base in "${TMPDIR:-/tmp}" /var/tmp "$BUILD"; do
		[ "$(stat -f -c %T "$base")" != tmpfs ] || continue
		probe=$(mktemp "$base/direct.XXXXXX") || continue
		if dd if=/dev/zero of="$probe" bs=4096 count=1 oflag=direct 2>/dev/null; then
			rm "$probe"
			TMPDIR=$base
			return 0
		fi
		rm "$probe"
	done
	echo 'no folder here has O_DIRECT'
	exit 77
}
