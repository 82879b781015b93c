"""Cross entropy with label smoothing (Szegedy et al., 2016, section 7; "Attention Is All You Need", section 5.4)."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt import register
from nmt.batch import Batch
from nmt.columns.base import column_kind
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
    share: float = 1.0  # of the cross entropy of one pass in the loss
    num_logits: ClassVar[int] = 1  # rows of V logits for each position, in a chunk

    def __init__(self, options: CrossEntropyOptions, context: CriterionContext) -> None:
        self.options = options

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. The logits are computed in chunks, never for the whole batch at once."""
        return self.of_features(model, model(batch).features, batch)

    def of_features(self, model: Model, features: Tensor, batch: Batch) -> Loss:
        """The parts of the loss from the model's features (B, T, D)."""
        features = features.flatten(0, 1)  # N D
        total, nll = self.sums(model.output, features, batch.target_output.flatten(), self.token_weights(model, batch))
        return Loss.of_target_tokens(batch, total, nll=nll)

    def sums(
        self, output: nn.Module, features: Tensor, targets: Tensor, factors: Tensor, *more: Any
    ) -> Sequence[Tensor]:
        """The loss, and what is reported: sums () over the positions, in nats.

        features: (N, D), or (2 N, D) of two passes; targets: (N,); factors: (N,) see `token_weights`
        more: what a subclass takes besides
        """
        if (linear := linear_output(output)) is None:
            chunked = self.sums_in_chunks(output, features, targets, factors, *more)
            return [each.clone() for each in chunked]  # FSDP warns of views
        *tensors, limit = features, *linear
        if not torch.is_grad_enabled():  # of which a function does not know: it would make their gradients
            tensors = [None if tensor is None else tensor.detach() for tensor in tensors]
        sums: Sequence[Tensor] = LinearSums.apply(*tensors, limit, targets, factors, self, *more)  # type: ignore[no-untyped-call]
        return sums

    def token_weights(self, model: Model, batch: Batch) -> Tensor:
        """(N,) the factor of the loss of each target position: 0 of padding, 1 of the others without `loss_weights`.

        Outside training, losses have no weights, so that all validations measure the same. Raises MissingColumnError for
        a column that the data do not have.
        """
        real = (batch.target_output != PAD).float()  # B T
        if self.options.loss_weights is None or not model.training:
            return real.flatten()
        values = batch[self.options.loss_weights]
        kind = batch.columns[self.options.loss_weights].kind
        if 0 in column_kind(kind).sides:  # values that belong to source tokens too
            raise UserError(f"--loss-weights {quoted(self.options.loss_weights)}: a column of {kind} has no weights")
        return (real * (values[:, None] if values.dim() == 1 else values)).flatten()

    def weights(self, size: int) -> tuple[float, float]:
        """(a, b) of the loss of a token, -(a log p(token) + b sum_k log p(k)); a + b V = 1. size: V"""
        eps = self.options.label_smoothing
        if self.options.smoothing_over == "all":
            return 1 - eps, eps / size
        spread = eps / (size - 1)
        return 1 - eps - spread, spread

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

    def sums_in_chunks(self, output: nn.Module, features: Tensor, targets: Tensor, factors: Tensor) -> Tensor:
        """`sums` as a tensor (k,), for any output module; the logits of each chunk are recomputed for the gradient."""

        def of_chunk(chunk: Tensor, targets: Tensor, factors: Tensor) -> Tensor:
            return torch.stack(self.of_logits(output(chunk), targets, factors))

        return sum_of_chunks(of_chunk, output, features, targets, factors)

    def chunk_sums(self, output: "OutputGradients", rows: slice, targets: Tensor) -> Tensor:
        """`sums` over some positions as a tensor (k,); `output` gets the gradient of their logits.

        The gradient is p (1 + 2 z log Z) - a [gold] - b. a, b: see `weights`; z: the option z_loss; Z: the sum of exp of the
        logits. b is constant over a row: `OutputGradients` subtracts it as a product of sums, without a pass over the logits.
        """
        gold, scales, (gold_weight, spread) = targets[rows], output.factors[rows], self.weights(output.size)
        if (kernels := loss_kernels(output.inputs)) is not None:
            gradient = output.logits(rows)  # the logits, until it is written over them
            constants = kernels.LossWeights(PAD, gold_weight, spread, self.options.z_loss, output.limit)
            sums = torch.stack(kernels.cross_entropy(gradient, gold, scales, constants)).sum(1)
            output.add(rows, gradient)
            return sums
        logits = output.clipped_logits(rows)
        loss, surprise = self.of_rows(logits, gold[:, None])  # n 1
        real = (gold != PAD).float()[:, None]
        # Autocast would round dot products.
        sums = torch.stack([(loss * scales[:, None]).sum(), (surprise * real).sum()])
        if output.is_needed:
            gradient = logits.log_probs.exp_()
            if self.options.z_loss:
                gradient.mul_(1 + 2 * self.options.z_loss * logits.normalizer)
            gradient.scatter_add_(1, gold[:, None], torch.full_like(surprise, -gold_weight))
            output.add(rows, gradient, logits.clipped)
        return sums


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


def sum_of_chunks(of_chunk: Callable[..., Tensor], output: nn.Module, *tensors: Tensor) -> Tensor:
    """The sum of a function over chunks of tensors, computed again for the gradient. tensors: (N, ...) each, features first"""
    rows = chunk_rows(tensors[0], output(tensors[0][:1]).shape[-1])
    chunks = zip(*(tensor.split(rows) for tensor in tensors), strict=True)
    sums: Iterator[Tensor] = (checkpoint(of_chunk, *chunk, use_reentrant=False) for chunk in chunks)
    return reduce(torch.add, sums)


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
    """A linear output layer, and the gradients of its features, weight and bias, summed over chunks of logits.

    needed: of the three; inputs: (N, D) the features; limit: to which logits are clipped; factors: (N,) of the losses
    spread: to be subtracted from the gradient of each logit, before the factors
    """

    def __init__(
        self,
        needed: Sequence[bool],
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        limit: float,
        factors: Tensor,
        spread: float,
    ) -> None:
        self.inputs, self._output, self._bias, self.limit = inputs, weight, bias, limit
        self.factors, self._spread, self.size, self.is_needed = factors, spread, len(weight), any(needed)
        self.features = torch.empty_like(inputs) if needed[0] else None
        self.weight = torch.zeros_like(weight) if needed[1] else None
        self.bias = torch.zeros_like(bias) if needed[2] and bias is not None else None

    def logits(self, rows: slice) -> Tensor:
        """(n, V) the logits of these rows, not clipped."""
        return product(self.inputs[rows], self._output, self._bias)

    def clipped_logits(self, rows: slice) -> Logits:
        """The logits of these rows, clipped."""
        values = self.logits(rows).float()  # n V
        clipped = values.abs() > self.limit if self.limit < math.inf else None
        values = values if clipped is None else values.clamp_(-self.limit, self.limit)
        log_probs = torch.log_softmax(values, dim=-1)
        return Logits(values, log_probs, values[:, :1] - log_probs[:, :1], clipped)

    def add(self, rows: slice, gradient: Tensor, clipped: Tensor | None = None) -> None:
        """gradient: (n, V) of the logits of these rows, before the factors; clipped: (n, V) see `Logits`"""
        if clipped is not None:
            gradient.masked_fill_(clipped, self._spread)  # which is subtracted at the end: no gradient
        scales = self.factors[rows, None]
        if self.features is not None:
            self.features[rows] = product_back(gradient, self._output)
        if self.weight is not None:
            add_product(self.weight, gradient, self.inputs[rows] * scales)
        if self.bias is not None:
            self.bias += (gradient * scales).sum(0)

    def finished(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The three gradients."""
        factors = self.factors[:, None]
        if self.features is not None:
            self.features.sub_(self._spread * self._output.sum(0)).mul_(factors)
        if self.weight is not None:
            self.weight.sub_(self._spread * (self.inputs * factors).sum(0))
        if self.bias is not None:
            self.bias.sub_(self._spread * factors.sum())
        return self.features, self.weight, self.bias


class LinearSums(torch.autograd.Function):
    """`CrossEntropy.sums` of a linear output layer: one pass over each chunk of logits gives them and the loss's gradient."""

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
        *more: Any,
    ) -> tuple[Tensor, ...]:
        spread = criterion.share * criterion.weights(len(weight))[1]
        factors = factors.repeat(len(features) // len(factors))
        output = OutputGradients(ctx.needs_input_grad, features, weight, bias, limit, factors, spread)
        rows = chunk_rows(features, criterion.num_logits * len(weight))
        chunks = (criterion.chunk_sums(output, part, targets, *more) for part in chunks_of(len(targets), rows))
        total, *reported = (each.clone() for each in reduce(torch.add, chunks))  # FSDP warns of views
        ctx.gradients = output.finished()
        ctx.mark_non_differentiable(*reported)
        return total, *reported

    @staticmethod
    def backward(ctx: Any, scale: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if gradient is None else gradient * scale.to(gradient.dtype) for gradient in ctx.gradients]
        return (*scaled, *[None] * (len(ctx.needs_input_grad) - len(scaled)))
