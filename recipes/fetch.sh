#!/usr/bin/env bash
# Brings the text files of a recipe into a folder, whole and with the sha256 that was seen first, or not at all.
#
#   fetch.sh FROM TO LOCK FILE...
#
# FROM: a folder or the address (https://, file://) of one; FILE: a path in it, gzip or not: FILE and FILE.gz are tried.
# TO: gets each file as plain text under its own name, without .gz. A file that stands there is not fetched again.
# LOCK: lines "sha256  name" of the plain texts. A name that is missing is written there when it is first fetched, and
# demanded ever after. A download that was cut goes on where it stopped.
set -euo pipefail

from=${1%/} to=$2 lock=$3
shift 3
mkdir -p "$to"

stop() {
    echo "fetch: error: $1" >&2
    exit "$2"
}

# Copy or download $1 to $2; a part that is there is completed.
download() {
    if [[ $1 != *://* ]]; then
        cp "$1" "$2"
        return
    fi
    local get=(curl --fail --silent --show-error --location --retry 3 --connect-timeout 30 --output "$2") code=0
    "${get[@]}" --continue-at - "$1" || code=$?
    if [[ -e $2 && $code =~ ^(22|33|36)$ ]]; then # what is there cannot be gone on with: perhaps it is all of it
        rm "$2"
        code=0
        "${get[@]}" "$1" || code=$?
    fi
    return "$code"
}

# Whether the text $1 is what the lock demands of $2; what it does not know yet, it learns.
locked() {
    local found wanted
    found=$(sha256sum <"$1" | cut -d ' ' -f 1)
    wanted=$(awk -v name="$2" '$2 == name { print $1 }' "$lock" 2>/dev/null || true)
    if [[ -z $wanted ]]; then
        echo "$found  $2" >>"$lock"
    elif [[ $found != "$wanted" ]]; then
        echo "fetch: $2 has sha256 $found, $lock demands $wanted" >&2
        return 1
    fi
}

for file in "$@"; do
    name=$(basename "$file" .gz)
    if [[ -e $to/$name ]]; then
        locked "$to/$name" "$name" || stop "$to/$name is not the file it was (remove it to fetch it again)" 4
        continue
    fi
    other=$file.gz
    [[ $file != *.gz ]] || other=${file%.gz}
    for path in "$file" "$other"; do
        part=$to/.part.$(basename "$path") plain=$to/.plain.$name
        download "$from/$path" "$part" 2>"$to/.message" && break
        path=
    done
    [[ -n $path ]] || stop "$from/$file: $(tail -n 1 "$to/.message") (name a folder or a mirror with DATA=...)" 5
    if [[ $path == *.gz ]]; then
        gzip -dc "$part" >"$plain" || { rm -f "$part" "$plain" && stop "$from/$path: damaged" 4; }
    else
        cp "$part" "$plain"
    fi
    locked "$plain" "$name" || { rm -f "$part" "$plain" && stop "$from/$path is not the file that was expected" 4; }
    mv "$plain" "$to/$name"
    rm -f "$part" "$to/.message"
    echo "fetched $name" >&2
done
