"""Translates lines of raw text with an engine, in batches sorted by length."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Final

import numpy as np

from nmt.data.batching import micro_batches
from nmt.decoders.hypothesis import Constraints
from nmt.decoders.options import phrases_hint
from nmt.errors import UserError, quoted
from nmt.filters.base import TargetFilters
from nmt.log import Bar, log
from nmt.text.context import DocumentLines
from nmt.text.corpus import clean, is_invisible, is_translatable
from nmt.text.pipeline import CHARACTERS_PER_TOKEN
from nmt.translate.engine import EncodedLine, SearchEngine
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.options import TranslatorOptions
from nmt.translate.requests import Request, in_context
from nmt.translate.results import RETRIED, UNKNOWN_TAG, Candidate, Failure, PairScore, Translation

MIN_BATCH_SHARE: Final = 4  # batches may be up to this many times smaller, so that all replicas have work
NO_TEXTS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})


def check_lines(name: str, lines: Sequence[object], types: tuple[type, ...] = (str,)) -> None:
    """Raise UserError unless `lines` is a list of items of these types. name: name of the argument in messages"""
    if isinstance(lines, str | bytes):
        raise UserError(f"{name} must be a list of lines, not a single string ({len(lines):,} characters)")
    if not isinstance(lines, Sequence):  # an iterator could be read only once
        raise UserError(f"{name} must be a list of lines, not {type(lines).__name__}")
    for i, line in enumerate(lines):
        if not isinstance(line, types):
            wanted = " or ".join(kind.__name__ for kind in types)
            raise UserError(f"{name}[{i}] must be {wanted}, not {type(line).__name__}")


class Translator:
    """Translates lines with an engine and its text pipeline.

    options: only the options about lines are used; those about devices, models, searches and files are the engine's
    filter_texts: texts that apply to every request, by filter
    Raises UserError if a filter refuses its texts.
    """

    def __init__(
        self, engine: SearchEngine, options: TranslatorOptions, filter_texts: Mapping[str, Sequence[str]] = NO_TEXTS
    ) -> None:
        self.pipeline, self.engine = engine.pipeline, engine
        self.max_source_length = options.max_source_length
        self.max_characters = CHARACTERS_PER_TOKEN * options.max_source_length  # longer lines are truncated
        self.translates_symbols = options.symbols == "translate"
        self.context = self.pipeline.context  # maximum number of previous sentences that are read with a line
        self._filters = TargetFilters(self.pipeline.target)
        self._default_constraints = Constraints()
        self._default_constraints = Constraints(filters=self._filter_texts(filter_texts))
        for name, texts in self._default_constraints.filters.items():
            if reason := self._filters[name].refusal((), texts, ()):
                raise UserError(f"--{name}: {reason} (drop it)")

    def translate(self, requests: Sequence[Request | str], bar: Bar | None = None) -> list[Translation]:
        """Translate each request or line, and return the translations in order.

        bar: the progress bar of a longer text that contains these lines; None creates a new bar
        """
        parsed = self.parsed(requests)
        lines = self.encode(parsed)
        reasons = [request.error or self._refusal(request, line) for request, line in zip(parsed, lines, strict=True)]
        outcomes = [
            Failure(reason) if reason else self._kept(request) for request, reason in zip(parsed, reasons, strict=True)
        ]
        rows = list(zip(lines, outcomes, strict=True))
        lengths = np.array([0 if outcome else len(line.source) for line, outcome in rows], int)
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]  # the longest first
        size = even_batch_tokens(int(lengths.sum()) + len(order), self.engine.batch_tokens, self.engine.replicas)
        batches = [batch.tolist() for batch in micro_batches([order], lengths, lengths, size)]

        warnings = [{} if isinstance(outcome, list) and outcome else line.warnings for line, outcome in rows]
        for line, kinds in zip(lines, warnings, strict=True):
            if tag := self.pipeline.source.unknown_tag(line.text):
                known = ", ".join(map(quoted, self.pipeline.source.prepare.tags))
                kinds[UNKNOWN_TAG] = f"'{quoted(tag)}' is not a tag of this model and is read as text (it has {known})"
        work = self.engine.search([[lines[i] for i in batch] for batch in batches])
        with nullcontext(bar) if bar else log.progress("translating", len(lines), "lines") as bar:
            bar.advance(len(lines) - len(order))
            for batch, (batch_outcomes, warning) in zip(batches, work, strict=True):
                if warning:
                    warnings[batch[0]][RETRIED] = warning
                for i, outcome in zip(batch, batch_outcomes, strict=True):
                    outcomes[i] = outcome
                    warnings[i] |= outcome[0].warnings if isinstance(outcome, list) and outcome else {}
                bar.advance(len(batch))
        return [
            Translation([], outcome.message, kinds, len(line.source))
            if isinstance(outcome, Failure)
            else Translation(outcome, "", kinds, len(line.source))
            for line, outcome, kinds in zip(lines, outcomes, warnings, strict=True)
        ]

    def parsed(self, requests: Sequence[Request | str]) -> Sequence[Request]:
        """Convert consecutive requests and lines of a document to requests with their contexts."""
        check_lines("requests", requests, (str, Request))
        parsed = [Request(request) if isinstance(request, str) else request for request in requests]
        return in_context(parsed, DocumentLines(self.context))

    def texts(self, lines: Sequence[str | Request], warnings: LineWarnings) -> list[str]:
        """Translate lines to texts, which are empty for failed lines. warnings: receives the warnings about lines"""
        translations = self.translate(lines)
        warnings.add_translations(translations)
        return [translation.text for translation in translations]

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore | Failure]:
        """Compute the log-probabilities of given translations. Returns a result for each pair of lines."""
        check_lines("sources", sources)
        check_lines("targets", targets)
        if len(sources) != len(targets):
            raise UserError(
                f"sources and targets must have the same number of lines, not {len(sources):,} and {len(targets):,}"
            )
        return self.engine.score(sources, targets)

    def encode(self, requests: Sequence[Request]) -> list[EncodedLine]:
        """Encode requests as the ids and constraints that the model and the search read."""
        texts = [request.text[: self.max_characters] for request in requests]
        contexts = [request.context or () for request in requests]
        encoded, num_context = self.pipeline.source.encode_in_context(texts, contexts, self.max_source_length)
        return [
            EncodedLine(
                text,
                row[: self.max_source_length],
                self._constraints(request),
                len(request.text) > self.max_characters or len(row) > self.max_source_length,
                before,
            )
            for request, text, row, before in zip(requests, texts, encoded.lists(), num_context.tolist(), strict=True)
        ]

    def idle(self) -> None:
        """Called while no line is waiting. Does nothing."""

    def _kept(self, request: Request) -> list[Candidate]:
        """The text without its tags, as one candidate, if it has no words but the vocabulary does; otherwise an empty list."""
        text, tags = request.text, self.pipeline.source.prepare.tags
        if tags:
            text = " ".join(word for word in text.split() if word not in tags)
        if self.translates_symbols or request.prefix or request.phrases or is_translatable(text) or is_invisible(text):
            return []
        return [Candidate(clean(text), [], 0.0, 0.0)] if self.pipeline.source.spells_words else []

    def _constraints(self, request: Request) -> Constraints:
        """The constraints of a request: prefix and phrases as tokens, and the texts for filters, prepared by these filters."""
        if not (request.prefix or request.phrases or request.filters):
            return self._default_constraints
        target = self.pipeline.target
        prefix = tuple(target.encode(request.prefix))
        phrases = [
            tuple(row) for row in target.encode_prepared(target.prepare(request.phrases, starts_sentence=False)).lists()
        ]
        return Constraints(prefix, tuple(filter(None, phrases)), self._filter_texts(request.filters))

    def _filter_texts(self, given: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """The prepared texts for filters, together with the texts that apply to every request."""
        texts = dict(self._default_constraints.filters)
        for name, more in given.items():
            if prepared := self._filters[name].prepared(more):
                texts[name] = (*texts.get(name, ()), *prepared)
        return texts

    def _refusal(self, request: Request, line: EncodedLine) -> str:
        """The reason why the context or the constraints of a line cannot be met, or an empty string if they can."""
        constraints = line.constraints
        if request.context and not self.context:
            return "source_context needs a model with context (this one was prepared without --context)"
        if constraints is self._default_constraints:
            return ""
        if constraints.num_tokens and not len(line.source):
            return "the line has no words, so its translation cannot contain a prefix or phrases"
        if constraints.num_tokens > self.max_source_length:
            limit = f"at most {self.max_source_length:,} are allowed (--max-source-length)"
            return f"prefix and phrases have {constraints.num_tokens:,} tokens; {limit}"
        if constraints.prefix and self.pipeline.target.settings.right_to_left:
            return "a prefix is not possible, because the model writes from right to left"
        if constraints.phrases and not self.engine.takes_phrases:
            return f"phrases need a decoder that accepts them{phrases_hint()}"
        phrases = list(map(self.pipeline.target.decode, constraints.phrases)) if constraints.filters else []
        reasons = (
            self._filters[name].refusal(request.filters.get(name, ()), texts, phrases)
            for name, texts in constraints.filters.items()
        )
        return next(filter(None, reasons), "")


def even_batch_tokens(tokens: int, max_tokens: int, replicas: int) -> int:
    """The batch size that gives every replica the same number of batches, unless these would become too small.

    tokens: source tokens of the text
    max_tokens: maximum tokens per batch
    """
    batches = replicas * max(1, math.ceil(tokens / (replicas * max_tokens)))
    return max_tokens if replicas == 1 else max(math.ceil(tokens / batches), max_tokens // MIN_BATCH_SHARE, 1)
