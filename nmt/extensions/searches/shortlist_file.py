"""A lexical shortlist: the likely target tokens for each source token, learnt from prepared data.

The probabilities are those of IBM model 1 (Brown et al., 1993), after a few EM iterations over a sample of the training pairs.
A search is then limited to the likeliest translations of its source tokens and to frequent tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from nmt import signals
from nmt.data.batching import Indices
from nmt.data.shards import Corpus
from nmt.errors import ArtefactError, UserError, quoted
from nmt.files import write_output
from nmt.log import Bar, log
from nmt.symbols import BOS, SYMBOLS
from nmt.text.vocabulary import expand_ranges

CHUNK_CELLS: Final = 1 << 22  # number of token pairs to count at a time
NULL: Final = BOS  # source token for target tokens that translate no word; it occurs in no sentence


@dataclass(frozen=True)
class Shortlist:
    """The likely target tokens of each source token.

    starts: (source vocabulary + 1,) offsets into `tokens`
    tokens: tokens[starts[s]:starts[s + 1]] are the target tokens of source token s, the likeliest first
    frequent: target tokens that are always allowed, sorted
    """

    starts: Indices
    tokens: Indices
    frequent: Indices

    def of(self, source: Indices) -> Indices:
        """The target tokens for a batch's source tokens, sorted. They always include the control symbols."""
        rows = [self.tokens[self.starts[token] : self.starts[token + 1]] for token in np.unique(source).tolist()]
        return np.unique(np.concatenate([np.arange(len(SYMBOLS)), self.frequent, *rows]))

    def likeliest(self) -> Iterator[tuple[int, int]]:
        """Yield each source token with its likeliest target token, ignoring control symbols."""
        for source in range(len(SYMBOLS), len(self.starts) - 1):
            targets = self.tokens[self.starts[source] : self.starts[source + 1]]
            if len(words := targets[targets >= len(SYMBOLS)]):
                yield source, int(words[0])

    def save(self, path: Path, vocabulary: str) -> None:
        """Write the shortlist to a file. vocabulary: hash of the text pipeline to which the tokens belong"""
        arrays = {"starts": self.starts, "words": self.tokens, "frequent": self.frequent}
        write_output(path, save(arrays, {"vocabulary": vocabulary}))

    @classmethod
    def load(cls, path: Path, vocabulary: str, sizes: tuple[int, int]) -> "Shortlist":
        """Read a shortlist. Raises ArtefactError for a damaged file, and UserError for one made for a different pipeline.

        vocabulary: hash of the model's pipeline
        sizes: sizes of its source and target vocabularies
        """
        if not path.is_file():
            raise UserError(f"{quoted(path)}: no such file")
        try:
            with safe_open(path, framework="numpy") as file:
                written_for = (file.metadata() or {}).get("vocabulary")
                shortlist = cls(*(file.get_tensor(name) for name in ("starts", "words", "frequent")))
        except (SafetensorError, TypeError) as error:  # TypeError for a tensor type that numpy does not support
            raise ArtefactError(f"{quoted(path)}: not a shortlist: {error}") from None
        if written_for != vocabulary:
            raise UserError(
                f"{quoted(path)}: this shortlist was made for a different vocabulary (make a new one with nmt shortlist)"
            )
        arrays, starts = vars(shortlist).values(), shortlist.starts
        if (
            any(array.dtype != np.int64 or array.ndim != 1 for array in arrays)
            or starts.shape != (sizes[0] + 1,)
            or starts[0] != 0
            or starts[-1] != len(shortlist.tokens)
            or (starts[1:] < starts[:-1]).any()  # compares instead of subtracting, because differences may overflow
        ):
            raise ArtefactError(f"{quoted(path)}: not a shortlist: its rows are inconsistent")
        if any(((ids < 0) | (ids >= sizes[1])).any() for ids in (shortlist.tokens, shortlist.frequent)):
            raise ArtefactError(f"{quoted(path)}: not a shortlist: it contains tokens that are not in the vocabulary")
        return shortlist


def learn_shortlist(
    corpus: Corpus,
    sizes: tuple[int, int],
    max_pairs: int,
    rounds: int,
    max_translations: int,
    max_frequent: int,
) -> Shortlist:
    """Learn a shortlist from the training pairs.

    sizes: sizes of the source and target vocabularies
    max_pairs: number of training pairs to use, evenly spaced over the corpus
    rounds: number of EM iterations
    max_translations: maximum number of target tokens per source token
    max_frequent: number of target tokens that are always allowed, the most frequent ones

    Skips pairs with more than MAX_PAIR_CELLS cells, with a warning. Raises UserError if no pair is left.
    """
    V = sizes[1]
    pairs = np.unique(np.linspace(0, len(corpus) - 1, min(max_pairs, len(corpus))).astype(np.int64))
    pairs = _pairs_that_fit(corpus, pairs)
    with log.progress("learning a shortlist", len(pairs) * (1 + rounds), "pairs") as bar:
        keys, counts, probabilities = _translation_model(corpus, pairs, sizes, rounds, bar)
    best = np.lexsort((keys % V, -probabilities, keys // V))  # by source token, the likeliest first
    sources = keys[best] // V
    rank = np.arange(len(best)) - np.searchsorted(sources, sources)
    kept = best[(rank < max_translations) & (sources != NULL)]
    starts = np.searchsorted(keys[kept] // V, np.arange(sizes[0] + 1))
    frequent = np.sort(np.argsort(-counts, kind="stable")[:max_frequent])
    return Shortlist(starts, keys[kept] % V, frequent[counts[frequent] > 0])


def _pairs_that_fit(corpus: Corpus, pairs: Indices) -> Indices:
    from nmt.extensions.methods.word_alignment import MAX_PAIR_CELLS  # needed only for learning, not in a search

    cells = corpus.source_lengths[pairs].astype(np.int64) * corpus.target_lengths[pairs]
    is_short = cells <= MAX_PAIR_CELLS
    if num_long := int((~is_short).sum()):
        reason = f"product of source and target lengths exceeds {MAX_PAIR_CELLS:,}"
        log.warn(f"skipped {num_long:,} of {len(pairs):,} pairs, because their {reason}")
    if num_long == len(pairs):
        how = "raise --pairs, or prepare the data with --max-length"
        raise UserError(f"none of the {len(pairs):,} training pairs is short enough for a shortlist ({how})")
    short: Indices = pairs[is_short]
    return short


def _translation_model(
    corpus: Corpus, pairs: Indices, sizes: tuple[int, int], rounds: int, bar: Bar
) -> tuple[Indices, Indices, NDArray[np.float64]]:
    """IBM model 1 as arrays: keys source * V + target, counts of target tokens, and each key's probability given its source."""
    from nmt.extensions.methods.word_alignment import different  # needed only for learning, not in a search

    V = sizes[1]
    counts = np.zeros(V, np.int64)

    def counted() -> Iterator[Indices]:
        nonlocal counts
        for cells, starts in _chunks(corpus, pairs, V, bar):
            counts += np.bincount(cells[starts] % V, minlength=V)
            yield cells

    keys = different(counted())
    probabilities = np.ones(len(keys))
    for _ in range(rounds):
        expected = np.zeros(len(keys))
        for cells, starts in _chunks(corpus, pairs, V, bar):
            places = np.searchsorted(keys, cells)
            shares = probabilities[places]
            lengths = np.diff(starts, append=len(shares))
            shares = shares / np.repeat(np.add.reduceat(shares, starts), lengths)
            expected += np.bincount(places, shares, len(keys))
        probabilities = expected / np.bincount(keys // V, expected, sizes[0])[keys // V]
    return keys, counts, probabilities


def _chunks(corpus: Corpus, pairs: Indices, V: int, bar: Bar) -> Iterator[tuple[Indices, Indices]]:
    """Yield the results of `_cells` for groups of pairs with about CHUNK_CELLS cells each."""
    cells = (corpus.source_lengths[pairs].astype(np.int64) + 1) * corpus.target_lengths[pairs]
    for indices in np.split(pairs, np.flatnonzero(np.diff(np.cumsum(cells) // CHUNK_CELLS)) + 1):
        signals.check()
        yield _cells(corpus, indices, V)
        bar.advance(len(indices))


def _cells(corpus: Corpus, indices: Indices, V: int) -> tuple[Indices, Indices]:
    """The keys source * V + target of all pairs of tokens, including NULL, and the index of each target token's first key."""
    source_lengths = corpus.source_lengths[indices].astype(np.int64)
    target_lengths = corpus.target_lengths[indices].astype(np.int64)
    with_null = np.insert(corpus.sources(indices).astype(np.int64), np.cumsum(source_lengths) - source_lengths, NULL)
    source_lengths = source_lengths + 1
    targets = corpus.targets(indices).astype(np.int64)
    counts = np.repeat(source_lengths, target_lengths)  # number of source tokens for each target token
    first = np.repeat(np.cumsum(source_lengths) - source_lengths, target_lengths)
    return with_null[expand_ranges(first, counts)] * V + np.repeat(targets, counts), np.cumsum(counts) - counts


def measure_coverage(
    shortlist: Shortlist, sources: Sequence[NDArray[Any]], targets: Sequence[NDArray[Any]]
) -> tuple[float, float]:
    """Measure how well a shortlist covers the given pairs.

    sources, targets: ids of each sentence
    returns: share of target tokens found in the shortlist of their source sentence, and the mean shortlist size in tokens
    """
    covered = tokens = 0
    for source, target in zip(sources, targets, strict=True):
        allowed = shortlist.of(source.astype(np.int64))
        covered, tokens = covered + int(np.isin(target, allowed).sum()), tokens + len(allowed)
    return covered / max(1, sum(map(len, targets))), tokens / max(1, len(sources))
