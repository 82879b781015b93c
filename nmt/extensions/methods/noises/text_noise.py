"""Noise in the source text: casing and typing errors (Belinkov and Bisk, 2018). Changed words are split into tokens again.

Changes are a pure function of (seed, epoch, pair, position in the sentence), so they do not depend on order, resuming or the
number of ranks.
"""

import re
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from nmt import UserError, register
from nmt.data.batching import Indices, hashed, mixed, uniform
from nmt.extensions.methods.noises.capitals import in_capitals
from nmt.extensions.methods.noises.options import TextNoiseOptions
from nmt.extensions.methods.noises.sentences import in_order_of_text, refuse_columns, word_starts
from nmt.extensions.vocabularies.user_symbols import user_symbol_ids
from nmt.noises.base import Noise, NoiseContext
from nmt.rows import Rows
from nmt.symbols import UNK
from nmt.text.pipeline import BYTE_PIECE
from nmt.text.steps import capitalized
from nmt.text.vocabulary import expand_ranges

ESCAPE: Final = re.compile(r"(&\w+;|&#\w+;)")  # escapes of a Moses tokenizer


@register("noise", "text-noise", TextNoiseOptions)
class TextNoise(Noise):
    """Changes the casing and adds typing errors to the words of the source.

    A word stays unchanged if its new form would have an unknown token or be spelled in bytes. Unknown words, user symbols and
    escapes (`&apos;`) stay unchanged too.
    """

    order: ClassVar[int] = 1
    keeps_text: ClassVar[bool] = False

    def __init__(self, options: TextNoiseOptions, context: NoiseContext) -> None:
        """Raises UserError for a column of links, and for case noise if the text has only one casing."""
        refuse_columns(context, (0,), "--case-noise, --typo-noise")
        side, case = context.pipeline.source, options.case_noise
        if case and (side.settings.lowercase or side.settings.truecase):
            step = "--lowercase" if side.settings.lowercase else "--truecase"
            raise UserError(
                f"--case-noise has no effect, because the data was prepared with {step} (drop --case-noise)"
            )
        self._vocabulary, self._case, self._typos = side.vocabulary, case, options.typo_noise
        self._seed, self._longest, self._is_backwards = context.seed, context.longest, side.settings.right_to_left
        surfaces = list(map(side.surface, range(side.size)))
        self._begins_word = np.array([surface.startswith(" ") for surface in surfaces])
        self._ends_word = np.array([surface.endswith(" ") for surface in surfaces]) & ~self._begins_word
        self._language = side.settings.language
        self._is_byte = np.array([BYTE_PIECE.fullmatch(side.piece(token)) is not None for token in range(side.size)])
        self._stays = np.zeros(side.size, dtype=bool)
        self._stays[[UNK, *user_symbol_ids(side)]] = True

    def sentences(self, source: Rows, target: Rows, draws: Indices, epoch: int) -> tuple[Rows, Rows]:
        """See Noise."""
        keys = hashed(draws, self._seed, epoch, 5, 0)
        return in_order_of_text(source, self._is_backwards, self.changed, keys, self._longest), target

    def changed(self, rows: Rows, keys: NDArray[np.uint64], longest: int) -> Rows:
        """Add noise to sentences.

        rows: sentences in text order; keys: (N,) random key of each sentence
        longest: a sentence that would have more tokens stays unchanged
        """
        ids, lengths = rows
        ends = np.cumsum(lengths)
        words = word_starts(ids, lengths, self._begins_word, self._ends_word)  # W
        sentence = np.searchsorted(ends, words, side="right")  # (W,)
        counts = np.diff(words, append=len(ids))  # (W,) number of tokens in each word
        places = (words - (ends - lengths)[sentence]).astype(np.uint64) + np.uint64(1)  # 0: the whole sentence
        of_sentence = uniform(mixed(np.zeros(len(keys), np.uint64), keys))[sentence]
        draws = mixed(places, keys[sentence])
        typed = uniform(draws) < self._typos
        changes = (typed | (of_sentence < self._case)) & ~np.logical_or.reduceat(self._stays[ids], words)
        changed = np.flatnonzero(changes)
        if not len(changed):
            return rows
        more = mixed(draws[changed], keys[sentence[changed]]).tolist()  # selects the typing error and its place
        texts = [
            self._with_noise(ids[words[word] : words[word] + counts[word]], of_sentence[word], typed[word], number)
            for word, number in zip(changed.tolist(), more, strict=True)
        ]
        encoded = self._vocabulary.encode_batch(texts)
        starts_of_texts = len(ids) + np.cumsum(encoded.lengths, dtype=np.int64) - encoded.lengths
        text_of_token = np.repeat(np.arange(len(texts)), encoded.lengths)
        has_byte = np.bincount(text_of_token, self._is_byte[encoded.ids], len(texts)) > 0
        has_byte &= ~np.logical_or.reduceat(self._is_byte[ids], words)[changed]  # words may keep their bytes
        good = ~has_byte & (encoded.unknown == 0) & (encoded.lengths > 0) & (encoded.words == 1)
        starts, sizes = words.copy(), counts.copy()
        starts[changed[good]], sizes[changed[good]] = starts_of_texts[good], encoded.lengths[good]
        too_long = (np.bincount(sentence, sizes, len(lengths)) > longest)[sentence]
        starts, sizes = np.where(too_long, words, starts), np.where(too_long, counts, sizes)
        tokens = np.concatenate([ids.astype(np.uint32), encoded.ids])[expand_ranges(starts, sizes)]
        return Rows(tokens, np.bincount(sentence, sizes, len(lengths)).astype(np.int64))

    def _with_noise(self, tokens: NDArray[Any], of_sentence: float, typed: bool, number: int) -> str:
        """Add noise to a word. of_sentence: random number for the casing; number: random number for the typing error"""
        text = self._vocabulary.decode(tokens.tolist())
        parts = ESCAPE.split(text)  # escapes are at odd indices
        if of_sentence < self._case / 2:
            parts[::2] = [in_capitals(part, self._language) for part in parts[::2]]
        elif of_sentence < self._case:
            parts[0] = capitalized(parts[0], self._language)
        return with_typo(parts[0], number) if typed and len(parts) == 1 else "".join(parts)


def with_typo(text: str, number: int) -> str:
    """Swap two adjacent letters of a word, or drop or double the first of them. A word without such letters stays unchanged.

    number: determines the change and its place
    """
    places = [i for i in range(len(text) - 1) if text[i].isalpha() and text[i + 1].isalpha()]
    if not places:
        return text
    kind, at = number % 3, places[number // 3 % len(places)]
    left, right = text[at], text[at + 1]
    return text[:at] + (right + left, right, left + left + right)[kind] + text[at + 2 :]
