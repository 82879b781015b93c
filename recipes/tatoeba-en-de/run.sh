#!/usr/bin/env bash
# Tatoeba English to German: 156,362 everyday sentences, from raw text to sacreBLEU with its signature.
#
# The sentences come from tatoeba.org, whose exports change every week. No address has this split, so that DATA must name
# a folder or mirror with en-de/{train,valid,test}.{en,de}, compressed by gzip or plain.
# Variables: DATA, WORK (folder of all output), NMT, PYTHON (with nmt installed), VOCAB_SIZE, LOCK, CONFIG (settings of the training;
# plain.toml beside this file holds those of a plain Transformer). Flags go to nmt train: `run.sh --device cuda`.
# A step whose output exists is skipped, and refused if other settings made it; training continues where it stopped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
work=${WORK:-$root/runs/tatoeba-en-de}
text=$work/text data=$work/data model=$work/model output=$work/test.de
files=()
for set in train valid test; do
    files+=("en-de/$set.en.gz" "en-de/$set.de.gz")
done
"${PYTHON:-python3}" "$here/../fetch.py" --plain --to "$text" --lock "${LOCK:-$here/data.lock}" \
    --mirror "${DATA:?name the folder that holds en-de/train.en.gz and the other files}" "${files[@]}"

step "$data" "${nmt[@]}" prepare --source-lang en --target-lang de --train "$text/train" --valid "$text/valid" \
    --vocab-size "${VOCAB_SIZE:-6000}" --output "$data" "${prepare_flags[@]}"
[[ -z ${ONLY_DATA:-} ]] || exit 0
step "$model" "${nmt[@]}" train --data "$data" --output "$work/run" --config "${CONFIG:-$here/settings.toml}" "$@"
step "$model" "${nmt[@]}" average --run "$work/run" --last 5 --output "$model"
step "$output" "${nmt[@]}" translate --model "$model" --input "$text/test.en" --output "$output"

echo
scores=$(bleu "$output" "$text/test.de")
figure "Tatoeba en-de" "BLEU" "published"
figure "test" "${scores%%  *}" "none"
echo "signature: ${scores##*  }"
