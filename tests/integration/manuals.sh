#!/usr/bin/env bash
# The manuals tell of every option, verb, key and workload that the programs know, and of no others;
# so do the sample configuration and the completion.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

status=0
wrong() {
	echo "manuals: $*" >&2
	status=1
}

# What a manual says, without its marks.
plain() {
	sed -E 's/\\-/-/g; s/\\f[A-Z]//g; s/"//g; s/^\.[A-Z]+ ?//' "$1"
}

# options: those that stand in a text, one a line.
options() {
	grep -oE -e '--[a-z][a-z-]+' | sort -u
}

# each_in WHAT WHERE < words: all of them stand there as words.
each_in() {
	local word
	while read -r word; do
		grep -qE -e "(^|[^a-z-])${word//./\\.}([^a-z_-]|$)" <<<"$2" || wrong "$1: $word"
	done
}

for name in tierd:docs/man/tierd.8 tierctl:docs/man/tierctl.1 tierbench:docs/man/tierbench.1 \
	tierd-net:docs/man/tierd-net.8; do
	program=${name%%:*} manual=$(plain "${name#*:}")
	help=$("$BUILD/$program" --help)
	# Options of a verb stand in a table of its own.
	[ "$program" != tierctl ] || help+=$(grep -oE '\{ "[a-z-]+", [01], NULL' tierd/ctl/*.c |
		sed -E 's/.*"([a-z-]+)".*/ --\1/')
	each_in "not in the manual of $program" "$manual" < <(options <<<"$help")
	# Of the demo's own options its manual tells only where they are told.
	[ "$program" != tierbench ] || help+=$("$BUILD/tierbench" demo --help)
	each_in "only in the manual of $program" "$help" < <(options <<<"$manual")
done

# Keys: help, manual and sample file have the same.
keys=$("$BUILD/tierd" --help | sed -nE '/^keys/,$s/^  ([a-z][a-z_.]*) .*/\1/p' | sort)
[ -n "$keys" ] || wrong 'tierd --help lists no keys'
told=$(sed -nE '/^\.SH CLIENTS/,/^\.SH EXAMPLE/s/^\.B ([a-z][a-z_.]*)$/\1/p' docs/man/tierd.conf.5 |
	grep -vxE 'yes|no|debug|error|warn|info|auto|numa|memfd|module|cuda|host' | sort -u)
[ "$keys" = "$told" ] || wrong "keys: $(diff <(echo "$keys") <(echo "$told") | grep '^[<>]')"
sample=$(sed -nE 's/^#?([a-z][a-z_.]*) = .*/\1/p' tierd/tierd.conf | sort -u)
[ "$keys" = "$sample" ] || wrong "sample: $(diff <(echo "$keys") <(echo "$sample") | grep '^[<>]')"

# Verbs and workloads.
manual=$(sed -E 's/^\.[A-Z]+ "?//' docs/man/tierctl.1)
second='list|show|create|remove|epoch|share|unshare|locate|set|forget|get|put'
while read -r verb; do
	grep -qE "^$verb( |\"|$)" <<<"$manual" || wrong "tierctl $verb is not in its manual"
	for word in $verb; do
		grep -qw -- "$word" tierd/ctl/tierctl.bash || wrong "$word is not completed"
	done
done < <("$BUILD/tierctl" --help |
	sed -nE 's/^  ([a-z]+( ('"$second"'))?).*/\1/p')
each_in 'not in the manual of tierbench' "$(plain docs/man/tierbench.1)" \
	< <("$BUILD/tierbench" --help | sed -nE '/^Measures/,/^$/s/^  ([a-z]+) .*/\1/p')
exit "$status"
