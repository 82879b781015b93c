"""A lexical shortlist: for each source token the target tokens that may translate it, learnt from prepared data.

Probabilities are those of IBM model 1 (Brown et al., 1993), by a few rounds of expectation and maximisation over a sample of the
training pairs. A translation is then searched for among the likeliest translations of its source tokens, and the tokens that
are frequent everywhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from nmt.artefact import write_file
from nmt.data.shards import Corpus
from nmt.errors import ArtefactError, UserError, quoted
from nmt.symbols import BOS, SYMBOLS

CHUNK: Final = 1 << 22  # cells, source tokens times target tokens, that are looked at at once
NULL: Final = BOS  # what translates to words that no source word does; no source holds it

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Shortlist:
    """words[starts[s]:starts[s + 1]]: the target tokens of source token s; frequent: those that are always there, sorted."""

    starts: Numbers
    words: Numbers
    frequent: Numbers

    def of(self, source: Numbers) -> Numbers:
        """The target tokens of a batch's source tokens, sorted, control symbols always among them."""
        rows = [self.words[self.starts[token] : self.starts[token + 1]] for token in np.unique(source).tolist()]
        return np.unique(np.concatenate([np.arange(len(SYMBOLS)), self.frequent, *rows]))

    def save(self, path: Path, vocabulary: str) -> None:
        """Write it into a file. vocabulary: the hash of the text pipeline that its tokens are of"""
        write_file(path, save(asdict(self), {"vocabulary": vocabulary}))

    @classmethod
    def load(cls, path: Path, vocabulary: str, sizes: tuple[int, int]) -> "Shortlist":
        """The shortlist of a file. ArtefactError for one that is damaged, UserError for one of another pipeline."""
        if not path.is_file():
            raise UserError(f"{quoted(path)}: no such file")
        try:
            with safe_open(path, framework="numpy") as file:
                told = (file.metadata() or {}).get("vocabulary")
                found = cls(*(file.get_tensor(name) for name in ("starts", "words", "frequent")))
        except SafetensorError as error:
            raise ArtefactError(f"{quoted(path)}: not a shortlist: {error}") from None
        if told != vocabulary:
            raise UserError(
                f"{quoted(path)}: a shortlist of another vocabulary than the model's (nmt shortlist makes one)"
            )
        whole = found.starts.shape == (sizes[0] + 1,)
        whole = whole and all(array.dtype == np.int64 and array.ndim == 1 for array in vars(found).values())
        if (
            not whole
            or found.starts[0] != 0
            or found.starts[-1] != len(found.words)
            or (np.diff(found.starts) < 0).any()
        ):
            raise ArtefactError(f"{quoted(path)}: not a shortlist: its rows do not fit together")
        if any(((ids < 0) | (ids >= sizes[1])).any() for ids in (found.words, found.frequent)):
            raise ArtefactError(f"{quoted(path)}: not a shortlist: it names tokens that the vocabulary does not have")
        return found


class _Cells(NamedTuple):
    """Every source token with every target token of its pair. keys: source * V + target; starts: of each target token's"""

    keys: Numbers
    starts: Numbers


def learn(
    corpus: Corpus,
    sizes: tuple[int, int],
    most_pairs: int,
    rounds: int,
    of_each: int,
    frequent: int,
    check: Callable[[], None],
) -> Shortlist:
    """A shortlist of the training pairs.

    sizes: of the source and the target vocabulary; most_pairs: that are looked at, evenly spaced over the corpus
    of_each: target tokens of a source token; frequent: how many of the most frequent target tokens are always there
    check: called now and then; may raise to stop
    """
    V = sizes[1]
    pairs = np.unique(np.linspace(0, len(corpus) - 1, min(most_pairs, len(corpus))).astype(np.int64))
    counts = np.zeros(V, np.int64)
    known = np.zeros(0, np.int64)
    waiting: list[Numbers] = []
    for indices in _chunks(corpus, pairs):
        check()
        counts += np.bincount(corpus.targets(indices), minlength=V)
        waiting.append(np.unique(_cells(corpus, indices, V).keys))
        if sum(map(len, waiting)) > len(known):
            known, waiting = np.unique(np.concatenate([known, *waiting])), []
    known = np.unique(np.concatenate([known, *waiting]))
    likely = np.ones(len(known))
    for _ in range(rounds):
        expected = np.zeros(len(known))
        for indices in _chunks(corpus, pairs):
            check()
            cells = _cells(corpus, indices, V)
            places = np.searchsorted(known, cells.keys)
            found = likely[places]
            lengths = np.diff(np.append(cells.starts, len(found)))
            found = found / np.repeat(np.add.reduceat(found, cells.starts), lengths)
            expected += np.bincount(places, found, len(known))
        likely = expected / np.bincount(known // V, expected, sizes[0])[known // V]
    best = np.lexsort((known % V, -likely, known // V))  # by source token, the likeliest first
    sources = known[best] // V
    rank = np.arange(len(best)) - np.searchsorted(sources, sources)
    kept = best[(rank < of_each) & (sources != NULL)]
    starts = np.searchsorted(known[kept] // V, np.arange(sizes[0] + 1))
    always = np.sort(np.argsort(-counts, kind="stable")[:frequent])
    return Shortlist(starts, known[kept] % V, always[counts[always] > 0])


def _chunks(corpus: Corpus, pairs: Numbers) -> Iterator[Numbers]:
    """Pairs of about CHUNK cells together."""
    cells = (corpus.source_lengths[pairs].astype(np.int64) + 1) * corpus.target_lengths[pairs]
    yield from np.split(pairs, np.flatnonzero(np.diff(np.cumsum(cells) // CHUNK)) + 1)


def _cells(corpus: Corpus, indices: Numbers, size: int) -> _Cells:
    """The cells of some pairs; NULL stands beside the source tokens of each. size: of the target vocabulary"""
    source_lengths = corpus.source_lengths[indices].astype(np.int64)
    target_lengths = corpus.target_lengths[indices].astype(np.int64)
    with_null = np.insert(corpus.sources(indices).astype(np.int64), np.cumsum(source_lengths) - source_lengths, NULL)
    source_lengths = source_lengths + 1
    targets = corpus.targets(indices).astype(np.int64)
    of_target = np.repeat(source_lengths, target_lengths)  # source tokens beside each target token
    first = np.repeat(np.cumsum(source_lengths) - source_lengths, target_lengths)
    starts = np.cumsum(of_target) - of_target
    places = np.arange(int(of_target.sum())) - np.repeat(starts - first, of_target)
    return _Cells(with_null[places] * size + np.repeat(targets, of_target), starts)


class Coverage(NamedTuple):
    """How much of some pairs a shortlist holds.

    share: of the target tokens, those in the shortlist of their own source sentence; words: that it has for a sentence, the mean
    """

    share: float
    words: float


def coverage(shortlist: Shortlist, sources: Sequence[NDArray[Any]], targets: Sequence[NDArray[Any]]) -> Coverage:
    """See Coverage. sources, targets: ids of each pair"""
    held = words = 0
    for source, target in zip(sources, targets, strict=True):
        own = shortlist.of(source.astype(np.int64))
        held, words = held + int(np.isin(target, own).sum()), words + len(own)
    return Coverage(held / max(1, sum(map(len, targets))), words / max(1, len(sources)))
