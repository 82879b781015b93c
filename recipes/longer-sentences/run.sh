#!/usr/bin/env bash
# Longer sentences: which positions translate sentences longer than those seen in training?
#
# "We chose the sinusoidal version because it may allow the model to extrapolate to sequence lengths longer than the ones
# encountered during training" ("Attention Is All You Need", section 3.5). The recipe trains Transformers with sinusoidal, learned,
# relative and rotary positions on pairs of up to 12, 16 and 20 tokens, and tests them by length, up to 60 tokens. The control is
# trained on pairs of up to 60 tokens. All models of a corpus read the same number of target tokens. Lengths count subwords,
# because positions do. The subwords are the same for all limits.
# Multi30k (English to German): the training text and the test set `joined` consist of 1 to 5 consecutive sentences per line. The test
# set `natural` has single sentences: test_2016_flickr, and half of the training pairs with more than 20 tokens, which no model reads.
# Europarl (English to French): training on natural sentences, and `natural` is the held-out text.
# Variables: DATA (a folder or mirror with the layout of github.com/multi30k/dataset; by default the data is downloaded), EUROPARL (a
# folder with train.en, train.fr, heldout.en and heldout.fr, plain or .gz; without it, only Multi30k is used), WORK (output folder, by
# default runs/longer-sentences), NMT (the command, by default nmt), PYTHON (a Python that has nmt), CORPORA ("multi30k europarl"),
# POSITIONS ("sinusoidal learned relative rotary"), LIMITS ("12 16 20 60"), SEEDS ("1 2 3") and UPDATES (1600) for Multi30k,
# EUROPARL_LIMITS ("20 60"), EUROPARL_SEEDS ("1") and EUROPARL_UPDATES (4000), LAST (checkpoints to average, 5), VOCAB_SIZE, PREPARE,
# LOCK.
# Flags go to all trainings: `run.sh --threads 1`. To resume after an interruption, run the script again: it skips each step
# whose output exists, and stops at an output that was made with other settings.
# After each training, the tables of all finished models are written to WORK/table.md, and the figures to WORK/CORPUS.svg.
# Uses: multi30k-en-de
# With --dry-run the recipe ends after the estimate of its first training.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
work=${WORK:-$PWD/runs/longer-sentences} last=${LAST:-5} longest=60
read -ra corpora <<<"${CORPORA:-multi30k ${EUROPARL:+europarl}}"
read -ra positions <<<"${POSITIONS:-sinusoidal learned relative rotary}"
[[ ${positions[0]} == sinusoidal ]] || { echo "POSITIONS must start with sinusoidal, the baseline of all tests" >&2 && exit 2; }
read_seeds multi30k_seeds SEEDS "1 2 3"
read_seeds europarl_seeds EUROPARL_SEEDS 1
no_seed "$@"
plots=yes
"$python" -c "import matplotlib" 2>/dev/null || plots=
[[ -n $plots ]] || echo "no figures: matplotlib is not installed" >&2

# multi30k: the subwords of multi30k-en-de's data, and text of 1 to 5 joined sentences.
multi30k() {
    limits=${LIMITS:-12 16 20 60} updates=${UPDATES:-1600}
    seeds=("${multi30k_seeds[@]}")
    lang=de tokenize=none sets=(natural joined) train=$folder/text/train valid=$folder/source/text/val.lc.norm.tok
    ONLY_DATA=yes WORK=$folder/source PROTOCOL=tokenised TESTS=test_2016_flickr TARGET_LANG=de VOCAB_SIZE=${VOCAB_SIZE:-6000} \
        bash "$here/../multi30k-en-de/run.sh"
    vocabulary=$folder/source/data
    step "$folder/text" "$python" "$here/longer.py" join --data "$vocabulary" --train "$folder/source/text/train.lc.norm.tok" \
        --test "$folder/source/text/test_2016_flickr.lc.norm.tok" --output "$folder/text" --longest "$longest"
}
# europarl: the subwords of all pairs, and the held-out sentences.
europarl() {
    limits=${EUROPARL_LIMITS:-20 60} updates=${EUROPARL_UPDATES:-4000}
    seeds=("${europarl_seeds[@]}")
    lang=fr tokenize=13a sets=(natural) train=$EUROPARL/train valid=$folder/text/natural vocabulary=$folder/source
    step "$vocabulary" "${nmt[@]}" prepare --source-lang en --target-lang fr --train "$train" --valid "$EUROPARL/heldout" \
        --vocab-size "${VOCAB_SIZE:-8000}" --normalization nfkc --output "$vocabulary" "${prepare_flags[@]}"
    step "$folder/text" "$python" "$here/longer.py" select --data "$vocabulary" --test "$EUROPARL/heldout" --output "$folder/text" \
        --longest "$longest"
}
# model LIMIT SEED POSITIONS FLAG...: train, average, translate and score.
model() {
    local of=$folder/$3-$1-$2 baseline=$folder/sinusoidal-$1-$2 data=$folder/data-$1 seed=$2 kind=$3 set
    shift 3
    step "$of/model" "${nmt[@]}" train --data "$data" --output "$of/run" --config "$here/settings.toml" --positions "$kind" \
        --max-updates "$updates" --keep-last "$last" --seed "$seed" "$@"
    step "$of/model" "${nmt[@]}" average --run "$of/run" --last "$last" --output "$of/model"
    for set in "${sets[@]}"; do
        step "$of/$set.txt" "${nmt[@]}" translate --model "$of/model" --input "$folder/text/$set.en" --output "$of/$set.txt" \
            --engine torch --beam-size 4 --length-penalty gnmt --alpha 0.6 --threads 1
    done
    step "$of/scores.json" "$python" "$here/longer.py" score --data "$vocabulary" --text "$folder/text" --target-lang "$lang" \
        --tokenize "$tokenize" --folder "$of" --baseline "$baseline" --sets "${sets[@]}"
}
# tables: write the report, the tables and the figures of all finished models.
tables() {
    local finished=("$work"/*/*/scores.json)
    "${nmt[@]}" report "${finished[@]/%scores.json/run}" --json >"$work/report.json"
    "$python" "$here/longer.py" table --work "$work" ${plots:+--plot} >"$work/table.md"
}

for corpus in "${corpora[@]}"; do
    folder=$work/$corpus
    "$corpus" # defines all that differs between the corpora
    for seed in "${seeds[@]}"; do
        for limit in $limits; do
            step "$folder/data-$limit" "${nmt[@]}" prepare --source-lang en --target-lang "$lang" --vocabulary "$vocabulary" \
                --train "$train" --valid "$valid" --max-length "$limit" --output "$folder/data-$limit"
            for kind in "${positions[@]}"; do
                model "$limit" "$seed" "$kind" "$@"
                tables
            done
        done
    done
done
echo
cat "$work/table.md"
