#!/usr/bin/env bash
# The metrics' end point of a daemon with something in it: both formats, by the reference parser and
# by promtool where it is installed; every figure of `tierctl stat`; what a scraper may not see, and
# that slow and hostile ones hold nobody up.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. tests/lib/daemon.sh

python=/usr/bin/python3 # Debian's, which has Debian's packages
port=$("$python" -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
daemon_start metrics.port="$port" metrics.socket="$TMPDIR/metrics.sock"
"$BUILD/tierctl" context create odd.name-0 --preset tiny >/dev/null
for i in $(seq 39); do
	"$BUILD/tierctl" context create "c$i" --preset tiny >/dev/null
done
[ "$(stat -c %a "$TMPDIR/metrics.sock")" = 600 ] || { echo 'the socket is not 0600'; exit 1; }
"$python" tests/integration/metrics.py "$port" "$TMPDIR/metrics.sock" "$BUILD/tierctl"
if command -v promtool >/dev/null; then
	"$python" tests/integration/metrics.py --text "$port" | promtool check metrics
	echo 'promtool: no complaint'
else
	echo 'promtool: not installed, not asked'
fi
daemon_stop
[ ! -e "$TMPDIR/metrics.sock" ] || { echo 'the socket is left behind'; exit 1; }
