"""Texts that a translation must not contain as whole words, however they are cut into tokens.

A text is avoided by an automaton over characters (Aho and Corasick, 1975) that reads what each token adds to the translation:
from where a hypothesis stands, every token that would complete a forbidden text gets minus infinity.
Dimensions: N hypotheses, t tokens that each has said, V vocabulary.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.symbols import EOS

if TYPE_CHECKING:
    from nmt.decoders.filters import Prefixes

KEPT: Final = 4  # automata: each has the table of characters once more
ROWS_KEPT: Final = 1024  # states of an automaton from which the way of every token is known


class Surfaces:
    """What each token adds to a text, as characters in a table. texts: (V,)

    automaton: what avoids some texts among these tokens; the last few are kept, for one batch often avoids what the last did
    """

    def __init__(self, texts: Sequence[str]) -> None:
        whole = [" " if token == EOS else text for token, text in enumerate(texts)]  # an end is a border, as a space is
        width = max(map(len, whole))
        self.characters = np.zeros((len(whole), width), np.int32)  # code points, 0 behind the end
        for row, text in zip(self.characters, whole, strict=True):
            row[: len(text)] = [ord(character) for character in text]
        self.automaton = lru_cache(KEPT)(lambda avoided: Automaton(avoided, self))


class Automaton:
    """What stands before the next token, as far as it matters to a set of forbidden texts.

    States are the beginnings of the texts, with a space on either side; one state stands for a text that was completed.
    """

    def __init__(self, texts: Sequence[str], surfaces: Surfaces) -> None:
        patterns = [f" {' '.join(text.split())} " for text in texts]
        beginnings = sorted({pattern[:n] for pattern in patterns for n in range(len(pattern))}, key=len)
        self._number = {beginning: number for number, beginning in enumerate(beginnings)}
        self.found = len(beginnings)
        self._patterns = frozenset(patterns)
        alphabet = sorted({ord(character) for pattern in patterns for character in pattern})
        self._symbols = np.searchsorted(alphabet, surfaces.characters)  # V width; len(alphabet) for any other character
        known = np.isin(surfaces.characters, alphabet)
        self._symbols[~known] = len(alphabet)
        self._real = surfaces.characters != 0
        goto = [[self._read(one, chr(character)) for character in alphabet] + [0] for one in beginnings]
        self._goto = np.array([*goto, [self.found] * (len(alphabet) + 1)], np.int32)
        self.after = lru_cache(ROWS_KEPT)(self._after)
        self.start = self._number[" "]
        self._ends_well = self._goto[:, np.searchsorted(alphabet, ord(" "))] != self.found  # if nothing followed

    def _read(self, beginning: str, character: str) -> int:
        """The state once a character was read after a beginning: its longest end that begins a pattern."""
        text = beginning + character
        if any(text[i:] in self._patterns for i in range(len(text))):
            return self.found
        return next(self._number[text[i:]] for i in range(len(text) + 1) if text[i:] in self._number)

    def _after(self, state: int) -> NDArray[np.int32]:
        """The state after each token of the vocabulary, from a state: (V,)"""
        states = np.full(len(self._symbols), state, np.int32)
        for symbols, real in zip(self._symbols.T, self._real.T, strict=True):
            states = np.where(real, self._goto[states, symbols], states)
        return states

    def forbidden_at(self, state: int) -> bool:
        """Whether a forbidden text stands there, if a word ends there."""
        return state == self.found or not self._ends_well[state]

    def forbidden(self, state: int) -> Tensor:
        """(V,) True for the tokens after which a forbidden text stands there, if the word ends with the token.

        One that goes on with another token is forbidden too: else a search that never looks back would have to go on.
        """
        after = self.after(state)
        return torch.from_numpy((after == self.found) | ~self._ends_well[after])


class Banned:
    """The filter.

    avoid: the texts that each row of the source avoids, as its pipeline writes them
    given: the first tokens of its translation that are not for the search to choose; a text that ends with them may stand
    """

    def __init__(self, avoid: Sequence[tuple[str, ...]], given: Sequence[int], surfaces: Surfaces) -> None:
        self._given = given
        self._automata = [surfaces.automaton(texts) if texts else None for texts in avoid]

    def __call__(self, log_probs: Tensor, prefixes: "Prefixes") -> None:
        rows = zip(prefixes.sentences.tolist(), prefixes.tokens.tolist(), strict=True)
        for number, (sentence, tokens) in enumerate(rows):
            if (automaton := self._automata[sentence]) is not None:
                state = automaton.start
                for place, token in enumerate(tokens, 1):
                    state = int(automaton.after(state)[token])
                    if place <= self._given[sentence] and automaton.forbidden_at(state):
                        state = automaton.start
                log_probs[number].masked_fill_(automaton.forbidden(state).to(log_probs.device), -math.inf)
