"""Finds the words of sentence pairs (as word aligners count them) and the tokens of each word, for columns with a value per word.

In a line of the file, words are separated by spaces and tabs. The text pipeline may split a word (`10` and `000` with U+00A0
between them), join words, or change characters, so each word is traced through the pipeline to its tokens.
"""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import chain
from typing import Final

import numpy as np

from nmt.columns.base import ColumnItems
from nmt.text.pipeline import Side
from nmt.text.steps import NOT_TEXT_BUT_LF

WORD_GAPS: Final = re.compile("[ \t]+")  # where fast_align, eflomal and Moses' scripts split lines
ANY_SPACE: Final = re.compile(r"\s+")

WordSpan = tuple[int, int]
"""The range of prepared words that a word of the file became: the first one, and the one after the last."""


class SideWords:
    """The words of one side of some pairs, and the tokens of each word.

    num_words, num_tokens: (N,) number of words and of tokens in each pair
    tokens: (words of all pairs,) number of tokens in each word; 0 if the text pipeline drops the word
    starts: (words of all pairs,) position of each word's first token in its sentence, in the model's order
    joined: (words of all pairs,) whether the word shares tokens with the previous one
    """

    def __init__(self, items: ColumnItems, number: int) -> None:
        """number: the side, source (0) or target (1). Raises InputError if the words of a line cannot be traced to tokens."""
        sentences = items.sentences
        side = (sentences.pipeline.source, sentences.pipeline.target)[number]
        prepared = [side.words(line) for line in sentences.prepared[number]]
        # no token crosses a space, so a word has the same tokens in any position
        of_prepared = side.encode_prepared(list(chain.from_iterable(prepared))).lengths.astype(np.int64)
        bounds = np.concatenate([[0], np.cumsum(of_prepared)])
        first = np.cumsum([0, *map(len, prepared)])  # (N + 1,) index of each pair's first prepared word
        rows = [
            self._spans(items, i, side, words) if sentences.good[i] else [(k, k + 1) for k in range(len(words))]
            for i, words in enumerate(prepared)
        ]
        self.num_words = np.array(list(map(len, rows)), dtype=np.int64)
        self.num_tokens = bounds[first[1:]] - bounds[first[:-1]]
        self.offsets = np.cumsum(self.num_words) - self.num_words  # (N,) index of each pair's first word
        spans = np.array(list(chain.from_iterable(rows)), np.int64).reshape(-1, 2)
        spans += np.repeat(first[:-1], self.num_words)[:, None]
        start, end = bounds[spans[:, 0]], bounds[spans[:, 1]]
        self.tokens = end - start
        of_pair = np.repeat(bounds[first[:-1]], self.num_words)
        after = np.repeat(bounds[first[1:]], self.num_words) - end
        self.starts = after if side.settings.right_to_left else start - of_pair
        self.joined = np.zeros(len(start), bool)
        self.joined[1:] = (start[1:] < end[:-1]) & (self.tokens[1:] > 0)

    def _spans(self, items: ColumnItems, i: int, side: Side, prepared: list[str]) -> list[WordSpan]:
        sentences = items.sentences
        words = words_of_line(sentences.lines[side is sentences.pipeline.target][i], sentences.numbers[i] == 1)
        if words == prepared:
            return [(k, k + 1) for k in range(len(words))]
        spans = followed(words, side.prepare.normalize(words), prepared)
        if spans is None:
            counts = f"the text pipeline turns {len(words)} words into {len(prepared)}"
            raise items.error(i, f"{counts}, and they cannot be matched")
        return spans


def words_of_line(line: bytes, first: bool = False) -> list[str]:
    """The words in a line of a file. first: whether it is the first line, which may start with a BOM"""
    text = line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace")
    return list(filter(None, WORD_GAPS.split(text.removeprefix("\ufeff") if first else text)))


def followed(words: Sequence[str], forms: Sequence[str], prepared: Sequence[str]) -> list[WordSpan] | None:
    """The prepared words that each word of a line became, in order; None if this is unclear.

    forms: normalized form of each word
    """
    whole = [ANY_SPACE.sub("", form or NOT_TEXT_BUT_LF.sub("", word)) for form, word in zip(forms, words, strict=True)]
    ours, theirs = "".join(whole), "".join(prepared)
    owners = [i for i, form in enumerate(whole) for _ in form]
    word_of = [k for k, word in enumerate(prepared) for _ in word]
    if len(ours) == len(theirs) and ours.casefold() == theirs.casefold():
        found: list[int] | None = owners
    else:
        found = _owners_of(ours, owners, theirs, word_of)
    if found is None:
        return None
    spans: list[WordSpan] = []
    positions: dict[int, list[int]] = {}
    for owner, k in zip(found, word_of, strict=True):
        positions.setdefault(owner, []).append(k)
    for i in range(len(words)):
        end = spans[-1][1] if spans else 0
        of_word = positions.get(i)
        spans.append((of_word[0], of_word[-1] + 1) if of_word else (end, end))
    return spans


def _owners_of(ours: str, owners: Sequence[int], theirs: str, word_of: Sequence[int]) -> list[int] | None:
    """The word in the file that each character of the prepared text comes from; None if this is unclear."""
    found: list[int] = []
    for kind, start, end, other, other_end in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if end - start == other_end - other:
            found += owners[start:end]
        elif kind == "replace":
            if owners[start] != owners[end - 1]:
                return None
            found += [owners[start]] * (other_end - other)
        elif kind == "insert":
            # An added character belongs to the previous word, unless a prepared word starts with it.
            starts_word = other == 0 or word_of[other] != word_of[other - 1]
            if not owners:
                return None
            at = min(start, len(owners) - 1) if starts_word or start == 0 else start - 1
            found += [owners[at]] * (other_end - other)
    return found
