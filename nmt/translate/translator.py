"""Translate lines of raw text in batches sorted by length, with any Scorer and any search."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.batch import pad_rows
from nmt.data.batching import micro_batches
from nmt.data.shortlist import Shortlist
from nmt.decoders.base import Decoder, Hypothesis
from nmt.decoders.filters import Constraints
from nmt.device import Memory, Precision, autocast, device_of
from nmt.dist import World
from nmt.errors import UserError, quoted
from nmt.log import Bar, log
from nmt.models.base import Model
from nmt.nn.linear import choose_matmuls, transpose_weights
from nmt.nn.quantized import Int8Linear
from nmt.signals import StopCheck
from nmt.symbols import UNK
from nmt.text.corpus import read_lines
from nmt.text.pipeline import CHARACTERS_PER_TOKEN, Pipeline
from nmt.translate.batch_size import auto_batch_tokens, even_batch_tokens
from nmt.translate.ensemble import Ensemble
from nmt.translate.forced_decoding import force_decode, score
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.options import TranslatorOptions
from nmt.translate.replicas import Replicas
from nmt.translate.requests import Request
from nmt.translate.rerank import Reranker, with_candidates
from nmt.translate.results import NOT_FINITE, Candidate, Failure, PairScore, ResultOptions, Translation, retry_split
from nmt.translate.shortlist import search_shortlist

LineOutcome = list[Candidate] | Failure


class EncodedLine(NamedTuple):
    """A request as ids.

    text: the line, cut to the characters that are read
    source: (S,) ids without EOS, in the model's order
    constraints: the request's, as target ids
    is_cut: whether the line was too long
    """

    text: str
    source: NDArray[Any]
    constraints: Constraints
    is_cut: bool

    @property
    def warnings(self) -> dict[str, str]:
        """Warnings of a Translation about the line itself."""
        warnings = {"cut": f"cut to {len(self.source):,} tokens"} if self.is_cut else {}
        if num_unknown := np.count_nonzero(self.source == UNK):
            warnings["unknown tokens"] = (
                f"the model's vocabulary lacks {num_unknown:,} of its {len(self.source):,} tokens"
            )
        return warnings


def check_lines(name: str, lines: Sequence[object], types: tuple[type, ...] = (str,)) -> None:
    """Raise UserError unless lines are a list of items of the types. name: of the argument, for messages"""
    if isinstance(lines, str | bytes):
        raise UserError(f"{name} is 1 text of {len(lines):,} characters: give a list of lines, not a text")
    for i, line in enumerate(lines):
        if not isinstance(line, types):
            wanted = " or ".join(kind.__name__ for kind in types)
            raise UserError(f"{name}[{i}] is of type {type(line).__name__}: must be {wanted}")


class Translator:
    """A text pipeline, a Scorer and a search that together translate lines.

    scorer: a model or an ensemble, on its device
    options: replicas and threads: None is 1, and torch's setting; its model weights and devices are used by `open_translator`
    world: the ranks that translate together; None: this process alone
    Raises UserError for options that do not fit the models or the search.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        scorer: Model | Ensemble,
        options: TranslatorOptions,
        decoder: Decoder,
        world: World | None = None,
    ) -> None:
        self.pipeline, self.scorer, self.device = pipeline, scorer, device_of(scorer)
        self.max_source_length = options.max_source_length
        self.max_characters = CHARACTERS_PER_TOKEN * options.max_source_length  # of a line that are read
        self.precision: Precision = "fp32" if options.precision == "int8" else options.precision
        if options.shortlist is not None and not decoder.takes_shortlist:
            raise UserError("--shortlist: not for --decoder sampling and mbr (give --decoder beam or greedy)")
        avoid = [line for line in read_lines(Path(options.avoid)) if line.strip()] if options.avoid else []
        if avoid and pipeline.target.settings.right_to_left:
            raise UserError("--avoid: the model writes from right to left, and cannot avoid texts (leave it out)")
        self._default_constraints = Constraints(avoid=self._prepared(avoid))
        if options.capture and self.device.type != "cuda":
            raise UserError(f"--capture: CUDA graphs need a GPU, and this is {self.device} (leave it out)")
        if options.capture and getattr(decoder.options, "coverage_penalty", None):
            raise UserError("--capture: has no effect with --coverage-penalty, which records attention (leave it out)")
        with autocast(self.device, self.precision):
            if options.compile:
                scorer.compile_steps()
            if options.capture:
                scorer.capture_steps()
        self.shortlist: Shortlist | None = None
        if options.shortlist is not None:
            self.shortlist = Shortlist.load(Path(options.shortlist), pipeline.hash, pipeline.sizes)
        # a copy, which gets these languages
        self.decoder = with_candidates(decoder, options.rerank_candidates) if options.rerank else copy(decoder)
        self.decoder.use_pipeline(pipeline)
        replicas, size = options.replicas or 1, options.batch_tokens
        if size == "auto":
            sharing = world.local_size if world and self.device.type == "cpu" else 1  # ranks that have the same memory
            size = auto_batch_tokens(scorer, Memory(self.device), self.decoder.paths, replicas * sharing)
        self.batch_tokens, self.n_best = size, decoder.n_best
        self.reranker: Reranker | None = None
        if options.rerank:
            self.reranker = Reranker(options, self.decoder, self.n_best, size, pipeline, self.device)
        self.result_options = ResultOptions(options)
        threads = max(1, (options.threads or torch.get_num_threads()) // replicas)
        self._replicas = Replicas(self._translate_batch, replicas, self.device, threads, self._prepare_weights)

    def translate(
        self, requests: Sequence[Request | str], check: StopCheck = lambda: None, bar: Bar | None = None
    ) -> list[Translation]:
        """A translation for each request or line, in their order.

        bar: of a longer text, which counts these lines too; None: they get one of their own
        """
        check_lines("requests", requests, (str, Request))
        parsed = [Request(request) if isinstance(request, str) else request for request in requests]
        lines = self.encode(parsed)
        reasons = [request.error or self._refusal(line) for request, line in zip(parsed, lines, strict=True)]
        lengths = np.array(
            [0 if reason else len(line.source) for line, reason in zip(lines, reasons, strict=True)], dtype=np.int64
        )
        order = np.argsort(-lengths, kind="stable")
        order = order[lengths[order] > 0]
        size = even_batch_tokens(int(lengths.sum()) + len(order), self.batch_tokens, self._replicas.number)
        batches = [batch.tolist() for batch in micro_batches([order], lengths, lengths, size) if len(batch)]

        outcomes: list[LineOutcome] = [Failure(reason) if reason else [] for reason in reasons]
        warnings = [line.warnings for line in lines]
        work = self._replicas.in_order([[lines[i] for i in batch] for batch in batches], check)
        with nullcontext(bar) if bar else log.progress("translating", len(lines), "lines") as bar:
            bar.advance(len(lines) - len(order))
            for batch, (batch_outcomes, warning) in zip(batches, work, strict=True):
                for i, outcome in zip(batch, batch_outcomes, strict=True):
                    outcomes[i] = outcome
                if warning is not None:
                    warnings[batch[0]]["retried"] = warning
                bar.advance(len(batch))
        return [
            Translation([], outcome.message, kinds) if isinstance(outcome, Failure) else Translation(outcome, "", kinds)
            for outcome, kinds in zip(outcomes, warnings, strict=True)
        ]

    def texts(self, lines: Sequence[str], place: str, check: StopCheck) -> tuple[list[str], int]:
        """The translations of lines, empty where one failed, and how many did. place: of the lines, in warnings"""
        translations, warnings = self.translate(lines, check), LineWarnings(place, length_flag="")
        warnings.add_translations(translations)
        return [translation.text for translation in translations], warnings.num_failed

    def score(
        self, sources: Sequence[str], targets: Sequence[str], check: StopCheck = lambda: None
    ) -> list[PairScore | Failure]:
        """Log-probabilities of given translations, a result for each pair of lines."""
        check_lines("sources", sources)
        check_lines("targets", targets)
        if len(sources) != len(targets):
            raise UserError(f"sources has {len(sources):,} lines but targets has {len(targets):,}: give pairs of lines")
        limits = self.batch_tokens, self.max_source_length
        with autocast(self.device, self.precision), log.progress("scoring", len(sources), "pairs") as bar:
            return score(self.scorer, self.pipeline, sources, targets, *limits, check, bar.advance)

    def encode(self, requests: Sequence[Request]) -> list[EncodedLine]:
        """The ids and constraints of requests, as the model and the search read them."""
        texts = [request.text[: self.max_characters] for request in requests]
        rows = self.pipeline.source.encode_batch(texts).rows()
        return [
            EncodedLine(
                text,
                row[: self.max_source_length],
                self._constraints(request),
                len(request.text) > self.max_characters or len(row) > self.max_source_length,
            )
            for request, text, row in zip(requests, texts, rows, strict=True)
        ]

    def idle(self) -> None:
        """Do nothing: called while no line is waiting."""

    def _constraints(self, request: Request) -> Constraints:
        """Prefix and phrases as tokens; texts to avoid as they are before subword segmentation."""
        if not (request.prefix or request.phrases or request.avoid):
            return self._default_constraints
        target = self.pipeline.target
        prefix, *phrases = (tuple(target.encode(text)) for text in (request.prefix, *request.phrases))
        avoid = (*self._default_constraints.avoid, *self._prepared(request.avoid))
        return Constraints(prefix, tuple(filter(None, phrases)), avoid)

    def _prepared(self, avoid: Sequence[str]) -> tuple[str, ...]:
        """Texts to avoid, as they are before subword segmentation; those without a word are dropped."""
        return tuple(text for text in self.pipeline.target.prepare(avoid) if text.strip())

    def _refusal(self, line: EncodedLine) -> str:
        """The reason why the constraints of a line cannot be met; empty if they can."""
        constraints = line.constraints
        if constraints.num_tokens and not len(line.source):
            return "a line without words has no translation that could contain a prefix or phrases"
        if constraints.num_tokens > self.max_source_length:
            return f"{constraints.num_tokens:,} tokens of prefix and phrases (at most --max-source-length)"
        if (constraints.prefix or constraints.avoid) and self.pipeline.target.settings.right_to_left:
            return "the model writes from right to left: it takes no prefix, and no texts to avoid"
        if constraints.phrases and not self.decoder.takes_phrases:
            return "phrases need a search that takes them (give --decoder constrained-beam)"
        for phrase in map(self.pipeline.target.decode, constraints.phrases if constraints.avoid else ()):
            if any(f" {avoided} " in f" {phrase} " for avoided in constraints.avoid):
                return f"the phrase '{quoted(phrase)}' is both requested and to be avoided"
        return ""

    def _translate_batch(self, lines: list[EncodedLine]) -> tuple[list[LineOutcome], str | None]:
        """The outcome of each line, and a warning if the batch was retried."""
        outcomes, warning = retry_split(lambda part: self._candidates(lines[part]), len(lines))
        if self.reranker is not None:
            outcomes, rerank_warning = self.reranker([line.text for line in lines], outcomes)
            warning = warning or rerank_warning
        return outcomes, warning

    def _candidates(self, lines: list[EncodedLine]) -> list[LineOutcome]:
        """The candidates of each line, best first; those whose details need it have been decoded by force."""
        constraints = [line.constraints for line in lines]
        with autocast(self.device, self.precision):
            source = pad_rows([line.source for line in lines]).to(self.device)
            if self.shortlist is None:
                hypotheses = self.decoder.search(self.scorer, source, constraints)
            else:
                model = cast(Model, self.scorer)
                hypotheses = search_shortlist(self.decoder, model, source, constraints, self.shortlist)
            found = [
                (line, [hypothesis for hypothesis in row if math.isfinite(hypothesis.score)])
                for line, row in zip(lines, hypotheses, strict=True)
            ]
            needs = self.result_options.needs_forced_decoding
            pairs = [
                (line.source, hypothesis.tokens)
                for line, row in found
                for hypothesis in row
                if needs(hypothesis.tokens)
            ]
            decodings = iter(force_decode(self.scorer, *zip(*pairs, strict=True)) if pairs else ())

        def candidate(line: EncodedLine, hypothesis: Hypothesis) -> Candidate:
            forced = next(decodings) if needs(hypothesis.tokens) else None
            return self.result_options.candidate(self.pipeline, line.text, line.source, hypothesis, forced)

        return [[candidate(line, hypothesis) for hypothesis in row] or NOT_FINITE for line, row in found]

    def _prepare_weights(self) -> None:
        """Lay out the weights for many searches and choose the fastest matrix products; once, for all replicas."""
        rerank_models = [model.loaded.model for model in self.reranker.models] if self.reranker else []
        for model in (self.scorer, *rerank_models) if self.device.type == "cpu" else ():
            transpose_weights(model)
            choose_matmuls(model)
            for module in model.modules():
                if isinstance(module, Int8Linear):
                    module.ready()
