"""Cross entropy with label smoothing (Szegedy et al., 2016, section 7; "Attention Is All You Need", section 5.4)."""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt import register
from nmt.batch import Batch
from nmt.criteria.base import Criterion, CriterionContext, Loss
from nmt.criteria.options import CrossEntropyOptions
from nmt.errors import UserError, quoted
from nmt.models.base import Model
from nmt.nn.linear import ClippedLinear, Linear
from nmt.nn.matmul import add_product, product, product_back
from nmt.symbols import PAD

# Logits of a chunk, of which two copies exist: they fit a CPU's cache, and fill a GPU.
CHUNK_LOGITS: Final = {"cpu": 2**22, "cuda": 2**26}
MIN_CHUNK_ROWS: Final = 512  # each chunk adds to the whole gradient of the output's weights


class Logits(NamedTuple):
    """The logits of a chunk of positions, and what losses need of them.

    values: (n, V) clipped; log_probs: (n, V) in nats; normalizer: (n, 1) log of the sum of exp of the logits
    clipped: (n, V) which logits were clipped, and have no gradient; None without a limit
    """

    values: Tensor
    log_probs: Tensor
    normalizer: Tensor
    clipped: Tensor | None


@register("criterion", "cross-entropy", CrossEntropyOptions)
class CrossEntropy(Criterion):
    """Negative log-likelihood of the reference with label smoothing, summed over its tokens, in nats."""

    can_be_captured: ClassVar[bool] = True

    def __init__(self, options: CrossEntropyOptions, context: CriterionContext) -> None:
        self.options = options

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. The logits are computed in chunks, never for the whole batch at once."""
        return self.of_features(model, model(batch).features, batch)

    def of_features(self, model: Model, features: Tensor, batch: Batch) -> Loss:
        """The parts of the loss from the model's features (B, T, D)."""
        features = features.flatten(0, 1)  # N D
        targets, factors = batch.target_output.flatten(), self.token_weights(model, batch)  # N, N
        if (linear := linear_output(model.output)) is not None:
            total, nll = _LinearCrossEntropy.apply(features, *linear, targets, factors, self)  # type: ignore[no-untyped-call]
        else:
            total, nll = self._in_chunks(model.output, features, targets, factors)
        return Loss.of_target_tokens(batch, total, nll=nll)

    def token_weights(self, model: Model, batch: Batch) -> Tensor:
        """(N,) the factor of the loss of each target position: 0 of padding, 1 of the others without `loss_weights`.

        Outside training, losses have no weights, so that all validations measure the same. Raises MissingColumnError for
        a column that the data do not have.
        """
        real = (batch.target_output != PAD).float()  # B T
        if self.options.loss_weights is None or not model.training:
            return real.flatten()
        values = batch[self.options.loss_weights]
        if (kind := batch.columns[self.options.loss_weights].kind) == "links":
            raise UserError(f"--loss-weights {quoted(self.options.loss_weights)}: a column of {kind} has no weights")
        return (real * (values[:, None] if kind == "pair" else values)).flatten()

    def weights(self, size: int) -> tuple[float, float]:
        """(a, b) of the loss of a token, -(a log p(token) + b sum_k log p(k)); a + b V = 1. size: V"""
        eps = self.options.label_smoothing
        spread = eps / (size - 1) if self.options.smoothing_over == "others" else eps / size
        return (1 - eps - spread if self.options.smoothing_over == "others" else 1 - eps), spread

    def of_logits(self, logits: Tensor, targets: Tensor, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The loss and the negative log-likelihood of all logits at once: sums in nats, the reference for tests.

        logits: (N, V); targets: (N,); factors: (N,) of the losses, see `token_weights`; 1 by default
        """
        gold_weight, spread = self.weights(logits.shape[-1])
        log_probs = torch.log_softmax(logits.float(), dim=-1)
        real = targets != PAD
        nll = -log_probs.gather(1, targets[:, None]).squeeze(1)
        loss = gold_weight * nll - spread * log_probs.sum(-1)
        if self.options.z_loss:
            loss = loss + self.options.z_loss * logits.float().logsumexp(-1) ** 2
        return (loss * (real if factors is None else factors)).sum(), (nll * real).sum()

    def of_rows(self, logits: Logits, gold: Tensor) -> tuple[Tensor, Tensor]:
        """The loss and the negative log-likelihood of each position of a chunk: (n, 1) each. gold: (n, 1)"""
        gold_weight, spread = self.weights(logits.values.shape[-1])
        nll = -logits.log_probs.gather(1, gold)
        loss = gold_weight * nll - spread * logits.log_probs.sum(-1, keepdim=True)
        if self.options.z_loss:
            loss = loss + self.options.z_loss * logits.normalizer**2
        return loss, nll

    def _in_chunks(
        self, output: nn.Module, features: Tensor, targets: Tensor, factors: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same sums for any output module; the logits of each chunk are recomputed for the gradient."""
        total = nll = features.new_zeros((), dtype=torch.float32)
        rows = chunk_rows(features, output(features[:1]).shape[-1])

        def of_chunk(chunk: Tensor, targets: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
            return self.of_logits(output(chunk), targets, factors)

        for chunks in zip(features.split(rows), targets.split(rows), factors.split(rows), strict=True):
            sums = checkpoint(of_chunk, *chunks, use_reentrant=False)
            total, nll = total + sums[0], nll + sums[1]
        return total, nll


def linear_output(output: nn.Module) -> tuple[Tensor, Tensor | None, float] | None:
    """Weight, bias and limit of an output layer that is linear, perhaps with clipped logits; None for any other module."""
    output, limit = (output.linear, output.limit) if type(output) is ClippedLinear else (output, math.inf)
    if isinstance(output, nn.Linear) and type(output).forward in (Linear.forward, nn.Linear.forward):
        return output.weight, output.bias, limit
    return None


def chunk_rows(features: Tensor, size: int) -> int:
    """Rows of a chunk of logits over `size` tokens, on the device of features."""
    return max(MIN_CHUNK_ROWS, CHUNK_LOGITS.get(features.device.type, CHUNK_LOGITS["cuda"]) // size)


def chunks_of(count: int, rows: int) -> Iterator[slice]:
    """Slices of `rows` positions of `count`."""
    return (slice(start, min(start + rows, count)) for start in range(0, count, rows))


def linear_logits(features: Tensor, weight: Tensor, bias: Tensor | None, limit: float) -> Logits:
    """The logits of a linear output layer, see `linear_output`. features: (n, D)"""
    values = product(features, weight, bias).float()  # n V
    clipped = values.abs() > limit if limit < math.inf else None
    values = values if clipped is None else values.clamp_(-limit, limit)
    log_probs = torch.log_softmax(values, dim=-1)
    return Logits(values, log_probs, values[:, :1] - log_probs[:, :1], clipped)


class LossOfLogits(torch.autograd.Function):
    """The base of losses that compute their gradients in the forward pass, one chunk of logits after the other.

    `forward` sets ctx.gradients: of its first tensors, features, weight and bias; only its first result has a gradient.
    """

    @staticmethod
    def backward(ctx: Any, scale: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if gradient is None else gradient * scale.to(gradient.dtype) for gradient in ctx.gradients]
        return (*scaled, *[None] * (len(ctx.needs_input_grad) - len(scaled)))


@cache
def _loss_kernels() -> ModuleType | None:
    """nmt.nn.loss_kernels; None without Triton, which the builds of torch for NVIDIA's GPUs on Linux bring with them."""
    try:
        return import_module("nmt.nn.loss_kernels")
    except ImportError:
        return None


def loss_kernels(features: Tensor) -> Any:
    """Triton kernels for the losses of features on a GPU; None elsewhere."""
    return _loss_kernels() if features.is_cuda and type(features) is Tensor else None


class OutputGradients:
    """The gradients of features, weight and bias of a linear output layer, summed over chunks of logits.

    needed: of the three; features: (N, D); factors: (N,) of the losses
    """

    def __init__(
        self, needed: Sequence[bool], features: Tensor, weight: Tensor, bias: Tensor | None, factors: Tensor
    ) -> None:
        self._inputs, self._output, self._factors = features, weight, factors[:, None]
        self.features = torch.empty_like(features) if needed[0] else None
        self.weight = torch.zeros_like(weight) if needed[1] else None
        self.bias = torch.zeros_like(bias) if needed[2] and bias is not None else None

    def add(self, rows: slice, gradient: Tensor) -> None:
        """gradient: (n, V) of the logits of these rows, before the factors"""
        scales = self._factors[rows]
        if self.features is not None:
            self.features[rows] = product_back(gradient, self._output)
        if self.weight is not None:
            add_product(self.weight, gradient, self._inputs[rows] * scales)
        if self.bias is not None:
            self.bias += (gradient * scales).sum(0)

    def finished(self, spread: float) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The three gradients. spread: what is to be subtracted from the gradient of each logit, before the factors"""
        if self.features is not None:
            self.features.sub_(spread * self._output.sum(0)).mul_(self._factors)
        if self.weight is not None:
            self.weight.sub_(spread * (self._inputs * self._factors).sum(0))
        if self.bias is not None:
            self.bias.sub_(spread * self._factors.sum())
        return self.features, self.weight, self.bias


class _LinearCrossEntropy(LossOfLogits):
    """The loss and its gradient in one pass over each chunk of logits.

    The gradient of the logits is p (1 + 2 z log Z) - a [gold] - b. a, b: see CrossEntropy.weights
    limit: to which logits are clipped; beyond it they have no gradient
    factors: see CrossEntropy.token_weights; z: the option z_loss; Z: the sum of exp of the logits
    b is constant over a row, so that its share of the products is a product of sums, without a pass over the logits.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        limit: float,
        targets: Tensor,
        factors: Tensor,
        criterion: CrossEntropy,
    ) -> tuple[Tensor, Tensor]:
        kernels, (gold_weight, spread) = loss_kernels(features), criterion.weights(len(weight))
        gradients = OutputGradients(ctx.needs_input_grad, features, weight, bias, factors)
        sums = torch.zeros(2, device=features.device)
        for rows in chunks_of(len(features), chunk_rows(features, len(weight))):
            gold, scales = targets[rows], factors[rows]
            if kernels is not None:
                gradient = product(features[rows], weight, bias)  # the logits, until it is written over them
                constants = kernels.LossWeights(PAD, gold_weight, spread, criterion.options.z_loss, limit)
                sums += torch.stack(kernels.cross_entropy(gradient, gold, scales, constants)).sum(1)
                gradients.add(rows, gradient)
                continue
            logits = linear_logits(features[rows], weight, bias, limit)
            loss, surprise = criterion.of_rows(logits, gold[:, None])  # n 1
            real = (gold != PAD).float()[:, None]
            # Autocast would round dot products.
            sums += torch.stack([(loss * scales[:, None]).sum(), (surprise * real).sum()])
            if not any(ctx.needs_input_grad):
                continue
            gradient = logits.log_probs.exp_()
            if criterion.options.z_loss:
                gradient.mul_(1 + 2 * criterion.options.z_loss * logits.normalizer)
            gradient.scatter_add_(1, gold[:, None], torch.full_like(surprise, -gold_weight))
            if logits.clipped is not None:
                gradient.masked_fill_(logits.clipped, spread)  # which is subtracted at the end: no gradient
            gradients.add(rows, gradient)
        ctx.gradients = gradients.finished(spread)
        total, nll = (each.clone() for each in sums)  # FSDP takes no views
        ctx.mark_non_differentiable(nll)
        return total, nll
