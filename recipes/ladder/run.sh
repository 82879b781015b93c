#!/usr/bin/env bash
# The ladder: one method at a time on Multi30k En-De, against as many updates and as much CPU time without it.
#
# All models have the same layers and the same search. Their text is lower-cased and tokenised, with 5,000 subwords.
# - `base`: plain training; the average of the last checkpoints. `base, last`: its last checkpoint.
# - `longer`: the same training, continued to twice as many updates.
# - `r-drop`, `ema`, `subword-sampling`: `base` with one more flag. `ema` is not averaged over checkpoints.
# - `risk`: minimum risk training, which starts from `base` (risk.toml).
# - `back-translation`: half of the pairs, and the target side of the other half with sources by a reverse model, which was
# trained on the first half (recipe back-translation). `half` and `half, longer` are `base` and `longer` on the first half.
# Each method is compared with two plain models by a paired bootstrap test: one after as many updates, and one after as much CPU
# time, to the nearest checkpoint of `longer` (at most twice the updates of `base`). The time of a method includes the models
# that it depends on. `back-translation` is compared with `half`.
# Variables: DATA (a folder or mirror with the layout of github.com/multi30k/dataset; by default the data is downloaded), WORK
# (output folder, by default runs/ladder), NMT (the command, by default nmt), PYTHON (a Python that has nmt), METHODS (by default
# all), SEEDS (of `base`, "1 2 3"), METHOD_SEEDS (of all others, "1 2"; they need a `base` with the same seed), BACK_SEEDS (of
# `back-translation` and `half`, "1"), UPDATES (12000), RISK_UPDATES (400), LAST (checkpoints to average, 5), EVERY (updates
# between checkpoints, 500), VOCAB_SIZE, LOCK, PREPARE (more flags of nmt prepare).
# Flags go to all trainings: `run.sh --threads 1`. To resume after an interruption, run the script again: it skips each step
# whose output exists, and stops at an output that was made with other settings.
# After each training, the table of all finished models is written to WORK/table.md.
# Uses: multi30k-en-de back-translation
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
work=${WORK:-$PWD/runs/ladder} last=${LAST:-5} updates=${UPDATES:-12000} risk_updates=${RISK_UPDATES:-400} every=${EVERY:-500}
read -ra methods <<<"${METHODS:-r-drop subword-sampling ema risk back-translation}"
read_seeds seeds SEEDS "1 2 3"
read_seeds method_seeds METHOD_SEEDS "1 2"
no_seed "$@"
valid=$work/text/val.lc.norm.tok test=$work/text/test_2016_flickr.lc.norm.tok train=$work/text/train.lc.norm.tok
src=en trg=de tokenize=none search=(--beam-size 5 --length-penalty average --alpha 1)
flags=("$@")
declare -A rows=() # name of a row -> WORK's folders, see tables.py
names=()           # of the rows, in order

# train NAME DATA FLAG...: train in $work/NAME.
train() {
    step "$work/$1/model" "${nmt[@]}" train --data "$2" --output "$work/$1/run" --config "$here/settings.toml" \
        --save-every "${every}u" "${@:3}" "${flags[@]}"
}
# average NAME COUNT: average the last checkpoints of $work/NAME.
average() {
    step "$work/$1/model" "${nmt[@]}" average --run "$work/$1/run" --last "$2" --output "$work/$1/model"
}
# row NAME FOLDERS: add a seed to a row, and write the table of all rows so far.
row() {
    local name words=() finished
    [[ -n ${rows[$1]:-} ]] || names+=("$1")
    rows[$1]+=${rows[$1]:+,}$2
    for name in "${names[@]}"; do words+=("$name=${rows[$name]}"); done
    mapfile -t finished < <(find "$work" -path '*/run/metrics.jsonl' -printf '%h\n' | sort)
    write "$work/report.json" "${nmt[@]}" report "${finished[@]}" --json
    write "$work/table.md" "$python" "$here/../tables.py" --work "$work" --against same-updates same-CPU-time -- "${words[@]}"
}
# at NAME UPDATE: average the last regular checkpoints up to UPDATE of $work/NAME and its continuation, translate the test set,
# and set `model` to the folder.
at() {
    local chosen
    model=$1
    [[ $2 -ne $updates ]] || return 0
    model=$1-at-$2
    mapfile -t chosen < <(printf '%s\n' "$work/$1"{,-longer}/run/checkpoints/update-* |
        awk -F update- -v most="$2" -v every="$every" '$NF + 0 <= most + 0 && $NF % every == 0 { print $NF "\t" $0 }' |
        sort -n | tail -n "$last" | cut -f 2)
    step "$work/$model/model" "${nmt[@]}" average --checkpoint "${chosen[@]}" --output "$work/$model/model"
    translate_sets "$work/$model"
}
# seconds FOLDER...: print the CPU time of the trainings and of the translations of training text in these folders.
seconds() {
    find "${@/#/$work/}" -maxdepth 1 \( -name '.model.cpu' -o -name '.written.*.cpu' \) -exec cat {} + |
        awk '{ sum += $1 + $2 } END { print sum }'
}
# compare NAME PLAIN UPDATES FOLDER...: compare $work/NAME with plain training. The other folders are included in its time.
compare() {
    local name=$1 plain=$2 done_updates=$3 model time
    at "$plain" "$done_updates"
    against "$work/$name/against-same-updates.json" "$work/$model" "$work/$name"
    time=$(awk -v all="$(seconds "$name" "${@:4}")" -v base="$(seconds "$plain")" -v updates="$updates" \
        -v every="$every" 'BEGIN {
        near = int(all / base * updates / every + 0.5) * every
        print (near < updates ? updates : (near > 2 * updates ? 2 * updates : near)) }')
    at "$plain" "$time"
    against "$work/$name/against-same-CPU-time.json" "$work/$model" "$work/$name"
}
# continued NAME DATA SEED FLAG...: continue a training to twice as many updates, and keep all its checkpoints.
continued() {
    train "$1-longer" "$2" --max-updates "$((2 * updates))" --keep-last 0 --seed "$3" --init-state all \
        --init-from "$work/$1/run/checkpoints/update-$updates" "${@:4}"
    average "$1-longer" "$last"
    translate_sets "$work/$1-longer"
}
# method NAME SEED COUNT FLAG...: train with more flags, average COUNT checkpoints, and compare with `base`.
method() {
    train "$1-$2" "$work/data" --max-updates "$updates" --keep-last "$3" --seed "$2" "${@:4}"
    average "$1-$2" "$3"
    translate_sets "$work/$1-$2"
    compare "$1-$2" "base-$2" "$updates"
    row "$1" "$1-$2"
}
# risk SEED: train to minimise the risk, from the average of `base`.
risk() {
    train "risk-$1" "$work/data" --config "$here/risk.toml" --init-from "$work/base-$1/model" --max-updates "$risk_updates" \
        --keep-last "$last" --save-every "$(((risk_updates + 7) / 8))u" --seed "$1"
    average "risk-$1" "$last"
    translate_sets "$work/risk-$1"
    compare "risk-$1" "base-$1" "$((updates + (risk_updates + every / 2) / every * every))" "base-$1"
    row risk "risk-$1+base-$1"
}
# back_translation SEED: hide the sources of half of the pairs; `half` is the comparison without the hidden half.
back_translation() {
    local half=$work/text/half back=back-translation-$1
    lines=$(($(wc -l <"$train.en") / 2))
    for lang in en de; do head -n "$lines" "$train.$lang" >"$half.$lang"; done
    tail -n "+$((lines + 1))" "$train.de" >"$work/text/mono.de"
    TRAIN=$half VALID=$valid TEST=$test MONO=$work/text/mono.de WORK=$work/$back CONFIG=$here/settings.toml LAST=$last \
        VOCAB_SIZE=${VOCAB_SIZE:-5000} PREPARE="--normalization none ${PREPARE:-}" TOKENIZE=none \
        bash "$here/../back-translation/run.sh" --max-updates "$updates" --save-every "${every}u" --seed "$1" "${flags[@]}" >&2
    translate_sets "$work/$back"
    train "half-$1" "$work/$back/data" --data-weights pairs=1 --max-updates "$updates" --keep-last "$last" --seed "$1"
    average "half-$1" "$last"
    translate_sets "$work/half-$1"
    row half "half-$1"
    continued "half-$1" "$work/$back/data" "$1" --data-weights pairs=1
    row "half, longer" "half-$1-longer+half-$1"
    compare "$back" "half-$1" "$updates" "$back/reverse" "$back/text"
    row back-translation "$back+$back/reverse+$back/text"
}

ONLY_DATA=yes WORK=$work PROTOCOL=tokenised TESTS=test_2016_flickr TARGET_LANG=de VOCAB_SIZE=${VOCAB_SIZE:-5000} \
    bash "$here/../multi30k-en-de/run.sh"
for seed in "${seeds[@]}"; do
    train "base-$seed" "$work/data" --max-updates "$updates" --keep-last "$last" --seed "$seed"
    average "base-$seed" "$last"
    translate_sets "$work/base-$seed"
    row base "base-$seed"
done
for seed in "${seeds[@]}"; do
    folder=$work/base-$seed-last
    step "$folder/model" "${nmt[@]}" average --run "$work/base-$seed/run" --last 1 --output "$folder/model"
    ln -sfn "../base-$seed/run" "$folder/run"
    translate_sets "$work/base-$seed-last"
    row "base, last" "base-$seed-last+base-$seed"
done
for seed in "${method_seeds[@]}"; do
    continued "base-$seed" "$work/data" "$seed"
    row longer "base-$seed-longer+base-$seed"
    for name in "${methods[@]}"; do
        case $name in
        r-drop) method r-drop "$seed" "$last" --criterion r-drop ;;
        ema) method ema "$seed" 1 --ema 0.999 ;;
        subword-sampling) method subword-sampling "$seed" "$last" --subword-sampling 0.05 ;;
        risk) risk "$seed" ;;
        back-translation) [[ " ${BACK_SEEDS:-1} " != *" $seed "* ]] || back_translation "$seed" ;;
        *) echo "METHODS: no method '$name'" >&2 && exit 2 ;;
        esac
    done
done

curves "$work"/{base,r-drop,subword-sampling,ema}-"${method_seeds[0]}"/run
echo
cat "$work/table.md"
