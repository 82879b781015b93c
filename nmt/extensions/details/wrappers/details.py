"""Details of translations, computed by forced decoding: word alignment, word scores, confidence, replaced unknown words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from nmt import register, registry
from nmt.device import autocast, device_of
from nmt.errors import UserError, quoted
from nmt.extensions.details.alignment import (
    read_dictionary,
    replaced_unknown,
    word_of_text_tokens,
    word_of_tokens,
    word_weights,
)
from nmt.extensions.details.wrappers.options import DetailOptions
from nmt.extensions.methods.columns.words import followed, words_of_line
from nmt.log import log
from nmt.models.base import Model
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline, Side
from nmt.translate.engine import EncodedLine
from nmt.translate.ensemble import Ensemble
from nmt.translate.forced_decoding import ForcedDecoding, force_decode
from nmt.translate.results import WITHHELD, Candidate, Failure, retry_split
from nmt.translate.wrapper import Outcome, SearchWrapper


@register("wrapper", "details", DetailOptions)
class TranslationDetails(SearchWrapper):
    """Adds word alignments, word scores and confidences to translations, and replaces unknown words.

    dictionary: translations of source words, used to replace unknown words; None keeps unknown words
    """

    order = 5  # runs before re-ranking, which may drop candidates

    def __init__(self, options: Any, pipeline: Pipeline, scorer: Model | Ensemble) -> None:
        """See SearchWrapper. Raises UserError if a detail needs attention and the model has none."""
        self.options, self.pipeline, self.scorer = options, pipeline, scorer
        self.dictionary: Mapping[str, str] | None = None
        if options.replace_unk:
            self.dictionary = read_dictionary(Path(options.unk_dictionary)) if options.unk_dictionary else {}
        if (options.alignment is not None or options.replace_unk) and not scorer.has_attention:
            flags = ["--alignment", "--replace-unk", *registry.declared("pass", "needs_attention")]
            raise UserError(
                f"this model has no attention, which {', '.join(flags)} and --format need (drop these options)"
            )
        if options.min_confidence is not None and scorer.temperature is None:
            commands = "".join(f" (run {command})" for command in registry.declared("scoring", "calibrates"))
            kind = f"this model{commands}" if isinstance(scorer, Model) else "an ensemble"
            log.info(f"confidences are not calibrated for {kind}")

    def ranked(
        self, lines: Sequence[EncodedLine], outcomes: list[Outcome], max_tokens: int
    ) -> tuple[list[Outcome], str]:
        """See SearchWrapper. Forced decoding runs on all candidates together."""
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
        """A candidate with the requested details, which come from forced decoding."""
        pipeline, target, tokens = self.pipeline, self.pipeline.target, candidate.tokens
        details: dict[str, Any] = {}
        order = [*target.in_reading_order(range(len(tokens))), len(tokens)]  # EOS last
        if self.options.min_confidence is not None:
            details["confidence"] = forced.confidence
            if forced.confidence < self.options.min_confidence:
                message = f"the line is empty because its confidence is {forced.confidence:.3f} (--min-confidence)"
                details["warnings"] = {WITHHELD: message}
        attention = None if forced.weights is None else forced.weights[order, line.num_context :]
        num_tokens = len(line.source) - line.num_context
        words = pipeline.source.words(pipeline.source.prepare([line.text])[0])
        source_words = word_of_text_tokens(pipeline.source, words)[:num_tokens]
        if attention is not None and self.dictionary is not None and UNK in tokens:
            numbers = word_weights(attention, source_words, range(len(tokens))).argmax(1)
            aligned = [words[number] for number in numbers.tolist()]
            details["text"] = replaced_unknown(target, tokens, aligned, self.dictionary)
        units: Sequence[int] = range(len(tokens))
        if not self.options.raw_tokens:
            of_target = word_of_tokens(target, tokens)
            surfaces = [target.decode([UNK]) if token == UNK else target.vocabulary.surface(token) for token in tokens]
            units = numbers_in_line(of_target, target, candidate.text, target.words("".join(surfaces)))
        if self.options.word_scores:
            log_probs = [forced.log_probs[position] for position in order]
            sums = np.bincount(units, log_probs[:-1]).tolist() if tokens else []
            details["word_scores"] = [*sums, log_probs[-1]]
        if attention is not None and self.options.alignment is not None:
            raw = self.options.raw_tokens
            sources = range(num_tokens) if raw else numbers_in_line(source_words, pipeline.source, line.text, words)
            details["weights"] = word_weights(attention, sources, units).tolist()
        return structs.replace(candidate, **details)


def numbers_in_line(of_prepared: Sequence[int], side: Side, text: str, prepared: Sequence[str]) -> Sequence[int]:
    """For each token of a line, the index of its word. Spaces and tabs separate words, as in word aligners.

    of_prepared: for each token, the index of its word among the prepared words
    """
    words = words_of_line(text.encode())
    if words == prepared:
        return of_prepared
    spans = followed(words, side.prepare.normalize(words), prepared)
    if spans is None or max(of_prepared, default=-1) >= len(prepared):
        log.warn(
            f"'{quoted(text)}': cannot match words to tokens, so words are numbered as the text pipeline splits them"
        )
        return of_prepared
    owners = {k: number for number, span in reversed(list(enumerate(spans))) for k in range(*span)}
    return [owners[k] for k in of_prepared]
