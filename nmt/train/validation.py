"""Validation: loss on the ids and BLEU on the raw text, by the very translator that `nmt translate` uses."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from nmt.criteria.base import Criterion
from nmt.data.loader import to_batch
from nmt.data.shards import EvaluationSet
from nmt.device import Precision, autocast
from nmt.dist import World, dealt
from nmt.errors import Interrupted
from nmt.metrics.bleu import Bleu, BleuOptions
from nmt.models.base import Model
from nmt.report.losses import LossSums
from nmt.train.parallel import Objective
from nmt.train.update import on_device
from nmt.translate.requests import Request
from nmt.translate.translator import Translator


@dataclass(frozen=True)
class Scores:
    """losses: the loss and its parts; perplexity: of the part `nll`; bleu: 0 to 100, None when not asked for.

    examples: a few (source, translation, reference)
    """

    losses: dict[str, float]
    perplexity: float
    bleu: float | None
    signature: str
    examples: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def loss(self) -> float:
        """The sum of the means of the trained parts."""
        return self.losses["loss"]


def validate(
    model: Model,
    criterion: Criterion,
    dev: EvaluationSet,
    translator: Translator | None,
    tokenize: str,
    max_tokens: int,
    precision: Precision,
    world: World,
    check: Callable[[], None],
) -> Scores:
    """Score a model on a development set, each rank a share of it; the model is put back in training mode.

    translator: makes the translations for BLEU; None leaves BLEU out
    tokenize: sacreBLEU's tokenizer
    check: called before each batch; may raise Interrupted, which all ranks raise that way when they have met
    """
    model.eval()
    try:
        losses = _losses(model, criterion, dev, max_tokens, precision, world, check)
        score, signature, examples = None, "", []
        if translator is not None:
            outputs = _translations(translator, dev, world, check)
            scored = Bleu(BleuOptions(tokenize=tokenize))(outputs, [dev.target_lines])
            score, signature = scored.value, scored.signature
            step = max(1, len(outputs) // 3)
            examples = list(zip(dev.source_lines, outputs, dev.target_lines, strict=True))[::step][:3]
        perplexity = float(torch.tensor(losses.mean_nll).exp())
        return Scores(losses.means(), perplexity, score, signature, examples)
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
            batch = on_device(device, to_batch(dev.corpus, indices))
            with autocast(device, precision):
                trained, reported = objective(batch)
            terms = {**trained, **reported}
            values = torch.stack([value for term in terms.values() for value in term]).tolist()
            totals = dict(zip(terms, values[::2], strict=True))
            sums.add(LossSums(tuple(trained), totals, dict(zip(terms, values[1::2], strict=True))))
    except Interrupted as error:
        signal = error.signal_number
    shares = [
        json.loads(share) for share in world.gather(json.dumps([signal, sums.trained, list(sums.totals)]).encode())
    ]
    if stopped := max(share[0] for share in shares):
        raise Interrupted(stopped)
    _, trained, names = next((share for share in shares if share[2]), shares[0])  # a rank may have no batch
    values = [of.get(name, 0.0) for of in (sums.totals, sums.counts) for name in names]
    total = torch.tensor(values, dtype=torch.float64)
    world.sum(total)
    totals, counts = (dict(zip(names, half.tolist(), strict=True)) for half in total.view(2, -1))
    return LossSums(tuple(trained), totals, counts)


def _translations(translator: Translator, dev: EvaluationSet, world: World, check: Callable[[], None]) -> list[str]:
    """The translation of each line, of which each rank makes some."""
    try:
        requests = [Request(line) for line in world.share(dev.source_lines)]
        told = json.dumps([found.text for found in translator.translate(requests, dev.name, 1, check)])
    except Interrupted as error:
        told = json.dumps(error.signal_number)
    shares = [json.loads(share) for share in world.gather(told.encode())]
    stopped = next((share for share in shares if isinstance(share, int)), None)
    if stopped is not None:
        raise Interrupted(stopped)
    return dealt(shares)
