"""Word-level distillation: the student learns the teacher's distribution at each target position.

Kim and Rush (2016), "Sequence-Level Knowledge Distillation", section 3.1, with the temperature of Hinton et al. (2015).
Dimensions: N target positions in a batch, n positions in a chunk, V vocabulary, D width.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from nmt import UserError, register
from nmt.artefact import Artefact
from nmt.batch import Batch
from nmt.checkpoint import LoadedModel, load_model
from nmt.criteria.base import CriterionContext, Loss
from nmt.criteria.chunks import sums_of_logits
from nmt.criteria.cross_entropy import CrossEntropy
from nmt.device import device_of
from nmt.errors import quoted
from nmt.extensions.methods.criteria.options import DistillationOptions
from nmt.models.base import Model
from nmt.runs import find_model
from nmt.symbols import PAD
from nmt.weight_formats.base import weight_format

TeacherProbabilities = Callable[[slice | Tensor], Tensor]  # given n of the N positions, returns (n, V)


@register("criterion", "distillation", DistillationOptions)
class Distillation(CrossEntropy):
    """Cross entropy plus the divergence from the distributions of a teacher."""

    def __init__(self, options: DistillationOptions, context: CriterionContext) -> None:
        super().__init__(options, context)
        self.cross_entropy = CrossEntropy(options, context)
        self.teacher_weight, self.temperature = options.teacher_weight, options.temperature
        self.teachers = [self._load(Path(folder), context) for folder in options.teacher]
        if not self.teachers:
            raise UserError("--criterion distillation needs a teacher (add --teacher MODEL)")
        digests = [Artefact(teacher.folder, "model", "checkpoint").digest for teacher in self.teachers]
        self.files = {"teacher_sha256": " ".join(digests)}

    def _load(self, folder: Path, context: CriterionContext) -> LoadedModel:
        if (model := find_model(folder)) != folder:
            fix = f"use {quoted(model)}, or a model made by nmt average"
            raise UserError(f"--teacher {quoted(folder)}: the best checkpoint of a run may change ({fix})")
        loaded = load_model(folder, torch.device("cpu"))
        if (stored := weight_format(loaded.facts.weights)) is not None:
            stored.check(device_of(context.scorer))
        if loaded.pipeline.hash != context.pipeline.hash:
            fix = f"prepare the data with nmt prepare --vocabulary {quoted(folder)}"
            raise UserError(f"--teacher {quoted(folder)}: the vocabulary differs from that of the data ({fix})")
        return loaded

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. Outside training, the loss is the cross entropy.

        In training it is (1 - w) * cross entropy + w * T^2 * KL(teacher || student), where T divides the logits of both.
        """
        if not model.training:
            return self.cross_entropy(model, batch)
        teacher = self._teacher(batch)
        features, targets = model(batch).features.flatten(0, 1), batch.target_output.flatten()
        given = targets, self.token_weights(model, batch), torch.arange(len(targets), device=targets.device)
        of_logits = partial(self.of_taught, teacher)
        total, nll, divergence = sums_of_logits(of_logits, model.output, [features], *given)
        return Loss.of_target_tokens(batch, total, nll=nll, divergence=divergence)

    def _teacher(self, batch: Batch) -> TeacherProbabilities:
        """A function that computes the teachers' mean probabilities at given positions of the batch without noise."""
        with torch.no_grad():
            models = [loaded.model.to(batch.source.device) for loaded in self.teachers]
            features = [teacher(batch.without_noise).features.flatten(0, 1) for teacher in models]

        def probabilities(rows: slice | Tensor) -> Tensor:
            with torch.no_grad():
                logits = (teacher.output(of[rows]).float() for teacher, of in zip(models, features, strict=True))
                return sum((of.div(self.temperature).softmax(-1) for of in logits), start=torch.zeros(())) / len(models)

        return probabilities

    def of_taught(
        self, teacher: TeacherProbabilities, logits: Tensor, targets: Tensor, factors: Tensor, positions: Tensor
    ) -> tuple[Tensor, ...]:
        """Return loss, negative log-likelihood and divergence as sums in nats; see CrossEntropy. positions: (n,) indices"""
        cross_entropy, nll = self.of_logits(logits, targets, factors)
        wanted = teacher(positions)
        of_rows = -(wanted * (logits.float() / self.temperature).log_softmax(-1)).sum(-1) - entropy(wanted)
        w, divergence = self.teacher_weight, (of_rows * factors).sum()
        loss = (1 - w) * cross_entropy + w * self.temperature**2 * divergence
        return loss, nll, (of_rows * (targets != PAD)).sum()


def entropy(probabilities: Tensor) -> Tensor:
    """The entropy (n,) of distributions (n, V), in nats."""
    return -torch.xlogy(probabilities, probabilities).sum(-1)
