"""Subword regularization: splits the words of training pairs differently in each epoch (Kudo, 2018; Provilkov et al., 2020).

The split of a word is a pure function of (seed, epoch, pair, position in the sentence), so it does not depend on order, resuming
or the number of ranks. sentencepiece's sampler has the same distribution, but is not such a function, because it has one random
generator per thread. numpy splits all words of an update at once, and other threads can run meanwhile.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from nmt import UserError, register
from nmt.data.batching import Indices, hashed, mixed, uniform
from nmt.extensions.methods.noises.options import SubwordSamplingOptions
from nmt.extensions.methods.noises.sentences import in_order_of_text, refuse_columns, word_starts
from nmt.extensions.vocabularies.segmentations import (
    NO_TOKEN,
    MergeSegmentations,
    Segmentations,
    WordSegmentations,
    segmentations_of,
)
from nmt.noises.base import Noise, NoiseContext
from nmt.rows import Rows
from nmt.text.vocabulary import join_rows

MAX_CACHED_BYTES: Final = 1 << 26  # maximum memory for the cached splits of words
PLACE_BITS: Final = 21  # bits for a symbol's position in its sentence
MERGED: Final = -1


@register("noise", "subword-sampling", SubwordSamplingOptions)
class SubwordSampling(Noise):
    """Splits the words of both sides differently in each epoch, with BPE-dropout or sampling from a unigram model.

    With BPE-dropout, each merge is skipped with probability `rate` (Provilkov et al., 2020). As in sentencepiece, the draw is
    made once for each pair of symbols that could merge. With a unigram model, the probability of a split is proportional to its
    probability in the model to the power of `rate` (Kudo, 2018, over all possible splits).
    """

    order: ClassVar[int] = 2

    def __init__(self, options: SubwordSamplingOptions, context: NoiseContext) -> None:
        """Raises UserError if a column or the vocabulary does not allow different splits."""
        refuse_columns(context, (0, 1), "--subword-sampling")
        rate, pipeline = options.subword_sampling, context.pipeline
        self._seed, self._longest = context.seed, context.longest
        self._is_backwards = tuple(side.settings.right_to_left for side in (pipeline.source, pipeline.target))
        sides = (pipeline.source,) if pipeline.joint else (pipeline.source, pipeline.target)
        samplers = []
        for side in sides:
            try:
                samplers.append(SubwordSampler(segmentations_of(side.vocabulary, rate), rate))
            except UserError as error:
                raise UserError(f"--subword-sampling: language {side.settings.language}: {error}") from None
        self._samplers = samplers[0], samplers[-1]

    def sentences(self, source: Rows, target: Rows, draws: Indices, epoch: int) -> tuple[Rows, Rows]:
        """See Noise."""
        return self._split_again(0, source, draws, epoch), self._split_again(1, target, draws, epoch)

    def _split_again(self, side: int, rows: Rows, draws: Indices, epoch: int) -> Rows:
        """Split the sentences of the source (0) or the target (1) again."""
        keys = hashed(draws, self._seed, epoch, 3, side)
        return in_order_of_text(rows, self._is_backwards[side], self._samplers[side], keys, self._longest)


class SubwordSampler:
    """Splits the words of many sentences at once, with one vocabulary."""

    def __init__(self, segmentations: Segmentations, rate: float) -> None:
        self._segmentations, self._rate = segmentations, rate
        self._known: dict[bytes, WordSegmentations] = {}  # key: the ids of a word
        self._num_bytes = 0

    def __call__(self, rows: Rows, keys: NDArray[np.uint64], longest: int) -> Rows:
        """Split sentences again.

        rows: sentences in text order; keys: (N,) random key of each sentence
        longest: a sentence that would have more tokens stays unchanged
        """
        numbers, lengths = rows.values.astype(np.uint32), rows.lengths
        sentence_ends = np.cumsum(lengths)
        ways, starts = self._ways_of_words(numbers, lengths)
        symbols, symbols_of_word = join_rows([way.symbols for way in ways], np.int32, 2)
        first = np.cumsum(symbols_of_word) - symbols_of_word  # (W,) index of each word's first symbol
        sentence = np.searchsorted(sentence_ends, starts, side="right")  # (W,)
        symbols_of_sentence = np.bincount(sentence, symbols_of_word, len(lengths)).astype(np.int64)
        sentence_start = np.cumsum(symbols_of_sentence) - symbols_of_sentence
        draws = _Draws(keys[sentence], sentence_start[sentence])
        alone, prepared = symbols.T
        tokens = alone.copy()
        if isinstance(self._segmentations, MergeSegmentations):
            begins = self._merge(tokens, ways, first, draws)
        else:
            begins = self._choose_pieces(tokens, ways, first, first + symbols_of_word, draws)
        word_of_symbol = np.repeat(np.arange(len(ways)), symbols_of_word)
        sentence_of_symbol = sentence[word_of_symbol]
        sampled = np.bincount(sentence_of_symbol[begins], minlength=len(lengths))
        stays = (sampled > longest)[sentence]  # (W,) words that keep the split made in preparation
        # A word with a part outside the vocabulary keeps its split too.
        stays[word_of_symbol[begins & (tokens == NO_TOKEN)]] = True
        tokens = np.where(stays[word_of_symbol], prepared, np.where(begins, tokens, NO_TOKEN))
        begins = tokens != NO_TOKEN
        return Rows(tokens[begins], np.bincount(sentence_of_symbol[begins], minlength=len(lengths)))

    def _ways_of_words(self, ids: NDArray[np.uint32], lengths: Indices) -> tuple[list[WordSegmentations], Indices]:
        """Return each word's possible splits and first position, (W,). lengths: (N,) number of ids in each sentence"""
        if self._num_bytes > MAX_CACHED_BYTES:
            self._known, self._num_bytes = {}, 0
        words = word_starts(ids, lengths, self._segmentations.begins_word, self._segmentations.ends_word)
        content, cuts = ids.tobytes(), [*(words * ids.itemsize).tolist(), ids.nbytes]
        names = [content[start:end] for start, end in pairwise(cuts)]
        known = self._known
        for name in names:
            if name not in known:
                known[name] = self._segmentations.of_word(np.frombuffer(name, np.uint32).tolist())
                self._num_bytes += sum(map(len, known[name]))
        return list(map(known.__getitem__, names)), words

    def _merge(
        self, tokens: NDArray[np.int32], ways: list[WordSegmentations], first: Indices, draws: "_Draws"
    ) -> NDArray[np.bool_]:
        """Merge symbols, and store each resulting token at its first symbol. Returns where tokens start afterwards.

        Each round applies the first possible merge in each word.
        """
        steps, counts = join_rows([way.steps for way in ways], np.int32, 4)
        word = np.repeat(np.arange(len(ways)), counts)
        begin, middle, end = steps[:, :3].T + first[word]
        kept = np.flatnonzero(draws(word, begin, middle, end) >= self._rate)
        word, begin, middle, end, token = (values[kept] for values in (word, begin, middle, end, steps[:, 3]))
        after = np.arange(
            1, len(tokens) + 2
        )  # index of the symbol after each symbol; MERGED inside a symbol; one more entry for the end
        while len(word):
            possible = np.flatnonzero((after[begin] == middle) & (after[middle] == end))
            if not len(possible):
                break
            made = possible[np.diff(word[possible], prepend=-1) != 0]
            after[begin[made]] = end[made]
            after[middle[made]] = MERGED
            tokens[begin[made]] = token[made]
            left = np.flatnonzero((after[begin] != MERGED) & (after[middle] != MERGED) & (after[end] != MERGED))
            word, begin, middle, end, token = (values[left] for values in (word, begin, middle, end, token))
        begins: NDArray[np.bool_] = after[:-1] != MERGED
        return begins

    def _choose_pieces(
        self, tokens: NDArray[np.int32], ways: list[WordSegmentations], first: Indices, end: Indices, draws: "_Draws"
    ) -> NDArray[np.bool_]:
        """Draw the pieces of each word from last to first, and store the token of each piece at its first symbol.

        first, end: (W,) range of each word's symbols; returns: (symbols,) whether a piece starts there
        """
        steps, counts = join_rows([way.steps for way in ways], np.int32, 4)
        shares = np.frombuffer(b"".join(way.shares for way in ways))
        word = np.repeat(np.arange(len(ways)), counts)
        piece_begin, piece_end = steps[:, 0] + first[word], steps[:, 2] + first[word]
        bounds = piece_end + shares  # ascending; pieces with the same end have bounds up to 1 above it
        begins = np.zeros(len(tokens), dtype=bool)
        words = np.arange(len(ways))
        while len(words):
            drawn = np.minimum(
                end + draws(words, end, end, end), np.nextafter(end + 1.0, 0.0)
            )  # the sum may round to end + 1
            piece = np.searchsorted(bounds, drawn, side="right")
            begin = piece_begin[piece]
            begins[begin], tokens[begin] = True, steps[piece, 3]
            left = np.flatnonzero(begin > first[words])
            words, end = words[left], begin[left]
        return begins


@dataclass(frozen=True)
class _Draws:
    """Random numbers from [0, 1), which depend on positions among the symbols of all sentences.

    keys: (W,) random key of each word's sentence; starts: (W,) index of that sentence's first symbol
    """

    keys: NDArray[np.uint64]
    starts: Indices

    def __call__(self, word: Indices, begin: Indices, middle: Indices, end: Indices) -> NDArray[np.float64]:
        """Return random numbers (M,) that depend on the sentence of each word and on the symbols' positions in that sentence."""
        place, start = np.zeros(len(word), dtype=np.uint64), self.starts[word]
        for symbol in (begin, middle, end):
            place = (place << np.uint64(PLACE_BITS)) | (symbol - start).astype(np.uint64)
        return uniform(mixed(place, self.keys[word]))
