#!/bin/bash
# Goal: the completion offers what the program takes, wherever the cursor is.
# Usage: test_completion.sh build/plant-store
set -uo pipefail
program=$(realpath "$1")
# shellcheck source=deploy/completion/plant-store
. "$(dirname "$0")/../../deploy/completion/plant-store"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PLANT_STORE_TOKENS=$work/tokens PLANT_STORE_ENVIRONMENT=/nonexistent
passed=0 failed=0

# offers SENTENCE EXPECTED WORD...: with the cursor at the end of the last word
offers() {
	local sentence=$1 expected=$2 offered
	shift 2
	COMP_WORDS=(plant-store "$@") COMP_CWORD=$# COMPREPLY=()
	_plant_store "$program" "${!#}" ''
	offered=$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort -u | paste -sd ' ')
	if [[ $offered == "$expected" ]]; then
		echo "ok - $sentence"
		passed=$((passed + 1))
	else
		echo "not ok - $sentence: expected '$expected', got '$offered'"
		failed=$((failed + 1))
	fi
}

# What the program itself says, by another way than the completion reads it.
subcommands=$("$program" --help | awk '/^[a-z]/ { print $1 }' |
	LC_ALL=C sort | paste -sd ' ')
offers "every subcommand, and the two options" \
	"--help --version $subcommands" ''
offers "a subcommand that has begun" verify ver
offers "one whose help is wanted" verify help ver
offers "the actions of token" "add list renew revoke" token ''
offers "an action that has begun" revoke token rev
offers "the options of token" "--expires --file --help --old --overlap" token add --
for sub in $subcommands; do
	[[ $sub != help ]] || continue
	# Whatever an option is called, the program knows it.
	COMP_WORDS=(plant-store "$sub" --) COMP_CWORD=2
	_plant_store "$program" -- ''
	unknown=''
	for option in "${COMPREPLY[@]}"; do
		"$program" "$sub" "$option" 2>&1 </dev/null |
			grep -q 'unknown option' && unknown+=" $option"
	done
	if ((${#COMPREPLY[@]})) && [[ ! $unknown ]]; then
		echo "ok - $sub takes the ${#COMPREPLY[@]} options that are offered"
		passed=$((passed + 1))
	else
		echo "not ok - $sub: ${COMPREPLY[*]}; unknown:$unknown"
		failed=$((failed + 1))
	fi
done

offers "no token where there is no file" "" token revoke ''
"$program" token add nursery >/dev/null && "$program" token add garden >/dev/null
offers "the tokens that can be revoked" "garden nursery" token revoke ''
offers "one of them" garden token revoke g
offers "the tokens that can be renewed" "garden nursery" token renew ''
offers "no token where a new name is wanted" "" token add ''
"$program" token add other --file "$work/file" >/dev/null
offers "the tokens of the file that is named" other \
	token --file "$work/file" revoke ''
offers "the tokens whose plants can be put out" "garden nursery" export --by ''
offers "the formats of export" "csv jsonl" export --format ''
offers "the formats of import" csv import --format c
mkdir "$work/directory"
cd "$work" || exit 1
offers "directories for a directory" directory backup --dir ''
offers "with = as well" directory backup --dir = d
offers "files for a file" "directory file tokens" export -o ''
offers "files for a socket" "directory file tokens" check --socket ''
offers "directories and files of a store to check" "directory file tokens" verify ''
offers "a directory to copy to" directory backup ''
offers "a directory for a new store" directory init ''
offers "nothing where an id is wanted" "" get ''
offers "nothing for an unknown subcommand" "" nothing ''

echo "$passed passed, $failed failed"
((failed == 0))
