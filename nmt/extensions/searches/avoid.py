"""The text of target tokens, and texts that a translation must not contain as whole words, however they are cut.

An automaton over bytes of UTF-8 (Aho and Corasick, 1975) reads the text that each token adds to the translation. In each of
its states, every token that would complete a forbidden text gets minus infinity.
Dimensions: N hypotheses, t tokens of each, V vocabulary, C bytes of the longest token.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.symbols import EOS

CACHED_AUTOMATA: Final = 4
CACHED_TRANSITION_BYTES: Final = 1 << 25  # of an automaton's states, each with its transitions by all tokens


class Target:
    """The target tokens as text.

    decode: ids of a translation -> its text
    texts: a function that lists the text of each token of the vocabulary in UTF-8; called once, when it is needed
    automaton: texts to avoid -> Automaton; the last few are cached, because successive batches often avoid the same texts
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], texts: Callable[[], Sequence[bytes]]) -> None:
        self.decode, self._texts = decode, texts
        self.automaton = lru_cache(CACHED_AUTOMATA)(lambda avoided: Automaton(avoided, self.spelling))

    @cached_property
    def spelling(self) -> NDArray[np.uint8]:
        """(V, C) the bytes that each token adds, 0 after its end; all automata share it. EOS ends a word as a space does."""
        texts = [b" " if token == EOS else text for token, text in enumerate(self._texts())]
        width = max(map(len, texts))
        return np.frombuffer(b"".join(text.ljust(width, b"\0") for text in texts), np.uint8).reshape(-1, width)


class Automaton:
    """A finite automaton that recognises forbidden texts in a sequence of tokens.

    Its states are the beginnings of the texts, each text between two spaces, and `matched`, once a text is complete.
    """

    def __init__(self, texts: Sequence[str], spelling: NDArray[np.uint8]) -> None:
        patterns = [f" {' '.join(text.split())} ".encode() for text in texts]
        beginnings = sorted({pattern[:n] for pattern in patterns for n in range(len(pattern))}, key=len)
        alphabet = sorted({*b"".join(patterns)})
        self.matched, self._spelling = len(beginnings), spelling
        self._symbols = np.full(256, len(alphabet))  # of each byte, the last of one in no text
        self._symbols[alphabet] = np.arange(len(alphabet))
        self._transitions = self._built(beginnings, patterns, len(alphabet) + 1)
        self.after = lru_cache(max(1, CACHED_TRANSITION_BYTES // (4 * len(spelling))))(self._after)
        self.start = beginnings.index(b" ")
        self._allows_word_end = self._transitions[:, self._symbols[ord(" ")]] != self.matched

    def _built(self, beginnings: Sequence[bytes], patterns: Sequence[bytes], num_symbols: int) -> NDArray[np.int32]:
        """(states, symbols): the state of the longest suffix that begins a pattern; the last symbol is any other byte."""
        states = {beginning: state for state, beginning in enumerate(beginnings)}
        ends = [(pattern, self.matched) for pattern in patterns]  # a pattern may be the beginning of another
        children: list[dict[int, int]] = [{} for _ in beginnings]  # symbol -> state whose text is longer by that symbol
        for text, state in [*list(states.items())[1:], *ends]:
            children[states[text[:-1]]][self._symbols[text[-1]]] = state
        transitions = np.zeros((len(beginnings) + 1, num_symbols), np.int32)
        transitions[self.matched] = self.matched
        failures = [0] * len(beginnings)  # the state of the longest proper suffix of each state's text
        for state, beginning in enumerate(beginnings):
            if len(beginning) > 1:
                failure = int(transitions[failures[states[beginning[:-1]]], self._symbols[beginning[-1]]])
                failures[state] = 0 if failure == self.matched else failure  # a matched text is never left
            row = transitions[failures[state]].copy()
            for symbol, child in children[state].items():
                if row[symbol] != self.matched:
                    row[symbol] = child
            transitions[state] = row
        return transitions

    def _after(self, state: int) -> NDArray[np.int32]:
        """The state after each token of the vocabulary: (V,)"""
        states = np.full(len(self._spelling), state, np.int32)
        for column in self._spelling.T:
            states = np.where(column, self._transitions[states, self._symbols[column]], states)
        return states

    def is_forbidden(self, state: int) -> bool:
        """Whether the bytes so far contain a forbidden text, if a word ends here."""
        return state == self.matched or not self._allows_word_end[state]

    def forbidden(self, state: int) -> Tensor:
        """(V,) True for the tokens that complete a forbidden text, if the word ends with the token.

        A token that may continue the word is forbidden too, because a search that never revises could not end there.
        """
        after = self.after(state)
        return torch.from_numpy((after == self.matched) | ~self._allows_word_end[after])
