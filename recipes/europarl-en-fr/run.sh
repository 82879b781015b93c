#!/usr/bin/env bash
# Europarl, English to French, raw text: nmt, eole and JoeyNMT trained on the same pairs for the same CPU hours.
#
# The training text is the first 160,000 pairs of every fifth pair of Europarl v7. This selection has no address: DATA must name
# a folder or mirror with europarl/en-fr/{train,heldout}.{en,fr} and newstest/newstest{2012,2013}.{en,fr}, plain or .gz.
# All programs read the same subwords, which nmt prepare learns, and use one thread. A training ends when its processes have
# used HOURS of CPU time. What is measured is CPU time, so that a shared machine can be used.
# Programs: `nmt` (settings.toml: all that nmt has), `equal` (equal.toml: nmt with the settings of the others), `eole` and
# `joeynmt` (peers.py).
# Variables: DATA, WORK (output folder, by default runs/europarl-en-fr), NMT (the command, by default nmt), PYTHON (a Python
# that has nmt), EOLE and JOEYNMT (virtual environments, made by `python -m venv eole && eole/bin/pip install eole==0.6.4` and
# the same with joeynmt==2.3.0 importlib_metadata sentencepiece==0.2.0; without them, these programs are skipped), PROGRAMS (by
# default all), HOURS (3), PAIRS (160000),
# UPDATES (of `nmt`; by default measured, so that its schedule ends with the hours), LAST (checkpoints to average, 5), BLIND (a
# file of English lines, to translate as well), SET (numbers of peers.py to change, such as "WIDTH=16"), VOCAB_SIZE, PREPARE,
# PRECISION (of eole, bf16), ONLY_DATA, LOCK.
# Flags go to the trainings of nmt: `run.sh --seed 2`. To resume after an interruption, run the script again: it skips each step
# whose output exists, and stops at an output that was made with other settings.
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
work=$(realpath -m -- "${WORK:-$PWD/runs/europarl-en-fr}")
text=$work/text data=$work/data length=128 last=${LAST:-5}
seconds=$(awk -v hours="${HOURS:-3}" 'BEGIN { print 3600 * hours }')
tests=(heldout newstest2012 newstest2013)
words changed "${SET:-}"
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
[[ -z ${BLIND:-} ]] || readable "$BLIND"

files=()
for name in europarl/en-fr/train europarl/en-fr/heldout newstest/newstest2012 newstest/newstest2013; do
    files+=("$name.en.gz" "$name.fr.gz")
done
"$python" "$here/../fetch.py" --plain --to "$work/download" --lock "${LOCK:-$here/data.lock}" --learned "$work/data.lock" \
    --mirror "${DATA:?name the folder that holds europarl/en-fr/train.en.gz and the other files}" "${files[@]}"
mkdir -p "$text"
step "$text/train.fr" "$python" "$here/peers.py" split --pairs "${PAIRS:-160000}" "$work/download/train" "$text"
for set in "${tests[@]}"; do ln -sf "$work/download/$set".{en,fr} "$text"; done
if [[ -n ${BLIND:-} ]]; then
    ln -sf "$(realpath -- "$BLIND")" "$text/blind.en"
    tests+=(blind)
fi

step "$data" "${nmt[@]}" prepare --source-lang en --target-lang fr --train "$text/train" --valid "$text/valid" \
    --vocab-size "${VOCAB_SIZE:-16000}" --max-length "$length" --output "$data" "${prepare_flags[@]}"
[[ -z ${ONLY_DATA:-} ]] || exit 0

# within PROGRAM CHECKPOINTS COMMAND...: train until the CPU seconds are used.
within() {
    local folder=$work/$1
    step "$folder/trained.json" "$python" "$here/budget.py" train --seconds "$seconds" --used "$folder/used.jsonl" \
        --run "$folder" --checkpoints "$2" --done "$folder/trained.json" -- "${@:3}"
}
# own PROGRAM SETTINGS FLAG...: train, average and translate with nmt.
own() {
    local folder=$work/$1 command
    command=("${nmt[@]}" train --data "$data" --config "$here/$2" --keep-last 10 --threads 1 "${@:3}")
    [[ " $* " != *" --dry-run "* ]] || step "$folder/run" "${command[@]}" --output "$folder/run"
    if [[ $1 == nmt && -z ${UPDATES:-} ]]; then
        step "$folder/updates" "$python" "$here/budget.py" updates --seconds "$seconds" --done "$folder/updates" -- \
            "${command[@]}" --output "$folder/pilot"
    fi
    [[ $1 != nmt ]] || command+=(--max-updates "${UPDATES:-$(<"$folder/updates")}")
    within "$1" 'run/checkpoints/update-*' "${command[@]}" --output "$folder/run"
    step "$folder/model" "${nmt[@]}" average --run "$folder/run" --last "$last" --output "$folder/model"
    for set in "${tests[@]}"; do
        step "$folder/$set.fr" "${nmt[@]}" translate --model "$folder/model" --input "$text/$set.en" \
            --output "$folder/$set.fr" --beam-size 5 --length-penalty average --alpha 1 --threads 1
    done
}
# settings PROGRAM OUTPUT FLAG...: write the settings of eole or JoeyNMT.
settings() {
    "$python" "$here/peers.py" settings "$1" --work "$work" --max-length "$length" "${@:3}" --set "${changed[@]}" >"$2"
}
# averaged PYTHON PROGRAM: average the newest checkpoints.
averaged() {
    local newest
    mapfile -t newest < <("$python" -c 'import json, sys
print("\n".join(row["checkpoint"] for row in json.load(open(sys.argv[1]))["checkpoints"][-int(sys.argv[2]):]))' \
        "$work/$2/trained.json" "$last")
    step "$work/$2/model" "$1" "$here/peers.py" average --output "$work/$2/model" "${newest[@]}"
}
train_eole() {
    local folder=$work/eole
    mkdir -p "$folder"
    settings eole "$folder/train.yaml" --precision "${PRECISION:-bf16}"
    within eole 'run/step_*/config.json' "$EOLE/bin/eole" train -config "$folder/train.yaml"
    averaged "$EOLE/bin/python" eole
    for set in "${tests[@]}"; do
        step "$folder/$set.fr" "$EOLE/bin/eole" predict -model_path "$folder/model" -src "$text/$set.en" \
            -output "$folder/$set.fr" -beam_size 5 -length_penalty avg -alpha 1.0 -batch_size 32 -compute_dtype fp32
    done
}
train_joeynmt() {
    local folder=$work/joeynmt
    mkdir -p "$folder"
    settings joeynmt "$folder/train.yaml"
    within joeynmt 'run-*/*.ckpt' "$JOEYNMT/bin/python" -m joeynmt train "$folder/train.yaml" --skip-test
    averaged "$JOEYNMT/bin/python" joeynmt
    settings joeynmt "$folder/translate.yaml" --model "$folder/model"
    for set in "${tests[@]}"; do
        step "$folder/$set.fr" translate_joeynmt "$set"
    done
}
translate_joeynmt() {
    "$JOEYNMT/bin/python" -m joeynmt translate "$work/joeynmt/translate.yaml" -o "$work/joeynmt/$1.fr" <"$text/$1.en"
}

compared=()
for program in ${PROGRAMS:-nmt eole joeynmt equal}; do
    case $program in
    nmt) own nmt settings.toml "$@" ;;
    equal) own equal equal.toml "$@" ;;
    eole | joeynmt)
        variable=${program^^}
        if [[ -z ${!variable:-} ]]; then
            echo "$program is skipped: set $variable to a virtual environment in which it is installed" >&2
            continue
        fi
        readable "${!variable}/bin/python"
        [[ -e $work/subwords ]] || step "$work/subwords" "$python" "$here/peers.py" vocabulary \
            --subwords "$data/pipeline/joint.model" --output "$work/subwords"
        "train_$program"
        ;;
    *) echo "PROGRAMS: $program is not one of nmt, eole, joeynmt and equal" >&2 && exit 2 ;;
    esac
    compared+=("$program")
done
((${#compared[@]})) || { echo "no program was trained" >&2 && exit 2; }

significance=(--significance bootstrap)
((${#compared[@]} > 1)) || significance=()
for set in heldout newstest2012 newstest2013; do
    outputs=("${compared[@]/%//$set.fr}")
    outputs=("${outputs[@]/#/$work/}")
    "${nmt[@]}" evaluate --hypothesis "${outputs[@]}" --reference "$text/$set.fr" --metrics bleu chrf \
        --tokenize 13a "${significance[@]}" --json --quiet >"$work/$set.json"
done
runs=()
for program in nmt equal; do
    [[ " ${compared[*]} " != *" $program "* ]] || runs+=("$work/$program/run")
done
if ((${#runs[@]})); then
    "${nmt[@]}" report "${runs[@]}" --json >"$work/report.json"
    curves "${runs[@]}"
fi
echo
"$python" "$here/compare.py" --work "$work" --sets heldout newstest2012 newstest2013 --programs "${compared[@]}" |
    tee "$work/table.md"
