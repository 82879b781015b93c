#!/usr/bin/env bash
# Multi30k, English to German or French: image captions, from the public data to the published BLEU.
#
# PROTOCOL=tokenised (the default): the data set's lower-cased, tokenised files, with BLEU on tokens as in the published figures
# of Wu et al., 2021. PROTOCOL=raw: the data set's raw text, with sacreBLEU and its signature.
# Variables: DATA (a folder or mirror with the layout of github.com/multi30k/dataset; by default the data is downloaded), WORK
# (output folder, by default runs/multi30k-en-de-tokenised), NMT (the command, by default nmt), PYTHON (a Python that has nmt),
# TARGET_LANG, TESTS (names of test sets), VOCAB_SIZE, LOCK (hashes of the data), PREPARE (more flags of nmt prepare).
# Flags go to nmt train: `run.sh --device cuda --seed 2`. To resume after an interruption, run the script again: it skips each
# step whose output exists, and stops at an output that was made with other settings.
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
lang=${TARGET_LANG:-de} protocol=${PROTOCOL:-tokenised}
# The version of the data set that the published figures were measured on; later ones correct a few words of train.en.
public=https://raw.githubusercontent.com/multi30k/dataset/10b8ae249740aafcab3b47dd6e2c3af1559eb802
work=${WORK:-$PWD/runs/multi30k-en-$lang-$protocol}
text=$work/text data=$work/data model=$work/model
read -ra tests <<<"${TESTS:-test_2016_flickr}"
declare -A published=(
    [de.test_2016_flickr]=41.02 [de.test_2017_flickr]=33.36 [de.test_2017_mscoco]=29.88
    [fr.test_2016_flickr]=61.80 [fr.test_2017_flickr]=53.46 [fr.test_2017_mscoco]=44.52
)
case $protocol in
tokenised) folder=tok dot=.lc.norm.tok zip='' vocabulary=10000 normalization=none settings=settings.toml last=10 tokenize=none ;;
raw) folder=raw dot='' zip=.gz vocabulary=6000 normalization=nfkc settings=raw.toml last=3 tokenize=13a published=() ;;
*) echo "PROTOCOL is '$protocol', but must be tokenised or raw" >&2 && exit 2 ;;
esac

files=()
for set in train val "${tests[@]}"; do
    files+=("data/task1/$folder/$set$dot.en$zip" "data/task1/$folder/$set$dot.$lang$zip")
done
"$python" "$here/../fetch.py" --plain --mirror "${DATA:-$public}" --to "$text" \
    --lock "${LOCK:-$here/data.lock}" --learned "$work/data.lock" "${files[@]}"

step "$data" "${nmt[@]}" prepare --source-lang en --target-lang "$lang" --output "$data" \
    --train "$text/train$dot" --valid "$text/val$dot" \
    --vocab-size "${VOCAB_SIZE:-$vocabulary}" --normalization "$normalization" "${prepare_flags[@]}"
[[ -z ${ONLY_DATA:-} ]] || exit 0
step "$model" "${nmt[@]}" train --data "$data" --output "$work/run" --config "$here/$settings" \
    --bleu-tokenize "$tokenize" "$@"
step "$model" "${nmt[@]}" average --run "$work/run" --last "$last" --output "$model"
for set in "${tests[@]}"; do
    step "$work/$set.$lang" "${nmt[@]}" translate --model "$model" --input "$text/$set$dot.en" \
        --output "$work/$set.$lang" --beam-size 5 --length-penalty average --alpha 1
done

echo
figure "Multi30k en-$lang, $protocol" "BLEU" "published"
for set in "${tests[@]}"; do
    scores=$(bleu "$work/$set.$lang" "$text/$set$dot.$lang" --tokenize "$tokenize")
    figure "$set" "${scores%%  *}" "${published[$lang.$set]:-none}"
done
echo "signature: ${scores##*  }"
