# Completion of tierctl for bash: verbs, options, presets, and the names of contexts from the
# running daemon. Installed as share/bash-completion/completions/tierctl.
# SPDX-License-Identifier: Apache-2.0

_tierctl_contexts() {
	tierctl ${_tierctl_socket:+--socket "$_tierctl_socket"} --json context list 2>/dev/null |
		sed -n 's/^ *"name": "\([A-Za-z0-9._-]*\)".*/\1/p'
}

# What may follow in the text behind --part. Bash breaks it into words at : and =, so what is offered
# begins behind the last of these; false when the word at the cursor is no part.
_tierctl_part() {
	local line=${COMP_LINE:0:COMP_POINT} text typed before
	text=${line##* }
	line=${line% *}
	[ "${line##* }" = --part ] || return 1
	typed=${text##*[:=]}
	before=
	compopt -o nospace 2>/dev/null
	case $text in
	*,*)
		[ "$typed" = "${typed##*,}" ] || before=${typed%"${typed##*,}"}
		[ -n "$before" ] || return 0
		COMPREPLY=($(compgen -W "${before}last= ${before}layer= ${before}replicated" \
			-- "$typed")) ;;
	*:*:*) ;;
	*:*) COMPREPLY=($(compgen -W 'dense: sparse: follows: window: state: index:' \
		-- "$typed")) ;;
	esac
}

_tierctl() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=() i
	local _tierctl_socket=
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-s|--socket) _tierctl_socket=${COMP_WORDS[++i]:-} ;;
		-*) ;;
		*) words+=("${COMP_WORDS[i]}") ;;
		esac
	done
	_tierctl_part && return
	local list=
	case $prev in
	-s|--socket|-o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
	--policy) list='reuse lru' ;;
	--preset|--model) list='llama-3-70b llama-3.1-8b qwen3-30b-a3b msa-109b msa-428b tiny' ;;
	esac
	if [ -z "$list" ]; then
		case "${words[*]}" in
		'') list='status stat top context block object policy pin quota evict drain drive upgrade
			check doctor size
			events trace requests clients hosts
			--socket --json --help --version' ;;
		context) list='list show create remove epoch share unshare' ;;
		hosts) list='epoch forget' ;;
		block) list=locate ;;
		drive) list='drain forget keep' ;;
		'drive drain'|'drive forget') list='--no-wait' ;;
		object) list='list show get put remove' ;;
		pin) list=list ;;
		policy) list='set try' ;;
		'policy set '*|'policy try '*) list='reuse lru' ;;
		quota) list='show set' ;;
		'quota set '*) list="--client --salt --soft --hard --pins hbm cxl nvme
			$(_tierctl_contexts)" ;;
		top) list='--interval --count' ;;
		trace) list='--seconds --output' ;;
		events) list="--follow $(_tierctl_contexts)" ;;
		evict\ *\ *) ;;
		evict\ *) list='hbm cxl' ;;
		check) list='--repair --data --remove --objects' ;;
		'context show'|'context remove'|'context epoch'|'block locate'|'object list'|'object show'|\
		'object get'|'object put'|'object remove'|'quota show'|'policy set'|'policy try'|evict)
			list=$(_tierctl_contexts) ;;
		'context create '*) list='--preset --part --block-tokens --page-align --mode --hbm
			--cxl --nvme --blocks-max --fingerprint --policy' ;;
		esac
	fi
	COMPREPLY=($(compgen -W "$list" -- "$cur"))
}

complete -F _tierctl tierctl
