#!/usr/bin/env bash
# Little data: a model of both directions translates the training text, and is trained further on these pairs too, in one direction.
#
# 1. A model is trained on each pair both ways (Ding et al., 2021; here a tag at the beginning of a source asks for the reverse).
# 2. It translates both sides of the training text: the most probable translations of each, and samples of the source side. They
#    are further pairs (data diversification; Nguyen et al., 2020, who train several models for it).
# 3. From its weights a model of one direction is trained on all of them.
# TRAIN, VALID, TEST: prefixes of raw text, PREFIX.en and PREFIX.de.
# Variables: WORK (folder of all output), NMT, PYTHON (with nmt installed), SOURCE_LANG and TARGET_LANG (en, de), CONFIG (settings of
# both trainings), BIDIRECTIONAL and FINAL (more flags of the first and of the second), WEIGHTS (of the corpora `pairs`, `taught`,
# `back` and `sampled` in the second), SAMPLES (of each source, 1 or more), VOCAB_SIZE, PREPARE (more flags of the first nmt prepare;
# the second takes its text settings from the model), LAST (checkpoints to average), TOKENIZE (of BLEU), SEARCH (flags of the
# translation of the test set). With other text WORK must be another folder.
# Flags go to both trainings: `TRAIN=text/train VALID=text/val TEST=text/test run.sh --devices 2 --threads 1`.
# A step whose output exists is skipped; training continues where it stopped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
: "${TRAIN:?name the prefix of the training text}" "${VALID:?}" "${TEST:?}"
work=${WORK:-$root/runs/small-data} config=${CONFIG:-$here/settings.toml}
src=${SOURCE_LANG:-en} trg=${TARGET_LANG:-de}
tag="<2$src>"
((${SAMPLES:-2} >= 1)) || { echo "SAMPLES is $SAMPLES; wanted 1 or more" >&2 && exit 2; }
read -ra bidirectional <<<"${BIDIRECTIONAL:-}"
read -ra final <<<"${FINAL:-}"
read -ra search <<<"${SEARCH:---beam-size 5 --length-penalty average --alpha 1}"
text=$work/text
mkdir -p "$text"

# model NAME FLAG...: train in $work/NAME on its data, average, and translate the test set.
model() {
    local folder=$work/$1
    shift
    step "$folder/model" "${nmt[@]}" train --data "$folder/data" --output "$folder/run" --config "$config" \
        --keep-last "${LAST:-4}" "$@"
    step "$folder/model" "${nmt[@]}" average --run "$folder/run" --last "${LAST:-4}" --output "$folder/model"
    step "$folder/test" "${nmt[@]}" translate --model "$folder/model" --input "$TEST.$src" --output "$folder/test" "${search[@]}"
}
# write INPUT OUTPUT FLAG...: translate by the bidirectional model.
write() {
    local input=$1 output=$2
    shift 2
    step "$output" "${nmt[@]}" translate --model "$work/bidirectional/model" --input "$input" --output "$output" "$@"
}

# awk 1 adds the end of the last line where it is missing.
awk -v tag="$tag" '{ print tag, $0 }' "$TRAIN.$trg" >"$text/tagged"
awk 1 "$TRAIN.$src" "$text/tagged" >"$text/both.$src"
awk 1 "$TRAIN.$trg" "$TRAIN.$src" >"$text/both.$trg"
step "$work/bidirectional/data" "${nmt[@]}" prepare --source-lang "$src" --target-lang "$trg" --train "$text/both" --valid "$VALID" \
    --user-symbols "$tag" --vocab-size "${VOCAB_SIZE:-5000}" --output "$work/bidirectional/data" "${prepare_flags[@]}"
model bidirectional "$@" "${bidirectional[@]}"

ln -sf "$(realpath "$TRAIN.$src")" "$text/taught.$src"
ln -sf "$(realpath "$TRAIN.$trg")" "$text/back.$trg"
write "$TRAIN.$src" "$text/taught.$trg" --beam-size 5
write "$text/tagged" "$text/back.$src" --beam-size 5
sources=() targets=()
for ((sample = 1; sample <= ${SAMPLES:-2}; sample++)); do
    write "$text/tagged" "$text/sample-$sample" --decoder sampling --top-p 0.9 --sampling-seed "$sample"
    sources+=("$text/sample-$sample") targets+=("$TRAIN.$trg")
done
awk 1 "${sources[@]}" >"$text/sampled.$src"
awk 1 "${targets[@]}" >"$text/sampled.$trg"
step "$work/final/data" "${nmt[@]}" prepare --source-lang "$src" --target-lang "$trg" --vocabulary "$work/bidirectional/model" \
    --train "pairs=$TRAIN" --train "taught=$text/taught" --train "back=$text/back" --train "sampled=$text/sampled" \
    --valid "$VALID" --output "$work/final/data"
model final --init-from "$work/bidirectional/model" \
    --data-weights "${WEIGHTS:-pairs=2 taught=1 back=1 sampled=1}" "$@" "${final[@]}"

echo
figure "little data, $src-$trg" "BLEU" ""
for name in bidirectional final; do
    scores=$(bleu "$work/$name/test" "$TEST.$trg" --tokenize "${TOKENIZE:-13a}")
    figure "$name" "${scores%%  *}" ""
done
echo "signature: ${scores##*  }"
