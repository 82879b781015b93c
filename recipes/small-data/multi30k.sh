#!/usr/bin/env bash
# The recipe small-data on Multi30k, lower-cased and tokenised, and outputs for its test sets of 2017.
#
# TARGET_LANG: de or fr. DATA: as in the recipe multi30k-en-de. BLIND: a folder with the English side of the test sets of 2017
# (NAME.lc.norm.tok.en, also .gz); without it, they are not translated. OUTPUTS: the folder for their translations, by default
# `outputs` next to this script. Other variables and flags are those of small-data.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export TARGET_LANG=${TARGET_LANG:-de} SOURCE_LANG=en WORK=${WORK:-$PWD/runs/small-data-${TARGET_LANG:-de}}
outputs=${OUTPUTS:-$here/outputs}
ONLY_DATA=yes PROTOCOL=tokenised TESTS=test_2016_flickr WORK=$WORK/multi30k bash "$here/../multi30k-en-de/run.sh"
sources=()
for name in ${BLIND:+test_2017_flickr test_2017_mscoco}; do
    source=$BLIND/$name.lc.norm.tok.en
    mkdir -p "$WORK/blind"
    if [[ -r $source.gz ]]; then gunzip -c "$source.gz"; else cat "$source"; fi >"$WORK/blind/$name.en"
    sources+=("'$WORK/blind/$name.en'")
done

TRAIN=$WORK/multi30k/text/train.lc.norm.tok VALID=$WORK/multi30k/text/val.lc.norm.tok \
    TEST=$WORK/multi30k/text/test_2016_flickr.lc.norm.tok BLIND=${sources[*]} TOKENIZE=none \
    PREPARE="--normalization none ${PREPARE:-}" bash "$here/run.sh" "$@"
if [[ -n ${BLIND:-} && " $* " != *" --dry-run "* ]]; then
    mkdir -p "$outputs"
    cp "$WORK"/blind/test_2017_{flickr,mscoco}."$TARGET_LANG" "$outputs"
fi
