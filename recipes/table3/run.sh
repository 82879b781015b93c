#!/usr/bin/env bash
# Table 3 of "Attention Is All You Need" at home: every row at a quarter of the widths, on Multi30k En-De.
#
# Each row varies the base model as in the paper: heads (A), the size of keys (B), layers and widths (C), dropout and label smoothing
# (D), learned positions (E), and the big model, which trains three times as long. Layers, heads, dropout and label smoothing are
# the paper's; all widths are divided by SCALE. The text is lower-cased and tokenised. Search: beam 4, alpha 0.6, the average of
# five checkpoints. Each row is compared with the base model of the same seed by a paired bootstrap test.
# Variables: DATA (a folder or mirror with the layout of github.com/multi30k/dataset; by default the data is downloaded), WORK
# (output folder, by default runs/table3), NMT (the command, by default nmt), PYTHON (a Python that has nmt), ROWS (by default all,
# see table3.py), SCALE (4), UPDATES (2400; of big three times as many), SEEDS (of the base model, "1 2 3"), ROW_SEEDS (of all other
# rows, "1"; the base model needs the same seeds), LAST (checkpoints to average, 5), VOCAB_SIZE, PREPARE, LOCK.
# Flags go to all trainings: `run.sh --threads 1`. To resume after an interruption, run the script again: it skips each step
# whose output exists, and stops at an output that was made with other settings.
# After each training, the table of all finished models is written to WORK/table.md, and the figure to WORK/table3.svg.
# Uses: multi30k-en-de
# With --dry-run, the recipe ends after the estimate of its first training.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=recipes/steps.sh
. "$here/../steps.sh"
work=${WORK:-$PWD/runs/table3} last=${LAST:-5} updates=${UPDATES:-2400}
read -ra rows <<<"${ROWS:-a-h1 a-h4 a-h16 a-h32 b-dk16 b-dk32 c-n2 c-n4 c-n8 c-d256 c-d1024 c-ff1024 c-ff4096 d-dropout0 d-dropout2 \
d-smoothing0 d-smoothing2 e-learned big}"
read_seeds seeds SEEDS "1 2 3"
read_seeds row_seeds ROW_SEEDS 1
no_seed "$@"
valid=$work/text/val.lc.norm.tok test=$work/text/test_2016_flickr.lc.norm.tok src=en trg=de tokenize=none
search=(--beam-size 4 --length-penalty gnmt --alpha 0.6)
plots=yes
"$python" -c "import matplotlib" 2>/dev/null || plots=
[[ -n $plots ]] || echo "no figure: matplotlib is not installed" >&2

# model ROW SEED FLAG...: train, average, translate the development and test sets, and write the table of all finished models.
model() {
    local folder=$work/$1-$2 row=$1 seed=$2 most=$updates
    shift 2
    [[ $row != big ]] || most=$((3 * updates))
    mkdir -p "$folder"
    write "$folder/row.toml" "$python" "$here/table3.py" settings "$row" --scale "${SCALE:-4}"
    step "$folder/model" "${nmt[@]}" train --data "$work/data" --output "$folder/run" --config "$here/settings.toml" \
        --config "$folder/row.toml" --max-updates "$most" --keep-last "$last" --seed "$seed" "$@"
    step "$folder/model" "${nmt[@]}" average --run "$folder/run" --last "$last" --output "$folder/model"
    translate_sets "$folder"
    [[ $row == base ]] || against "$folder/against-base.json" "$work/base-$seed" "$folder"
    local finished=("$work"/*/test.json)
    write "$work/report.json" "${nmt[@]}" report "${finished[@]/%test.json/run}" --json
    write "$work/table.md" "$python" "$here/table3.py" table --work "$work" ${plots:+--plot}
}

ONLY_DATA=yes WORK=$work PROTOCOL=tokenised TESTS=test_2016_flickr TARGET_LANG=de VOCAB_SIZE=${VOCAB_SIZE:-6000} \
    bash "$here/../multi30k-en-de/run.sh"
for seed in "${seeds[@]}"; do model base "$seed" "$@"; done
for seed in "${row_seeds[@]}"; do
    for row in "${rows[@]}"; do model "$row" "$seed" "$@"; done
done
echo
cat "$work/table.md"
