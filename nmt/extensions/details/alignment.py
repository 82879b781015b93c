"""Word alignment by attention, and the replacement of unknown words (PosUnk)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.errors import InputError, quoted
from nmt.symbols import UNK
from nmt.text.corpus import text_lines
from nmt.text.pipeline import Side

AttentionWeights = NDArray[np.floating[Any]]
Pair = tuple[int, int]  # (source word, target word), counted from 0


def word_weights(weights: AttentionWeights, source: Sequence[int], target: Sequence[int]) -> AttentionWeights:
    """Attention between words: the sum over the tokens of a source word, the mean over those of a target word.

    weights: (..., target tokens, source tokens) attention; further rows and columns (EOS) are dropped
    source, target: number of the word of each token
    returns: (..., target words, source words)
    """
    into_source = np.eye(max(source, default=-1) + 1)[list(source)]  # tokens words
    into_target = np.eye(max(target, default=-1) + 1)[list(target)]
    counts = np.maximum(into_target.sum(0), 1)[:, None]
    words: AttentionWeights = into_target.T @ weights[..., : len(target), : len(source)] @ into_source / counts
    return words


def hard_alignment(weights: AttentionWeights) -> list[Pair]:
    """Each target word with its source word of most attention, as (source, target)."""
    return [(int(row.argmax()), number) for number, row in enumerate(weights) if row.any()]


def threshold_alignment(weights: AttentionWeights, threshold: float) -> list[Pair]:
    """All pairs with more attention than a threshold, as (source, target)."""
    return [(int(source), number) for number, row in enumerate(weights) for source in np.flatnonzero(row > threshold)]


def pharaoh(pairs: Iterable[Pair]) -> str:
    """Pairs in Pharaoh's format, `0-0 2-1`: source-target, counted from 0, sorted by source."""
    return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def soft_alignment(weights: AttentionWeights) -> str:
    """All weights in Marian's format: for each target word those of the source words, separated by commas."""
    return " ".join(",".join(f"{weight:.6g}" for weight in row) for row in weights)


def read_dictionary(path: Path) -> dict[str, str]:
    """Read a dictionary, `word translation` on each line; the first translation of a word counts."""
    dictionary: dict[str, str] = {}
    for number, line in enumerate(text_lines(path), 1):
        words = [word for word in line.split(" ") if word]  # a word may hold other spaces
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


def word_of_tokens(side: Side, tokens: Sequence[int]) -> list[int]:
    """The number of the word that each token of a translation belongs to, as the spaces divide its text.

    In a text to encode an unknown token may be a part of a word: see `word_of_text_tokens`.
    """
    texts = list(map(side.surface, tokens))
    # A space alone is the beginning of the word whose first character is the next token.
    begins = (after.startswith(" ") or (before.endswith(" ") and before != " ") for before, after in pairwise(texts))
    return list(accumulate(begins, initial=0))[: len(texts)]


def word_of_text_tokens(side: Side, words: Sequence[str]) -> list[int]:
    """The number of the word that each token of a text belongs to, also of unknown tokens. words: of the text"""
    lengths = side.encode_prepared(words).lengths  # a word has the same tokens wherever it stands
    return np.repeat(np.arange(len(lengths)), lengths).tolist()
