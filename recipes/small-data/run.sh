#!/usr/bin/env bash
# Little data: models translate the training text in several ways, and the last one learns from all of it.
#
# 1. `bidirectional` is trained on each pair in both directions (Ding et al., 2021; a tag marks sources in the target language).
# 2. It translates both sides of the training text: `taught` and `back` are the most probable translations of the sources and of
# the targets, `sampled` are sampled sources. They are additional pairs (data diversification; Nguyen et al., 2020).
# 3. From its weights two models of one direction are trained: `teacher-1` on all these pairs, `teacher-2` on the references
# alone.
# 4. From the weights of `teacher-1`, `teacher-3` to `teacher-5` are trained with three seeds, on the pairs, the translations by
# both teachers, `back` and `sampled`.
# 5. Together they translate the sources (`taught-3`), and in turn the sampled sources (`new`), which nobody wrote.
# 6. From the weights of `teacher-3`, `final` is trained on all these pairs.
# TRAIN, VALID, TEST: prefixes of raw text, PREFIX.en and PREFIX.de.
# Variables: WORK (output folder, by default runs/small-data), NMT (the command, by default nmt), PYTHON (a Python that has
# nmt), SOURCE_LANG and TARGET_LANG (en, de), CONFIG (a folder with settings.toml for all training runs, and bidirectional.toml,
# teacher.toml and final.toml), WEIGHTS (of the corpora `pairs`, `taught-1` to `taught-3`, `new`, `back` and `sampled` in the
# last training), SAMPLES (per source, at least 1; 4), SEED (for all training runs, 1; `teacher-4` and `teacher-5` use the next
# two), VOCAB_SIZE, PREPARE (more flags of the first nmt prepare; the others take its text settings from the model), LAST
# (checkpoints to average), TOKENIZE (of BLEU), SEARCH (flags for translating the test set, and for the teachers).
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
tag="<2$src>" samples=${SAMPLES:-4} seed=${SEED:-1}
((samples >= 1)) || { echo "SAMPLES is $samples, but must be at least 1" >&2 && exit 2; }
set -- --seed "$seed" "$@"
words search "${SEARCH:---beam-size 5 --length-penalty average --alpha 1}"
if [[ " ${prepare_flags[*]} " =~ \ --(tokenizer[\ =]moses|truecase|normalize-punctuation) ]]; then
    echo "PREPARE: --${BASH_REMATCH[1]} depends on the language, but this model reads both (process the text beforehand)" >&2
    exit 2
fi
TRAIN=$(realpath -m -- "$TRAIN") # awk would read NAME=VALUE as an assignment
text=$work/text
mkdir -p "$text"
readable "$TRAIN".{"$src","$trg"} "$VALID".{"$src","$trg"} "$TEST".{"$src","$trg"}

# model NAME DATA SETTINGS FLAG...: train in $work/NAME on $work/DATA, average the checkpoints, and translate the test set.
model() {
    local folder=$work/$1 data=$work/$2 settings=$config/$3
    shift 3
    step "$folder/model" "${nmt[@]}" train --data "$data" --output "$folder/run" --config "$config/settings.toml" \
        --config "$settings" --keep-last "${LAST:-4}" "$@"
    step "$folder/model" "${nmt[@]}" average --run "$folder/run" --last "${LAST:-4}" --output "$folder/model"
    step "$folder/test" "${nmt[@]}" translate --model "$folder/model" --input "$TEST.$src" --output "$folder/test" "${search[@]}"
}
# write NAMES INPUT OUTPUT FLAG...: translate with one model, or with several as an ensemble.
write() {
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
model bidirectional both bidirectional.toml "$@"

for name in taught taught-1 taught-2 taught-3; do ln -sf "$(realpath "$TRAIN.$src")" "$text/$name.$src"; done
ln -sf "$(realpath "$TRAIN.$trg")" "$text/back.$trg"
write bidirectional "$TRAIN.$src" "$text/taught.$trg" --beam-size 5
write bidirectional "$text/tagged" "$text/back.$src" --beam-size 5
sources=() targets=()
for ((sample = 1; sample <= samples; sample++)); do
    write bidirectional "$text/tagged" "$text/sample-$sample" --decoder sampling --top-p 0.9 --sampling-seed "$sample"
    sources+=("$text/sample-$sample") targets+=("$TRAIN.$trg")
done
awk 1 "${sources[@]}" >"$text/sampled.$src"
awk 1 "${targets[@]}" >"$text/sampled.$trg"
shared=(--vocabulary "$work/bidirectional/model" --train "pairs=$TRAIN" --train "back=$text/back" --train "sampled=$text/sampled")
prepare round-1 "${shared[@]}" --train "taught=$text/taught"
start=(--init-from "$work/bidirectional/model")
model teacher-1 round-1 teacher.toml "${start[@]}" --data-weights "pairs=2 taught=1 back=1 sampled=1" "$@"
model teacher-2 round-1 teacher.toml "${start[@]}" --data-weights "pairs=1" "$@"

for teacher in 1 2; do write "teacher-$teacher" "$TRAIN.$src" "$text/taught-$teacher.$trg" "${search[@]}"; done
shared+=(--train "taught-1=$text/taught-1" --train "taught-2=$text/taught-2")
prepare round-2 "${shared[@]}"
for ((number = 0; number < 3; number++)); do
    model "teacher-$((number + 3))" round-2 final.toml --init-from "$work/teacher-1/model" \
        --data-weights "pairs=3 taught-1=1 taught-2=1 back=1 sampled=1" "$@" --seed "$((seed + number))"
done

write "teacher-3 teacher-4 teacher-5" "$TRAIN.$src" "$text/taught-3.$trg" "${search[@]}"
targets=()
for ((sample = 1; sample <= samples; sample++)); do
    targets+=("$text/sample-$sample.$trg")
    write "teacher-$((3 + (sample - 1) % 3))" "$text/sample-$sample" "$text/sample-$sample.$trg" "${search[@]}"
done
awk 1 "${sources[@]}" >"$text/new.$src"
awk 1 "${targets[@]}" >"$text/new.$trg"
prepare round-3 "${shared[@]}" --train "taught-3=$text/taught-3" --train "new=$text/new"
model final round-3 final.toml --init-from "$work/teacher-3/model" \
    --data-weights "${WEIGHTS:-pairs=3 taught-1=1 taught-2=1 taught-3=2 new=2 back=1 sampled=1}" "$@"

echo
figure "little data, $src-$trg" "BLEU" ""
for name in bidirectional teacher-{1..5} final; do
    scores=$(bleu "$work/$name/test" "$TEST.$trg" --tokenize "${TOKENIZE:-13a}")
    figure "$name" "${scores%%  *}" ""
done
echo "signature: ${scores##*  }"
