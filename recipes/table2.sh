#!/usr/bin/env bash
# Table 2 of "Attention Is All You Need": both tasks, base and big, one after the other, and the table with their rows below it.
#
# Everything that the recipes take may be set (MIRROR, WORK is theirs alone); PAIRS and MODELS choose among the rows. Flags go to
# nmt train. Interrupted, it goes on where it stopped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
runs=${RUNS:-$here/../runs/table2} rows=()
read -ra pairs <<<"${PAIRS:-en-de en-fr}"
read -ra models <<<"${MODELS:-base big}"
read -ra nmt <<<"${NMT:-nmt}"
for pair in "${pairs[@]}"; do
    work=$runs/$pair-${RECIPE:-paper}
    for model in "${models[@]}"; do
        MODEL=$model WORK=$work "$here/wmt14-$pair/run.sh" "$@"
        rows+=("$work/$model/run")
        scores+=(--scores "$work/$model/run=$work/$model/scores.json")
    done
done
"${nmt[@]}" report "${rows[@]}" "${scores[@]}" --html "$runs/table2.html"
