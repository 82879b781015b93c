"""Scores given translations: encodes pairs of lines and computes their log-probabilities by forced decoding."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from nmt.data.encode import LengthFilter
from nmt.models.base import Scorer
from nmt.symbols import EOS
from nmt.text.context import DocumentLines
from nmt.text.pipeline import Pipeline
from nmt.text.vocabulary import EncodedTexts
from nmt.translate.forced_decoding import target_log_probs
from nmt.translate.results import NOT_FINITE, Failure, PairScore


def encode_pairs(
    pipeline: Pipeline, sources: Sequence[str], targets: Sequence[str], limits: LengthFilter, document: DocumentLines
) -> tuple[EncodedTexts, EncodedTexts]:
    """Encode pairs of lines, the sources with their contexts. A line with too many characters has no ids."""
    contexts = list(map(document.context_of, sources))
    source, _ = pipeline.source.encode_in_context(limits.without_long(sources), contexts, limits.max_length)
    return source, pipeline.target.encode_batch(limits.without_long(targets))


def score(
    scorer: Scorer,
    pipeline: Pipeline,
    sources: Sequence[str],
    targets: Sequence[str],
    max_tokens: int,
    max_length: int,
    advance: Callable[[int], None] = lambda count: None,
    document: DocumentLines | None = None,
) -> list[PairScore | Failure]:
    """Score each pair of lines, and return the results in order.

    On either side, a line without tokens counts as a sentence that consists only of EOS.

    max_tokens, advance: see `target_log_probs`; `advance` also counts failed pairs
    max_length: maximum tokens per line; a pair with a longer line fails, and so does a pair that is too long for `LengthFilter`
    document: the previous sources, for a model that reads a context; `sources` are added to it. None starts a new document
    """
    limits, document = LengthFilter(max_length=max_length), document or DocumentLines(pipeline.context)
    source, target = encode_pairs(pipeline, sources, targets, limits, document)
    source_ids, target_ids = source.rows(), target.rows()
    lengths = np.maximum(source.lengths, target.lengths)
    is_long = np.array([*map(max, map(len, sources), map(len, targets))], dtype=np.int64) > limits.max_characters
    results: list[PairScore | Failure] = [
        Failure(f"one side has {length:,} tokens (see --max-length)") for length in lengths
    ]
    for i in np.flatnonzero(is_long).tolist():
        results[i] = Failure(f"one side has more than {limits.max_characters:,} characters")
    short = np.flatnonzero((lengths <= max_length) & ~is_long).tolist()
    short_ids = [source_ids[i] for i in short], [target_ids[i] for i in short]
    advance(len(sources) - len(short))
    rows = target_log_probs(scorer, *short_ids, max_tokens, advance)
    side = pipeline.target
    for i, row in zip(short, rows, strict=True):
        pieces = [side.piece(token) for token in [*side.in_reading_order(target_ids[i].tolist()), EOS]]
        log_probs = [*side.in_reading_order(row[:-1]), row[-1]]
        results[i] = PairScore(math.fsum(row), pieces, log_probs) if all(map(math.isfinite, row)) else NOT_FINITE
    return results
