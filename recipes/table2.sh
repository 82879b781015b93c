#!/usr/bin/env bash
# Table 2 of "Attention Is All You Need": train its systems on one data set, and report them below the paper's.
#
# DATASET: wmt14 (the default), multi30k or tatoeba. SYSTEMS: presets, one per row; NAME-rl starts from the model of NAME.
# TOKENS, FLOPS: the training budget of each system except NAME-rl, in target tokens (characters for ByteNet) or in FLOPs, such
# as 6.5e6 or 2e14. Without a budget, the presets decide.
# SEEDS: with several ("1 2 3"), each system is trained with each seed, and the BLEU of ensembles is printed below the table.
# RUNS: output folder, by default runs/table2. TARGET_LANG, NMT, PYTHON, DATA, MIRROR, LOCK, FETCH, RECIPE, VOCAB_SIZE, PREPARE,
# LAST, APART: as in the recipe of the data set.
# Flags go to nmt train. To resume after an interruption, run the script again.
# Uses: multi30k-en-de multi30k-en-fr tatoeba-en-de wmt14-en-de wmt14-en-fr
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/steps.sh"
dataset=${DATASET:-wmt14} lang=${TARGET_LANG:-de} runs=${RUNS:-$PWD/runs/table2} config=$here/table2.toml
read_seeds seeds SEEDS 1
no_seed "$@"
systems="bytenet-small deep-att-small gnmt-small gnmt-small-rl convs2s-small moe-small rnnsearch-small transformer-small"
data=$runs/$dataset-en-$lang search=() average=() report=()
case $dataset in
wmt14)
    config=$here/wmt14-en-de/settings.toml score=(--paper --target-lang "$lang")
    [[ -n ${TOKENS:-}${FLOPS:-} ]] || average=(--every-minutes "${APART:-9}")
    systems="bytenet deep-att-en-$lang gnmt-en-de gnmt-en-de-rl convs2s-en-$lang moe-2048 transformer-base transformer-big"
    [[ $lang == fr ]] && systems=${systems//gnmt-en-de/gnmt} systems=${systems/%-big/-big-en-fr}
    tests=archives/test-full.tgz/test-full/newstest2014-$([[ $lang == fr ]] && echo fr || echo de)en
    source=$tests-src.en.sgm reference=$tests-ref.$lang.sgm data+=-${RECIPE:-paper}
    ;;
multi30k)
    name=test_2016_flickr search=(--beam-size 5 --length-penalty average --alpha 1) score=(--metrics bleu --tokenize none)
    source=text/$name.lc.norm.tok.en reference=text/$name.lc.norm.tok.$lang report=(--test-set "$name")
    export PROTOCOL=tokenised TESTS=$name
    ;;
tatoeba) source=text/test.en reference=text/test.$lang score=(--metrics bleu) report=(--test-set tatoeba) ;;
*) echo "DATASET is '$dataset', but must be wmt14, multi30k or tatoeba" >&2 && exit 2 ;;
esac
rows=() ensembles=() # ensembles: name and BLEU of each

# translate OUTPUT FLAG...: write OUTPUT.txt, and the speed to OUTPUT.stats.json.
translate() {
    local output=$1
    shift
    step "$output.txt" "${nmt[@]}" translate --input "$work/$source" --output "$output.txt" --stats "$output.stats.json" \
        "${search[@]}" "$@"
}

# evaluate OUTPUT FLAG...: print the scores of OUTPUT.txt.
evaluate() {
    "${nmt[@]}" evaluate --hypothesis "$1.txt" --reference "$work/$reference" "${score[@]}" "${@:2}"
}

# budget FILE COMMAND...: unless FILE exists, write to it how many updates the budget allows, estimated by a dry run.
budget() {
    local file=$1
    shift
    [[ ! -e $file ]] || return 0
    mkdir -p "$(dirname "$file")"
    "$@" --dry-run --json --quiet | "$python" -c '
import json, sys
update, tokens, flops = json.load(sys.stdin), *sys.argv[1:]
print(round(float(tokens) / update["target_tokens"] if tokens else float(flops) / update["flops"]))' \
        "${TOKENS:-}" "${FLOPS:-}" >"$file.partial"
    mv "$file.partial" "$file"
}

for system in ${SYSTEMS:-$systems}; do
    work=$data prepare=${PREPARE:-}
    [[ $system == bytenet* ]] && work+=-characters prepare+=' --subword char --max-length 500'
    ONLY_DATA=yes WORK=$work PREPARE=$prepare bash "$here/$dataset-en-$lang/run.sh"
    last=${LAST:-$([[ $system == transformer-big* ]] && echo 20 || echo 5)} members=()
    for seed in "${seeds[@]}"; do
        folder=$work/$system-$seed
        train=("${nmt[@]}" train --data "$work/data" --output "$folder/run" --preset "${system%-rl}" --seed "$seed")
        [[ ${#average[@]} -gt 0 ]] || train+=(--keep-last "$last")
        if [[ $system == *-rl ]]; then
            train+=(--config "${config%.toml}-rl.toml" --init-from "$work/${system%-rl}-$seed/model" "$@")
        else
            train+=(--config "$config" "$@")
            if [[ -n ${TOKENS:-}${FLOPS:-} ]]; then
                budget "$folder/updates" "${train[@]}"
                updates=$(<"$folder/updates")
                train+=(--max-updates "$updates" --save-every "$((updates / (3 * last) + 1))u")
            fi
        fi
        step "$folder/model" "${train[@]}"
        step "$folder/model" "${nmt[@]}" average --run "$folder/run" --last "$last" "${average[@]}" --output "$folder/model"
        translate "$folder/test" --model "$folder/model"
        evaluate "$folder/test" --json >"$folder/test.partial"
        mv "$folder/test.partial" "$folder/test.scores.json"
        members+=(--model "$folder/model")
        rows+=("$folder/run" --scores "$folder/run=$folder/test.scores.json" --stats "$folder/run=$folder/test.stats.json")
    done
    if [[ ${#seeds[@]} -gt 1 ]]; then
        for mean in log-probabilities probabilities; do
            translate "$work/$system-ensemble-$mean" "${members[@]}" --ensemble "$mean"
            ensembles+=("$system-ensemble-$mean" "$(evaluate "$work/$system-ensemble-$mean" | sed -n '$p')")
        done
    fi
done
"${nmt[@]}" report "${rows[@]}" "${report[@]}" --html "$data.html"
for ((i = 0; i < ${#ensembles[@]}; i += 2)); do
    figure "${ensembles[i]}" "${ensembles[i + 1]}" "${#seeds[@]} models"
done
