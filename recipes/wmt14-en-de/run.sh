#!/usr/bin/env bash
# WMT14, English to German or French: from the public archives to the BLEU of "Attention Is All You Need".
#
# MODEL: base (the default) or big. RECIPE sets how the text is prepared: paper (the default), fairseq (40,000 BPE over Moses
# tokens; every 100th training line is validation data) or marian (36,000 BPE over truecased Moses tokens).
# Variables: MIRROR (a folder or address that is tried before the public one), WORK (output folder, by default
# runs/wmt14-en-de-paper), NMT (the command, by default nmt), PYTHON (a Python that has nmt), WORKERS, TARGET_LANG, LOCK (hashes
# of the data), FETCH (flags of fetch.py: `--tries 20`), LAST and APART (number of averaged checkpoints, and minutes between
# them), VOCAB_SIZE, PREPARE (more flags of nmt prepare).
# Flags go to nmt train: `MODEL=big run.sh --device cuda --max-tokens 25000`. To resume after an interruption, run the script
# again: it skips each step whose output exists, and stops at an output that was made with other settings.
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
lang=${TARGET_LANG:-de} size=${MODEL:-base} recipe=${RECIPE:-paper}
work=${WORK:-$PWD/runs/wmt14-en-$lang-$recipe}
get=$work/archives data=$work/data run=$work/$size/run model=$work/$size/model output=$work/$size/newstest2014.$lang
news=$get/dev.tgz/dev/newstest2013 test=$get/test-full.tgz/test-full/newstest2014-${lang}en

archives=(wmt13/training-parallel-europarl-v7.tgz wmt13/training-parallel-commoncrawl.tgz
    wmt14/training-parallel-nc-v9.tgz wmt14/dev.tgz wmt14/test-full.tgz)
texts=(training-parallel-europarl-v7.tgz/training/europarl-v7 training-parallel-commoncrawl.tgz/commoncrawl
    training-parallel-nc-v9.tgz/training/news-commentary-v9)
train=("${texts[@]/%/.$lang-en}")
vocabulary=37000 preset=transformer-$size published=$([[ $size == base ]] && echo 27.3 || echo 28.4) hold_out=100
if [[ $lang == fr ]]; then
    archives+=(wmt13/training-parallel-un.tgz wmt10/training-giga-fren.tar)
    train+=(training-parallel-un.tgz/un/undoc.2000.fr-en training-giga-fren.tar/giga-fren.release2.fixed)
    test=$get/test-full.tgz/test-full/newstest2014-fren
    vocabulary=32000 preset=${preset/%big/big-en-fr} published=$([[ $size == base ]] && echo 38.1 || echo 41.8) hold_out=1333
fi
news=(--valid-source "$news-src.en.sgm" --valid-target "$news-ref.$lang.sgm")
case $recipe in
paper) text=("${news[@]}") ;;
fairseq) vocabulary=40000 text=(--hold-out "$hold_out" --normalize-punctuation --tokenizer moses --no-reversible --max-length 250 --max-ratio 1.5) ;;
marian) vocabulary=36000 text=("${news[@]}" --normalize-punctuation --tokenizer moses --no-reversible --truecase --max-length 100) ;;
*) echo "RECIPE is '$recipe', but must be paper, fairseq or marian" >&2 && exit 2 ;;
esac

read -ra fetch <<<"${FETCH:-}"
"$python" "$here/../fetch.py" --to "$get" --lock "${LOCK:-$here/data.lock}" --learned "$work/data.lock" \
    ${MIRROR:+--mirror "$MIRROR"} --mirror https://www.statmt.org "${fetch[@]}" "${archives[@]}"
step "$data" "${nmt[@]}" prepare --source-lang en --target-lang "$lang" --output "$data" --train "${train[@]/#/"$get"/}" \
    --vocab-size "${VOCAB_SIZE:-$vocabulary}" --workers "${WORKERS:-$(nproc)}" --normalization nfkc "${text[@]}" "${prepare_flags[@]}"
[[ -z ${ONLY_DATA:-} ]] || exit 0
step "$model" "${nmt[@]}" train --data "$data" --output "$run" --preset "$preset" --config "$here/settings.toml" "$@"
step "$model" "${nmt[@]}" average --run "$run" --last "${LAST:-$([[ $size == base ]] && echo 5 || echo 20)}" \
    --every-minutes "${APART:-9}" --output "$model"
step "$output" "${nmt[@]}" translate --model "$model" --input "$test-src.en.sgm" --output "$output"

echo
figure "newstest2014 en-$lang, $size, $recipe" "" "published (its own BLEU): $published"
score=("${nmt[@]}" evaluate --paper --target-lang "$lang" --hypothesis "$output" --reference "$test-ref.$lang.sgm")
"${score[@]}" --json >"$work/$size/scores.json.partial"
mv "$work/$size/scores.json.partial" "$work/$size/scores.json" # for nmt report
"${score[@]}"
