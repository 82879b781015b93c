"""Details of translations by forced decoding: word alignment, scores of words, confidence, and replaced unknown words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from nmt import register, registry
from nmt.device import autocast, device_of
from nmt.errors import UserError
from nmt.extensions.details.alignment import (
    read_dictionary,
    replaced_unknown,
    word_of_text_tokens,
    word_of_tokens,
    word_weights,
)
from nmt.extensions.details.wrappers.options import DetailOptions
from nmt.log import log
from nmt.models.base import Model
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline
from nmt.translate.engine import EncodedLine
from nmt.translate.ensemble import Ensemble
from nmt.translate.forced_decoding import ForcedDecoding, force_decode
from nmt.translate.results import WITHHELD, Candidate, Failure, retry_split
from nmt.translate.wrapper import Outcome, SearchWrapper


@register("wrapper", "details", DetailOptions)
class TranslationDetails(SearchWrapper):
    """Adds word alignments, scores of words and confidences to translations, and replaces unknown words.

    dictionary: translations of source words, which replace unknown words; None leaves these
    """

    order = 5  # before re-ranking, which may drop candidates

    def __init__(self, options: Any, pipeline: Pipeline, scorer: Model | Ensemble) -> None:
        """See SearchWrapper. Raises UserError if a detail needs attention and the model has none."""
        self.options, self.pipeline, self.scorer = options, pipeline, scorer
        self.dictionary: Mapping[str, str] | None = None
        if options.replace_unk:
            self.dictionary = read_dictionary(Path(options.unk_dictionary)) if options.unk_dictionary else {}
        if (options.alignment is not None or options.replace_unk) and not scorer.has_attention:
            flags = ["--alignment", "--replace-unk", *registry.declared("pass", "needs_attention")]
            raise UserError(
                f"{', '.join(flags)} and --format: the model has no attention, which they need (leave them out)"
            )
        if options.min_confidence is not None and scorer.temperature is None:
            commands = "".join(f" ({command})" for command in registry.declared("scoring", "calibrates"))
            kind = f"the model is not{commands}" if isinstance(scorer, Model) else "an ensemble is not"
            log.info(f"confidences are not calibrated: {kind}")

    def ranked(
        self, lines: Sequence[EncodedLine], outcomes: list[Outcome], max_tokens: int
    ) -> tuple[list[Outcome], str]:
        """See SearchWrapper. The candidates are decoded by force together."""
        return retry_split(lambda part: self._detailed(lines[part], outcomes[part]), len(lines))

    def _detailed(self, lines: Sequence[EncodedLine], outcomes: Sequence[Outcome]) -> list[Outcome]:
        rows: list[list[Candidate]] = [[] if isinstance(outcome, Failure) else outcome for outcome in outcomes]
        pairs = [(line, candidate) for line, row in zip(lines, rows, strict=True) for candidate in row]
        chosen = [(line, candidate) for line, candidate in pairs if self._needs_decoding(candidate)]
        found = zip(chosen, self._decoded(chosen), strict=True)
        detailed = {id(candidate): self._with_details(line, candidate, forced) for (line, candidate), forced in found}
        return [
            outcome
            if isinstance(outcome, Failure)
            else [detailed.get(id(candidate), candidate) for candidate in outcome]
            for outcome in outcomes
        ]

    def _needs_decoding(self, candidate: Candidate) -> bool:
        wanted = self.options.word_scores, self.options.alignment is not None, self.options.min_confidence is not None
        return any(wanted) or UNK in candidate.tokens

    def _decoded(self, chosen: Sequence[tuple[EncodedLine, Candidate]]) -> list[ForcedDecoding]:
        if not chosen:
            return []
        temperature = 1.0 if self.options.min_confidence is None else self.scorer.temperature or 1.0
        sources = [np.array(line.source) for line, _ in chosen]
        targets = [self.pipeline.target.in_reading_order(candidate.tokens) for _, candidate in chosen]
        with autocast(device_of(self.scorer), self.options.precision):
            return force_decode(self.scorer, sources, targets, temperature)

    def _with_details(self, line: EncodedLine, candidate: Candidate, forced: ForcedDecoding) -> Candidate:
        """A candidate with the details that are asked for, from its forced decoding."""
        pipeline, target, tokens = self.pipeline, self.pipeline.target, candidate.tokens
        details: dict[str, Any] = {}
        order = [*target.in_reading_order(range(len(tokens))), len(tokens)]  # EOS last
        target_words: Sequence[int] = range(len(tokens)) if self.options.raw_tokens else word_of_tokens(target, tokens)
        if self.options.word_scores:
            log_probs = [forced.log_probs[position] for position in order]
            sums = np.bincount(target_words, log_probs[:-1]).tolist() if tokens else []
            details["word_scores"] = [*sums, log_probs[-1]]
        if self.options.min_confidence is not None:
            details["confidence"] = forced.confidence
            if forced.confidence < self.options.min_confidence:
                message = f"its confidence is {forced.confidence:.3f}: an empty line (--min-confidence)"
                details["warnings"] = {WITHHELD: message}
        replaces = self.dictionary is not None and UNK in tokens
        if forced.weights is None or not (replaces or self.options.alignment is not None):
            return structs.replace(candidate, **details)
        attention = forced.weights[order, line.num_context :]
        num_tokens = len(line.source) - line.num_context
        words = pipeline.source.words(pipeline.source.prepare([line.text])[0])
        source_words = word_of_text_tokens(pipeline.source, words)[:num_tokens]
        if replaces and self.dictionary is not None:
            numbers = word_weights(attention, source_words, range(len(tokens))).argmax(1)
            aligned = [words[number] for number in numbers.tolist()]
            details["text"] = replaced_unknown(target, tokens, aligned, self.dictionary)
        if self.options.alignment is not None:
            units = range(num_tokens) if self.options.raw_tokens else source_words
            details["weights"] = word_weights(attention, units, target_words).tolist()
        return structs.replace(candidate, **details)
