"""Which source word each target word translates, by attention; and words put in where a model knows none (PosUnk)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.errors import InputError, quoted
from nmt.symbols import UNK
from nmt.text.corpus import lines
from nmt.text.pipeline import Side

Weights = NDArray[np.floating[Any]]
Pair = tuple[int, int]  # (source word, target word), counted from 0

PAIR: Final = re.compile(r"([0-9]+)([-p])([0-9]+)")


@dataclass(frozen=True)
class ReferenceAlignment:
    """How a sentence is truly aligned. sure: pairs beyond doubt; possible: those, and pairs that may be left out."""

    sure: frozenset[Pair]
    possible: frozenset[Pair]


@dataclass(frozen=True)
class Agreement:
    """Of found alignments with true ones (Och and Ney, 2003, section 6), each from 0 to 1; error_rate is AER."""

    precision: float
    recall: float
    error_rate: float


def word_weights(weights: Weights, source: Sequence[int], target: Sequence[int]) -> Weights:
    """Attention of words to words: summed over a source word's tokens, and the mean over a target word's tokens.

    weights: (..., target tokens, source tokens), what stands behind them (EOS) left out
    source, target: the word of each token
    """
    into_source = np.eye(max(source, default=-1) + 1)[list(source)]  # tokens words
    into_target = np.eye(max(target, default=-1) + 1)[list(target)]
    counts = np.maximum(into_target.sum(0), 1)[:, None]
    found: Weights = into_target.T @ weights[..., : len(target), : len(source)] @ into_source / counts
    return found


def hard_alignment(weights: Weights) -> list[Pair]:
    """(source, target) of each target word and the source word it looks at most."""
    return [(int(row.argmax()), number) for number, row in enumerate(weights) if row.size]


def threshold_alignment(weights: Weights, threshold: float) -> list[Pair]:
    """(source, target) of all pairs with more attention than a threshold."""
    return [(int(source), number) for number, row in enumerate(weights) for source in np.flatnonzero(row > threshold)]


def pharaoh(pairs: Iterable[Pair]) -> str:
    """Pairs as Pharaoh writes them, `0-0 2-1`: counted from 0, the source first, in its order."""
    return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def read_gold(path: Path) -> list[ReferenceAlignment]:
    """True alignments, a line a sentence: Pharaoh's `0-0 2-1` for sure pairs, `3p1` for those that are only possible."""
    found = []
    for number, line in enumerate(lines(path), 1):
        sure, possible = set(), set()
        for word in line.split():
            if (parts := PAIR.fullmatch(word)) is None:
                raise InputError(
                    f"{quoted(path)}:{number}: {quoted(word)} is no pair (0-0 for a sure one, 0p0 for a possible)"
                )
            pair = int(parts[1]), int(parts[3])
            possible.add(pair)
            if parts[2] == "-":
                sure.add(pair)
        found.append(ReferenceAlignment(frozenset(sure), frozenset(possible)))
    return found


def agreement(found: Sequence[Iterable[Pair]], gold: Sequence[ReferenceAlignment]) -> Agreement:
    """How far alignments A agree with true ones, S sure and P possible, all sentences taken together.

    Precision is |A & P| / |A|, recall |A & S| / |S|, AER 1 - (|A & S| + |A & P|) / (|A| + |S|). Where A or S is empty,
    precision or recall has nothing to miss, and is 1. Raises ValueError unless there are as many of one as of the other.
    """
    pairs = [(frozenset(one), true) for one, true in zip(found, gold, strict=True)]
    num_found, num_sure = sum(len(one) for one, _ in pairs), sum(len(true.sure) for _, true in pairs)
    possible = sum(len(one & true.possible) for one, true in pairs)
    sure = sum(len(one & true.sure) for one, true in pairs)
    return Agreement(
        possible / num_found if num_found else 1.0,
        sure / num_sure if num_sure else 1.0,
        1 - (sure + possible) / (num_found + num_sure) if num_found + num_sure else 0.0,
    )


def soft_alignment(weights: Weights) -> str:
    """All weights as Marian writes them: of each target word those of the source words, with commas between."""
    return " ".join(",".join(f"{weight:.6g}" for weight in row) for row in weights)


def read_dictionary(path: Path) -> dict[str, str]:
    """A dictionary: a source word and its translation on each line, with a space between; the first of a word counts."""
    found: dict[str, str] = {}
    for number, line in enumerate(lines(path), 1):
        words = line.split()
        if len(words) != 2:
            raise InputError(f"{quoted(path)}:{number}: wanted a word and its translation, found {len(words)} words")
        found.setdefault(words[0], words[1])
    return found


def replaced_unknown(side: Side, tokens: Sequence[int], aligned: Sequence[str], dictionary: Mapping[str, str]) -> str:
    """The text of a translation whose unknown words are the dictionary's, or the source word itself (Luong et al., 2015).

    aligned: the source word that each token looks at
    """
    parts = [
        f" {dictionary.get(word, word)} " if token == UNK else side.surface(token)
        for token, word in zip(tokens, aligned, strict=True)
    ]
    return side.of_prepared(" ".join(filter(None, "".join(parts).split(" "))))
