"""Convert Penn trees to pairs of lines, words and linearised tree (Vinyals et al., 2015, section 2), and back.

A linearised tree is the tree from left to right: `(NP` opens a constituent, `)NP` closes it, and each word between them is
its part-of-speech tag or `XX`. The root TOP is omitted.

    trees.py linearise TREES PREFIX                writes PREFIX.words, PREFIX.tree and PREFIX.align
    trees.py restore WORDS LINEARISED TREES        writes TREES, with an empty line for an invalid linearised tree
    trees.py words SENTENCES WORDS                 writes the words of plain sentences, with -LRB- for ( and -RRB- for )
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from nmt.extensions.scores.metrics.bracket_f1 import DELETED, read_tree
from nmt.files import write_output
from nmt.text.corpus import text_lines

PART = re.compile(
    r"\s*(?:\(\s*([^\s()]+)\s+([^\s()]+)\s*\)|\(\s*([^\s()]*)|(\)))\s*"
)  # a word, an opening or a closing bracket
ROOTS = ("", "TOP", "ROOT")  # names of the root in treebanks and parser output
WORD = "XX"
BRACKETS = {"(": "-LRB-", ")": "-RRB-"}


def linearise(tree: str, tags: bool = False) -> tuple[list[str], list[str]]:
    """The words and the linearised tree of a Penn tree.

    tags: whether to write the tag of every word; otherwise only of punctuation, which EVALB ignores
    Raises ValueError for a line that is not one tree.
    """
    words: list[str] = []
    tokens: list[str] = []
    opened: list[str] = []
    position = 0
    while position < len(tree):
        part = PART.match(tree, position)
        if part is None or (position and not opened):
            raise ValueError(f"column {position + 1}: not a Penn tree")
        position = part.end()
        tag, word, label, closing = part.groups()
        if word is not None:
            words.append(word)
            tokens.append(tag if tags or tag in DELETED else WORD)
        elif closing is None:
            opened.append(label)
            tokens.append(f"({label}")
        elif opened:
            tokens.append(f"){opened.pop()}")
    if tokens and tokens[0][1:] in ROOTS:
        tokens = tokens[1:-1]
    read = read_tree(" ".join(tokens))
    if opened or read is None or not words:
        raise ValueError("not a Penn tree: brackets do not match, or there is no word")
    return words, tokens


def next_words(tokens: Sequence[str]) -> str:
    """Links from each token of a linearised tree to the next word at that point; at the end, to the last word.

    The format is that of `nmt prepare --column NAME:links=FILE`: `0-0 0-1 1-2` (word-token).
    """
    is_word = [token[0] not in "()" for token in tokens]
    before = accumulate(is_word, initial=0)
    return " ".join(f"{min(word, sum(is_word) - 1)}-{i}" for i, word in enumerate(list(before)[:-1]))


def restore(words: Sequence[str], tokens: Sequence[str]) -> str:
    """The Penn tree of words and a linearised tree. Raises ValueError unless it is a tree over exactly these words."""
    tree = read_tree(" ".join(tokens))
    if tree is None or len(tree.tags) != len(words):
        raise ValueError(f"not a tree over {len(words)} words")
    rest = iter(words)
    parts = (
        ")" if token[0] == ")" else f" {token}" if token[0] == "(" else f" ({token} {next(rest)})" for token in tokens
    )
    return f"(TOP{''.join(parts)})"


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file that appears only when complete."""
    write_output(path, "".join(f"{line}\n" for line in lines).encode())


def linearise_file(trees: Path, prefix: str, tags: bool) -> None:
    """Write the words, linearised trees and their links. A line that is not a Penn tree is reported and skipped."""
    pairs = []
    for number, line in enumerate(text_lines(trees), 1):
        try:
            pairs.append(linearise(line, tags))
        except ValueError as error:
            print(f"{trees}:{number}: skipped: {error}", file=sys.stderr)
    Path(prefix).parent.mkdir(parents=True, exist_ok=True)
    write_lines(Path(f"{prefix}.words"), (" ".join(words) for words, _ in pairs))
    write_lines(Path(f"{prefix}.align"), (next_words(tokens) for _, tokens in pairs))
    write_lines(Path(f"{prefix}.tree"), (" ".join(tokens) for _, tokens in pairs))


def restored(words: Path, linearised: Path) -> Iterator[str]:
    """The Penn trees of two files, with an empty line for an invalid linearised tree."""
    for line, tokens in zip(text_lines(words), text_lines(linearised), strict=True):
        try:
            yield restore(line.split(" "), tokens.split())
        except ValueError:
            yield ""


def words_of(sentence: str) -> list[str]:
    """The words of a sentence, separated by spaces. A bracket gets the name that it has in a treebank."""
    return [re.sub("[()]", lambda found: BRACKETS[found[0]], word) for word in sentence.split()]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("linearise")
    one.add_argument("--tags", action="store_true", help="write the tag of each word instead of XX")
    one.add_argument("trees", type=Path)
    one.add_argument("prefix")
    other = commands.add_parser("restore")
    for name in ("words", "linearised", "trees"):
        other.add_argument(name, type=Path)
    plain = commands.add_parser("words")
    for name in ("sentences", "words"):
        plain.add_argument(name, type=Path)
    given = parser.parse_args(arguments)
    if given.command == "words":
        write_lines(given.words, (" ".join(words_of(line)) for line in text_lines(given.sentences)))
    elif given.command == "linearise":
        linearise_file(given.trees, given.prefix, given.tags)
    else:
        write_lines(given.trees, restored(given.words, given.linearised))


if __name__ == "__main__":
    main()
