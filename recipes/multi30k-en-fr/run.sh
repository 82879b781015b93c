#!/usr/bin/env bash
# Multi30k, English to French: the recipe multi30k-en-de with another target language.
#
# The tokenised protocol needs 11,000 updates; for German 8,000 are enough. Variables and flags are those of multi30k-en-de.
# Uses: multi30k-en-de
flags=()
[ "${PROTOCOL:-tokenised}" = tokenised ] && flags=(--max-updates 11000)
TARGET_LANG=fr exec bash "$(dirname "${BASH_SOURCE[0]}")/../multi30k-en-de/run.sh" "${flags[@]}" "$@"
