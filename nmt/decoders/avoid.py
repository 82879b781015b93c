"""The text of target tokens, and texts that a translation must not contain as whole words, however they are cut.

An automaton over bytes of UTF-8 (Aho and Corasick, 1975) reads the text that each token adds to the translation. In each of
its states, every token that would complete a forbidden text gets minus infinity. A byte stands as the character of its number.
Dimensions: N hypotheses, t tokens of each, V vocabulary, C bytes of the longest token, U different bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.symbols import EOS

CACHED_AUTOMATA: Final = 4
CACHED_TRANSITION_BYTES: Final = 1 << 25  # of an automaton's states, each with its transitions by all tokens


class Spelling(NamedTuple):
    """The texts that tokens add to a translation; all automata of a vocabulary share them.

    characters: (U,) bytes, sorted, the first is 0
    numbers: (V, C) the number among them of each character of a token, 0 after its end
    """

    characters: NDArray[np.int32]
    numbers: NDArray[np.int32]


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
    def spelling(self) -> Spelling:
        texts = [
            b" " if token == EOS else text for token, text in enumerate(self._texts())
        ]  # EOS ends a word as a space does
        points = np.zeros((len(texts), max(map(len, texts))), np.int32)
        for row, text in zip(points, texts, strict=True):
            row[: len(text)] = list(text)
        characters = np.union1d(points, np.int32(0))
        return Spelling(characters, np.searchsorted(characters, points).astype(np.int32))


class Automaton:
    """A finite automaton that recognises forbidden texts in a sequence of tokens.

    Its states are the beginnings of the texts, each text between two spaces, and `matched`, once a text is complete.
    """

    def __init__(self, texts: Sequence[str], spelling: Spelling) -> None:
        patterns = [f" {' '.join(text.split())} ".encode().decode("latin-1") for text in texts]
        beginnings = sorted({pattern[:n] for pattern in patterns for n in range(len(pattern))}, key=len)
        self.matched = len(beginnings)
        alphabet = sorted({ord(character) for pattern in patterns for character in pattern})
        self._numbers = spelling.numbers
        # U numbers of the characters in the alphabet; any other character has the number after the last
        self._symbols = np.searchsorted(alphabet, spelling.characters)
        self._symbols[~np.isin(spelling.characters, alphabet)] = len(alphabet)
        symbols = {chr(character): number for number, character in enumerate(alphabet)}
        self._transitions = self._built(beginnings, patterns, symbols)
        cached_states = max(1, CACHED_TRANSITION_BYTES // (4 * len(self._numbers)))
        self.after = lru_cache(cached_states)(self._after)
        self.start = beginnings.index(" ")
        self._allows_word_end = self._transitions[:, np.searchsorted(alphabet, ord(" "))] != self.matched

    def _built(
        self, beginnings: Sequence[str], patterns: Sequence[str], symbols: Mapping[str, int]
    ) -> NDArray[np.int32]:
        """(states, symbols + 1): the state of the longest suffix that begins a pattern; last, after any other character."""
        states = {beginning: state for state, beginning in enumerate(beginnings)}
        children: list[dict[int, int]] = [{} for _ in beginnings]  # symbol -> state whose text is longer by that symbol
        for state, beginning in enumerate(beginnings[1:], 1):
            children[states[beginning[:-1]]][symbols[beginning[-1]]] = state
        for pattern in patterns:
            children[states[pattern[:-1]]][symbols[pattern[-1]]] = self.matched
        transitions = np.zeros((len(beginnings) + 1, len(symbols) + 1), np.int32)
        transitions[self.matched] = self.matched
        failures = [0] * len(beginnings)  # the state of the longest proper suffix of each state's text
        for state, beginning in enumerate(beginnings):
            if len(beginning) > 1:
                failure = int(transitions[failures[states[beginning[:-1]]], symbols[beginning[-1]]])
                failures[state] = 0 if failure == self.matched else failure  # a matched text is never left
            row = transitions[failures[state]].copy()
            for symbol, child in children[state].items():
                if row[symbol] != self.matched:
                    row[symbol] = child
            transitions[state] = row
        return transitions

    def _after(self, state: int) -> NDArray[np.int32]:
        """The state after each token of the vocabulary: (V,)"""
        states = np.full(len(self._numbers), state, np.int32)
        for numbers in self._numbers.T:
            states = np.where(numbers, self._transitions[states, self._symbols[numbers]], states)
        return states

    def is_forbidden(self, state: int) -> bool:
        """Whether the characters so far contain a forbidden text, if a word ends here."""
        return state == self.matched or not self._allows_word_end[state]

    def forbidden(self, state: int) -> Tensor:
        """(V,) True for the tokens that complete a forbidden text, if the word ends with the token.

        A token that may continue the word is forbidden too, because a search that never revises could not end there.
        """
        after = self.after(state)
        return torch.from_numpy((after == self.matched) | ~self._allows_word_end[after])
