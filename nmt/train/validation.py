"""Validation: the loss on a validation set, and metrics of the translations of its raw text."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import torch

from nmt import signals
from nmt.criteria.base import Criterion
from nmt.data.loader import to_batch
from nmt.data.shards import EvaluationSet
from nmt.device import Precision, autocast
from nmt.dist import World, merge_shares
from nmt.errors import Interrupted, RankFailed, ResourceError
from nmt.log import log
from nmt.metrics.base import Metric, Score
from nmt.models.base import Model
from nmt.nn import matmul
from nmt.report.losses import LossSums
from nmt.report.run_status import LOSS_TEXT_PARTS
from nmt.train.parallel import Objective
from nmt.translate.built_in_engine import BuiltInEngine
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.translator import Translator

NUM_EXAMPLES = 3


@dataclass(frozen=True)
class Validation:
    """A validation set and how to score a model on it: by the loss, and by metrics of translations.

    metrics: by name; translator: None without metrics
    """

    dev: EvaluationSet
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    translator: Translator | None = None

    def sign(self, name: str) -> float:
        """1 if higher values of the score are better, or -1 if lower values are better, as for the loss and its parts."""
        return 1.0 if name in self.metrics and self.metrics[name].higher_is_better else -1.0


@dataclass(frozen=True)
class ValidationResult:
    """The scores of a model on a validation set.

    losses: the loss (the sum of the means of the trained parts) and each part, by name
    perplexity: exp of the part `nll`, or of the loss if there is no such part
    metrics: scores by name
    examples: a few (source, translation, reference)
    """

    losses: dict[str, float]
    perplexity: float
    metrics: dict[str, Score] = field(default_factory=dict)
    examples: list[tuple[str, str, str]] = field(default_factory=list)

    def value(self, name: str) -> float:
        """The value of a metric, or of the loss or a part of it."""
        return self.metrics[name].value if name in self.metrics else self.losses[name]

    def other_parts(self) -> dict[str, float]:
        """The parts of the loss that `loss_text` leaves out."""
        return {name: mean for name, mean in self.losses.items() if name not in LOSS_TEXT_PARTS}

    def numbers(self) -> dict[str, float | None]:
        """The numbers for metrics.jsonl, by name."""
        nll = {name: self.losses[name] for name in ("nll",) if name in self.losses}
        scores = {"bleu": None, **{name: score.value for name, score in self.metrics.items()}}
        return {"loss": self.losses["loss"], "ppl": self.perplexity, **scores, **nll, **self.other_parts()}


def validate(
    model: Model,
    criterion: Criterion,
    validation: Validation,
    max_tokens: int,
    precision: Precision,
    world: World,
) -> ValidationResult:
    """Score a model on a validation set. Each rank scores a share of it. The model is in training mode afterwards.

    max_tokens: tokens per batch for the loss, including padding
    Raises Interrupted after a signal, before a batch and on all ranks together.
    """
    model.eval()
    dev, translator, objective = validation.dev, validation.translator, Objective(model, criterion)
    try:
        losses = LossSums()
        for share in _on_all_ranks(world, lambda: asdict(_losses(objective, dev, max_tokens, precision, world))):
            if share["totals"]:  # a rank may have no batch
                losses.add(LossSums(tuple(share["trained"]), share["totals"], share["counts"]))
        perplexity = float(torch.tensor(losses.mean_nll).exp())
        if translator is None:
            return ValidationResult(losses.means(), perplexity)
        outputs = _translations(model, dev, translator, world)
        sources, references, metrics = dev.source_lines, dev.target_lines, validation.metrics
        scored = metrics if world.leads else {}  # only on the leader, because a metric may use a large model
        scores_of_ranks = _on_all_ranks(world, lambda: _scores(scored, outputs, references, sources))
        scores = {name: Score(*values) for name, values in scores_of_ranks[0].items()}
        step = max(1, len(outputs) // NUM_EXAMPLES)
        lines = list(zip(sources, outputs, references, strict=True))
        return ValidationResult(losses.means(), perplexity, scores, lines[::step][:NUM_EXAMPLES])
    finally:
        model.train()


def _translations(model: Model, dev: EvaluationSet, translator: Translator, world: World) -> list[str]:
    """Translate the validation set with a model. Each rank translates a share of it."""
    engine = cast(BuiltInEngine, translator.engine)
    own, warnings = world.share(translator.parsed(dev.source_lines)), LineWarnings(dev.name, length_flag="")
    usual, engine.scorer, engine.products = engine.scorer, model, matmul.current()
    try:
        return merge_shares(_on_all_ranks(world, lambda: translator.texts(own, warnings)))
    finally:
        engine.scorer = usual  # do not keep a temporary copy, such as one with averaged weights, in memory


def _scores(
    metrics: Mapping[str, Metric], outputs: list[str], references: list[str], sources: list[str]
) -> dict[str, tuple[float, str, str]]:
    """Compute the fields of each metric's score."""
    scores = {name: metric(outputs, [references], sources) for name, metric in metrics.items()}
    return {name: (float(score.value), score.signature, score.detail) for name, score in scores.items()}


class FailedOnAllRanks(Exception):
    """Raised on all ranks if the work failed on any. error: this rank's error, or RankFailed"""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _on_all_ranks(world: World, work: Callable[[], Any]) -> list[Any]:
    """Run `work` on each rank and return the results of all ranks, which are exchanged as JSON.

    Raises FailedOnAllRanks if it failed on any of several ranks, and Interrupted if any rank received a signal.
    """
    result, signal, failure = "null", 0, None
    try:
        result = json.dumps(work())
    except Interrupted as error:
        signal = error.signal_number
    except Exception as error:
        if world.size == 1:
            raise
        failure = error
    content = json.dumps([signal, failure is not None, result])
    stopped, failed, results = zip(*(json.loads(share) for share in world.gather(content.encode())), strict=True)
    if any(failed):
        raise FailedOnAllRanks(failure or RankFailed(ResourceError.code)) from failure
    if number := max(stopped):
        raise Interrupted(number)
    return [json.loads(result) for result in results]


@torch.inference_mode()
def _losses(objective: Objective, dev: EvaluationSet, max_tokens: int, precision: Precision, world: World) -> LossSums:
    """Sum the parts of the loss over this rank's share of the set. Pairs with an empty side are skipped."""
    device, sums = next(objective.parameters()).device, LossSums()
    batches = world.share(list(dev.batches(max_tokens)))
    with log.progress(f"loss on {dev.name}", sum(map(len, batches)), "pairs") as bar:
        for indices in batches:
            signals.check()
            batch = to_batch(dev.corpus, indices).to(device)
            with autocast(device, precision):
                trained, reported = objective(batch)
            terms = {**trained, **reported}
            values = torch.stack([value for term in terms.values() for value in term]).tolist()
            totals, counts = (dict(zip(terms, values[i::2], strict=True)) for i in range(2))
            sums.add(LossSums(tuple(trained), totals, counts))
            bar.advance(len(indices))
    return sums
