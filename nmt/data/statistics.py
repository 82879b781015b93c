"""Counts of `nmt prepare` over a set: pairs read, kept and dropped; tokens, words and unknown tokens of each side."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.data.encode import REASONS, Encoded
from nmt.symbols import ColumnKind


def zero_counts(*shape: int) -> Any:
    """A field of a dataclass: counts that begin with 0."""
    return field(default_factory=lambda: np.zeros(shape, dtype=np.int64))


@dataclass
class SetStatistics:
    """Counts over a set.

    columns: kind of each column by name
    read, kept, dropped: pairs; num_replaced: lines with replaced bytes; num_empty: pairs with an empty side
    tokens, longest, words, unknown: (2,) of source and target, over the pairs kept
    """

    kind: str
    name: str
    columns: dict[str, ColumnKind] = field(default_factory=dict)
    read: int = 0
    kept: int = 0
    num_replaced: int = 0
    num_empty: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    tokens: NDArray[np.int64] = zero_counts(2)
    longest: NDArray[np.int64] = zero_counts(2)
    words: NDArray[np.int64] = zero_counts(2)
    unknown: NDArray[np.int64] = zero_counts(2)

    def add(self, encoded: Encoded) -> None:
        self.read += encoded.read
        self.kept += len(encoded.lengths)
        self.num_replaced += encoded.num_replaced
        self.num_empty += int((encoded.lengths.min(axis=1) == 0).sum()) if len(encoded.lengths) else 0
        self.dropped.update(encoded.dropped)
        self.tokens += encoded.lengths.sum(axis=0, dtype=np.int64)
        self.longest = np.maximum(self.longest, encoded.lengths.max(axis=0, initial=0).astype(np.int64))
        self.words += encoded.words.sum(axis=0, dtype=np.int64)
        self.unknown += encoded.unknown.sum(axis=0, dtype=np.int64)

    def dropped_by_reason(self) -> str:
        """The number of pairs dropped for each reason, as text."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items()) or "none dropped"

    def to_json(self) -> dict[str, Any]:
        """The counts for report.json: read = kept + all of dropped."""
        columns = {"columns": self.columns} if self.columns else {}
        return {
            "kind": self.kind,
            "name": self.name,
            **columns,
            "read": self.read,
            "kept": self.kept,
            "dropped": {reason: self.dropped[reason] for reason in REASONS},
            "lines_with_replaced_bytes": self.num_replaced,
            "pairs_with_an_empty_side": self.num_empty,
            "source": self._side(0),
            "target": self._side(1),
        }

    def _side(self, side: int) -> dict[str, Any]:
        tokens, words, unknown = int(self.tokens[side]), int(self.words[side]), int(self.unknown[side])
        return {
            "tokens": tokens,
            "tokens_per_sentence": round(tokens / max(self.kept, 1), 3),
            "longest": int(self.longest[side]),
            "unknown": unknown,
            "unknown_percent": round(100 * unknown / max(tokens, 1), 4),
            "words": words,
            "tokens_per_word": round(tokens / max(words, 1), 4),
        }
