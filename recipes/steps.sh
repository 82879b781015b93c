# Functions of the recipes: steps that are skipped when done, and a table of figures. To be sourced.
# shellcheck shell=bash

read -ra nmt <<<"${NMT:-nmt}" # the command, perhaps with arguments
# shellcheck disable=SC2034 # of the recipes
read -ra prepare_flags <<<"${PREPARE:-}" # more flags of nmt prepare
SECONDS=0

# step OUTPUT COMMAND...: run the command unless its output exists. A file that a command wrote before it failed is renamed, so that
# the next call does the step again.
step() {
    local output=$1
    shift
    if [[ -e $output ]]; then
        echo "== $output exists: skipped" >&2
        return
    fi
    echo "== after $SECONDS s: $*" >&2
    "$@" || {
        local code=$?
        [[ ! -f $output ]] || mv -f "$output" "$output.failed"
        return "$code"
    }
}

# bleu HYPOTHESIS REFERENCE [FLAG...]: "BLEU  signature" of a file of translations, by sacreBLEU.
bleu() {
    local hypothesis=$1 reference=$2
    shift 2
    "${nmt[@]}" evaluate --hypothesis "$hypothesis" --reference "$reference" --metrics bleu "$@" | sed -E 's/^BLEU = //'
}

# figure NAME VALUE EXPECTED: print a row of the table at the end of a recipe.
figure() {
    printf '%-44s %-28s %s\n' "$1" "$2" "$3"
}
