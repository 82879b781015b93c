"""Prints the details of a translation, after its text or as JSON fields."""

from typing import Any

import numpy as np

from nmt import register
from nmt.extensions.details.alignment import hard_alignment, pharaoh, soft_alignment, threshold_alignment
from nmt.extensions.details.viewers.options import DetailOptions
from nmt.translate.results import Candidate
from nmt.viewers.base import Viewer


@register("viewer", "details", DetailOptions)
class PrintedDetails(Viewer):
    """Prints word alignments and word scores after each translation; with --json, also its confidence."""

    def __init__(self, options: DetailOptions) -> None:
        self.alignment, self.word_scores = options.alignment, options.word_scores

    def columns(self, candidate: Candidate) -> list[str]:
        columns = [] if self.alignment is None else [self._aligned(candidate)]
        if self.word_scores:
            columns.append(" ".join(["WordScores=", *(f"{score:.6f}" for score in candidate.word_scores)]))
        return columns

    def fields(self, candidate: Candidate) -> dict[str, Any]:
        fields: dict[str, Any] = {} if candidate.confidence is None else {"confidence": candidate.confidence}
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
