"""Re-ranking: other models score a search's candidates, which are then ordered by the weighted mean of all scores.

Each model scores the text with its own vocabulary. Its log-probability (nats, including EOS) is normalised as in the search
(Decoder.normalised), by the number of its own tokens. A model of the reverse direction scores the source given the candidate
(the "noisy channel"). A language model scores only the candidate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from msgspec import structs
from torch import nn

from nmt import register
from nmt.checkpoint import LoadedModel, load_model
from nmt.decoders.base import Decoder
from nmt.device import device_of
from nmt.errors import UserError, quoted
from nmt.extensions.searches.wrappers.options import RerankOptions
from nmt.text.pipeline import Pipeline
from nmt.translate.engine import EncodedLine
from nmt.translate.ensemble import normalize_weights
from nmt.translate.forced_decoding import target_log_probs
from nmt.translate.results import Candidate, Failure, retry_split
from nmt.translate.wrapper import Outcome, SearchWrapper


@dataclass(frozen=True)
class RerankModel:
    """A model that scores candidates again. is_reverse: whether it scores the source given the candidate"""

    loaded: LoadedModel
    is_reverse: bool

    @classmethod
    def load(cls, folder: Path, device: torch.device, pipeline: Pipeline) -> "RerankModel":
        """Load a model that can score a pipeline's translations. Raises UserError if their languages do not match."""
        loaded = load_model(folder, device)
        if loaded.pipeline.context:
            raise UserError(f"{quoted(folder)}: this model cannot re-rank, because it reads context (use another one)")
        source, target = pipeline.source_lang, pipeline.target_lang
        languages = loaded.pipeline.source_lang, loaded.pipeline.target_lang
        if not loaded.model.reads_source and languages[1] == target:
            return cls(loaded, is_reverse=False)
        if not loaded.model.reads_source or languages not in ((source, target), (target, source)):
            usable = f"a {source}-{target} or {target}-{source} model, or a {target} language model"
            raise UserError(
                f"{quoted(folder)}: a {'-'.join(languages)} model cannot re-rank {source}-{target} translations (use {usable})"
            )
        return cls(loaded, is_reverse=languages != (source, target))

    def log_probs(
        self, texts: Sequence[str], candidates: Sequence[str], max_tokens: int, max_length: int
    ) -> list[list[float]]:
        """Log-probabilities (nats) of each candidate's tokens and EOS given its source text; a reverse model swaps the two.

        max_tokens: maximum number of tokens in a batch, including padding
        max_length: number of tokens after which each side is truncated
        """
        sources, targets = (candidates, texts) if self.is_reverse else (texts, candidates)
        pipeline = self.loaded.pipeline
        source, target = pipeline.source.encode_batch(sources).rows(), pipeline.target.encode_batch(targets).rows()
        sides = [row[:max_length] for row in source], [row[:max_length] for row in target]
        return target_log_probs(self.loaded.model, *sides, max_tokens)


@register("wrapper", "rerank", RerankOptions)
class Rerank(SearchWrapper):
    """Orders candidates by the weighted mean of the search's scores and those of other models."""

    order = 10

    def __init__(self, options: Any, pipeline: Pipeline, scorer: nn.Module) -> None:
        """See SearchWrapper. Raises UserError for a model with other languages, or for invalid weights."""
        self.options = options
        self.judges = [RerankModel.load(Path(folder), device_of(scorer), pipeline) for folder in options.rerank]
        self.models = [judge.loaded.model for judge in self.judges]
        try:
            self.weights = normalize_weights(options.rerank_weights, 1 + len(self.judges))
        except ValueError as error:
            raise UserError(f"--rerank-weights: {error} (the first weight belongs to the search)") from None
        self.max_length = options.max_source_length

    def decoder(self, decoder: Decoder) -> Decoder:
        self.n_best, self.search = decoder.n_best, with_candidates(decoder, self.options.rerank_candidates)
        return self.search

    def ranked(
        self, lines: Sequence[EncodedLine], outcomes: list[Outcome], max_tokens: int
    ) -> tuple[list[Outcome], str]:
        """See SearchWrapper. A candidate without a finite score is dropped."""
        texts = [line.text for line in lines]
        return retry_split(lambda part: self._ranked(texts[part], outcomes[part], max_tokens), len(texts))

    def _ranked(self, texts: Sequence[str], outcomes: Sequence[Outcome], max_tokens: int) -> list[Outcome]:
        rows: list[list[Candidate]] = [[] if isinstance(outcome, Failure) else outcome for outcome in outcomes]
        sources = [text for text, row in zip(texts, rows, strict=True) for _ in row]
        hypotheses = [candidate.text for row in rows for candidate in row]
        columns = [[candidate.score for row in rows for candidate in row]]
        for judge in self.judges:
            log_probs = judge.log_probs(sources, hypotheses, max_tokens, self.max_length)
            columns.append([self.search.normalised(math.fsum(row), len(row)) for row in log_probs])
        scores = zip(*columns, strict=True)
        return [
            outcome if isinstance(outcome, Failure) else self._ordered(outcome, list(islice(scores, len(outcome))))
            for outcome in outcomes
        ]

    def _ordered(self, candidates: Sequence[Candidate], scores: Sequence[Sequence[float]]) -> Outcome:
        """The candidates of a line, sorted by the weighted mean of their scores, best first."""
        scored = []
        for candidate, row in zip(candidates, scores, strict=True):
            mean = sum(weight * score for weight, score in zip(self.weights, row, strict=True) if weight)
            scored.append(structs.replace(candidate, score=mean, scores=list(row)))
        finite = (candidate for candidate in scored if math.isfinite(candidate.score))
        ordered = sorted(finite, key=lambda candidate: -candidate.score)
        return ordered[: self.n_best] or Failure("a --rerank model gives no candidate a finite probability")


def with_candidates(decoder: Decoder, num_candidates: int | None) -> Decoder:
    """The same search with more candidates per line, for re-ranking. num_candidates: None for the beam size"""
    options = decoder.options
    count = max(decoder.n_best, num_candidates or getattr(options, "beam_size", 1))
    if not hasattr(options, "n_best") or count == 1:
        instead = "--rerank-candidates" if hasattr(options, "n_best") else "--decoder beam"
        raise UserError(f"--rerank needs several candidates per line, but this search finds only one (use {instead})")
    try:
        return type(decoder)(replace(options, n_best=count))  # a decoder is built from its options alone
    except ValueError as error:
        raise UserError(f"--rerank-candidates: {error}") from None
