"""A filter for texts that a translation must not contain as whole words, however they are cut into tokens.

An automaton over characters (Aho and Corasick, 1975) reads the text that each token adds to the translation. In each of its
states, every token that would complete a forbidden text gets minus infinity.
Dimensions: N hypotheses, t tokens of each, V vocabulary, C characters of the longest token.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.decoders.constraints import Filter, Prefixes
from nmt.symbols import EOS

CACHED_AUTOMATA: Final = 4  # each holds a table of all tokens' characters
CACHED_TRANSITION_BYTES: Final = 1 << 25  # of an automaton's states, each with its transitions by all tokens


class TokenTexts:
    """The text that each token adds to a translation, as a table of characters.

    texts: of each token, V of them
    automaton: texts to avoid -> Automaton; the last few are cached, because successive batches often avoid the same texts
    """

    def __init__(self, texts: Sequence[str]) -> None:
        texts = [" " if token == EOS else text for token, text in enumerate(texts)]  # an end borders words like a space
        width = max(map(len, texts))
        self.characters = np.zeros((len(texts), width), np.int32)  # V C code points, 0 after the end
        for row, text in zip(self.characters, texts, strict=True):
            row[: len(text)] = [ord(character) for character in text]
        self.automaton = lru_cache(CACHED_AUTOMATA)(lambda avoided: Automaton(avoided, self))


class Automaton:
    """A finite automaton that recognises forbidden texts in a sequence of tokens.

    Its states are the beginnings of the texts, each text between two spaces, and `matched`, once a text is complete.
    """

    def __init__(self, texts: Sequence[str], token_texts: TokenTexts) -> None:
        patterns = [f" {' '.join(text.split())} " for text in texts]
        beginnings = sorted({pattern[:n] for pattern in patterns for n in range(len(pattern))}, key=len)
        self.matched = len(beginnings)
        alphabet = sorted({ord(character) for pattern in patterns for character in pattern})
        # V C numbers of the characters in the alphabet; any other character has the number after the last
        self._symbols = np.searchsorted(alphabet, token_texts.characters)
        self._symbols[~np.isin(token_texts.characters, alphabet)] = len(alphabet)
        self._is_character = token_texts.characters != 0  # V C
        symbols = {chr(character): number for number, character in enumerate(alphabet)}
        self._transitions = self._built(beginnings, patterns, symbols)
        cached_states = max(1, CACHED_TRANSITION_BYTES // (4 * len(self._symbols)))
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
        states = np.full(len(self._symbols), state, np.int32)
        for symbols, is_character in zip(self._symbols.T, self._is_character.T, strict=True):
            states = np.where(is_character, self._transitions[states, symbols], states)
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


def avoid_filter(avoid: Sequence[tuple[str, ...]], prefix_lengths: Sequence[int], token_texts: TokenTexts) -> Filter:
    """The filter that forbids each token that completes a text to avoid.

    avoid: texts of each source row, normalised and tokenised by its text pipeline
    prefix_lengths: forced first tokens of each row's translation; a forbidden text that ends within them is accepted
    """
    automata = [token_texts.automaton(texts) if texts else None for texts in avoid]

    def forbid(log_probs: Tensor, prefixes: Prefixes) -> None:
        rows = zip(prefixes.sentences.tolist(), prefixes.tokens.tolist(), strict=True)
        for number, (sentence, tokens) in enumerate(rows):
            if (automaton := automata[sentence]) is not None:
                state = automaton.start
                for length, token in enumerate(tokens, 1):
                    state = int(automaton.after(state)[token])
                    if length <= prefix_lengths[sentence] and automaton.is_forbidden(state):
                        state = automaton.start
                log_probs[number].masked_fill_(automaton.forbidden(state).to(log_probs.device), -math.inf)

    return forbid
