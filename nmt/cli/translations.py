"""How a translation is printed: its line, the n-best list of Moses, or JSON."""

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nmt.text.corpus import NOT_TEXT, clean
from nmt.text.pipeline import Side
from nmt.translate.alignment import above, hard, pharaoh, soft
from nmt.translate.requests import Request
from nmt.translate.results import Candidate, Translation

FAILED: Final = Candidate("", [], 0.0, 0.0)

Show = Callable[[int, Request, Translation], str]


class Printer:
    """What is printed of a translation.

    alignment: hard, soft, or the attention above which two words are a pair; None prints none
    word_scores: whether each word's nats are printed
    raw_tokens: whether tokens are printed as the model says them
    """

    def __init__(self, target: Side, alignment: str | None, word_scores: bool, raw_tokens: bool) -> None:
        self.target, self.alignment, self.word_scores, self.raw_tokens = target, alignment, word_scores, raw_tokens

    def as_text(self, number: int, request: Request, translation: Translation) -> str:
        """The best translation; behind it, each after `|||`, what was asked for."""
        return " ||| ".join(self._columns((translation.candidates or [FAILED])[0])) + "\n"

    def as_n_best(self, number: int, request: Request, translation: Translation) -> str:
        """`number ||| translation ||| LogProb= nats ||| score` for each candidate, as Moses has it."""
        lines = [
            " ||| ".join([str(number), *self._columns(one), _features(one), f"{one.score:.6f}"])
            for one in translation.candidates or [FAILED]
        ]
        return "".join(f"{line}\n" for line in lines)

    def as_json(self, number: int, request: Request, translation: Translation) -> str:
        """An object with what the request's had besides, the text, and all candidates."""
        candidates = [self._fields(one) for one in translation.candidates]
        error = {"error": translation.error} if translation.error else {}
        whole = {**request.others, "text": translation.text, "candidates": candidates, **error}
        # some readers take what is no text for the end of a line
        return NOT_TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(whole, ensure_ascii=False)) + "\n"

    def _columns(self, one: Candidate) -> list[str]:
        said = clean(" ".join(map(self.target.piece, one.tokens))) if self.raw_tokens else one.text
        columns = [said]
        if self.alignment is not None:
            columns.append(self._aligned(one))
        if self.word_scores:
            columns.append(" ".join(["WordScores=", *(f"{score:.6f}" for score in one.word_scores)]))
        return columns

    def _fields(self, one: Candidate) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "text": one.text,
            "tokens": [self.target.piece(token) for token in one.tokens],
            "log_prob": one.log_prob,
            "score": one.score,
        }
        if one.scores:
            fields["scores"] = one.scores
        if self.alignment is not None:
            fields["alignment"] = one.weights if self.alignment == "soft" else self._aligned(one)
        if self.word_scores:
            fields["word_scores"] = one.word_scores
        return fields

    def _aligned(self, one: Candidate) -> str:
        weights = np.array(one.weights)
        if self.alignment == "soft":
            return soft(weights)
        return pharaoh(hard(weights) if self.alignment == "hard" else above(weights, float(self.alignment or 0)))


def _features(one: Candidate) -> str:
    """What the score was made of, as Moses writes it."""
    scores = ["Scores=", *(f"{score:.6f}" for score in one.scores)] if one.scores else []
    return " ".join([f"LogProb= {one.log_prob:.6f}", *scores])
