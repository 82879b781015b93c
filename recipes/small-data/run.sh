#!/usr/bin/env bash
# Little data: models translate the training text in several ways, and the last one learns from all of it.
#
# 1. `bidirectional` is trained on each pair in both directions (Ding et al., 2021; a tag marks sources in the target language).
# 2. It translates both sides of the training text: `taught` and `back` are the most probable translations of the sources and of
# the targets, `sampled` are sampled sources. They are additional pairs (data diversification; Nguyen et al., 2020).
# 3. From its weights two models of one direction are trained: `teacher-1` on all these pairs, `teacher-2` on the references
# alone.
# 4. `teacher-3` starts from `teacher-1`, and `teacher-4` from `teacher-2`, with different seeds. Both learn from the pairs, the
# translations by both earlier teachers, `back` and `sampled`.
# 5. Together they translate the sources (`taught-3`), and in turn the sampled sources (`new`), which nobody wrote.
# 6. From the weights of `teacher-3`, `final-1` to `final-3` are trained on all these pairs with three seeds.
# 7. `plain` has the same layers and vocabulary, and learns from the references alone, from random weights. The translations of
# each final model are compared with its translations by a paired bootstrap test.
# BLIND: files of source text. The final model whose BLEU on the development set is in the middle translates them.
# TRAIN, VALID, TEST: prefixes of raw text, PREFIX.en and PREFIX.de.
# Variables: WORK (output folder, by default runs/small-data), NMT (the command, by default nmt), PYTHON (a Python that has
# nmt), SOURCE_LANG and TARGET_LANG (en, de), CONFIG (a folder with settings.toml for all training runs, and bidirectional.toml,
# teacher.toml, final.toml and plain.toml), WEIGHTS (of the corpora `pairs`, `taught-1` to `taught-3`, `new`, `back` and
# `sampled` in the last training), SAMPLES (per source, at least 1; 4), SEED (for the earlier models, 1; `teacher-4` uses the next
# one), SEEDS (of the final models, "1 2 3"), VOCAB_SIZE, PREPARE (more flags of the first nmt prepare; the others take its text
# settings from the model), LAST (checkpoints to average), TOKENIZE (of BLEU), SEARCH (flags for translating the test set, and
# for the teachers). multi30k.sh sets them for Multi30k.
# Uses: multi30k-en-de
# After each training, the table of all finished models is written to WORK/table.md.
# With different text or SAMPLES, use a different WORK.
# Flags go to all training runs: `TRAIN=text/train VALID=text/val TEST=text/test run.sh --devices 2 --threads 1`. To resume
# after an interruption, run the script again: it skips each step whose output exists, and stops at an output that was made with
# other settings.
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
: "${TRAIN:?name the prefix of the training text}" "${VALID:?}" "${TEST:?}"
work=${WORK:-$PWD/runs/small-data} config=${CONFIG:-$here}
src=${SOURCE_LANG:-en} trg=${TARGET_LANG:-de}
valid=$VALID test=$TEST tokenize=${TOKENIZE:-13a}
tag="<2$src>" samples=${SAMPLES:-4} seed=${SEED:-1}
read_seeds seeds SEEDS "1 2 3"
no_seed "$@"
words blind "${BLIND:-}"
((samples >= 1)) || { echo "SAMPLES is $samples, but must be at least 1" >&2 && exit 2; }
words search "${SEARCH:---beam-size 5 --length-penalty average --alpha 1}"
if [[ " ${prepare_flags[*]} " =~ \ --(tokenizer[\ =]moses|truecase|normalize-punctuation) ]]; then
    echo "PREPARE: --${BASH_REMATCH[1]} depends on the language, but this model reads both (process the text beforehand)" >&2
    exit 2
fi
TRAIN=$(realpath -m -- "$TRAIN") # awk would read NAME=VALUE as an assignment
text=$work/text
mkdir -p "$text"
readable "$TRAIN".{"$src","$trg"} "$VALID".{"$src","$trg"} "$TEST".{"$src","$trg"} "${blind[@]}"
rows=() # of the table: NAME=FOLDER+EARLIER..., see tables.py

# model NAME DATA SETTINGS FLAG...: train in $work/NAME on $work/DATA, average the checkpoints, and translate the development
# and test sets.
model() {
    local folder=$work/$1 data=$work/$2 settings=$config/$3
    shift 3
    step "$folder/model" "${nmt[@]}" train --data "$data" --output "$folder/run" --config "$config/settings.toml" \
        --config "$settings" --keep-last "${LAST:-4}" "$@"
    step "$folder/model" "${nmt[@]}" average --run "$folder/run" --last "${LAST:-4}" --output "$folder/model"
    translate_sets "$folder"
}
# table NAME=FOLDER...: add a row, and write the table of all rows so far.
table() {
    local finished=("$work"/*/test.json)
    rows+=("$1")
    write "$work/report.json" "${nmt[@]}" report "${finished[@]/%test.json/run}" --json
    write "$work/table.md" "$python" "$here/../tables.py" --work "$work" --against plain -- "${rows[@]}"
}
# write_text NAMES INPUT OUTPUT FLAG...: translate with one model, or with several as an ensemble.
write_text() {
    local names=$1 input=$2 output=$3 name models=()
    shift 3
    for name in $names; do models+=(--model "$work/$name/model"); done
    step "$output" "${nmt[@]}" translate "${models[@]}" --input "$input" --output "$output" "$@"
}
# prepare NAME FLAG...: prepare training text as $work/NAME.
prepare() {
    local output=$work/$1
    shift
    step "$output" "${nmt[@]}" prepare --source-lang "$src" --target-lang "$trg" --valid "$VALID" --output "$output" "$@"
}

# `awk 1` ends the last line with LF if necessary. An empty line stays empty, so that its pair is dropped.
awk -v tag="$tag" '{ print NF ? tag " " $0 : "" }' "$TRAIN.$trg" >"$text/tagged"
awk 1 "$TRAIN.$src" "$text/tagged" >"$text/both.$src"
awk 1 "$TRAIN.$trg" "$TRAIN.$src" >"$text/both.$trg"
prepare both --train "$text/both" --user-symbols "$tag" --vocab-size "${VOCAB_SIZE:-5000}" --normalization nfkc \
    "${prepare_flags[@]}"
model bidirectional both bidirectional.toml --seed "$seed" "$@"
table bidirectional=bidirectional

for name in taught taught-1 taught-2 taught-3; do ln -sf "$(realpath "$TRAIN.$src")" "$text/$name.$src"; done
ln -sf "$(realpath "$TRAIN.$trg")" "$text/back.$trg"
write_text bidirectional "$TRAIN.$src" "$text/taught.$trg" --beam-size 5
write_text bidirectional "$text/tagged" "$text/back.$src" --beam-size 5
sources=() targets=()
for ((sample = 1; sample <= samples; sample++)); do
    write_text bidirectional "$text/tagged" "$text/sample-$sample" --decoder sampling --top-p 0.9 --sampling-seed "$sample"
    sources+=("$text/sample-$sample") targets+=("$TRAIN.$trg")
done
awk 1 "${sources[@]}" >"$text/sampled.$src"
awk 1 "${targets[@]}" >"$text/sampled.$trg"
shared=(--vocabulary "$work/bidirectional/model" --train "pairs=$TRAIN" --train "back=$text/back" --train "sampled=$text/sampled")
prepare round-1 "${shared[@]}" --train "taught=$text/taught"
start=(--init-from "$work/bidirectional/model")
model teacher-1 round-1 teacher.toml "${start[@]}" --data-weights "pairs=2 taught=1 back=1 sampled=1" --seed "$seed" "$@"
table teacher-1=teacher-1+bidirectional
model teacher-2 round-1 teacher.toml "${start[@]}" --data-weights "pairs=1" --seed "$seed" "$@"
table teacher-2=teacher-2+bidirectional

for teacher in 1 2; do write_text "teacher-$teacher" "$TRAIN.$src" "$text/taught-$teacher.$trg" "${search[@]}"; done
shared+=(--train "taught-1=$text/taught-1" --train "taught-2=$text/taught-2")
prepare round-2 "${shared[@]}"
for number in 3 4; do
    model "teacher-$number" round-2 final.toml --init-from "$work/teacher-$((number - 2))/model" \
        --data-weights "pairs=3 taught-1=1 taught-2=1 back=1 sampled=1" --seed "$((seed + number - 3))" "$@"
    table "teacher-$number=teacher-$number+teacher-1+teacher-2+bidirectional"
done

write_text "teacher-3 teacher-4" "$TRAIN.$src" "$text/taught-3.$trg" "${search[@]}"
targets=()
for ((sample = 1; sample <= samples; sample++)); do
    targets+=("$text/sample-$sample.$trg")
    write_text "teacher-$((3 + (sample - 1) % 2))" "$text/sample-$sample" "$text/sample-$sample.$trg" "${search[@]}"
done
awk 1 "${sources[@]}" >"$text/new.$src"
awk 1 "${targets[@]}" >"$text/new.$trg"
prepare round-3 "${shared[@]}" --train "taught-3=$text/taught-3" --train "new=$text/new"
finals=()
for seed in "${seeds[@]}"; do
    model "final-$seed" round-3 final.toml --init-from "$work/teacher-3/model" \
        --data-weights "${WEIGHTS:-pairs=3 taught-1=1 taught-2=1 taught-3=2 new=2 back=1 sampled=1}" --seed "$seed" "$@"
    table "final-$seed=final-$seed+teacher-1+teacher-2+teacher-3+teacher-4+bidirectional+text"
    finals+=("${rows[-1]#*=}")
done

# The final model in the middle on the development set; of an even number, the lower one.
middle=$(for seed in "${seeds[@]}"; do
    "$python" -c 'import json, sys; print("%.2f" % json.load(open(sys.argv[1]))[0]["value"], sys.argv[2])' \
        "$work/final-$seed/valid.json" "final-$seed"
done | sort -g | sed -n "$(((${#seeds[@]} + 1) / 2))s/.* //p")
for source in "${blind[@]}"; do
    name=$(basename "$source")
    name=$work/blind/${name%%.*}.$trg
    write_text "$middle" "$(realpath "$source")" "$name" "${search[@]}"
done

model plain round-1 plain.toml --data-weights "pairs=1" --seed "${SEED:-1}" "$@"
for seed in "${seeds[@]}"; do
    against "$work/final-$seed/against-plain.json" "$work/plain" "$work/final-$seed"
done
IFS=, && finals=("final, mean=${finals[*]}") && unset IFS
rows+=("${finals[@]}")
table plain=plain
curves "$work"/{plain,bidirectional,teacher-{1..4},"final-${seeds[0]}"}/run
echo
cat "$work/table.md"
echo "in the middle on the development set: $middle"
