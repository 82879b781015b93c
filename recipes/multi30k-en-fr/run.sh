#!/usr/bin/env bash
# Multi30k English to French: the recipe of English to German with another target. The tokenised protocol takes 11,000
# updates; for German 8,000 suffice.
flags=()
[ "${PROTOCOL:-tokenised}" = tokenised ] && flags=(--max-updates 11000)
TARGET_LANG=fr exec "$(dirname "${BASH_SOURCE[0]}")/../multi30k-en-de/run.sh" "${flags[@]}" "$@"
