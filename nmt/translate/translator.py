"""Translating lines: raw text in, raw text out, in batches sorted by length, whatever the model and the search."""

import math
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nmt.batch import pad_rows
from nmt.checkpoint import check_int8, load_model
from nmt.data.batching import micro_batches
from nmt.data.shortlist import Shortlist
from nmt.decoders.base import Decoder, Hypothesis, Target
from nmt.decoders.filters import Constraints
from nmt.device import Precision, autocast
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.models.base import Model, Scorer
from nmt.nn.linear import settle, transpose_weights
from nmt.nn.quantized import Int8Linear, quantize
from nmt.pictures.attention_maps import AttentionMaps
from nmt.pictures.beam_graph import BeamGraph, beam_graph
from nmt.text.pipeline import Pipeline
from nmt.translate.batch_size import batch_tokens_of
from nmt.translate.ensemble import Ensemble, Mean
from nmt.translate.forced_decoding import ForcedDecoding, attended, read
from nmt.translate.rate_limited_warnings import RateLimitedWarnings
from nmt.translate.replicas import Replicas
from nmt.translate.requests import Request
from nmt.translate.rerank import Reranker
from nmt.translate.results import Candidate, Detail, Translation
from nmt.translate.retry_split import retry_split
from nmt.translate.shortlist import search as search_among

CHARACTERS_PER_TOKEN: Final = 64  # far more than text has; what lies beyond is cut before it costs time

SearchResult = tuple[Hypothesis, ForcedDecoding | None]


class SearchBatch(NamedTuple):
    """A batch: its texts; the ids of each, without EOS; and what is wished for each."""

    texts: list[str]
    sentences: list[NDArray[Any]]
    constraints: list[Constraints]


class Translator:
    """A text pipeline, a Scorer and a search as one thing that translates lines.

    batch_tokens: source tokens of a batch at most, EOS and padding counted; fewer where replicas share a short text out
    max_source_length: tokens of a line; a longer one is cut there, and named
    detail: what is wanted of each translation besides its text
    avoid: texts that no translation contains as whole words
    shortlist: where to search for the words of a batch; only with one model
    replicas, threads: batches that are searched side by side, and the threads of each
    reranker: what puts the candidates of a search into another order
    cut, failed: the lines that were cut, and those that could not be translated
    """

    def __init__(
        self,
        pipeline: Pipeline,
        scorer: Scorer,
        decoder: Decoder,
        batch_tokens: int,
        max_source_length: int = 1024,
        precision: Precision = "fp32",
        detail: Detail | None = None,
        avoid: tuple[str, ...] = (),
        replicas: int = 1,
        threads: int = 1,
        shortlist: Shortlist | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        self.shortlist, self.reranker = shortlist, reranker
        self.detail = detail or Detail()
        self.pipeline, self.scorer, self.decoder = pipeline, scorer, copy(decoder)  # which is told its languages below
        self.batch_tokens, self.max_source_length, self.precision = batch_tokens, max_source_length, precision
        self.cut, self.failed = RateLimitedWarnings(log.warn), RateLimitedWarnings(log.error)
        target = pipeline.target
        self._default_constraint = Constraints(avoid=self._prepared(avoid))  # of a line that wishes nothing itself
        self._replicas = Replicas(self._found, replicas, self.device, threads, self._settle)
        self.decoder.source_text = pipeline.source.decode
        self.decoder.target = Target(target.decode, lambda: [target.surface(token) for token in range(target.size)])

    @property
    def device(self) -> torch.device:
        """Where the model is; a Scorer that is no module is asked on the CPU."""
        return next(self.scorer.parameters()).device if isinstance(self.scorer, nn.Module) else torch.device("cpu")

    @property
    def n_best(self) -> int:
        """How many candidates a line is given."""
        return self.decoder.n_best if self.reranker is None else self.reranker.shown

    @property
    def max_characters(self) -> int:
        """Characters of a line that are read at all."""
        return CHARACTERS_PER_TOKEN * self.max_source_length

    def translate(
        self, requests: Sequence[Request], place: str = "input", first: int = 1, check: Callable[[], None] | None = None
    ) -> list[Translation]:
        """A translation for each line, in their order.

        place, first: the name of the text and the number of its first line here, for messages
        check: called before each batch; may raise to stop
        """
        sentences = self._encode([request.text for request in requests], place, first)
        lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        order = np.argsort(-lengths, kind="stable")
        results = [Translation()] * len(requests)

        def fail(number: int, reason: str) -> None:
            self.failed.add(f"{place}:{first + number}: not translated: {reason}")
            results[number] = Translation(error=reason)

        constraints = [self._constraint(request) for request in requests]
        for number, (request, constraint) in enumerate(zip(requests, constraints, strict=True)):
            if reason := request.error or self._refused(constraint, int(lengths[number])):
                fail(number, reason)
                lengths[number] = 0
        order = order[lengths[order] > 0]
        size = batch_tokens_of(int(lengths.sum()) + len(order), self.batch_tokens, self._replicas.number)
        planned = micro_batches([order], lengths, lengths, size)
        batches = [batch.tolist() for batch in planned if len(batch)]

        asked = [
            SearchBatch(
                [requests[i].text[: self.max_characters] for i in batch],
                [sentences[i] for i in batch],
                [constraints[i] for i in batch],
            )
            for batch in batches
        ]
        for batch, found in zip(batches, self._replicas.in_order(asked, check), strict=True):
            for i, outcome in zip(batch, found, strict=True):
                if isinstance(outcome, str):
                    fail(i, outcome)
                else:
                    results[i] = Translation(outcome)
        return results

    def attended(self, request: Request, candidate: Candidate) -> AttentionMaps:
        """Where every layer and head of the model looked, from a line to its translation. UserError without attention."""
        target = self.pipeline.target.in_reading_order(candidate.tokens)
        return attended(cast(Model, self.scorer), self.pipeline, self._ids(request), target)

    def graph(self, request: Request, candidate: Candidate) -> BeamGraph:
        """How the search went that gave a line its translation. UserError for a search without a beam."""
        pieces = self.pipeline.source.piece, self.pipeline.target.piece
        with autocast(self.device, self.precision):
            sentence = (
                self._ids(request),
                self._constraint(request),
                self.pipeline.target.in_reading_order(candidate.tokens),
            )
            return beam_graph(self.decoder, self.scorer, self.device, *sentence, pieces)

    def _ids(self, request: Request) -> list[int]:
        """The ids of one line, without EOS."""
        return self.pipeline.source.encode(request.text[: self.max_characters])[: self.max_source_length]

    def wait(self) -> None:
        """Called while no line has come: nothing is to be done."""

    def _encode(self, lines: Sequence[str], place: str, first: int) -> list[NDArray[Any]]:
        """The ids of each line, without EOS."""
        sentences = self.pipeline.source.encode_batch([line[: self.max_characters] for line in lines]).rows()
        for number, (line, sentence) in enumerate(zip(lines, sentences, strict=True), first):
            if len(line) > self.max_characters or len(sentence) > self.max_source_length:
                self.cut.add(
                    f"{place}:{number}: cut to {min(len(sentence), self.max_source_length):,} tokens (--max-source-length)"
                )
        return [sentence[: self.max_source_length] for sentence in sentences]

    def _constraint(self, request: Request) -> Constraints:
        """What is wished, in tokens; texts to avoid as they stand before they are cut into tokens."""
        if not (request.prefix or request.phrases or request.avoid):
            return self._default_constraint
        target = self.pipeline.target
        prefix, *phrases = (tuple(target.encode(text)) for text in (request.prefix, *request.phrases))
        avoid = (*self._default_constraint.avoid, *self._prepared(request.avoid))
        return Constraints(prefix, tuple(filter(None, phrases)), avoid)

    def _prepared(self, avoid: Sequence[str]) -> tuple[str, ...]:
        """Texts to avoid, those that then have a word."""
        return tuple(text for text in self.pipeline.target.prepare(avoid) if text.strip())

    def _refused(self, constraint: Constraints, length: int) -> str:
        """Why a wish cannot be granted; empty where it can. length: tokens of the source"""
        if constraint.num_tokens and not length:
            return "a line without words has no translation that could hold what is wished"
        if constraint.num_tokens > self.max_source_length:
            return f"{constraint.num_tokens:,} tokens of prefix and phrases are wished for (--max-source-length)"
        if (constraint.prefix or constraint.avoid) and self.pipeline.target.settings.right_to_left:
            return "the model writes from right to left: it cannot be told how to begin, nor what to avoid"
        if constraint.phrases and not self.decoder.takes_phrases:
            return "phrases are wished for, which --decoder constrained-beam can hold to"
        for phrase in map(self.pipeline.target.decode, constraint.phrases if constraint.avoid else ()):
            if any(f" {avoided} " in f" {phrase} " for avoided in constraint.avoid):
                return f"the phrase '{quoted(phrase)}' is wished for, and is to be avoided"
        return ""

    def _found(self, asked: SearchBatch) -> list[list[Candidate] | str]:
        """The candidates of each sentence, best first, or what went wrong with it."""
        texts, sentences, constraints = asked

        def made(part: slice) -> list[list[Candidate] | str]:
            found = self._search(sentences[part], constraints[part])
            return [
                one
                if isinstance(one, str)
                else [self.detail.candidate(self.pipeline, text, ids, *each) for each in one]
                for text, ids, one in zip(texts[part], sentences[part], found, strict=True)
            ]

        candidates = retry_split(made, len(sentences))
        return candidates if self.reranker is None else self.reranker(texts, candidates)

    def _search(self, sentences: list[NDArray[Any]], constraints: list[Constraints]) -> list[list[SearchResult] | str]:
        """What is found for each sentence, or why nothing is."""
        with autocast(self.device, self.precision):
            source = pad_rows(sentences).to(self.device)
            if self.shortlist is None:
                found = self.decoder.search(self.scorer, source, constraints)
            else:
                found = search_among(self.decoder, cast(Model, self.scorer), source, constraints, self.shortlist)
            return self._read(sentences, [_finite(hypotheses) for hypotheses in found])

    def _settle(self) -> None:
        """Before much is searched, once for all replicas: lay weights out for it, and find how products are quickest."""
        rerank_models = (
            [rerank_model.loaded.model for rerank_model in self.reranker.rerank_models] if self.reranker else []
        )
        for model in (self.scorer, *rerank_models):
            if isinstance(model, nn.Module) and self.device.type == "cpu":
                transpose_weights(model)
                settle(model)
                for module in model.modules():
                    if isinstance(module, Int8Linear):
                        module.ready()

    def _read(
        self, sentences: Sequence[NDArray[Any]], found: Sequence[list[Hypothesis] | str]
    ) -> list[list[SearchResult] | str]:
        """The hypotheses, each with its second reading where one is wanted."""
        pairs = [
            (sentence, each.tokens)
            for sentence, one in zip(sentences, found, strict=True)
            for each in (one if not isinstance(one, str) else ())
            if self.detail.wanted(each.tokens)
        ]
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        forced_decodings = iter(read(self.scorer, self.device, sources, targets) if pairs else ())

        def with_forced_decoding(one: Hypothesis) -> SearchResult:
            forced = next(forced_decodings) if self.detail.wanted(one.tokens) else None
            if forced is not None and forced.weights is None and self.detail.of_attention:
                raise UserError("the model has no attention, which --alignment and --replace-unk need")
            return one, forced

        return [one if isinstance(one, str) else list(map(with_forced_decoding, one)) for one in found]


def _finite(hypotheses: list[Hypothesis]) -> list[Hypothesis] | str:
    found = [hypothesis for hypothesis in hypotheses if math.isfinite(hypothesis.score)]
    return found or "the model gives no finite probability"


def load_scorer(
    folders: Sequence[Path],
    device: torch.device,
    weights: Sequence[float] = (),
    mean: Mean = "log-probabilities",
    precision: Precision | Literal["int8"] = "fp32",
) -> tuple[Pipeline, Model | Ensemble]:
    """The model of a folder, or an ensemble of those of several, and its text pipeline.

    precision: int8 gives models weights of 8 bits, unless that is what they have; another must be one they can be asked in
    Raises ArtefactError, and UserError for models that cannot be asked so, or together.
    """
    if precision == "int8":
        check_int8(device)
    loaded = [load_model(folder, device) for folder in folders]
    first = loaded[0]
    for one in loaded:
        if one.facts.weights == "int8" and precision not in ("fp32", "int8"):
            raise UserError(f"{quoted(one.folder)}: has weights of 8 bits, which --precision {precision} is not for")
    for other in loaded[1:]:
        if other.pipeline.hash != first.pipeline.hash:
            in_reading_order = {one.pipeline.target.settings.right_to_left for one in (first, other)}
            differ = (
                "write in different directions"
                if len(in_reading_order) > 1
                else "have different vocabularies or text pipelines"
            )
            raise UserError(
                f"{quoted(first.folder)} and {quoted(other.folder)} {differ}, so that they cannot be asked together"
            )
    for one in loaded:
        one.model.requires_grad_(False)
        if precision == "int8":
            quantize(one.model)
    if len(loaded) == 1:
        return first.pipeline, first.model
    try:
        return first.pipeline, Ensemble([one.model for one in loaded], weights, mean)
    except ValueError as error:
        raise UserError(f"--model-weights: {error}") from None
