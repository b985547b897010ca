#!/usr/bin/env bash
# Installs into an empty folder, uses what lies there as a packager and a user would, uninstalls,
# and looks that no file is left.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

dest=$TMPDIR/dest
out=$(dirname "$BUILD")
install() { make -s "$1" O="$out" DESTDIR="$dest" PREFIX=/usr; }

install install >"$TMPDIR/log" 2>&1 || { cat "$TMPDIR/log"; exit 1; }

for file in bin/tierd bin/tierd-net bin/tierctl bin/tier lib/tier/libtier-preload.so \
	share/tier/profiles/vllm-fs include/tier.h \
	include/tier_owner.h include/tier_taken.h include/tier_events.h include/tier_object.h \
	include/tier_hosts.h include/tier_kernel.h include/tier_names.h include/tier_pages.h \
	include/tier_queue.h include/tier_usage.h include/tier_old.h include/tier_device.h \
	lib/libtier.a lib/libtier.so lib/libtier.so.0 \
	lib/pkgconfig/libtier.pc lib/systemd/system/tierd.service lib/sysusers.d/tierd.conf \
	share/bash-completion/completions/tierctl share/man/man1/tierctl.1; do
	[ -e "$dest/usr/$file" ] || { echo "not installed: $file"; exit 1; }
done
# Each public function has a page of its own name.
for name in $(grep -o 'tier_[a-z_]*;' libtier/libtier.map | tr -d ';'); do
	[ -s "$dest/usr/share/man/man3/$name.3" ] || { echo "no page $name(3)"; exit 1; }
done
grep -q '^ExecStart=/usr/bin/tierd' "$dest/usr/lib/systemd/system/tierd.service"

# Only public names leave the libraries.
foreign=$(nm -g --defined-only "$dest/usr/lib/libtier.a" | awk 'NF == 3 { print $3 }' |
	grep -v '^tier_' || true)
[ -z "$foreign" ] || { echo "libtier.a exports $foreign"; exit 1; }
foreign=$(nm -D --defined-only "$dest/usr/lib/libtier.so" | awk '$2 != "A" { print $3 }' |
	sed 's/@.*//' | grep -v '^tier_' || true)
[ -z "$foreign" ] || { echo "libtier.so exports $foreign"; exit 1; }

# A program finds header and library through pkg-config, shared and static.
cat >"$TMPDIR/version.c" <<'C'
#include <stdio.h>
#include <tier.h>
int main(void) { return puts(tier_version()) < 0; }
C
export PKG_CONFIG_PATH=$dest/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dest
# shellcheck disable=SC2046 # the flags are lists of words
${CC:-gcc} -Wall -Wextra -Werror -o "$TMPDIR/shared" "$TMPDIR/version.c" \
	$(pkg-config --cflags --libs libtier)
LD_LIBRARY_PATH=$dest/usr/lib "$TMPDIR/shared" | grep -q '^[0-9]*\.[0-9]*\.[0-9]*$'
# shellcheck disable=SC2046
${CC:-gcc} -Wall -Wextra -Werror -o "$TMPDIR/static" "$TMPDIR/version.c" \
	$(pkg-config --cflags libtier) "$dest/usr/lib/libtier.a" -lcrypto -lisal -pthread
"$TMPDIR/static" | grep -q '^[0-9]*\.[0-9]*\.[0-9]*$'

install uninstall >"$TMPDIR/log" 2>&1
left=$(find "$dest" ! -type d)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
