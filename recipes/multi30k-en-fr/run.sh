#!/usr/bin/env bash
# Multi30k English to French: the recipe of English to German with another target, all else alike.
TARGET_LANG=fr exec "$(dirname "${BASH_SOURCE[0]}")/../multi30k-en-de/run.sh" "$@"
