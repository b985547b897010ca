#!/usr/bin/env bash
# An engine in an unprivileged container: namespaces and a root of its own, 64 MiB of memory. It
# shares the daemon's socket with the host, nothing else of tier. It stores more blocks than its
# memory holds, and reads each of them in place.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/lib/daemon.sh

LIMIT=$((64 << 20))
engine=() # as root: under a user that has no rights on the host
[ "$(id -u)" != 0 ] || engine=(setpriv --reuid 4711 --regid 4711 --clear-groups)
new=(unshare --user --map-root-user --pid --fork --kill-child --mount --ipc --net)
"${engine[@]}" "${new[@]}" true 2>/dev/null ||
	{ echo 'container: this kernel gives users no namespaces'; exit 77; }

# The test's folders are its user's alone; the other one must reach the socket.
for folder in "$TMPDIR" "$(dirname "$TMPDIR")"; do
	[ "$(stat -c %a "$folder")" != 700 ] || chmod 711 "$folder"
done
mkdir -m 755 "$TMPDIR/bin" "$TMPDIR/root"
cat >"$TMPDIR/engine.c" <<'ENGINE'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tier.h>
#define EACH 64
#define CHECK(x) do { if ((x) < 0) { fprintf(stderr, #x ": %s\n", tier_error_text()); exit(1); } \
	} while (0)

int main(void)
{
	tier *t;
	tier_geometry *shape;
	tier_context *kv;
	tier_reader *reader;
	CHECK(tier_connect(&t, NULL));
	CHECK(tier_geometry_preset(&shape, "tiny"));
	CHECK(tier_context_create(t, "engine", shape, NULL, &kv));
	CHECK(tier_reader_open(t, &reader));
	size_t bytes = tier_geometry_block_bytes(shape);
	int tokens = tier_geometry_block_tokens(shape), stored = 0, read = 0;
	int rounds = (96 << 20) / (int)bytes / EACH + 1;
	uint32_t *token = calloc(EACH, tokens * sizeof(*token));
	char *data = malloc(EACH * bytes);
	for (int step = 0; step < 2; step++)
		for (int i = 1; i <= rounds; i++) {
			tier_key keys[EACH];
			struct tier_found found[EACH];
			token[0] = i;
			tier_key_chain(keys, NULL, NULL, token, EACH * tokens, tokens);
			if (step == 0) {
				int n;
				memset(data, i, EACH * bytes);
				CHECK(n = tier_put_copy(kv, keys, EACH, data, NULL));
				stored += n;
				continue;
			}
			CHECK(tier_match(kv, keys, EACH, found));
			for (int b = 0; b < EACH; b++) {
				struct tier_page page = { found[b].block, 0 };
				struct tier_lease lease;
				if (tier_read_pages(reader, kv, &page, 1, 0, &lease) != 1)
					continue;
				read += *(const char *)lease.data == (char)i;
				tier_release(reader, &lease);
			}
		}
	printf("%s, %d of %d\n", stored == rounds * EACH ? "stored" : "NOT stored", stored,
	       rounds * EACH);
	puts(read == stored ? "read" : "NOT read");
	tier_close(t);
	tier_geometry_free(shape);
	free(token);
	free(data);
	return 0;
}
ENGINE
flags=()
[ "$(basename "$BUILD")" != asan ] || flags=(-fsanitize=address,undefined)
${CC:-gcc} "${flags[@]}" -Ilibtier/include -o "$TMPDIR/bin/engine" "$TMPDIR/engine.c" \
	"$BUILD/libtier.a" -lcrypto -lisal -pthread
cat >"$TMPDIR/bin/inside" <<'INSIDE'
set -eu
mount -t tmpfs tmpfs "$1/root"
cd "$1/root"
mkdir usr proc run run/tier tmp
for link in bin lib lib64 sbin; do ln -s usr/$link $link; done
mount --rbind /usr usr
mount --rbind "$1/bin" tmp
mount -t proc proc proc
touch run/tier/tier.sock
mount --bind "$1/tier.sock" run/tier/tier.sock # all that is shared of tier
exec chroot . sh -c 'echo "process $$, user $(id -u)"; tmp/engine'
INSIDE
chmod 755 "$TMPDIR/bin/"*

# A group below this test's own, where it may make one.
group=
limit_memory() {
	local path file
	path=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
	group=/sys/fs/cgroup/memory$path/tier-test-$$ file=memory.limit_in_bytes
	if [ -z "$path" ]; then
		path=$(sed -n 's/^0:://p' /proc/self/cgroup)
		group=/sys/fs/cgroup$path/tier-test-$$ file=memory.max
	fi
	{ mkdir "$group" && echo $LIMIT >"$group/$file"; } 2>/dev/null && return 0
	rmdir "$group" 2>/dev/null || true
	group=
	echo 'container: no memory limit, this test may make no group'
}

daemon_start cxl.size=256MiB
limit_memory
status=0
(
	[ -z "$group" ] || echo "$BASHPID" >"$group/cgroup.procs"
	unset TIER_SOCKET
	TMPDIR=/tmp exec timeout 300 "${engine[@]}" "${new[@]}" sh "$TMPDIR/bin/inside" "$TMPDIR"
) >"$TMPDIR/out" 2>&1 || status=$?
if [ -n "$group" ]; then
	echo "peak of $LIMIT: $(cat "$group"/memory.{max_usage_in_bytes,peak} 2>/dev/null || true)"
	rmdir "$group"
fi
cat "$TMPDIR/out"
[ "$status" = 0 ] || { echo "container: status $status"; cat "$TMPDIR/tierd.log"; exit 1; }
for want in '^process 1, user 0$' '^stored, ' '^read$'; do
	grep -q "$want" "$TMPDIR/out" || { echo "container: not \"$want\""; exit 1; }
done
daemon_stop
