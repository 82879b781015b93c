#!/usr/bin/env bash
# Back-translation: a reverse model translates text of the target language, which becomes training data.
#
# The method is that of Sennrich et al., 2016. TRAIN, VALID, TEST: prefixes of raw text, PREFIX.en and PREFIX.de. MONO: a file
# with sentences of the target language, by default the target side of TRAIN; its new sources are paraphrases of the old ones
# (data diversification; Nguyen et al., 2020). REVERSE: a model folder from target to source; without it one is trained on
# TRAIN.
# Variables: WORK (output folder, by default runs/back-translation), NMT (the command, by default nmt), PYTHON (a Python that
# has nmt), SOURCE_LANG and TARGET_LANG (en, de), CONFIG (settings for training, by default settings.toml), WEIGHTS (of the
# corpora `pairs` and `back`), TAG (the first word of each source that the model wrote; Caswell et al., 2019), SEARCH (flags for
# translating MONO), VOCAB_SIZE, PREPARE (more flags of nmt prepare), LAST (checkpoints to average), TOKENIZE (of BLEU).
# Flags go to all training runs: `TRAIN=text/train VALID=text/val TEST=text/test MONO=news.de run.sh --threads 1`. To resume
# after an interruption, run the script again: it skips each step whose output exists, and stops at an output that was made with
# other settings.
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
: "${TRAIN:?name the prefix of the training text}" "${VALID:?}" "${TEST:?}"
work=${WORK:-$PWD/runs/back-translation} config=${CONFIG:-$here/settings.toml}
src=${SOURCE_LANG:-en} trg=${TARGET_LANG:-de} tag=${TAG:-<BT>}
words search "${SEARCH:---beam-size 5}"
mono=${MONO:-$TRAIN.$trg} back=$work/text/back
mkdir -p "$work/text"
readable "$mono" "$TRAIN".{"$src","$trg"} "$VALID".{"$src","$trg"} "$TEST".{"$src","$trg"}

# model FOLDER FLAG...: train in FOLDER on FOLDER/data, and average the checkpoints.
model() {
    local folder=$1
    shift
    step "$folder/model" "${nmt[@]}" train --data "$folder/data" --output "$folder/run" --config "$config" \
        --keep-last "${LAST:-10}" "$@"
    step "$folder/model" "${nmt[@]}" average --run "$folder/run" --last "${LAST:-10}" --output "$folder/model"
}

reverse=${REVERSE:-$work/reverse/model}
if [[ -z ${REVERSE:-} ]]; then
    step "$work/reverse/data" "${nmt[@]}" prepare --source-lang "$trg" --target-lang "$src" --train "$TRAIN" --valid "$VALID" \
        --vocab-size "${VOCAB_SIZE:-8000}" --normalization nfkc --output "$work/reverse/data" "${prepare_flags[@]}"
    model "$work/reverse" "$@"
fi
step "$work/text/written.$src" "${nmt[@]}" translate --model "$reverse" --input "$(realpath "$mono")" --output "$work/text/written.$src" \
    "${search[@]}"
awk -v tag="$tag" '{ print NF ? tag " " $0 : "" }' "$work/text/written.$src" >"$back.$src"
ln -sf "$(realpath "$mono")" "$back.$trg"
step "$work/data" "${nmt[@]}" prepare --source-lang "$src" --target-lang "$trg" --train "pairs=$TRAIN" --train "back=$back" \
    --valid "$VALID" --user-symbols "$tag" --vocab-size "${VOCAB_SIZE:-8000}" --normalization nfkc --output "$work/data" \
    "${prepare_flags[@]}"
model "$work" --data-weights "${WEIGHTS:-pairs=1 back=1}" "$@"
step "$work/test.$trg" "${nmt[@]}" translate --model "$work/model" --input "$TEST.$src" --output "$work/test.$trg" --beam-size 5

echo
figure "back-translation $src-$trg" "BLEU" ""
scores=$(bleu "$work/test.$trg" "$TEST.$trg" --tokenize "${TOKENIZE:-13a}")
figure "test" "${scores%%  *}" ""
echo "signature: ${scores##*  }"
