#!/usr/bin/env bash
# Objects and programs that know nothing of them: an object is put, the daemon is killed, and under
# `tier run` coreutils and a C program (stdio, mmap, io_uring, sendfile, fork) read the bytes that
# they read from a plain directory. What is written there survives a kill, too.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

. "$(dirname "$0")/../lib/objects.sh"

head -c 3000001 /dev/urandom >"$dir/plain/big"
head -c 4096 /dev/urandom >"$dir/plain/page"
: >"$dir/plain/empty"
printf 'one line\n' >"$dir/plain/line"

start
for name in big page empty line; do
	ctl object put weights "$name" "$dir/plain/$name"
done
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true
start

# Names.
[ "$(ctl --json object list weights | python3 -c '
import json, sys
print(*((o["name"], o["size"]) for o in json.load(sys.stdin)))')" = \
	"('big', 3000001) ('empty', 0) ('line', 9) ('page', 4096)" ] || fail 'object list'
ctl object show weights big | grep -q 'on NVMe' || fail 'it is in memory after a restart'
ctl object get weights big | cmp - "$dir/plain/big" || fail 'object get'
ctl object show weights big | grep -q 'in memory' || fail 'it is not in memory'

# Coreutils, in a folder in which there is no file of these names.
for name in big page empty line; do
	[ ! -e "$dir/there/$name" ] || fail "$name is a file"
	[ "$(under sha256sum <"$dir/plain/$name" | cut -c 1-64)" = \
		"$(under sha256sum "$dir/there/$name" | cut -c 1-64)" ] || fail "sha256sum $name"
	under cp "$dir/there/$name" "$dir/copy"
	cmp "$dir/copy" "$dir/plain/$name" || fail "cp $name"
	(cd "$dir/there" && under cat "./$name") | cmp - "$dir/plain/$name" || fail "cat $name"
done
under cat "$dir/there/none" 2>/dev/null && fail 'what is not there was opened'

# A program by all the ways of the kernel.
for name in big page line; do
	"$dir/reads" "$dir/plain/$name" >"$dir/want" || fail "reads: $(cat "$dir/want")"
	under "$dir/reads" "$dir/there/$name" >"$dir/got" || fail "reads: $(cat "$dir/got")"
	diff "$dir/want" "$dir/got" || fail "$name reads otherwise under tier run"
done

# Written under the shim: seen at once, there after a kill, replaced and removed.
under cp "$dir/plain/big" "$dir/there/copied"
[ ! -e "$dir/there/copied" ] || fail 'cp wrote a real file'
under cmp "$dir/there/copied" "$dir/plain/big" || fail 'cp to an object'
under sh -c "cd '$dir/there'; echo first >said; echo second >>said; cat said" |
	cmp - <(printf 'first\nsecond\n') || fail 'a shell that writes'
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true
start
under cmp "$dir/there/copied" "$dir/plain/big" || fail 'what cp wrote is not there after a kill'
[ "$(under cat "$dir/there/said")" = $'first\nsecond' ] || fail 'what sh wrote is not there'
under mv "$dir/there/said" "$dir/there/told"
under cat "$dir/there/said" 2>/dev/null && fail 'mv left the old name'
[ "$(under cat "$dir/there/told")" = $'first\nsecond' ] || fail 'mv'
# Names change when they are written; a kill does not take that back, and a folder is flushed.
under python3 -c "
import os
os.rename('$dir/there/told', '$dir/there/new')
folder = os.open('$dir/there', os.O_RDONLY)
os.fsync(folder)
os.rename('$dir/there/new', '$dir/there/told')"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true
start
[ "$(under cat "$dir/there/told")" = $'first\nsecond' ] || fail 'a rename was lost in a kill'
under cat "$dir/there/new" 2>/dev/null && fail 'a rename was lost in a kill'
# A folder and a file do not take each other's place.
mkdir "$dir/there/folder"
under python3 -c "
import errno, os
for a, b, want in (('folder', 'told', errno.ENOTDIR), ('told', 'folder', errno.EISDIR)):
    try:
        os.rename(f'$dir/there/{a}', f'$dir/there/{b}')
    except OSError as e:
        assert e.errno == want, e
    else:
        raise SystemExit(f'{a} took the place of {b}')" || fail 'a folder over an object'
[ "$(under cat "$dir/there/told")" = $'first\nsecond' ] || fail 'a folder removed an object'
rmdir "$dir/there/folder"
under rm "$dir/there/told" "$dir/there/copied"
under cat "$dir/there/told" 2>/dev/null && fail 'rm left it'

# Who has a version open keeps it; its memory is held until it is closed.
held() {
	ctl --json status |
		python3 -c 'import json, sys; print(json.load(sys.stdin)["objects"]["cxl_held"])'
}
under sh -c "exec 3<'$dir/there/page'
	unset LD_PRELOAD
	'$BUILD/tierctl' --socket '$dir/sock' object put weights page '$dir/plain/line'
	'$BUILD/tierctl' --socket '$dir/sock' object get weights page
	'$BUILD/tierctl' --socket '$dir/sock' --json status >'$dir/status'
	cat <&3" | cmp - <(cat "$dir/plain/line" "$dir/plain/page") ||
	fail 'an open version changed'
grep -q '"cxl_held": 12288' "$dir/status" || fail 'an open version is not charged as held'
sleep 0.1
[ "$(held)" = 0 ] || fail 'it is held though nobody has it'

# Who maps it has no copy of their own.
head -c 20000000 /dev/urandom >"$dir/plain/weights"
ctl object put weights weights "$dir/plain/weights"
for state in 'as it was put' 'brought'; do
	under python3 tests/integration/shim_copies.py "$dir/there/weights" ||
		fail "eight processes map it, $state"
	kill -9 "$daemon"
	wait "$daemon" 2>/dev/null || true
	start
done
ctl object remove weights weights

ctl check | grep -q 'accounted' || fail "check: $(ctl check)"
version=$(ctl --json object show weights big | sed -n 's/.*"version": \([0-9]*\).*/\1/p')
file=$dir/store.objects/$(printf %016x "$version")
truncate -s -1 "$file"
{ ctl check || true; } | grep -q "object big, version $version: its file has 3000000 bytes" ||
	fail "check does not see that a file was cut: $(ctl check)"
tail -c 1 "$dir/plain/big" >>"$file"
# Names in shared memory, until the daemon is killed.
ctl object put looked line "$dir/plain/line"
"$BUILD/tier" run --socket "$dir/sock" --map "$dir/there=looked" -- \
	python3 tests/integration/shim_names.py "$BUILD/tierctl" "$dir/sock" "$dir/there" looked \
	"$daemon" || fail 'names in shared memory'
wait "$daemon" 2>/dev/null || true
start
# Larger than memory may be: refused, or opened as its file.
stop
start --set object.cxl=1MiB
{ under cat "$dir/there/big" 2>&1 || true; } | grep -q 'File too large' ||
	fail 'larger than object.cxl'
under cmp "$dir/there/page" "$dir/plain/line" || fail 'what fits is refused, too'
stop
start --set object.cxl=1MiB --set object.direct=yes
under cmp "$dir/there/big" "$dir/plain/big" || fail 'object.direct'
ctl status | grep -q '^objects  *[0-9]*, ' || fail 'status tells nothing of objects'
stop

# A flush of the catalog that fails: the commit is refused, nothing is taken after it, and the next
# start has the name with the bytes from before or from then, whole.
cat >"$dir/nosync.c" <<'EOF'
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int io_uring_queue_init(void) /* so the daemon asks below, one file behind the other */
{
	return -ENOSYS;
}
int fdatasync(int fd)
{
	if (access(getenv("NOSYNC"), F_OK))
		return (int)syscall(SYS_fdatasync, fd);
	errno = EIO;
	return -1;
}
EOF
"${CC:-gcc}" -shared -fPIC -o "$dir/nosync.so" "$dir/nosync.c"
export NOSYNC=$dir/nosync ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
preload=$dir/nosync.so start
ctl object put weights twice "$dir/plain/line"
touch "$NOSYNC"
! ctl object put weights twice "$dir/plain/page" 2>/dev/null ||
	fail 'a flush failed, and nobody says so'
rm "$NOSYNC"
! ctl object put weights other "$dir/plain/page" 2>/dev/null ||
	fail 'it goes on after a failed flush'
ctl object get weights twice | cmp - "$dir/plain/line" || fail 'what was there is not there'
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true
start
ctl object get weights twice >"$dir/got" || fail 'a failed flush cost the version of before'
cmp "$dir/got" "$dir/plain/line" || cmp "$dir/got" "$dir/plain/page" || fail 'neither of both'
stop

# A file that was there before is a real one, and that is told.
start
echo before >"$dir/there/before"
under sh -c "echo more >>'$dir/there/before'"
[ "$(cat "$dir/there/before")" = $'before\nmore' ] || fail 'a file of before'
ctl --json status | grep -q '"passed": 1' || fail 'a file of before was not counted'
ctl status | grep -q '1 real files were opened for writing' || fail 'a file of before was not told'
stop

# Without a daemon: each object against its file and its sums; what is nobody's is told.
looked() {
	"$BUILD/tierctl" check "$@" "$dir/store" >"$dir/checked" 2>&1
}
says() {
	grep -q "$1" "$dir/checked" || fail "check STORE does not say '$1': $(cat "$dir/checked")"
}
file_of() {
	printf '%s/%016x' "$dir/store.objects" "$1"
}
version_of() {
	ctl --json object show weights "$1" | sed -n 's/.*"version": \([0-9]*\).*/\1/p'
}
start
for name in flipped cut gone; do
	ctl object put weights $name "$dir/plain/page"
done
flipped=$(file_of "$(version_of flipped)") cut=$(file_of "$(version_of cut)")
gone=$(file_of "$(version_of gone)")
stop
looked --data || fail "check STORE: $(cat "$dir/checked")"
says 'nothing is wrong'
echo half >"$(file_of 999999)" # a put that was not committed, of long ago
touch "$dir/store.objects/stranger"
looked || fail "what is nobody's is a fault: $(cat "$dir/checked")"
says '^stranger in the folder of objects is none of ours'
says '^1 files in the folder of objects are nobody'
printf x | dd of="$flipped" bs=1 seek=77 conv=notrunc status=none
truncate -s 4000 "$cut"
rm "$gone"
! looked --data || fail 'check STORE finds no fault'
says '^object flipped of context weights: its file .* does not hold what was written; it is lost'
says '^object cut of context weights: its file .* has 4000 bytes, not 4096'
says '^object gone of context weights: its file .*No such file'
start # as check said; what is whole is there
for name in flipped cut gone; do
	! ctl object get weights $name >"$dir/got" 2>&1 || fail "$name is not lost"
done
ctl object get weights line | cmp - "$dir/plain/line" || fail 'a neighbour of what was damaged'
[ ! -e "$(file_of 999999)" ] || fail 'what is nobody'\''s stays'
[ -e "$dir/store.objects/stranger" ] || fail 'it removes what is not ours'
stop

# The daemon gone: the real directory, as if nobody were between.
echo real >"$dir/there/line"
[ "$(under cat "$dir/there/line" 2>/dev/null)" = real ] || fail 'without a daemon'
