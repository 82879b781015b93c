"""Formats translations as lines, as n-best lists in Moses' format, or as JSON."""

import json
from collections.abc import Sequence
from typing import Any, Final, Literal

from nmt.text.corpus import NOT_TEXT, clean
from nmt.text.pipeline import Side
from nmt.translate.requests import Request
from nmt.translate.results import Candidate, Translation
from nmt.viewers.base import Viewer

OutputForm = Literal["text", "n-best", "json"]

FAILED: Final = Candidate("", [], 0.0, 0.0)


class Printer:
    """Formats translations after viewers have seen them.

    form: text, n-best (a list in Moses' format) or json
    raw_tokens: whether to print the model's tokens instead of the text
    viewers: may add columns or fields to each candidate
    """

    def __init__(self, target: Side, form: OutputForm, raw_tokens: bool, viewers: Sequence[Viewer]) -> None:
        self.target, self.form, self.raw_tokens, self.viewers = target, form, raw_tokens, viewers

    def lines(self, number: int, request: Request, translation: Translation) -> str:
        """The output lines of a translation, with columns separated by `|||`."""
        for viewer in self.viewers:
            viewer.see(number, request, translation)
        if self.form == "json":
            return self._as_json(request, translation)
        candidates = translation.shown or [FAILED]
        if self.form == "text":
            return " ||| ".join(self._columns(candidates[0])) + "\n"
        rows = ([str(number), *self._columns(each), _features(each), f"{each.score:.6f}"] for each in candidates)
        return "".join(" ||| ".join(row) + "\n" for row in rows)

    def _as_json(self, request: Request, translation: Translation) -> str:
        """A JSON object with the other fields of the request, the source, the translation and all candidates."""
        candidates = [self._fields(candidate) for candidate in translation.candidates]
        error = {"error": translation.error} if translation.error else {}
        texts = {"source": request.text, "translation": translation.text}
        fields = {**request.others, **texts, "candidates": candidates, **error}
        # some readers treat these separators as the end of a line
        return NOT_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(fields, ensure_ascii=False)) + "\n"

    def _columns(self, candidate: Candidate) -> list[str]:
        text = candidate.text
        if self.raw_tokens and candidate.tokens:
            text = " ".join(map(self.target.piece, candidate.tokens))
        return [clean(text), *(column for viewer in self.viewers for column in viewer.columns(candidate))]

    def _fields(self, candidate: Candidate) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "translation": candidate.text,
            "tokens": [self.target.piece(token) for token in candidate.tokens],
            "log_prob": candidate.log_prob,
            "score": candidate.score,
        }
        if candidate.scores:
            fields["scores"] = candidate.scores
        for viewer in self.viewers:
            fields |= viewer.fields(candidate)
        return fields


def _features(candidate: Candidate) -> str:
    """The components of the score in Moses' format."""
    scores = ["Scores=", *(f"{score:.6f}" for score in candidate.scores)] if candidate.scores else []
    return " ".join([f"LogProb= {candidate.log_prob:.6f}", *scores])
