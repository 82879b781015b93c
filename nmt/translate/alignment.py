"""Word alignment by attention, its agreement with reference alignments, and the replacement of unknown words (PosUnk)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.errors import InputError, quoted
from nmt.symbols import UNK
from nmt.text.corpus import text_lines
from nmt.text.pipeline import Side

Weights = NDArray[np.floating[Any]]
Pair = tuple[int, int]  # (source word, target word), counted from 0

PAIR: Final = re.compile(r"([0-9]+)([-p])([0-9]+)")


@dataclass(frozen=True)
class ReferenceAlignment:
    """The true alignment of a sentence. sure: pairs beyond doubt; possible: these and further acceptable pairs"""

    sure: frozenset[Pair]
    possible: frozenset[Pair]


@dataclass(frozen=True)
class Agreement:
    """The agreement of alignments with true ones (Och and Ney, 2003, section 6), from 0 to 1; error_rate: AER"""

    precision: float
    recall: float
    error_rate: float


def word_weights(weights: Weights, source: Sequence[int], target: Sequence[int]) -> Weights:
    """Attention between words: the sum over the tokens of a source word, the mean over those of a target word.

    weights: (..., target tokens, source tokens) attention; further rows and columns (EOS) are dropped
    source, target: number of the word of each token
    returns: (..., target words, source words)
    """
    into_source = np.eye(max(source, default=-1) + 1)[list(source)]  # tokens words
    into_target = np.eye(max(target, default=-1) + 1)[list(target)]
    counts = np.maximum(into_target.sum(0), 1)[:, None]
    words: Weights = into_target.T @ weights[..., : len(target), : len(source)] @ into_source / counts
    return words


def hard_alignment(weights: Weights) -> list[Pair]:
    """Each target word with its source word of most attention, as (source, target)."""
    return [(int(row.argmax()), number) for number, row in enumerate(weights) if row.size]


def threshold_alignment(weights: Weights, threshold: float) -> list[Pair]:
    """All pairs with more attention than a threshold, as (source, target)."""
    return [(int(source), number) for number, row in enumerate(weights) for source in np.flatnonzero(row > threshold)]


def pharaoh(pairs: Iterable[Pair]) -> str:
    """Pairs in Pharaoh's format, `0-0 2-1`: source-target, counted from 0, sorted by source."""
    return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def read_gold(path: Path) -> list[ReferenceAlignment]:
    """True alignments, one sentence a line: Pharaoh's `0-0 2-1` for sure pairs, `3p1` for possible ones."""
    alignments = []
    for number, line in enumerate(text_lines(path), 1):
        sure, possible = set(), set()
        for word in line.split():
            if (parts := PAIR.fullmatch(word)) is None:
                raise InputError(f"{quoted(path)}:{number}: {quoted(word)} is no pair (0-0 if sure, 0p0 if possible)")
            pair = int(parts[1]), int(parts[3])
            possible.add(pair)
            if parts[2] == "-":
                sure.add(pair)
        alignments.append(ReferenceAlignment(frozenset(sure), frozenset(possible)))
    return alignments


def agreement(alignments: Sequence[Iterable[Pair]], gold: Sequence[ReferenceAlignment]) -> Agreement:
    """The agreement of alignments A with true ones, S sure and P possible, summed over all sentences.

    Precision is |A & P| / |A|, recall |A & S| / |S|, AER 1 - (|A & S| + |A & P|) / (|A| + |S|). Precision of an empty A
    and recall of an empty S are 1. Raises ValueError if there are not as many alignments as true ones.
    """
    pairs = [(frozenset(alignment), true) for alignment, true in zip(alignments, gold, strict=True)]
    num_pairs, num_sure = sum(len(alignment) for alignment, _ in pairs), sum(len(true.sure) for _, true in pairs)
    possible = sum(len(alignment & true.possible) for alignment, true in pairs)
    sure = sum(len(alignment & true.sure) for alignment, true in pairs)
    return Agreement(
        possible / num_pairs if num_pairs else 1.0,
        sure / num_sure if num_sure else 1.0,
        1 - (sure + possible) / (num_pairs + num_sure) if num_pairs + num_sure else 0.0,
    )


def soft_alignment(weights: Weights) -> str:
    """All weights in Marian's format: for each target word those of the source words, separated by commas."""
    return " ".join(",".join(f"{weight:.6g}" for weight in row) for row in weights)


def read_dictionary(path: Path) -> dict[str, str]:
    """Read a dictionary, `word translation` on each line; the first translation of a word counts."""
    dictionary: dict[str, str] = {}
    for number, line in enumerate(text_lines(path), 1):
        words = line.split()
        if len(words) != 2:
            raise InputError(f"{quoted(path)}:{number}: {len(words)} words; must be a word and its translation")
        dictionary.setdefault(words[0], words[1])
    return dictionary


def replaced_unknown(side: Side, tokens: Sequence[int], aligned: Sequence[str], dictionary: Mapping[str, str]) -> str:
    """The text of a translation with unknown words replaced by the aligned source word's translation or by that word.

    After Luong et al., 2015.
    aligned: the source word of each token
    dictionary: translations of source words
    """
    parts = [
        f" {dictionary.get(word, word)} " if token == UNK else side.surface(token)
        for token, word in zip(tokens, aligned, strict=True)
    ]
    return side.restore(" ".join(filter(None, "".join(parts).split(" "))))
