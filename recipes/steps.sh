# Functions of the recipes: steps that are skipped when done, and a table of figures. To be sourced.
# shellcheck shell=bash

# words NAME TEXT: set the array NAME to the words of TEXT. Quotes keep words with spaces together.
words() {
    xargs -r printf '%s\0' <<<"$2" >/dev/null || { echo "missing closing quote: $2" >&2 && exit 2; }
    mapfile -d '' -t "$1" < <(xargs -r printf '%s\0' <<<"$2")
}

words nmt "${NMT:-nmt}" # the command, possibly with arguments
# shellcheck disable=SC2034 # the recipes use them
words prepare_flags "${PREPARE:-}" # more flags of nmt prepare
SECONDS=0

# python_of COMMAND: the Python next to a command, or next to the file that it links to; otherwise the first on PATH.
python_of() {
    local file folder
    file=$(command -v "$1") || { echo python3 && return; }
    for folder in "$(dirname "$file")" "$(dirname "$(readlink -f "$file")")"; do
        [[ ! -x $folder/python3 ]] || { echo "$folder/python3" && return; }
    done
    echo python3
}
# shellcheck disable=SC2034 # the recipes use it
python=${PYTHON:-$(python_of "${nmt[0]}")} # a Python that has nmt

# readable FILE...: end with a message if a file that a later step needs cannot be read.
readable() {
    local file
    for file; do
        [[ -r $file ]] || { echo "$file: not a file, or not readable" >&2 && exit 2; }
    done
}

# read_seeds NAME VARIABLE DEFAULT: set the array NAME to the seeds of a variable of the recipe, which must differ.
read_seeds() {
    local text=${!2:-$3}
    read -ra "$1" <<<"$text"
    if [[ ! $text =~ ^[0-9\ ]*[0-9][0-9\ ]*$ || -n $(tr -s ' ' '\n' <<<"$text" | sort | uniq -d) ]]; then
        echo "$2 is '$text', but must be different numbers" >&2 && exit 2
    fi
}

# no_seed FLAG...: the recipe sets the seeds of its trainings, so its flags must not.
no_seed() {
    [[ " $*" != *" --seed"* ]] || { echo "--seed: set SEEDS instead" >&2 && exit 2; }
}

# step OUTPUT COMMAND...: run the command unless its output exists. A file that a command wrote before it failed is renamed, so that
# the next call repeats the step. The command is recorded next to the output. If the output was made by a different command, that
# is an error; only the number of devices and threads may differ. After `nmt train --dry-run` the recipe ends, because the
# next steps need the model. The CPU time of the command is appended to .NAME.cpu next to the output.
step() {
    local output=$1 record command
    shift
    if [[ " $* " == *" --dry-run "* ]]; then
        "$@"
        exit
    fi
    record=$(dirname "$output")/.$(basename "$output").commands
    command=$*
    command=$(sed -E 's/ --(threads|devices?)[= ][^ ]+//g' <<<"${command#"${nmt[*]} "}")
    if [[ -e $output ]]; then
        [[ ! -e $record ]] || grep -qxF -- "$command" "$record" || {
            echo "$output was made with different settings (remove it, or choose another WORK). Now: $command. Before:" >&2
            cat "$record" >&2
            exit 2
        }
        echo "== $output exists: skipped" >&2
        return
    fi
    local others=""
    [[ ! -e $record ]] || others=$(awk -v name="${command%% *}" '$1 != name' "$record") # commands of this output: train, average
    mkdir -p "$(dirname "$output")"
    printf '%s\n' ${others:+"$others"} "$command" >"$record"
    echo "== after $SECONDS s: $*" >&2
    timed "$(dirname "$output")/.$(basename "$output").cpu" "$@" || {
        local code=$?
        [[ ! -f $output ]] || mv -f "$output" "$output.failed"
        return "$code"
    }
}

# timed FILE COMMAND...: run the command, and append its user and system seconds to FILE, even if a signal ends it.
timed() {
    local file=$1 code=0 stopped="" TIMEFORMAT="%U %S"
    shift
    trap 'stopped=130' INT
    trap 'stopped=143' TERM
    { time "$@" 2>&3; } 3>&2 2>>"$file" || code=$?
    trap - INT TERM
    [[ -z $stopped ]] || exit "$stopped"
    return "$code"
}

# write FILE COMMAND...: write what a command prints to a file, complete or not at all.
write() {
    local file=$1
    shift
    "$@" >"$file.partial"
    mv "$file.partial" "$file"
}

# translate_sets FOLDER: with FOLDER/model, translate the development and test sets to FOLDER/valid and FOLDER/test, and write the
# BLEU of each to a .json file next to it. The recipe sets valid and test (prefixes of text), src, trg, search (flags) and tokenize.
translate_sets() {
    local set output
    for set in valid test; do
        output=$1/$set
        # shellcheck disable=SC2154
        step "$output" "${nmt[@]}" translate --model "$1/model" --input "${!set}.$src" --output "$output" "${search[@]}"
        [[ $output.json -nt $output ]] || write "$output.json" \
            "${nmt[@]}" evaluate --hypothesis "$output" --reference "${!set}.$trg" --metrics bleu --json --tokenize "$tokenize"
    done
}

# against OUTPUT BASELINE FOLDER: write a paired bootstrap test of the translations of the test set in two folders to OUTPUT.
against() {
    # shellcheck disable=SC2154
    [[ $1 -nt $2/test && $1 -nt $3/test ]] || write "$1" \
        "${nmt[@]}" evaluate --hypothesis "$2/test" "$3/test" --reference "$test.$trg" --metrics bleu \
        --significance bootstrap --json --tokenize "$tokenize"
}

# curves RUN...: draw the development perplexity of runs to $work/valid_ppl.svg.
curves() {
    if "$python" -c "import matplotlib" 2>/dev/null; then
        "${nmt[@]}" plot "$@" --values valid_ppl --output "$work/valid_ppl.svg" >&2
    else
        echo "no figure: matplotlib is not installed" >&2
    fi
}

# bleu HYPOTHESIS REFERENCE [FLAG...]: print "BLEU  signature" for a file of translations, by sacreBLEU.
bleu() {
    local hypothesis=$1 reference=$2
    shift 2
    "${nmt[@]}" evaluate --hypothesis "$hypothesis" --reference "$reference" --metrics bleu "$@" | sed -E 's/^BLEU = //'
}

# figure NAME VALUE EXPECTED: print a row of the table at the end of a recipe.
figure() {
    printf '%-44s %-28s %s\n' "$1" "$2" "$3"
}
