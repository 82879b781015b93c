"""The interface of wrappers, which act before or after the built-in search of a batch.

A registered wrapper is built as `cls(options, pipeline, scorer)` if one of its options is set. `options` are the translator's
options, which are also an instance of the wrapper's options class.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from nmt.decoders.base import Decoder
from nmt.decoders.hypothesis import Constraints, Hypothesis
from nmt.models.base import Scorer
from nmt.text.pipeline import Pipeline
from nmt.translate.engine import EncodedLine
from nmt.translate.results import Candidate, Failure

BatchSearch = Callable[[Scorer, Tensor, Sequence[Constraints]], list[list[Hypothesis]]]
"""(scorer, source (B, S), constraints of each row) -> hypotheses of each row, best first; see `Decoder.search`."""
Outcome = list[Candidate] | Failure


class SearchWrapper:
    """Changes how a batch is searched, or changes its translations. By default it changes nothing.

    order: the wrapper with the lowest order is closest to the search
    models: its own models, which are prepared for many batches like those of the search
    """

    order: ClassVar[int] = 0
    models: Sequence[nn.Module] = ()

    def __init__(self, options: Any, pipeline: Pipeline, scorer: nn.Module) -> None:
        """Load the wrapper's files. scorer: the model or ensemble of the search. Raises UserError or ArtefactError."""

    def decoder(self, decoder: Decoder) -> Decoder:
        """Return the decoder to use: this one or a changed one. Raises UserError if the wrapper cannot use it."""
        return decoder

    def around(self, search: BatchSearch) -> BatchSearch:
        """Return a search that wraps this one."""
        return search

    def ranked(
        self, lines: Sequence[EncodedLine], outcomes: list[Outcome], max_tokens: int
    ) -> tuple[list[Outcome], str]:
        """Return the outcomes of a batch's lines, and a warning if the batch was retried, otherwise an empty string.

        max_tokens: tokens per batch, including padding
        """
        return outcomes, ""
