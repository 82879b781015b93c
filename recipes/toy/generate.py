"""Generate sentences of a small English grammar, each with its one translation into German or French.

A hash of its English side assigns a sentence to the training, validation or test set: no sentence is in two sets,
whatever the seed and the sizes.
"""

import argparse
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import english
import french
import german
from meaning import Sentence, draw

LANGUAGES: Final[dict[str, Callable[[Sentence], list[str]]]] = {
    "en": english.realise,
    "de": german.realise,
    "fr": french.realise,
}
TEST_BUCKETS, VALID_BUCKETS = 8, 8  # out of 256 hash values


def text(words: list[str]) -> str:
    """Words and commas as a line of text: capital first, full stop last, no two commas in a row."""
    line = " ".join(words).replace(" ,", ",").replace(",,", ",").rstrip(",") + "."
    return line[0].upper() + line[1:]


def split_of(source: str) -> str:
    """The set that an English sentence belongs to."""
    byte = hashlib.sha256(source.encode()).digest()[0]
    return "test" if byte < TEST_BUCKETS else "valid" if byte < TEST_BUCKETS + VALID_BUCKETS else "train"


def pairs(target_lang: str, seed: int) -> Iterator[tuple[str, str]]:
    """Different English sentences and their translations, determined by the seed."""
    rng = Random(seed)
    seen = set()
    while True:
        meaning = draw(rng)
        source = text(LANGUAGES["en"](meaning))
        if source not in seen:
            seen.add(source)
            yield source, text(LANGUAGES[target_lang](meaning))


def write(target_lang: str, sizes: dict[str, int], seed: int, output: Path) -> None:
    """Write OUTPUT/{train,valid,test}.{en,de}, each file atomically."""
    lines: dict[str, list[tuple[str, str]]] = {split: [] for split in sizes}
    for pair in pairs(target_lang, seed):
        split = split_of(pair[0])
        if len(lines[split]) < sizes[split]:
            lines[split].append(pair)
        if all(len(lines[split]) == size for split, size in sizes.items()):
            break
    output.mkdir(parents=True, exist_ok=True)
    for split, chosen in lines.items():
        for side, language in enumerate(("en", target_lang)):
            path = output / f"{split}.{language}"
            partial = path.with_name(path.name + ".partial")
            partial.write_bytes("".join(pair[side] + "\n" for pair in chosen).encode())
            partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target-lang", choices=("de", "fr"), default="de")
    parser.add_argument("--train", type=int, default=40_000, help="sentence pairs")
    parser.add_argument("--valid", type=int, default=300, help="sentence pairs")
    parser.add_argument("--test", type=int, default=1000, help="sentence pairs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    given = parser.parse_args()
    sizes = {"train": given.train, "valid": given.valid, "test": given.test}
    write(given.target_lang, sizes, given.seed, given.output)


if __name__ == "__main__":
    main()
