"""The interface of wrappers, which surround the built-in search of a batch and act before or after it.

A registered wrapper is built as `cls(options, pipeline, scorer)` when one of its options is given. The options are those of the
translator, which are an instance of the options class of the wrapper too.
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
    """Changes how a batch is searched, or its translations. By default it changes nothing.

    order: the wrapper with the lowest order is closest to the search
    models: its own models, whose weights are laid out for many batches, like those of the search
    """

    order: ClassVar[int] = 0
    models: Sequence[nn.Module] = ()

    def __init__(self, options: Any, pipeline: Pipeline, scorer: nn.Module) -> None:
        """Load what it needs. scorer: the model or ensemble of the search. Raises UserError, ArtefactError."""

    def decoder(self, decoder: Decoder) -> Decoder:
        """The decoder to search with: the given one, or a changed one. Raises UserError if the wrapper cannot use it."""
        return decoder

    def around(self, search: BatchSearch) -> BatchSearch:
        """A search that calls the given one."""
        return search

    def ranked(
        self, lines: Sequence[EncodedLine], outcomes: list[Outcome], max_tokens: int
    ) -> tuple[list[Outcome], str]:
        """The outcomes of the lines of a batch, and a warning if the batch was retried, else an empty string.

        max_tokens: tokens of a batch, padding counted
        """
        return outcomes, ""
