"""Translating lines: raw text in, raw text out, in batches sorted by length, whatever the model and the search."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nmt.checkpoint import load_model
from nmt.data.batching import micro_batches
from nmt.data.loader import padded_rows
from nmt.decoders.base import Decoder, Hypothesis
from nmt.device import Precision, autocast, choose_device
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.models.base import Scorer
from nmt.text.pipeline import Pipeline

CHARACTERS_PER_TOKEN: Final = 64  # far more than text has; what lies beyond is cut before it costs time
LINES_NAMED: Final = 10


@dataclass(frozen=True)
class Candidate:
    """One translation of a line. tokens: target ids; log_prob: nats, EOS counted; score: what the search ranks by."""

    text: str
    tokens: list[int]
    log_prob: float
    score: float


@dataclass(frozen=True)
class Translation:
    """What became of a line. candidates: best first; none for a line without tokens and for one that failed."""

    candidates: list[Candidate] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.candidates[0].text if self.candidates else ""


class Tally:
    """Lines of one sort: the first ten are named in a message each, all are counted."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.count = 0
        self._tell = tell

    def add(self, message: str) -> None:
        self.count += 1
        if self.count <= LINES_NAMED:
            self._tell(message + (" (more such lines are counted, not named)" if self.count == LINES_NAMED else ""))


class Translator:
    """A text pipeline, a Scorer and a search as one thing that translates lines.

    batch_tokens: source tokens of a batch, EOS and padding counted
    max_source_length: tokens of a line; a longer one is cut there, and named
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
    ) -> None:
        self.pipeline, self.scorer, self.decoder = pipeline, scorer, decoder
        self.batch_tokens, self.max_source_length, self.precision = batch_tokens, max_source_length, precision
        self.cut, self.failed = Tally(log.warn), Tally(log.error)

    @property
    def device(self) -> torch.device:
        """Where the model is; a Scorer that is no module is asked on the CPU."""
        return next(self.scorer.parameters()).device if isinstance(self.scorer, nn.Module) else torch.device("cpu")

    @property
    def max_characters(self) -> int:
        """Characters of a line that are read at all."""
        return CHARACTERS_PER_TOKEN * self.max_source_length

    def translate(
        self, lines: Sequence[str], place: str = "input", first: int = 1, check: Callable[[], None] | None = None
    ) -> list[Translation]:
        """A translation for each line, in their order.

        place, first: the name of the text and the number of its first line here, for messages
        check: called before each batch; may raise to stop
        """
        sentences = self._encode(lines, place, first)
        lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        order = np.argsort(-lengths, kind="stable")
        results = [Translation()] * len(lines)
        for batch in micro_batches([order[lengths[order] > 0]], lengths, lengths, self.batch_tokens):
            if len(batch) == 0:
                break
            if check is not None:
                check()
            found = self._search([sentences[i] for i in batch])
            for i, outcome in zip(batch.tolist(), found, strict=True):
                if isinstance(outcome, str):
                    self.failed.add(f"{place}:{first + i}: not translated: {outcome}")
                else:
                    results[i] = Translation([self._candidate(hypothesis) for hypothesis in outcome])
        return results

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

    def _search(self, sentences: list[NDArray[Any]]) -> list[list[Hypothesis] | str]:
        """The hypotheses of each sentence, or what went wrong with it.

        A batch that fails is halved until the sentence that fails is alone: memory may be the reason, or the sentence.
        """
        try:
            with autocast(self.device, self.precision):
                found = self.decoder.search(self.scorer, padded_rows(sentences, []).to(self.device))
            return [_finite(hypotheses) for hypotheses in found]
        except UserError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {quoted(error)}"
        if len(sentences) == 1:
            return [reason]
        log.warn(f"a batch of {len(sentences)} sentences failed ({reason}); trying halves of it")
        half = len(sentences) // 2
        return self._search(sentences[:half]) + self._search(sentences[half:])

    def _candidate(self, hypothesis: Hypothesis) -> Candidate:
        text = self.pipeline.target.decode(hypothesis.tokens)
        return Candidate(text, hypothesis.tokens, hypothesis.log_prob, hypothesis.score)


def _finite(hypotheses: list[Hypothesis]) -> list[Hypothesis] | str:
    found = [hypothesis for hypothesis in hypotheses if math.isfinite(hypothesis.score)]
    return found or "the model gives no finite probability"


def load_translator(
    folder: Path,
    decoder: Decoder,
    batch_tokens: int,
    max_source_length: int = 1024,
    device: str = "auto",
    precision: Precision = "fp32",
) -> Translator:
    """The translator of a model folder, or of a run's best checkpoint. Raises ArtefactError and UserError."""
    loaded = load_model(folder, choose_device(device))
    return Translator(loaded.pipeline, loaded.model, decoder, batch_tokens, max_source_length, precision)
