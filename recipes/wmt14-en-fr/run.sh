#!/usr/bin/env bash
# WMT14, English to French: the recipe wmt14-en-de with two more corpora and the paper's sizes for this pair.
#
# Variables and flags are those of wmt14-en-de.
# Uses: wmt14-en-de
here=$(dirname "${BASH_SOURCE[0]}")
TARGET_LANG=fr LOCK=${LOCK:-$here/data.lock} exec bash "$here/../wmt14-en-de/run.sh" "$@"
