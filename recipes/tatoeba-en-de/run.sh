#!/usr/bin/env bash
# Tatoeba, English to German: everyday sentences, from raw text to BLEU in an hour on one CPU core.
#
# The exports of tatoeba.org change every week, so this split of 156,362 sentences has no address: DATA must name a folder or
# mirror with en-de/{train,valid,test}.{en,de}, plain or compressed with gzip.
# Variables: DATA, WORK (output folder, by default runs/tatoeba-en-de), NMT (the command, by default nmt), PYTHON (a Python that
# has nmt), VOCAB_SIZE, LOCK (hashes of the data), CONFIG (settings of the training; plain.toml next to this script has those of
# a plain Transformer), PREPARE (more flags of nmt prepare).
# Flags go to nmt train: `run.sh --device cuda`. To resume after an interruption, run the script again: it skips each step whose
# output exists, and stops at an output that was made with other settings.
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
work=${WORK:-$PWD/runs/tatoeba-en-de}
text=$work/text data=$work/data model=$work/model output=$work/test.de
files=()
for set in train valid test; do
    files+=("en-de/$set.en.gz" "en-de/$set.de.gz")
done
"$python" "$here/../fetch.py" --plain --to "$text" --lock "${LOCK:-$here/data.lock}" --learned "$work/data.lock" \
    --mirror "${DATA:?name the folder that holds en-de/train.en.gz and the other files}" "${files[@]}"

step "$data" "${nmt[@]}" prepare --source-lang en --target-lang de --train "$text/train" --valid "$text/valid" \
    --vocab-size "${VOCAB_SIZE:-6000}" --normalization nfkc --output "$data" "${prepare_flags[@]}"
[[ -z ${ONLY_DATA:-} ]] || exit 0
step "$model" "${nmt[@]}" train --data "$data" --output "$work/run" --config "${CONFIG:-$here/settings.toml}" "$@"
step "$model" "${nmt[@]}" average --run "$work/run" --last 5 --output "$model"
step "$output" "${nmt[@]}" translate --model "$model" --input "$text/test.en" --output "$output"

echo
scores=$(bleu "$output" "$text/test.de")
figure "Tatoeba en-de" "BLEU" "published"
figure "test" "${scores%%  *}" "none"
echo "signature: ${scores##*  }"
