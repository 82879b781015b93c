#!/usr/bin/env bash
# Constituency parsing: from a treebank to bracketing F1, as in section 6.3 of "Attention Is All You Need".
#
# TREES: a folder with train.trees, dev.trees and optionally test.trees, plain or .gz: Penn trees, one per line, without traces
# and function tags. Without it, grammar.py makes a small treebank.
# MODEL: small (the default; for a CPU), lstm (an LSTM with attention; for a CPU) or paper (4 layers, d_model 1024).
# Variables: WORK (output folder, by default runs/parsing), NMT (the command, by default nmt), PYTHON (a Python that has nmt),
# VOCAB_SIZE (of words), LAST (checkpoints to average), TAGS=1 (keep the tags of all words in the target), TRAIN and TEST
# (numbers of trees that grammar.py makes).
# Flags go to nmt train: `MODEL=paper TREES=wsj run.sh --device cuda`. To resume after an interruption, run the script again: it
# skips each step whose output exists, and stops at an output that was made with other settings.
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
size=${MODEL:-small}
work=${WORK:-$PWD/runs/parsing${TREES:+-${TREES##*/}}}
text=$work/text data=$work/data-$size model=$work/$size/model vocabulary=8000 length=256
case $size in
small) settings=(--config "$here/settings.toml") ;;
lstm) settings=(--config "$here/lstm.toml") ;;
paper) settings=(--preset transformer-parsing --config "$here/paper.toml") vocabulary=16000 length=512 ;;
*) echo "MODEL is '$size', but must be small, lstm or paper" >&2 && exit 2 ;;
esac
trees=${TREES:-$work/trees} published='91.3/92.7 WSJ'
if [[ -z ${TREES:-} ]]; then
    step "$trees/train.trees" "$python" "$here/grammar.py" --train "${TRAIN:-8000}" --test "${TEST:-500}" --output "$trees"
    settings+=(--config "$here/grammar.toml") vocabulary=300 published=none
fi

test=dev
for set in train dev test; do
    for file in "$trees/$set.trees" "$trees/$set.trees.gz"; do
        [[ -e $file ]] || continue
        step "$text/$set.tree" "$python" "$here/trees.py" linearise ${TAGS:+--tags} "$file" "$text/$set"
        [[ $set == train ]] || test=$set
    done
done
output=$work/$size/$test
step "$data" "${nmt[@]}" prepare --source-lang words --target-lang tree --train "$text/train" --valid "$text/dev" \
    --no-joint-vocabulary --vocab-size "${VOCAB_SIZE:-$vocabulary}" --normalization nfkc --target-normalization none \
    --target-subword none --max-length "$length" \
    --column "alignment:links=$text/train.align" --output "$data"
step "$model" "${nmt[@]}" train --data "$data" --output "$work/$size/run" "${settings[@]}" \
    --keep-last "${LAST:-5}" "$@"
step "$model" "${nmt[@]}" average --run "$work/$size/run" --last "${LAST:-5}" --output "$model"
step "$output.tree" "${nmt[@]}" translate --model "$model" --input "$text/$test.words" --output "$output.tree" \
    --plugin "$here/tree_beam.py" --decoder tree-beam --beam-size 21 --alpha 0.3 --max-len-a 1 --max-len-b 300
step "$output.trees" "$python" "$here/trees.py" restore "$text/$test.words" "$output.tree" "$output.trees"

echo
scores=$("${nmt[@]}" evaluate --hypothesis "$output.tree" --reference "$text/$test.tree" --metrics bracket-f1)
figure "$test: $(wc -l <"$text/$test.tree") trees" "" "published"
figure "labelled bracketing F1, $size" "${scores%%  *}" "$published"
echo "signature: ${scores##*  }"
head -n 3 "$output.trees"
