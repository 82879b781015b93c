"""Re-ranking: the candidates that a search found, put into the order that other models give them together.

The score of a candidate is the weighted mean of the search's own score and of one of each other model: the log-probability
(nats) that it gives the text, EOS counted, made a score as the search makes one of its own (Decoder.normalised), by the length
that the text has in that model's tokens. So a model of the other direction, which says the source given the candidate
("noisy channel"), and a language model, which says the candidate given nothing, are asked alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from nmt.checkpoint import LoadedModel, load_model
from nmt.decoders.base import Decoder
from nmt.errors import UserError, quoted
from nmt.text.pipeline import Pipeline
from nmt.translate.ensemble import shares
from nmt.translate.results import Candidate
from nmt.translate.retry_split import retry_split
from nmt.translate.score import log_probs_of


@dataclass(frozen=True)
class RerankModel:
    """A model that scores what others say. backwards: whether it says the source, given the candidate"""

    loaded: LoadedModel
    backwards: bool

    @classmethod
    def load(cls, folder: Path, device: torch.device, pipeline: Pipeline) -> "RerankModel":
        """The model of a folder, for translations of a pipeline; UserError where it is of other languages."""
        loaded = load_model(folder, device)
        source, target = pipeline.source_lang, pipeline.target_lang
        own = loaded.pipeline.source_lang, loaded.pipeline.target_lang
        if not loaded.model.reads_source and own[1] == target:
            return cls(loaded, backwards=False)
        if not loaded.model.reads_source or own not in ((source, target), (target, source)):
            wanted = f"a model of {source}-{target} or {target}-{source}, or a language model of {target}"
            raise UserError(
                f"{quoted(folder)}: is of {'-'.join(own)}, and cannot rank {source}-{target} (wanted {wanted})"
            )
        return cls(loaded, backwards=own != (source, target))

    def log_probs(
        self, texts: Sequence[str], candidates: Sequence[str], max_tokens: int, max_length: int
    ) -> list[list[float]]:
        """Nats of each token, and of EOS, that it says of each text and its candidate; a side is cut to max_length tokens."""
        given, said = (candidates, texts) if self.backwards else (texts, candidates)
        pipeline = self.loaded.pipeline
        source, target = pipeline.source.encode_batch(given).rows(), pipeline.target.encode_batch(said).rows()
        sides = [row[:max_length] for row in source], [row[:max_length] for row in target]
        return log_probs_of(self.loaded.model, *sides, max_tokens)


class Reranker:
    """Puts candidates in order.

    weights: of the search's own score and of each judge's, made to sum to 1; none is the same for all
    decoder: the search, whose way it is to make a log-probability a score
    shown: how many candidates of a line are given, the best
    max_tokens: cells of a batch, padding counted; max_length: tokens of a side that are read
    """

    def __init__(
        self,
        rerank_models: Sequence[RerankModel],
        weights: Sequence[float],
        decoder: Decoder,
        shown: int,
        max_tokens: int,
        max_length: int,
    ) -> None:
        try:
            self.weights = shares(weights, 1 + len(rerank_models))
        except ValueError as error:
            raise UserError(f"--rerank-weights: {error} (the first is the search's own)") from None
        self.rerank_models, self.decoder, self.shown = rerank_models, decoder, shown
        self.max_tokens, self.max_length = max_tokens, max_length

    def __call__(self, texts: Sequence[str], found: Sequence[list[Candidate] | str]) -> list[list[Candidate] | str]:
        """The candidates of each text in order, or why it has none. A candidate that a judge cannot score is left out."""
        return retry_split(lambda part: self._ranked(texts[part], found[part]), len(texts))

    def _ranked(self, texts: Sequence[str], found: Sequence[list[Candidate] | str]) -> list[list[Candidate] | str]:
        pairs = [
            (text, one) for text, ones in zip(texts, found, strict=True) if not isinstance(ones, str) for one in ones
        ]
        scored = iter(self._scored([text for text, _ in pairs], [one for _, one in pairs]))
        return [ones if isinstance(ones, str) else self._ordered([next(scored) for _ in ones]) for ones in found]

    def _scored(self, texts: Sequence[str], candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with all their scores, and what those are together."""
        columns = [[one.score for one in candidates]]
        for rerank_model in self.rerank_models:
            said = rerank_model.log_probs(texts, [one.text for one in candidates], self.max_tokens, self.max_length)
            columns.append([self.decoder.normalised(math.fsum(words), len(words)) for words in said])
        return [
            replace(one, score=self._mean(scores), scores=list(scores))
            for one, scores in zip(candidates, zip(*columns, strict=True), strict=True)
        ]

    def _mean(self, scores: Sequence[float]) -> float:
        return sum(weight * score for weight, score in zip(self.weights, scores, strict=True) if weight)

    def _ordered(self, candidates: Sequence[Candidate]) -> list[Candidate] | str:
        ordered = sorted((one for one in candidates if math.isfinite(one.score)), key=lambda one: -one.score)
        return ordered[: self.shown] or "a model of --rerank gives no finite probability"
