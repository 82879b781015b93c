"""Sentences before a line in its document, which a model reads with it (Tiedemann and Scherrer, 2017, "2-to-1").

A model with a context of N sentences reads `a <sep> b <sep> c` to translate c, where a and b are the N lines before it, fewer
at the beginning of a document. A blank line ends a document.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nmt.text.corpus import is_invisible
from nmt.text.vocabulary import EncodedTexts, Numbers

SEPARATOR: Final = "<sep>"  # a user symbol, after each sentence of the context


class DocumentLines:
    """The lines of a text so far, as far as they are the context of the next one. size: their number, at most"""

    def __init__(self, size: int) -> None:
        self.size, self._lines = size, deque[str](maxlen=size)

    def context_of(self, line: str) -> tuple[str, ...]:
        """The context of the next line of the text, which is given; none of a blank one."""
        if is_invisible(line):
            self._lines.clear()
            return ()
        context = tuple(self._lines)
        self._lines.append(line)
        return context


def context_text(sentences: Iterable[str]) -> str:
    """The text of a context, whose separators stand at the ends of its sentences."""
    return " ".join(f"{sentence} {SEPARATOR}" for sentence in sentences)


def encode_with_contexts(
    encode: Callable[[Sequence[str]], EncodedTexts], contexts: Sequence[str], lines: Sequence[str], max_length: float
) -> tuple[EncodedTexts, NDArray[np.int64]]:
    """The ids of lines with their contexts, and (N,) tokens of the context that each has.

    contexts: the text of the context of each line; may be empty if no line has one
    max_length: tokens of a line with its context; one that would have more is left without, as is one without tokens
    """
    if not any(contexts):
        return encode(lines), np.zeros(len(lines), np.int64)
    encoded = encode([text for pair in zip(contexts, lines, strict=True) for text in pair])
    lengths = encoded.lengths.astype(np.int64).reshape(-1, 2)
    fits = (lengths[:, 1] > 0) & (lengths.sum(1) <= max_length)
    kept = np.stack([fits, np.ones_like(fits)], axis=1)

    def total(counts: Numbers) -> Numbers:
        sums: Numbers = (counts.reshape(-1, 2) * kept).sum(1).astype(np.uint32)
        return sums

    ids = encoded.ids[np.repeat(kept.reshape(-1), lengths.reshape(-1))]
    counts = {name: total(getattr(encoded, name)) for name in ("lengths", "words", "unknown")}
    return replace(encoded, ids=ids, **counts), lengths[:, 0] * fits
