#!/usr/bin/env bash
# WMT14 English to French: the recipe of English to German with two more corpora and the sizes of the paper's English to French.
here=$(dirname "${BASH_SOURCE[0]}")
TARGET_LANG=fr LOCK=${LOCK:-$here/data.lock} exec "$here/../wmt14-en-de/run.sh" "$@"
