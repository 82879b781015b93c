#!/usr/bin/env bash
# Constituency parsing: from a treebank to bracketing F1, as in section 6.3 of "Attention Is All You Need".
#
# TREES: a folder with train.trees, dev.trees and optionally test.trees, plain or .gz: Penn trees, one per line, without traces
# and function tags. Without it, grammar.py makes a small treebank.
# MODEL: transformer (the default; 4 layers, for a CPU), lstm (an LSTM with attention, for a CPU) or paper (4 layers, d_model 1024).
# FORM: how a tree is written: pairs (two tokens per word, see pairs.py; the default of transformer) or brackets.
# PARSE: a file of sentences without trees, plain or .gz, with a space between words; the trees are written to parsed-SEEDS.trees.
# Variables: WORK (output folder, by default runs/parsing), NMT (the command, by default nmt), PYTHON (a Python that has nmt),
# SEEDS ("1"; several seeds make an ensemble), ENCODER (0.5, the weight of the encoder's own predictions in training and search;
# only with MODEL=transformer in pairs), VOCAB_SIZE (of words), LAST (checkpoints to average), TAGS=1 (keep the tags of all words
# in brackets), TRAIN and TEST (numbers of trees that grammar.py makes).
# Flags go to nmt train: `MODEL=paper TREES=wsj run.sh --device cuda`. To resume after an interruption, run the script again: it
# skips each step whose output exists, and stops at an output that was made with other settings.
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
size=${MODEL:-transformer} form=${FORM:-brackets}
work=${WORK:-$PWD/runs/parsing${TREES:+-${TREES##*/}}}
case $size in
transformer) settings=(--config "$here/settings.toml") form=${FORM:-pairs} vocabulary=8000 length=256 ;;
lstm) settings=(--config "$here/lstm.toml") vocabulary=8000 length=256 ;;
paper) settings=(--preset transformer-parsing --config "$here/paper.toml") vocabulary=16000 length=512 ;;
*) echo "MODEL is '$size', but must be transformer, lstm or paper" >&2 && exit 2 ;;
esac
case $form in
brackets) prepare=() tags=${TAGS:+--tags} search=(--decoder tree-beam --beam-size 21 --alpha 0.3 --max-len-b 300) pairs="" ;;
pairs) prepare=(--subword none) tags=--tags search=(--decoder pair-beam --beam-size 21 --alpha 0 --max-len-b 0) pairs=.pairs ;;
*) echo "FORM is '$form', but must be pairs or brackets" >&2 && exit 2 ;;
esac
encoder=${ENCODER:-0.5}
if [[ $size-$form == transformer-pairs && $encoder != 0 ]]; then
    settings+=(--encoder-weight "$encoder") search+=(--plugin "$here/encoder_share.py" --encoder-share "$encoder")
fi
read_seeds seeds SEEDS 1
no_seed "$@"
trees=${TREES:-$work/trees} published='91.3/92.7 WSJ'
if [[ -z ${TREES:-} ]]; then
    step "$trees/train.trees" "$python" "$here/grammar.py" --train "${TRAIN:-8000}" --test "${TEST:-500}" --output "$trees"
    settings+=(--config "$here/grammar.toml") vocabulary=300 published=none
fi
[[ -z $pairs ]] || vocabulary=16000 length=512 # whole words, and two tokens for each
text=$work/text-$form folder=$work/$size-$form
data=$folder/data models=() suffix=$(IFS=- && echo "${seeds[*]}")

# as_pairs NAME: write the words and trees of a set with two tokens per word, if FORM is pairs.
as_pairs() {
    [[ -z $pairs ]] || step "$text/$1.pairs.words" "$python" "$here/pairs.py" write "$text/$1" "$text/$1.pairs"
}
# parse NAME: write the trees of a set, in brackets to NAME-SEEDS.tree and with their words to NAME-SEEDS.trees.
parse() {
    local output=$folder/$1-$suffix
    step "$output$pairs.tree" "${nmt[@]}" translate "${models[@]}" --input "$text/$1$pairs.words" --output "$output$pairs.tree" \
        --plugin "$here/tree_beam.py" "${search[@]}" --max-len-a 1
    [[ -z $pairs ]] || step "$output.tree" "$python" "$here/pairs.py" read "$output$pairs.tree" "$output.tree"
    step "$output.trees" "$python" "$here/trees.py" restore "$text/$1.words" "$output.tree" "$output.trees"
}

test=dev
for set in train dev test; do
    for file in "$trees/$set.trees" "$trees/$set.trees.gz"; do
        [[ -e $file ]] || continue
        step "$text/$set.tree" "$python" "$here/trees.py" linearise ${tags:+"$tags"} "$file" "$text/$set"
        as_pairs "$set"
        [[ $set == train ]] || test=$set
    done
done
step "$data" "${nmt[@]}" prepare --source-lang words --target-lang tree --train "$text/train$pairs" --valid "$text/dev$pairs" \
    --no-joint-vocabulary --vocab-size "${VOCAB_SIZE:-$vocabulary}" --normalization nfkc --target-normalization none \
    --target-subword none --max-length "$length" "${prepare[@]}" \
    --column "alignment:links=$text/train$pairs.align" --output "$data"
for seed in "${seeds[@]}"; do
    model=$folder/model-$seed run=$folder/run-$seed
    step "$model" "${nmt[@]}" train --data "$data" --output "$run" "${settings[@]}" --keep-last "${LAST:-5}" --seed "$seed" "$@"
    step "$model" "${nmt[@]}" average --run "$run" --last "${LAST:-5}" --output "$model"
    models+=(--model "$model")
done
parse "$test"
if [[ -n ${PARSE:-} ]]; then
    readable "$PARSE"
    step "$text/parsed.words" "$python" "$here/trees.py" words "$PARSE" "$text/parsed.words"
    as_pairs parsed
    parse parsed
fi

echo
scores=$("${nmt[@]}" evaluate --hypothesis "$folder/$test-$suffix.tree" --reference "$text/$test.tree" --metrics bracket-f1)
figure "$test: $(wc -l <"$text/$test.tree") trees" "" "published"
figure "labelled bracketing F1, $size, $form" "${scores%%  *}" "$published"
echo "signature: ${scores##*  }"
head -n 3 "$folder/$test-$suffix.trees"
