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
from nmt.infer.evaluate import bleu
from nmt.infer.translator import Translator
from nmt.models.base import Model
from nmt.train.update import on_device


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
    check: called before each batch; may raise to stop (of several ranks none may stop alone, so it is not called)
    """
    check = check if world.size == 1 else lambda: None
    model.eval()
    try:
        loss, nll, tokens = _losses(model, criterion, dev, max_tokens, precision, world, check)
        score, signature, examples = None, "", []
        if translator is not None:
            own = translator.translate(world.share(dev.source_lines), dev.name, 1, check)
            shares = world.gather(json.dumps([translation.text for translation in own]).encode())
            outputs = dealt([json.loads(share) for share in shares])
            score, signature = bleu(outputs, dev.target_lines, tokenize)
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
    sums = torch.zeros(3, dtype=torch.float64)
    for indices in world.share(list(dev.batches(max_tokens))):
        check()
        batch = on_device(device, to_batch(dev.corpus, indices))
        with autocast(device, precision):
            loss = criterion(model, batch)
        sums += torch.stack([loss.total, loss.parts["nll"], loss.tokens]).cpu()
    world.sum(sums)
    return float(sums[0]), float(sums[1]), max(int(sums[2]), 1)
