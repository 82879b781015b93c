"""Print a translation: its line, an n-best list in Moses' form, or JSON."""

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nmt.text.corpus import NOT_TEXT, clean
from nmt.text.pipeline import Side
from nmt.translate.alignment import hard_alignment, pharaoh, soft_alignment, threshold_alignment
from nmt.translate.requests import Request
from nmt.translate.results import Candidate, Translation

FAILED: Final = Candidate("", [], 0.0, 0.0)

Show = Callable[[int, Request, Translation], str]


class Printer:
    """Formats translations.

    alignment: hard, soft, or the attention above which two words are a pair; None prints none
    word_scores: print nats of each word
    raw_tokens: print the model's tokens instead of the text
    """

    def __init__(self, target: Side, alignment: str | None, word_scores: bool, raw_tokens: bool) -> None:
        self.target, self.alignment, self.word_scores, self.raw_tokens = target, alignment, word_scores, raw_tokens

    def as_text(self, number: int, request: Request, translation: Translation) -> str:
        """The best translation, then its requested details, each after `|||`."""
        return " ||| ".join(self._columns((translation.shown or [FAILED])[0])) + "\n"

    def as_n_best(self, number: int, request: Request, translation: Translation) -> str:
        """`number ||| translation ||| LogProb= nats ||| score` for each candidate, as in Moses."""
        lines = [
            " ||| ".join([str(number), *self._columns(candidate), _features(candidate), f"{candidate.score:.6f}"])
            for candidate in translation.shown or [FAILED]
        ]
        return "".join(f"{line}\n" for line in lines)

    def as_json(self, number: int, request: Request, translation: Translation) -> str:
        """An object with the further fields of the request, its source, the translation, and all candidates."""
        candidates = [self._fields(candidate) for candidate in translation.candidates]
        error = {"error": translation.error} if translation.error else {}
        texts = {"source": request.text, "translation": translation.text}
        fields = {**request.others, **texts, "candidates": candidates, **error}
        # some readers take other separators for the end of a line
        return NOT_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(fields, ensure_ascii=False)) + "\n"

    def _columns(self, candidate: Candidate) -> list[str]:
        columns = [clean(" ".join(map(self.target.piece, candidate.tokens)) if self.raw_tokens else candidate.text)]
        if self.alignment is not None:
            columns.append(self._aligned(candidate))
        if self.word_scores:
            columns.append(" ".join(["WordScores=", *(f"{score:.6f}" for score in candidate.word_scores)]))
        return columns

    def _fields(self, candidate: Candidate) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "translation": candidate.text,
            "tokens": [self.target.piece(token) for token in candidate.tokens],
            "log_prob": candidate.log_prob,
            "score": candidate.score,
        }
        if candidate.scores:
            fields["scores"] = candidate.scores
        if candidate.confidence is not None:
            fields["confidence"] = candidate.confidence
        if self.alignment is not None:
            fields["alignment"] = candidate.weights if self.alignment == "soft" else self._aligned(candidate)
        if self.word_scores:
            fields["word_scores"] = candidate.word_scores
        return fields

    def _aligned(self, candidate: Candidate) -> str:
        weights = np.array(candidate.weights)
        if self.alignment == "soft":
            return soft_alignment(weights)
        if self.alignment == "hard":
            return pharaoh(hard_alignment(weights))
        return pharaoh(threshold_alignment(weights, float(self.alignment or 0)))


def _features(candidate: Candidate) -> str:
    """The parts of the score, as in Moses."""
    scores = ["Scores=", *(f"{score:.6f}" for score in candidate.scores)] if candidate.scores else []
    return " ".join([f"LogProb= {candidate.log_prob:.6f}", *scores])
