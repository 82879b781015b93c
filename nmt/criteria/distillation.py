"""Word-level distillation: the student learns the distribution of a teacher at each target position.

Kim and Rush (2016), "Sequence-Level Knowledge Distillation", section 3.1, with the temperature of Hinton et al. (2015).
Dimensions: N target positions of a batch, n of a chunk of them, V vocabulary, D width.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt import UserError, register
from nmt.artefact import Artefact
from nmt.batch import Batch
from nmt.checkpoint import LoadedModel, check_int8, load_model
from nmt.criteria.base import CriterionContext, Loss
from nmt.criteria.cross_entropy import (
    CrossEntropy,
    LossOfLogits,
    OutputGradients,
    chunk_rows,
    chunks_of,
    linear_logits,
    linear_output,
)
from nmt.criteria.options import DistillationOptions
from nmt.device import device_of
from nmt.errors import quoted
from nmt.models.base import Model
from nmt.runs import find_model
from nmt.symbols import PAD

TeacherProbabilities = Callable[[slice], Tensor]  # of some of the N positions: (n, V)


@register("criterion", "distillation", DistillationOptions)
class Distillation(CrossEntropy):
    """Cross entropy, and the divergence from the distributions of a teacher."""

    def __init__(self, options: DistillationOptions, context: CriterionContext) -> None:
        super().__init__(options, context)
        if options.loss_weights is not None:
            raise UserError("--loss-weights: --criterion distillation does not weigh its loss (leave one of them out)")
        self.teacher_weight, self.temperature = options.teacher_weight, options.temperature
        self.teachers = [self._load(Path(folder), context) for folder in options.teacher]
        if not self.teachers:
            raise UserError("--criterion distillation: has no teacher (give --teacher MODEL)")
        digests = [Artefact(teacher.folder, "model", "checkpoint").digest for teacher in self.teachers]
        self.files = {"teacher_sha256": " ".join(digests)}

    def _load(self, folder: Path, context: CriterionContext) -> LoadedModel:
        if (model := find_model(folder)) != folder:
            mend = f"give {quoted(model)}, or a model of nmt average"
            raise UserError(f"--teacher {quoted(folder)}: is a run, whose best checkpoint may change ({mend})")
        loaded = load_model(folder, torch.device("cpu"))
        if loaded.facts.weights == "int8":
            check_int8(device_of(context.scorer))
        if loaded.pipeline.hash != context.pipeline.hash:
            mend = f"nmt prepare --vocabulary {quoted(folder)}"
            raise UserError(f"--teacher {quoted(folder)}: has another vocabulary than the data ({mend})")
        return loaded

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. Outside training the loss is that of the cross entropy.

        In training it is (1 - w) * cross entropy + w * T^2 * KL(teacher || student), where T divides the logits of both.
        """
        if not model.training:
            return super().__call__(model, batch)
        teacher = self._teacher(batch)
        features, targets = model(batch).features.flatten(0, 1), batch.target_output.flatten()
        if (linear := linear_output(model.output)) is not None:
            sums = _LinearDistillation.apply(features, *linear, targets, self, teacher)  # type: ignore[no-untyped-call]
        else:
            sums = self.sums_in_chunks(model.output, features, targets, teacher)
        total, nll, divergence = sums
        return Loss.of_target_tokens(batch, total, nll=nll, divergence=divergence)

    def _teacher(self, batch: Batch) -> TeacherProbabilities:
        """The mean of the teachers' probabilities of the batch without noise, computed when they are asked for."""
        with torch.no_grad():
            models = [loaded.model.to(batch.source.device) for loaded in self.teachers]
            features = [teacher(batch.without_noise).features.flatten(0, 1) for teacher in models]

        def probabilities(rows: slice) -> Tensor:
            with torch.no_grad():
                logits = (teacher.output(of[rows]).float() for teacher, of in zip(models, features, strict=True))
                return sum((of.div(self.temperature).softmax(-1) for of in logits), start=torch.zeros(())) / len(models)

        return probabilities

    def sums_in_chunks(
        self, output: nn.Module, features: Tensor, targets: Tensor, teacher: TeacherProbabilities
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, negative log-likelihood and divergence for any output module: sums in nats; the reference for tests.

        features: (N, D); targets: (N,)
        """
        sums = torch.zeros(3, device=features.device)
        rows = chunk_rows(features, output(features[:1]).shape[-1])

        def sums_of(chunk: Tensor, targets: Tensor, wanted: Tensor) -> Tensor:
            logits = output(chunk).float()
            cross_entropy, nll = self.of_logits(logits, targets)
            of_rows = -(wanted * (logits / self.temperature).log_softmax(-1)).sum(-1) - entropy(wanted)
            divergence = (of_rows * (targets != PAD)).sum()
            w = self.teacher_weight
            return torch.stack([(1 - w) * cross_entropy + w * self.temperature**2 * divergence, nll, divergence])

        for start in range(0, len(targets), rows):
            part = slice(start, start + rows)
            sums = sums + checkpoint(sums_of, features[part], targets[part], teacher(part), use_reentrant=False)
        return sums[0], sums[1], sums[2]


def entropy(probabilities: Tensor) -> Tensor:
    """(n, V) -> (n,) nats"""
    return -torch.xlogy(probabilities, probabilities).sum(-1)


class _LinearDistillation(LossOfLogits):
    """The same sums and their gradient in one pass over each chunk of logits.

    limit: to which logits are clipped; beyond it they have no gradient
    With p the student's distribution, p_T and q the tempered ones of student and teacher, the gradient of the logits is
    (1 - w) (p (1 + 2 z log Z) - a [gold] - b) + w T (p_T - q). a, b: see CrossEntropy.weights; z, Z: see _LinearCrossEntropy
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        limit: float,
        targets: Tensor,
        criterion: Distillation,
        teacher: TeacherProbabilities,
    ) -> tuple[Tensor, Tensor, Tensor]:
        gold_weight, spread = criterion.weights(len(weight))
        w, temperature, z = criterion.teacher_weight, criterion.temperature, criterion.options.z_loss
        real = (targets != PAD).float()  # N
        gradients = OutputGradients(ctx.needs_input_grad, features, weight, bias, real)
        total = nll = divergence = torch.zeros((), device=features.device)
        for part in chunks_of(len(targets), chunk_rows(features, 2 * len(weight))):
            gold, counts = targets[part, None], real[part, None]
            logits, wanted = linear_logits(features[part], weight, bias, limit), teacher(part)
            cross_entropy, surprise = criterion.of_rows(logits, gold)  # n 1
            tempered = logits.log_probs if temperature == 1 else (logits.values / temperature).log_softmax(-1)
            of_rows = -(wanted * tempered).sum(-1, keepdim=True) - entropy(wanted)[:, None]
            loss = (1 - w) * cross_entropy + w * temperature**2 * of_rows
            total, nll = total + (loss * counts).sum(), nll + (surprise * counts).sum()
            divergence = divergence + (of_rows * counts).sum()
            gradient = (tempered.exp() - wanted).mul_(w * temperature)
            gradient.add_(logits.log_probs.exp_().mul_(1 + 2 * z * logits.normalizer), alpha=1 - w)
            gradient.scatter_add_(1, gold, torch.full_like(surprise, -(1 - w) * gold_weight))
            if logits.clipped is not None:
                gradient.masked_fill_(logits.clipped, (1 - w) * spread)  # which is subtracted at the end: no gradient
            gradients.add(part, gradient)
        ctx.gradients = gradients.finished((1 - w) * spread)
        ctx.mark_non_differentiable(nll, divergence)
        return total, nll, divergence
