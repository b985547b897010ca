#!/usr/bin/env bash
# Programs that know nothing of objects, with their files below a PATH of `tier run`: random
# sequences of what programs do with files give what they give in a plain directory; git; sqlite
# with both kinds of journal, two writers at a time, killed, and the daemon, too.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. "$(dirname "$0")/../lib/objects.sh"

sequences=${SEQUENCES:-100}
seed=${SEED:-1}
here=$PWD/tests/integration

start
mkdir "$dir/plain/s" "$dir/there/s"
python3 "$here/shim_sequences.py" "$dir/plain/s" "$seed" "$sequences" 3 "$dir/want"
under python3 "$here/shim_sequences.py" "$dir/there/s" "$seed" "$sequences" 3 "$dir/got"
for p in 0 1 2; do
	diff "$dir/want.$p" "$dir/got.$p" || fail "differs: SEED=$seed SEQUENCES=$sequences"
done
[ -z "$(find "$dir/there/s" -type f)" ] || fail 'a sequence wrote real files'
ctl check | grep -q accounted || fail "check: $(ctl check)"
echo "# $sequences sequences agree, seed $seed"

# Writers killed in what they do, at last with the daemon: nothing torn, nothing that returned lost.
mkdir "$dir/boards" "$dir/there/k"
for n in $(seq $((1 + sequences / 500))); do
	under python3 "$here/shim_kills.py" run "$dir/there/k" "$dir/boards" $((seed + n)) \
		$((sequences / 10)) "$daemon" || fail "writers killed: SEED=$seed"
	wait "$daemon" 2>/dev/null || true
	start
	kept=$(under python3 "$here/shim_kills.py" look "$dir/there/k" "$dir/boards") ||
		fail "the daemon killed: SEED=$seed"
done
ctl check | grep -q accounted || fail "check: $(ctl check)"
[ -z "$(find "$dir/there/k" -type f)" ] || fail 'writers wrote real files'
under rm -r "$dir/there/k"
echo "# $((n * (sequences / 10) * 3)) writers were killed, and the daemon $n times: of $kept" \
	'operations that returned none is lost'

# The corners of the interface, and a link of another name to all of it.
mkdir "$dir/plain/k" "$dir/there/k"
python3 "$here/shim_corners.py" "$dir/plain/k" >"$dir/want"
under python3 "$here/shim_corners.py" "$dir/there/k" >"$dir/got"
diff "$dir/want" "$dir/got" || fail 'a corner differs'
ln -s there "$dir/link"
"$BUILD/tier" run --socket "$dir/sock" --map "$dir/link=weights" -- \
	sh -c "echo linked >'$dir/link/by'; cat '$dir/link/by'" | grep -q linked || fail 'by a link'
[ "$(under cat "$dir/there/by")" = linked ] || fail 'what was written by a link'
under rm "$dir/there/by"

# As many maps as may be, each by a link; and links from one PATH to another's object.
maps=()
for n in 1 2 3 4 5 6 7 8; do
	ln -s there "$dir/link$n"
	maps+=(--map "$dir/link$n=weights")
done
"$BUILD/tier" run --socket "$dir/sock" "${maps[@]}" -- sh -c "echo linked >'$dir/link8/by'"
[ "$(under cat "$dir/there/by")" = linked ] || fail 'by the last of 8 links'
! "$BUILD/tier" run --socket "$dir/sock" "${maps[@]}" --map "$dir/link=weights" -- true \
	2>"$dir/err" && grep -q 'too many maps' "$dir/err" || fail 'a ninth map'
mkdir "$dir/second"
ln -s "$dir/second" "$dir/there/elsewhere"
ln -s "$dir/second/same" "$dir/there/far"
"$BUILD/tier" run --socket "$dir/sock" --map "$dir/there=weights" --map "$dir/second=second" -- \
	sh -ec "echo keep >'$dir/there/same'; echo go >'$dir/second/same'
		chmod 640 '$dir/there/same' '$dir/second/same'; chmod 600 '$dir/there/far'
		stat -c %a '$dir/there/same' '$dir/second/same'
		rm '$dir/there/elsewhere/same'; cat '$dir/there/same'
		[ ! -e '$dir/second/same' ]" >"$dir/got" || fail 'a link to another PATH'
printf '%s\n' 640 600 keep | diff - "$dir/got" || fail 'a link to another PATH'
under rm "$dir/there/by" "$dir/there/same"
rm "$dir/there/elsewhere" "$dir/there/far"
[ -z "$(find "$dir/there" -type f)" ] || fail 'a corner wrote real files'
[ $(($(under stat -f -c '%b * %S' "$dir/there"))) = $((256 << 20)) ] || fail 'statfs: no quota'
echo "# $(wc -l <"$dir/want") corners agree"

# Listings show objects, and copies of trees are whole.
mkdir "$dir/there/tree"
under sh -c "cd '$dir/there/tree'; mkdir -p x/y; seq 100 >x/y/z; seq 9 >x/w; cp -a x copy"
[ "$(under find "$dir/there/tree/copy" -type f | sort | wc -l)" = 2 ] || fail 'find'
under diff -r "$dir/there/tree/x" "$dir/there/tree/copy" || fail 'cp -a, diff -r'
under tar -C "$dir/there/tree" -cf "$dir/there/tree.tar" x
[ "$(under tar -tf "$dir/there/tree.tar" | grep -c '^x/y/z$')" = 1 ] || fail 'tar'
under mv "$dir/there/tree/copy" "$dir/there/tree/moved"
under diff -r "$dir/there/tree/x" "$dir/there/tree/moved" || fail 'mv of a folder'
[ ! -e "$dir/there/tree/copy" ] || fail 'mv left the folder'
under rm -r "$dir/there/tree" && [ ! -e "$dir/there/tree" ] || fail 'rm -r'

# By the C library's scandir, too.
cat >"$dir/scan.c" <<'EOF'
#include <dirent.h>
#include <stdio.h>
int main(int count, char **path)
{
	struct dirent **list;
	int n = count > 1 ? scandir(path[1], &list, NULL, alphasort) : -1;
	for (int i = 0; i < n; i++)
		puts(list[i]->d_name);
	return n < 0;
}
EOF
"${CC:-gcc}" -o "$dir/scan" "$dir/scan.c"
mkdir "$dir/there/scan" "$dir/there/scan/folder"
for name in $(seq 100); do echo "$name"; done | under sh -c "while read -r n; do
	echo \$n >'$dir/there/scan/'\$n; done"
printf '%s\n' . .. folder $(seq 100) | LC_ALL=C sort >"$dir/want.scan"
under "$dir/scan" "$dir/there/scan" | diff "$dir/want.scan" - || fail 'scandir'
under rm -r "$dir/there/scan"

# Who has a descriptor over exec, for however short, and who closes whatever there is.
under bash -c "/bin/echo one >'$dir/there/one'; true"
under sh -c "exec /bin/echo two >'$dir/there/two'"
under python3 -c "
import os
f = os.open('$dir/there/three', os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
os.write(f, b'three\n')
os.closerange(3, 1 << 20)
g = os.open('$dir/plain/real', os.O_CREAT | os.O_WRONLY)
os.write(g, b'real')
os.fsync(g)"
sleep 1.2 # what nobody will commit is gone by then
for name in one two three; do
	[ "$(under cat "$dir/there/$name")" = $name ] || fail "exec or closing all: $name"
done

# Threads that write, and children of fork in between.
under timeout 60 python3 "$here/shim_forks.py" "$dir/there" || fail 'a child of fork hangs'

"${CC:-gcc}" -D_GNU_SOURCE -O1 -o "$dir/signals" "$here/shim_signals.c"
under timeout 60 "$dir/signals" "$dir/there/signals" || fail 'a handler of a signal hangs'
[ "$(under cat "$dir/there/signals")" = kept ] || fail 'a handler of a signal'

# A statically linked program is missed, and that is said.
printf 'int main(void) { return 0; }' >"$dir/static.c"
if "${CC:-gcc}" -static -o "$dir/static" "$dir/static.c" 2>/dev/null; then
	under "$dir/static" 2>&1 | grep -q 'statically linked' || fail 'a static program'
fi

if command -v git >/dev/null; then
	export GIT_CONFIG_NOSYSTEM=1 HOME=$dir
	git init -q "$dir/plain/repo"
	cp -r tests/lib "$dir/plain/repo/"
	git -C "$dir/plain/repo" add . && git -C "$dir/plain/repo" -c user.name=a \
		-c user.email=a commit -qm one
	under git clone -q "$dir/plain/repo" "$dir/there/clone" || fail 'git clone'
	under git -C "$dir/there/clone" fsck --strict || fail 'git fsck'
	under git -C "$dir/there/clone" status --porcelain | grep . && fail 'git status'
	under sh -c "cd '$dir/there/clone'; seq 1000 >n; git add n; git -c user.name=a \
		-c user.email=a commit -qm two; git gc -q; git fsck" || fail 'git gc'
	[ "$(under git -C "$dir/there/clone" log --oneline | wc -l)" = 2 ] || fail 'git log'
else
	echo '# git: not run, it is not installed'
fi

profiled() {
	"$BUILD/tier" run --profile "libtier/shim/profiles/$1" --socket "$dir/sock" \
		--map "$dir/there=weights" -- "${@:2}"
}

have() {
	command -v "$1" >/dev/null || { echo "# $1: not run, it is not installed"; return 1; }
}

# Over what is there: cp asks first whether that is a folder, vim whether it is the same file still.
under cp "$dir/want.scan" "$dir/there/text"
under cp "$dir/plain/real" "$dir/there/text" || fail 'cp over an object'
if have vim; then
	for copy in yes no; do
		for d in plain there; do
			printf 'one\ntwo\n' >"$dir/seed"
			under cp "$dir/seed" "$dir/$d/text"
			under vim -Nu NONE -i NONE -es -c "set backupcopy=$copy directory=$dir/$d" \
				-c '%s/one/three/' -c wq "$dir/$d/text" </dev/null ||
				fail "vim, backupcopy=$copy, does not write $d/text"
		done
		under cmp "$dir/there/text" "$dir/plain/text" || fail "vim, backupcopy=$copy"
	done
	[ ! -e "$dir/there/text" ] || fail 'vim wrote a real file'
fi

if have rsync; then
	mkdir "$dir/plain/r" "$dir/there/r"
	for d in plain there; do
		under rsync -a tests/lib/ "$dir/$d/r/"
		under rsync -a --inplace --no-whole-file tests/fuzz/ "$dir/$d/r/"
		under rsync -ac --delete tests/lib/ "$dir/$d/r/"
	done
	under diff -r "$dir/plain/r" "$dir/there/r" || fail 'rsync'
	[ -z "$(under rsync -anic tests/lib/ "$dir/there/r/")" ] || fail 'rsync would do it again'
	[ -z "$(find "$dir/there/r" -type f)" ] || fail 'rsync wrote real files'
fi

# Each writes in any order, reads that back, and again when the daemon was killed.
if have fio; then
	blocks() {
		under fio --output="$dir/fio" --name="$1" --directory="$dir/there" --size=1M \
			--bs=4k --rw=randwrite --ioengine="$1" --iodepth=8 --end_fsync=1 \
			--verify=crc32c --verify_fatal=1 --verify_state_save=0 --randseed=7 \
			"${@:2}" ||
			fail "fio, $*: $(cat "$dir/fio")"
	}
	engines='psync libaio io_uring mmap'
	for engine in $engines; do blocks $engine --do_verify=1; done
	# By mmap it closes what it has mapped still: that is kept when it has ended.
	for _ in $(seq 600); do
		ctl --json status | grep -q '"uploads": [^0]' || break
		sleep 0.05
	done
	kill -9 "$daemon"
	wait "$daemon" 2>/dev/null || true
	start
	for engine in $engines; do
		[ ! -e "$dir/there/$engine.0.0" ] || fail 'fio wrote a real file'
		blocks $engine --verify_only=1
	done
	echo "# fio verifies what $engines wrote, behind a kill of the daemon, too"
fi

# What real programs did with their files, under their profiles: the same comes of each call, what
# is renamed when it is written is published by that, and nothing temporary is ever an object.
mkdir "$dir/plain/c" "$dir/there/c"
for list in "$here"/calls/*; do
	profile=$(basename "$list")
	mkdir "$dir/plain/c/$profile" "$dir/there/c/$profile"
	python3 "$here/shim_calls.py" "$list" "$dir/plain/c/$profile" >"$dir/want.calls"
	profiled "$profile" python3 "$here/shim_calls.py" "$list" "$dir/there/c/$profile" \
		>"$dir/got.calls" || fail "calls of $profile"
	diff "$dir/want.calls" "$dir/got.calls" || fail "calls of $profile"
	[ -z "$(find "$dir/there/c" -type f)" ] || fail "$profile wrote real files"
	# What was written without a rename is gone with its process.
	while read -r pattern; do
		name=${pattern//\*/x}
		profiled "$profile" sh -c "echo half >'$dir/there/c/${name//\?/x}'"
	done < <(sed -n 's/^temporary //p' "libtier/shim/profiles/$profile")
	sleep 0.1
	[ -z "$(under find "$dir/there/c" -maxdepth 1 -type f)" ] ||
		fail "$profile leaves temporary files"
	echo "# calls of $profile: $(wc -l <"$dir/want.calls") outcomes agree"
done

# Two writers of one database; what they were told is there, whoever is killed.
for mode in delete wal; do
	for round in 1 2 3; do
		writers=()
		for w in 1 2; do
			# exec: it is this process that is killed
			(exec "$BUILD/tier" run --socket "$dir/sock" --map "$dir/there=weights" -- \
				python3 "$here/objects_sql.py" write $mode "$dir/there/$mode.db" \
				"$dir/board.$mode.$round.$w") 2>>"$dir/err" &
			writers+=($!)
		done
		# Who comes when the daemon is gone has the real directory: both are there before.
		for _ in $(seq 600); do
			[ ! -e "$dir/board.$mode.$round.1" ] ||
				[ ! -e "$dir/board.$mode.$round.2" ] || break
			sleep 0.05
		done
		sleep 0.5
		[ $round != 2 ] || kill -9 "$daemon"
		kill -9 "${writers[@]}" 2>/dev/null || true # one of them may have met the other
		wait "${writers[@]}" 2>/dev/null || true
		if [ $round = 2 ]; then
			wait "$daemon" 2>/dev/null || true
			start
		fi
		told=$(under python3 "$here/objects_sql.py" look "$dir/there/$mode.db" \
			"$dir/board.$mode".*) || fail "sqlite, journal $mode, round $round"
	done
	echo "# sqlite, journal $mode: $told commits, none lost in 2 kills of both writers and" \
		'one of the daemon'
done
ctl check | grep -q accounted || fail "check: $(ctl check)"
stop
