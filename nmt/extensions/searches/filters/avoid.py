"""Forbids texts as whole words in the translation, however they are split into tokens.

An automaton over UTF-8 bytes (Aho and Corasick, 1975) reads the text that each token adds to the translation. In each state,
the tokens that would complete a forbidden text get a log-probability of minus infinity.
Dimensions: V vocabulary, C bytes of the longest token.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nmt import register
from nmt.errors import InputError, quoted
from nmt.extensions.searches.filters.options import AvoidOptions
from nmt.filters.base import Filter, Forbid
from nmt.symbols import EOS
from nmt.text.corpus import read_lines
from nmt.text.pipeline import Side

MAX_AVOIDED_CHARACTERS: Final = 5000  # maximum per request, because memory grows with its square
CACHED_AUTOMATA: Final = 4
CACHED_TRANSITION_BYTES: Final = 1 << 25  # size of each automaton's cache of transitions


@register("filter", "avoid", AvoidOptions)
class Avoid(Filter):
    """Forbids texts as whole words in the translation, however they are split into tokens.

    automaton: makes the Automaton for a set of texts; the last few are cached, because successive batches often share them
    """

    def __init__(self, target: Side) -> None:
        super().__init__(target)
        self.automaton = lru_cache(CACHED_AUTOMATA)(lambda texts: Automaton(texts, self.spelling))

    @classmethod
    def texts_of_all(cls, options: AvoidOptions) -> list[str]:
        """The lines of the --avoid file that are not blank. Raises InputError for a line that is too long."""
        lines = read_lines(Path(str(options.avoid)))
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_AVOIDED_CHARACTERS:
                limit = f"a text to avoid may have at most {MAX_AVOIDED_CHARACTERS:,}"
                raise InputError(
                    f"{quoted(options.avoid)}:{number}: {len(line):,} characters, but {limit} (write one text per line)"
                )
        return [line for line in lines if line.strip()]

    def prepared(self, texts: Sequence[str]) -> tuple[str, ...]:
        """The texts in the form before subword segmentation, without empty ones."""
        return tuple(text for text in self.target.prepare(texts, starts_sentence=False) if text.strip())

    def refusal(self, given: Sequence[str], texts: Sequence[str], phrases: Sequence[str]) -> str:
        if self.target.settings.right_to_left:
            return "a right-to-left model cannot avoid texts"
        if (length := sum(map(len, given))) > MAX_AVOIDED_CHARACTERS:
            return f"the texts to avoid have {length:,} characters, but at most {MAX_AVOIDED_CHARACTERS:,} are allowed"
        for phrase in phrases:
            if any(f" {text} " in f" {phrase} " for text in texts):
                return f"the phrase '{quoted(phrase)}' is both required and forbidden"
        return ""

    def begin(self, texts: tuple[str, ...]) -> Forbid:
        return self.automaton(texts).forbidden_after

    @cached_property
    def spelling(self) -> NDArray[np.uint8]:
        """The bytes that each token adds to the text, padded with 0: (V, C). All automata share them.

        EOS ends a word, as a space does.
        """
        texts = [b" " if token == EOS else self.target.spelling(token) for token in range(self.target.size)]
        width = max(map(len, texts))
        return np.frombuffer(b"".join(text.ljust(width, b"\0") for text in texts), np.uint8).reshape(-1, width)


class Automaton:
    """A finite automaton that recognises forbidden texts in a sequence of tokens.

    Its states are the prefixes of the texts (with a space on both sides) and `matched`, which follows a complete text.
    """

    def __init__(self, texts: Sequence[str], spelling: NDArray[np.uint8]) -> None:
        patterns = [f" {' '.join(text.split())} ".encode() for text in texts]
        beginnings = sorted({pattern[:n] for pattern in patterns for n in range(len(pattern))}, key=len)
        alphabet = sorted({*b"".join(patterns)})
        self.matched, self._spelling = len(beginnings), spelling
        self._symbols = np.full(256, len(alphabet))  # symbol of each byte; bytes in no pattern share the last one
        self._symbols[alphabet] = np.arange(len(alphabet))
        self._transitions = self._built(beginnings, patterns, len(alphabet) + 1)
        self.after = lru_cache(max(1, CACHED_TRANSITION_BYTES // (4 * len(spelling))))(self._after)
        self.start = beginnings.index(b" ")
        self._allows_word_end = self._transitions[:, self._symbols[ord(" ")]] != self.matched

    def _built(self, beginnings: Sequence[bytes], patterns: Sequence[bytes], num_symbols: int) -> NDArray[np.int32]:
        """The next state by state and symbol: the longest suffix that starts a pattern. The last symbol is all other bytes."""
        states = {beginning: state for state, beginning in enumerate(beginnings)}
        ends = [(pattern, self.matched) for pattern in patterns]  # a pattern may be the start of another
        children: list[dict[int, int]] = [{} for _ in beginnings]  # for each state, the next one by symbol
        for text, state in [*list(states.items())[1:], *ends]:
            children[states[text[:-1]]][self._symbols[text[-1]]] = state
        transitions = np.zeros((len(beginnings) + 1, num_symbols), np.int32)
        transitions[self.matched] = self.matched
        failures = [0] * len(beginnings)  # state of the longest proper suffix of each state's text
        for state, beginning in enumerate(beginnings):
            if len(beginning) > 1:
                failure = int(transitions[failures[states[beginning[:-1]]], self._symbols[beginning[-1]]])
                failures[state] = 0 if failure == self.matched else failure  # the state `matched` is final
            row = transitions[failures[state]].copy()
            for symbol, child in children[state].items():
                if row[symbol] != self.matched:
                    row[symbol] = child
            transitions[state] = row
        return transitions

    def _after(self, state: int) -> NDArray[np.int32]:
        """The state after each token of the vocabulary, shape (V,)."""
        states = np.full(len(self._spelling), state, np.int32)
        for column in self._spelling.T:
            states = np.where(column, self._transitions[states, self._symbols[column]], states)
        return states

    def is_forbidden(self, state: int) -> bool:
        """Whether the text so far contains a forbidden text, assuming that a word ends here."""
        return state == self.matched or not self._allows_word_end[state]

    def forbidden(self, state: int) -> NDArray[np.bool_]:
        """Whether each token completes a forbidden text if the word ends with it, shape (V,).

        This also forbids tokens after which the word could continue, because a greedy search might be unable to end there.
        """
        after = self.after(state)
        forbidden: NDArray[np.bool_] = (after == self.matched) | ~self._allows_word_end[after]
        return forbidden

    def forbidden_after(self, tokens: Sequence[int], num_forced: int) -> NDArray[np.bool_]:
        """See Forbid. Forbidden texts within the forced tokens are accepted."""
        state = self.start
        for length, token in enumerate(tokens, 1):
            state = int(self.after(state)[token])
            if length <= num_forced and self.is_forbidden(state):
                state = self.start
        return self.forbidden(state)
