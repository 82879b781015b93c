#!/usr/bin/env bash
# Students: small, fast models learn from a teacher's translations; a table compares BLEU and speed.
#
# The method is that of Kim and Rush, 2016. TEACHER: a model folder. TRAIN, VALID, TEST: prefixes of raw text, PREFIX.en and
# PREFIX.de.
# Variables: WORK (output folder, by default runs/students), NMT (the command, by default nmt), PYTHON (a Python that has nmt),
# SOURCE_LANG and TARGET_LANG (en, de), STUDENTS (names of the .toml files next to this script), LAYERS (how many of the teacher's
# decoder layers `cut` keeps; 2), LAST (checkpoints to average), ROUNDS (of the timing), TOKENIZE (of BLEU), PREPARE (more flags
# of nmt prepare), SEARCH (more flags for all searches), FURTHER (a file with more source text for the teacher to translate),
# SPLICED and JOINED (lines of new text, by new_text.py, for the teacher to translate; 0), VOCABULARY (the model whose
# vocabulary the students use; the teacher by default; none: learn a vocabulary), DATA (prepared data, in place of TRAIN, VALID,
# PREPARE, VOCABULARY and all translations).
# With different text, data or vocabulary, use a different WORK. Without matplotlib, there is no figure.
# Flags go to nmt train: `TEACHER=model TRAIN=text/train VALID=text/val TEST=text/test run.sh --threads 1`. To resume after an
# interruption, run the script again: it skips each step whose output exists, and stops at an output that was made with other
# settings.
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
work=${WORK:-$PWD/runs/students}
: "${TEACHER:?name a model folder}" "${TEST:?name the prefix of the test set}"
words students "${STUDENTS:-cut base tiny ssru}"
words search "${SEARCH:-}"
src=${SOURCE_LANG:-en} trg=${TARGET_LANG:-de}
data=${DATA:-$work/data}
mkdir -p "$work/text"
if [[ -n ${DATA:-} ]]; then
    readable "$DATA/data.json"
else
    : "${TRAIN:?name the prefix of the training text, or DATA}" "${VALID:?}"
    readable "$TRAIN.$src" "$VALID".{"$src","$trg"}
fi
readable "$TEST".{"$src","$trg"} ${FURTHER:+"$FURTHER"}
for student in "${students[@]}"; do readable "$here/$student.toml"; done
cut=$work/cut-${LAYERS:-2}
if [[ " ${students[*]} " == *" cut "* ]]; then # refuse an unsuitable teacher before hours of translation
    [[ -n ${DATA:-} || ${VOCABULARY:-$TEACHER} == "$TEACHER" ]] || {
        echo "VOCABULARY cannot be set, because the student cut keeps its teacher's (remove cut from STUDENTS)" >&2 && exit 2
    }
    [[ ! -d $TEACHER/checkpoints ]] || { echo "$TEACHER is a run, but the student cut needs a model folder" >&2 && exit 2; }
    step "$cut/start" "${nmt[@]}" export --model "$TEACHER" --format model --decoder-layers "${LAYERS:-2}" --output "$cut/start"
fi

# teach TEXT: the teacher translates TEXT.$src.
teach() {
    step "$1.$trg" "${nmt[@]}" translate --model "$TEACHER" --input "$(realpath "$1.$src")" --output "$1.$trg" --beam-size 5 \
        "${search[@]}"
}
# parts OUTPUT COMMAND...: write new text made of parts of the training text.
parts() {
    local output=$1
    shift
    step "$output" "$python" "$here/new_text.py" "$@" --output "$output"
}

# translations: prepare data from the teacher's translations of the training text and of more text.
translations() {
    local taught=$work/text/taught further spliced phrases joined texts vocabulary
    ln -sf "$(realpath "$TRAIN.$src")" "$taught.$src"
    teach "$taught"
    texts=("$taught")
    if [[ -n ${FURTHER:-} ]]; then
        further=$work/text/further
        ln -sf "$(realpath "$FURTHER")" "$further.$src"
        teach "$further"
        texts+=("$further")
    fi
    if [[ ${SPLICED:-0} != 0 ]]; then
        spliced=$work/text/spliced
        parts "$spliced.$src" splice --input "$TRAIN.$src" --count "$SPLICED"
        teach "$spliced"
        texts+=("$spliced")
    fi
    if [[ ${JOINED:-0} != 0 ]]; then
        phrases=$work/text/phrases joined=$work/text/joined
        parts "$phrases.$src" phrases --input "$TRAIN.$src"
        teach "$phrases"
        parts "$joined.$src" join --source "$phrases.$src" --target "$phrases.$trg" --count "$JOINED" --side source
        parts "$joined.$trg" join --source "$phrases.$src" --target "$phrases.$trg" --count "$JOINED" --side target
        texts+=("$joined")
    fi
    vocabulary=(--vocabulary "${VOCABULARY:-$TEACHER}")
    [[ ${VOCABULARY:-} != none ]] || vocabulary=(--normalization nfkc)
    step "$data" "${nmt[@]}" prepare --source-lang "$src" --target-lang "$trg" "${vocabulary[@]}" \
        "${texts[@]/#/--train=}" --valid "$VALID" --output "$data" "${prepare_flags[@]}"
}

[[ -n ${DATA:-} ]] || translations
step "$work/shortlist" "${nmt[@]}" shortlist --data "$data" --output "$work/shortlist"
models=("teacher=$TEACHER")
for student in "${students[@]}"; do
    folder=$work/$student start=()
    if [[ $student == cut ]]; then
        folder=$cut start=(--init-from "$cut/start")
        [[ " $* " =~ \ --teacher[\ =] ]] || start+=(--teacher "$TEACHER")
    fi
    step "$folder/model" "${nmt[@]}" train --data "$data" --output "$folder/run" --config "$here/$student.toml" \
        --keep-last "${LAST:-5}" "${start[@]}" "$@"
    step "$folder/model" "${nmt[@]}" average --run "$folder/run" --last "${LAST:-5}" --output "$folder/model"
    models+=("${folder##*/}=$folder/model")
done
plot=(--plot "$work/students.svg")
"$python" -c "import matplotlib" 2>/dev/null || plot=()
"$python" "$here/compare.py" --nmt "${NMT:-nmt}" --source "$TEST.$src" --reference "$TEST.$trg" --work "$work/test" \
    --shortlist "$work/shortlist" --tokenize "${TOKENIZE:-13a}" --rounds "${ROUNDS:-3}" --search="${SEARCH:-}" \
    "${plot[@]}" "${models[@]}"
((${#plot[@]})) || echo "no figure: matplotlib is not installed" >&2
