"""Word alignment from attention weights, and replacement of unknown words (PosUnk)."""

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
    """Attention between words: summed over the tokens of a source word, averaged over the tokens of a target word.

    weights: (..., target tokens, source tokens) attention; extra rows and columns (EOS) are dropped
    source, target: index of the word that each token belongs to
    returns: (..., target words, source words)
    """
    into_source = np.eye(max(source, default=-1) + 1)[list(source)]  # tokens words
    into_target = np.eye(max(target, default=-1) + 1)[list(target)]
    counts = np.maximum(into_target.sum(0), 1)[:, None]
    words: AttentionWeights = into_target.T @ weights[..., : len(target), : len(source)] @ into_source / counts
    return words


def hard_alignment(weights: AttentionWeights) -> list[Pair]:
    """Pair each target word with the source word that gets the most attention, as (source, target)."""
    return [(int(row.argmax()), number) for number, row in enumerate(weights) if row.any()]


def threshold_alignment(weights: AttentionWeights, threshold: float) -> list[Pair]:
    """All pairs with an attention weight above a threshold, as (source, target)."""
    return [(int(source), number) for number, row in enumerate(weights) for source in np.flatnonzero(row > threshold)]


def pharaoh(pairs: Iterable[Pair]) -> str:
    """Pairs in Pharaoh format, such as `0-0 2-1`: source-target, counted from 0, sorted by source."""
    return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def soft_alignment(weights: AttentionWeights) -> str:
    """All weights in Marian's format: for each target word, the weights of the source words, separated by commas."""
    return " ".join(",".join(f"{weight:.6g}" for weight in row) for row in weights)


def read_dictionary(path: Path) -> dict[str, str]:
    """Read a dictionary with `word translation` on each line. The first translation of a word is used."""
    dictionary: dict[str, str] = {}
    for number, line in enumerate(text_lines(path), 1):
        words = [word for word in line.split(" ") if word]  # a word may contain other kinds of spaces
        if len(words) != 2:
            raise InputError(f"{quoted(path)}:{number}: expected a word and its translation, not {len(words)} words")
        dictionary.setdefault(words[0], words[1])
    return dictionary


def replaced_unknown(side: Side, tokens: Sequence[int], aligned: Sequence[str], dictionary: Mapping[str, str]) -> str:
    """The text of a translation, with each unknown word replaced by its source word or that word's dictionary translation.

    This is the method of Luong et al. (2015).
    aligned: the aligned source word of each token
    dictionary: translations of source words
    """
    parts = [
        f" {dictionary.get(word, word)} " if token == UNK else side.surface(token)
        for token, word in zip(tokens, aligned, strict=True)
    ]
    return side.restore(" ".join(filter(None, "".join(parts).split(" "))))


def word_of_tokens(side: Side, tokens: Sequence[int]) -> list[int]:
    """The index of the word that each token of a translation belongs to. Spaces separate words.

    When a text is encoded, part of a word may become an unknown token; use `word_of_text_tokens` in that case.
    """
    texts = list(map(side.surface, tokens))
    # A token that is only a space starts the word that continues with the next token.
    starts = (after.startswith(" ") or (before.endswith(" ") and before != " ") for before, after in pairwise(texts))
    return list(accumulate(starts, initial=0))[: len(texts)]


def word_of_text_tokens(side: Side, words: Sequence[str]) -> list[int]:
    """The index of the word that each token of a text belongs to, including unknown tokens. words: words of the text"""
    lengths = side.encode_prepared(words).lengths  # a word has the same tokens in any position
    return np.repeat(np.arange(len(lengths)), lengths).tolist()
