"""A kernel: a faster way to compute a loss. It replaces the method that is marked with the kernel's name.

    nmt train --plugin my_kernel.py --criterion my-kernel-loss --data DATA --output RUN
    nmt status RUN

Dimensions: N target positions, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from nmt import options_class, register
from nmt.batch import Batch
from nmt.criteria.base import Criterion, CriterionContext, Loss
from nmt.criteria.chunks import sums_of_logits
from nmt.kernels.base import Kernel, has_kernel
from nmt.models.base import Model
from nmt.symbols import PAD


@options_class
class MyKernelOptions:
    pass


@register("criterion", "my-kernel-loss", MyKernelOptions)
class MyKernelLoss(Criterion):
    """Negative log-likelihood in nats."""

    def __init__(self, options: MyKernelOptions, context: CriterionContext) -> None:
        pass

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. `sums_of_logits` looks for a kernel, and never holds the logits of a whole batch."""
        features, targets = model(batch).features.flatten(0, 1), batch.target_output.flatten()
        [total] = sums_of_logits(self.nll, model.output, [features], targets)
        return Loss.of_target_tokens(batch, total, nll=total)

    @has_kernel("my-kernel")
    def nll(self, logits: Tensor, targets: Tensor) -> Sequence[Tensor]:
        """The straightforward way to compute the sum. logits: (N, V); targets: (N,)"""
        gold = torch.log_softmax(logits.float(), -1).gather(1, targets[:, None]).squeeze(1)
        return [-(gold * (targets != PAD)).sum()]


@register("kernel", "my-kernel", MyKernelOptions)
class MyKernel(Kernel):
    """Computes the same sum with one call of torch."""

    def fits(self, owner: Any, inputs: Tensor) -> bool:
        """Whether to use the kernel for inputs on this device and of this type."""
        return inputs.device.type == "cpu"  # CHANGE: where the kernel is faster

    def compute(self, owner: Any, *given: Tensor) -> Sequence[Tensor]:
        """Must return what the marked method returns. owner: the criterion; given: the method's arguments"""
        logits, targets = given
        return [functional.cross_entropy(logits.float(), targets, ignore_index=PAD, reduction="sum")]
