# What the recipes share: steps that are not done twice, and figures beside what is expected of them. To be sourced.
# shellcheck shell=bash

read -ra nmt <<<"${NMT:-nmt}" # the command, perhaps with arguments
SECONDS=0

# step OUTPUT COMMAND...: run the command, unless its output stands already.
step() {
    local output=$1
    shift
    if [[ -e $output ]]; then
        echo "== $output stands" >&2
        return
    fi
    echo "== after $SECONDS s: $*" >&2
    "$@"
}

# bleu HYPOTHESIS REFERENCE [FLAG...]: "BLEU  signature" of a file of translations, by sacreBLEU.
bleu() {
    local hypothesis=$1 reference=$2
    shift 2
    "${nmt[@]}" evaluate --hypothesis "$hypothesis" --reference "$reference" --metrics bleu "$@" | sed -E 's/^BLEU = //'
}

# figure NAME FOUND EXPECTED: a line of the table that a recipe ends with.
figure() {
    printf '%-44s %-28s %s\n' "$1" "$2" "$3"
}
