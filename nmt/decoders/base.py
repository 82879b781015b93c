"""The interface of decoders, which search for good translations with a Scorer. Results do not depend on the batch.

Dimensions: B sentences, S source positions, W hypotheses per sentence, N = B * W rows, V vocabulary, T steps.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from nmt.decoders.filters import Filters, Prefixes
from nmt.decoders.hypothesis import Constraints as Constraints
from nmt.decoders.hypothesis import Hypothesis as Hypothesis
from nmt.decoders.options import SearchOptions as SearchOptions
from nmt.decoders.options import phrases_hint, search_signature
from nmt.errors import UserError
from nmt.filters.base import Filter, TargetFilters
from nmt.models.base import Scorer, scorer_for_search
from nmt.symbols import BOS, EOS
from nmt.text.pipeline import Pipeline, Side

MIN_FINISHED_SHARE: Final = 1 / 8  # share of finished sentences at which removing them is worth copying the others


class Decoder(ABC):
    """A search. A registered decoder is built as `cls(options)`.

    part_name: its registered name
    n_best: maximum number of hypotheses per sentence that it returns
    paths: number of hypotheses per sentence that it extends in parallel
    target: the target side of the pipeline, for searches that need text; set by `use_pipeline`
    source_text: a function from the ids of a source row to its text; set by `use_pipeline`
    filters: token filters by name, for constraints given as texts; set by `use_pipeline`
    variation: a number that varies the random draws for the same source; a criterion derives it from its seed and the update
    """

    part_name: ClassVar[str] = "unregistered"
    options: Any = None
    n_best: int = 1
    paths: int = 1
    target: Side | None = None
    source_text: Callable[[Sequence[int]], str] | None = None
    filters: Mapping[str, Filter] = MappingProxyType({})
    variation: int = 0

    def __init__(self, options: Any) -> None:
        self.options = options

    @property
    def takes_phrases(self) -> bool:
        """Whether this decoder can force phrases into a translation, as its options class declares."""
        return getattr(self.options, "takes_phrases", False)

    def use_pipeline(self, pipeline: Pipeline) -> None:
        """Give the search access to text. pipeline: the text pipeline of the model"""
        self.source_text, self.target = pipeline.source.decode_line, pipeline.target
        self.filters = TargetFilters(pipeline.target)

    def search(
        self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """Search for the hypotheses of each source row, best first, at least one per row.

        The search writes into the log-probabilities that `scorer.step` returns.

        source: (B, S) ids; each row has at least one token, then EOS, then PAD
        constraints: constraints on each row; None means no constraints
        Raises UserError if a row has phrases but the decoder does not accept them.
        """
        constraints = constraints or [Constraints()] * len(source)
        if not self.takes_phrases and any(constraint.phrases for constraint in constraints):
            raise UserError(f"--decoder {self.part_name} does not accept phrases{phrases_hint()}")
        with torch.inference_mode():
            return self.decode(scorer_for_search(scorer), source, constraints)

    @abstractmethod
    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """Run the search; see `search`. Called in inference mode, with constraints for each row."""

    def normalised(self, log_prob: float, length: int) -> float:
        """The score of a hypothesis, from its log-probability and length alone. length: in tokens, with EOS"""
        return log_prob

    @property
    def signature(self) -> str:
        """See `search_signature`."""
        return search_signature(self.part_name, self.options)


def alive_sentences(finished: list[bool]) -> list[int] | None:
    """The sentences to keep when finished ones are removed from the batch; None while too few are finished to justify a copy."""
    if sum(finished) < MIN_FINISHED_SHARE * max(len(finished), 1):
        return None
    return [sentence for sentence, is_finished in enumerate(finished) if not is_finished]


Choose = Callable[[Tensor, Tensor, int], Tensor]
"""(log_probs (N, V), rows (N,) with values in 0..B*W-1, step from 1) -> tokens (N,)."""


def run_search(scorer: Scorer, source: Tensor, num_paths: int, filters: Filters, choose: Choose) -> list[Hypothesis]:
    """Search along independent paths. Each step adds one token to each path, and tokens are never revised.

    num_paths: W, paths per row of source (B, S)
    choose: selects the next token of each path
    returns: B * W hypotheses, each scored by its log-probability
    """
    device, W, limits = source.device, num_paths, filters.limits
    rows = torch.arange(len(limits) * W, device=device)  # indices of the live paths
    row_limits = torch.tensor(limits, device=device).repeat_interleave(W)
    prefixes = torch.full((len(rows), max(limits) + 1), EOS, device=device)  # tokens of all paths
    log_probs_of_prefixes = torch.zeros((len(rows), max(limits) + 1), device=device)
    ended = torch.zeros_like(rows, dtype=torch.bool)
    tokens = torch.full_like(rows, BOS)
    state = scorer.start(source)
    if W > 1:
        state.reorder(rows // W)
    for step in range(1, max(limits) + 2):
        log_probs, state = scorer.step(tokens, state)
        filters(log_probs, Prefixes(prefixes[rows, : step - 1], rows // W, row_limits, min(limits)))
        tokens = choose(log_probs, rows, step).masked_fill(ended | (row_limits < step), EOS)
        log_prob = log_probs.gather(1, tokens[:, None]).squeeze(1)
        prefixes[rows, step - 1] = tokens
        log_probs_of_prefixes[rows, step - 1] = log_prob.masked_fill(ended, 0.0)
        ended = ended | (tokens == EOS)
        alive = alive_sentences(ended.view(-1, W).all(1).tolist())
        if alive == []:
            break
        if alive is not None:
            sentences = torch.tensor(alive, device=device)
            kept = (sentences[:, None] * W + torch.arange(W, device=device)).flatten()
            state.keep(sentences, kept)
            rows, row_limits, ended, tokens = rows[kept], row_limits[kept], ended[kept], tokens[kept]
    totals = log_probs_of_prefixes.double().sum(1).tolist()
    return [
        Hypothesis(prefix[: prefix.index(EOS)], total, total)
        for prefix, total in zip(prefixes.tolist(), totals, strict=True)
    ]
