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
from nmt.translate.requests import Request
from nmt.translate.translator import Translator


@dataclass(frozen=True)
class Scores:
    """loss: of the criterion, nll: without smoothing, both nats a target token; bleu: 0 to 100, None when not asked for.

    examples: a few (source, translation, reference)
    """

    loss: float
    perplexity: float
    bleu: float | None
    signature: str
    examples: list[tuple[str, str, str]] = field(default_factory=list)


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
        loss, nll, tokens = _losses(model, criterion, dev, max_tokens, precision, world, check)
        score, signature, examples = None, "", []
        if translator is not None:
            outputs = _translations(translator, dev, world, check)
            scored = Bleu(BleuOptions(tokenize=tokenize))(outputs, [dev.target_lines])
            score, signature = scored.value, scored.signature
            step = max(1, len(outputs) // 3)
            examples = list(zip(dev.source_lines, outputs, dev.target_lines, strict=True))[::step][:3]
        perplexity = float(torch.tensor(nll / tokens).exp())
        return Scores(loss / tokens, perplexity, score, signature, examples)
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
) -> tuple[float, float, int]:
    """(loss, nll, target tokens): sums over the set; pairs with an empty side are left out."""
    device = next(model.parameters()).device
    sums = torch.zeros(4, dtype=torch.float64)
    try:
        for indices in world.share(list(dev.batches(max_tokens))):
            check()
            batch = to_batch(dev.corpus, indices).to(device)
            with autocast(device, precision):
                loss = criterion(model, batch)
            sums[:3] += torch.stack([loss.total, loss.parts["nll"], loss.tokens]).cpu()
    except Interrupted as error:
        sums[3] = error.signal_number
    world.sum(sums)
    if sums[3]:
        raise Interrupted(int(sums[3]))
    return float(sums[0]), float(sums[1]), max(int(sums[2]), 1)


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
