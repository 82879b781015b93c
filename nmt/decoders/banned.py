"""Texts that a translation must not contain as whole words, however they are cut into tokens.

A text is avoided by an automaton over characters (Aho and Corasick, 1975) that reads what each token adds to the translation:
from where a hypothesis stands, every token that would complete a forbidden text gets minus infinity.
Dimensions: N hypotheses, t tokens that each has said, V vocabulary.
"""

import math
from collections.abc import Mapping, Sequence
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
ROOM: Final = 1 << 25  # bytes of an automaton's states from which the way of every token is known


class TokenTexts:
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

    def __init__(self, texts: Sequence[str], token_texts: TokenTexts) -> None:
        patterns = [f" {' '.join(text.split())} " for text in texts]
        beginnings = sorted({pattern[:n] for pattern in patterns for n in range(len(pattern))}, key=len)
        self.found = len(beginnings)
        alphabet = sorted({ord(character) for pattern in patterns for character in pattern})
        self._symbols = np.searchsorted(
            alphabet, token_texts.characters
        )  # V width; len(alphabet) for any other character
        known = np.isin(token_texts.characters, alphabet)
        self._symbols[~known] = len(alphabet)
        self._real = token_texts.characters != 0
        symbol = {chr(character): number for number, character in enumerate(alphabet)}
        self._goto = self._built(beginnings, patterns, symbol)
        self.after = lru_cache(max(1, ROOM // (4 * len(self._symbols))))(self._after)
        self.start = beginnings.index(" ")
        self._ends_well = self._goto[:, np.searchsorted(alphabet, ord(" "))] != self.found  # if nothing followed

    def _built(
        self, beginnings: Sequence[str], patterns: Sequence[str], symbol: Mapping[str, int]
    ) -> NDArray[np.int32]:
        """The state once a symbol was read in a state: (states, symbols), any other character the last of them.

        That is the longest end of what was read that begins a pattern. beginnings: what states stand for, the shorter first
        """
        number = {beginning: state for state, beginning in enumerate(beginnings)}
        on: list[dict[int, int]] = [{} for _ in beginnings]  # by symbol, the state that stands for one more
        for state, beginning in enumerate(beginnings[1:], 1):
            on[number[beginning[:-1]]][symbol[beginning[-1]]] = state
        for pattern in patterns:
            on[number[pattern[:-1]]][symbol[pattern[-1]]] = self.found
        goto = np.zeros((len(beginnings) + 1, len(symbol) + 1), np.int32)
        goto[self.found] = self.found
        falls = [0] * len(beginnings)  # the state of the longest end of a beginning but itself
        for state, beginning in enumerate(beginnings):
            if len(beginning) > 1:
                fall = int(goto[falls[number[beginning[:-1]]], symbol[beginning[-1]]])
                falls[state] = 0 if fall == self.found else fall  # what no text ever comes to
            row = goto[falls[state]].copy()
            for one, child in on[state].items():
                if row[one] != self.found:
                    row[one] = child
            goto[state] = row
        return goto

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


class AvoidFilter:
    """The filter.

    avoid: the texts that each row of the source avoids, as its pipeline writes them
    given: the first tokens of its translation that are not for the search to choose; a text that ends with them may stand
    """

    def __init__(self, avoid: Sequence[tuple[str, ...]], given: Sequence[int], token_texts: TokenTexts) -> None:
        self._given = given
        self._automata = [token_texts.automaton(texts) if texts else None for texts in avoid]

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
