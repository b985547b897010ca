#!/usr/bin/env bash
# Each command that docs/reliability.md names is there: its make target, and the tests it runs.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

commands=$(grep -o '`make [^`]*`' docs/reliability.md | tr -d '`' | sort -u)
[ "$(wc -l <<<"$commands")" -ge 12 ]
while read -r _ target rest; do
	grep -q "^$target:\|^\.PHONY:.*\<$target\>" Makefile bench/module.mk \
		cuda/module.mk tests/*/module.mk ||
		{ echo "no target $target"; exit 1; }
	case $rest in
	TESTS=*)
		for name in $(tr -d "'" <<<"${rest#TESTS=}"); do
			[ -f "tests/integration/$name.c" ] || [ -f "tests/unit/$name.c" ] ||
				[ -f "tests/integration/$name.sh" ] ||
				{ echo "no test $name"; exit 1; }
		done ;;
	VM=*)
		[ -f "tests/vm/guest/${rest#VM=}.sh" ] || { echo "no guest test $rest"; exit 1; } ;;
	ONLY=*)
		grep -q "^  ${rest#ONLY=} " <<<"$("$BUILD/tierbench" --help)" ||
			{ echo "no workload $rest"; exit 1; } ;;
	esac
done <<<"$commands"
grep -q 'check' <<<"$("$BUILD/tierctl" --help)"
