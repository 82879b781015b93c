#!/usr/bin/env bash
# Table 2 of "Attention Is All You Need": train base and big on both tasks, and print the table with their rows below it.
#
# Variables: PAIRS and MODELS choose the rows; RUNS is the folder of all output; the others are those of the WMT14 recipes,
# without WORK. Flags go to nmt train. A second call continues where the first stopped.
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
