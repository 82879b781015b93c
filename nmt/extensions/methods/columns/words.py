"""The words of sentence pairs, and the tokens of each, for columns with values of words."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from nmt.text.pipeline import Side


class SideWords:
    """The words of one side of some pairs, and the tokens of each word.

    num_words, num_tokens: (N,) of each pair
    tokens: (words of all pairs,) tokens of each word
    starts: (words of all pairs,) position of each word's first token in its sentence, in the model's order
    """

    def __init__(self, side: Side, prepared: Sequence[str]) -> None:
        """prepared: (N,) lines, ready for subwords"""
        words = [side.words(line) for line in prepared]
        self.num_words = np.array(list(map(len, words)), dtype=np.int64)
        # no token crosses a space, so that a word has the same tokens wherever it stands
        self.tokens = side.encode_prepared(list(chain.from_iterable(words))).lengths.astype(np.int64)
        ends = np.cumsum(self.tokens)
        self.offsets = np.cumsum(self.num_words) - self.num_words  # (N,) of each pair's first word
        bounds = np.concatenate([[0], ends])
        self.num_tokens = bounds[self.offsets + self.num_words] - bounds[self.offsets]
        before = ends - self.tokens - np.repeat(bounds[self.offsets], self.num_words)
        after = np.repeat(self.num_tokens, self.num_words) - before - self.tokens
        self.starts = after if side.settings.right_to_left else before
