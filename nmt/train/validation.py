"""Validation: the loss on the ids of a development set, and metrics of the translations of its raw text."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from nmt.criteria.base import Criterion
from nmt.data.loader import to_batch
from nmt.data.shards import EvaluationSet
from nmt.device import Precision, autocast
from nmt.dist import World, merge_shares
from nmt.errors import Interrupted
from nmt.metrics.base import Metric, Score
from nmt.models.base import Model
from nmt.report.losses import LossSums
from nmt.train.parallel import Objective
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.translator import Translator

NUM_EXAMPLES = 3


@dataclass(frozen=True)
class Validation:
    """What a validation scores: a development set, by the loss and by metrics of its translations.

    metrics: by name; translator: None without metrics
    """

    dev: EvaluationSet
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    translator: Translator | None = None

    def sign(self, name: str) -> float:
        """1 if more is better of a metric; -1 if less is, as of the parts of a loss."""
        return 1.0 if name in self.metrics and self.metrics[name].higher_is_better else -1.0


@dataclass(frozen=True)
class ValidationResult:
    """Scores on a development set.

    losses: the loss and its parts; perplexity: of the part `nll`, or of the loss; metrics: scores by name
    examples: a few (source, translation, reference)
    """

    losses: dict[str, float]
    perplexity: float
    metrics: dict[str, Score] = field(default_factory=dict)
    examples: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def loss(self) -> float:
        """The sum of the means of the trained parts."""
        return self.losses["loss"]

    def value(self, name: str) -> float:
        """The value of a metric, or of the loss or a part of it."""
        return self.metrics[name].value if name in self.metrics else self.losses[name]


def validate(
    model: Model,
    criterion: Criterion,
    validation: Validation,
    max_tokens: int,
    precision: Precision,
    world: World,
    check: Callable[[], None],
) -> ValidationResult:
    """Score a model on a development set, each rank a share of it; the model is put back in training mode.

    max_tokens: tokens of a batch for the loss, padding counted
    check: called before each batch; may raise Interrupted, which all ranks then raise together
    """
    model.eval()
    try:
        losses = _losses(model, criterion, validation.dev, max_tokens, precision, world, check)
        perplexity = float(torch.tensor(losses.mean_nll).exp())
        if validation.translator is None:
            return ValidationResult(losses.means(), perplexity)
        dev, translator = validation.dev, validation.translator
        translator.scorer = model
        outputs = _translations(translator, dev, world, check)
        scores = {
            name: metric(outputs, [dev.target_lines], dev.source_lines) for name, metric in validation.metrics.items()
        }
        step = max(1, len(outputs) // NUM_EXAMPLES)
        lines = list(zip(dev.source_lines, outputs, dev.target_lines, strict=True))
        return ValidationResult(losses.means(), perplexity, scores, lines[::step][:NUM_EXAMPLES])
    finally:
        model.train()


@torch.inference_mode()
def _losses(
    model: Model,
    criterion: Criterion,
    dev: EvaluationSet,
    max_tokens: int,
    precision: Precision,
    world: World,
    check: Callable[[], None],
) -> LossSums:
    """The parts of the loss over the set; pairs with an empty side are left out."""
    device, objective = next(model.parameters()).device, Objective(model, criterion)
    sums, signal = LossSums(), 0
    try:
        for indices in world.share(list(dev.batches(max_tokens))):
            check()
            batch = to_batch(dev.corpus, indices).to(device)
            with autocast(device, precision):
                trained, reported = objective(batch)
            terms = {**trained, **reported}
            values = torch.stack([value for term in terms.values() for value in term]).tolist()
            totals, counts = (dict(zip(terms, values[i::2], strict=True)) for i in range(2))
            sums.add(LossSums(tuple(trained), totals, counts))
    except Interrupted as error:
        signal = error.signal_number
    content = json.dumps([signal, sums.trained, list(sums.totals)]).encode()
    shares = [json.loads(share) for share in world.gather(content)]
    if stopped := max(share[0] for share in shares):
        raise Interrupted(stopped)
    _, trained, names = next((share for share in shares if share[2]), shares[0])  # a rank may have no batch
    values = [numbers.get(name, 0.0) for numbers in (sums.totals, sums.counts) for name in names]
    total = torch.tensor(values, dtype=torch.float64)
    world.sum(total)
    totals, counts = (dict(zip(names, half.tolist(), strict=True)) for half in total.view(2, -1))
    return LossSums(tuple(trained), totals, counts)


def _translations(translator: Translator, dev: EvaluationSet, world: World, check: Callable[[], None]) -> list[str]:
    """The translations of all lines; each rank makes a share of them."""
    try:
        translations = translator.translate(world.share(dev.source_lines), check)
        LineWarnings(dev.name).add_translations(translations)
        own = json.dumps([translation.text for translation in translations])
    except Interrupted as error:
        own = json.dumps(error.signal_number)
    shares = [json.loads(share) for share in world.gather(own.encode())]
    stopped = next((share for share in shares if isinstance(share, int)), None)
    if stopped is not None:
        raise Interrupted(stopped)
    return merge_shares(shares)
