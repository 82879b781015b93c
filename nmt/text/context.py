"""Document context: previous sentences that a model reads along with a line (Tiedemann and Scherrer, 2017, "2-to-1").

A model with a context of N sentences reads each line together with the N lines before it, or fewer at the start of a document.
With N = 2, it reads `a <sep> b <sep> c` to translate c. A blank line ends a document.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nmt.symbols import SEPARATOR
from nmt.text.corpus import is_invisible
from nmt.text.vocabulary import EncodedTexts, Numbers


class DocumentLines:
    """The last lines of a text, which are the context of its next line. size: maximum number of lines"""

    def __init__(self, size: int) -> None:
        self.size, self._lines = size, deque[str](maxlen=size)

    def context_of(self, line: str) -> tuple[str, ...]:
        """The context of `line`, the next line of the text. A blank line has no context and ends the document."""
        if is_invisible(line):
            self._lines.clear()
            return ()
        context = tuple(self._lines)
        self._lines.append(line)
        return context


def context_text(sentences: Iterable[str]) -> str:
    """A context as one text, with a separator after each sentence."""
    return " ".join(f"{sentence} {SEPARATOR}" for sentence in sentences)


def encode_with_contexts(
    encode: Callable[[Sequence[str]], EncodedTexts], contexts: Sequence[str], lines: Sequence[str], max_length: float
) -> tuple[EncodedTexts, NDArray[np.int64]]:
    """Encode lines together with their contexts. Returns the ids, and (N,) the number of context tokens of each line.

    contexts: context of each line as a text; may be empty if no line has a context
    max_length: maximum tokens in a line with its context; a line that would exceed it loses its context, as does an empty line
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
