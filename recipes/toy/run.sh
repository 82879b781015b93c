#!/usr/bin/env bash
# A toy language: from generated text to a translation in minutes on two CPU cores, without a download.
# Without flags it first shows how an unfinished model, after 100 updates, translates a sentence.
#
# Variables: TARGET_LANG (de or fr), WORK (output folder, by default runs/toy), NMT (the command, by default nmt), PYTHON (a
# Python that has nmt), TRAIN and TEST (numbers of pairs), VOCAB_SIZE.
# Flags go to nmt train: `run.sh --max-updates 300`. To resume after an interruption, run the script again: it skips each step
# whose output exists, and stops at an output that was made with other settings.
# With --dry-run, the recipe ends after the estimate for its first training run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
lang=${TARGET_LANG:-de}
work=${WORK:-$PWD/runs/toy${TARGET_LANG:+-$TARGET_LANG}}
text=$work/text data=$work/data model=$work/model output=$work/test.$lang reference=$work/text/test.$lang
mkdir -p "$work"

step "$reference" "$python" "$here/generate.py" \
    --target-lang "$lang" --train "${TRAIN:-50000}" --test "${TEST:-1000}" --output "$text"
step "$data" "${nmt[@]}" prepare --source-lang en --target-lang "$lang" --train "$text/train" --valid "$text/valid" \
    --vocab-size "${VOCAB_SIZE:-1600}" --normalization nfkc --output "$data"
train=("${nmt[@]}" train --data "$data" --output "$work/run" --config "$here/settings.toml")
if [[ $# -eq 0 && ! -e $work/run && ! -e $model ]]; then
    echo "== after $SECONDS s: the first 100 updates, for a first look; training then continues, with the same result" >&2
    "${train[@]}" --max-updates 100 --valid-metrics none
    sentence="The dog can open a door." look=$work/first-look.$lang
    "${nmt[@]}" translate --model "$work/run" <<<"$sentence" >"$look"
    printf '\na first look at the unfinished model, after %s s:\nsource       %s\ntranslation  %s\n\n' \
        "$SECONDS" "$sentence" "$(<"$look")"
fi
step "$model" "${train[@]}" "$@"
step "$model" "${nmt[@]}" average --run "$work/run" --last 4 --output "$model"
step "$output" "${nmt[@]}" translate --model "$model" --input "$text/test.en" --output "$output"

scores=$(bleu "$output" "$reference")
right=$(paste -d '\n' "$output" "$reference" | awk 'NR % 2 { translation = $0; next } translation == $0 { n++ } END { print n + 0 }')
echo
figure "held-out BLEU" "${scores%% *}" "expected >= 90"
figure "held-out sentences translated exactly" "$right of $(wc -l <"$output")" "expected >= 80 %"
figure "time of this run" "$SECONDS s" "expected < 480 s"
echo "signature: ${scores##*  }"
paste -d '\n' "$text/test.en" "$output" "$reference" |
    awk 'NR <= 9 { print (NR % 3 == 1 ? "\nsource       " : NR % 3 == 2 ? "translation  " : "reference    ") $0 }'
