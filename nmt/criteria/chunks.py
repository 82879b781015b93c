"""Losses computed from logits in chunks of positions, so that the logits of a whole batch never exist at the same time.

The gradient of a chunk is computed immediately, so its logits are neither kept nor computed again.
Dimensions: N positions, n positions of a chunk, V vocabulary, D width.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from nmt.kernels.base import fastest

# Logits per chunk: few enough for several copies to fit in a CPU's cache, but enough to keep a GPU busy.
CHUNK_LOGITS: Final = {"cpu": 2**22, "cuda": 2**26}
MIN_CHUNK_ROWS: Final = 512  # minimum rows per chunk, because each chunk updates the gradient of all output weights

OfLogits = Callable[..., Sequence[Tensor]]
"""(logits (n, V) of each pass, further tensors of the same positions) -> sums (): the loss, then the reported values."""


def chunk_rows(features: Tensor, size: int) -> int:
    """The number of rows in a chunk of logits over a vocabulary of this size, on the features' device."""
    return max(MIN_CHUNK_ROWS, CHUNK_LOGITS.get(features.device.type, CHUNK_LOGITS["cuda"]) // size)


def sums_of_logits(
    of_logits: OfLogits, output: nn.Module, passes: Sequence[Tensor], *others: Tensor
) -> tuple[Tensor, ...]:
    """Sum a function of logits over all positions. Returns sums (), of which only the first has a gradient.

    output: any module that computes logits from features
    passes: the features (N, D) of each pass; usually there is one
    others: further arguments of the function, (N, ...) each
    """
    of_logits = fastest(of_logits, passes[0])
    parameters = [parameter for parameter in output.parameters() if parameter.requires_grad]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*passes, *parameters)):
        given = of_logits, output, len(passes), others, *passes, *parameters
        sums: tuple[Tensor, ...] = _ChunkedSums.apply(*given)  # type: ignore[no-untyped-call]
        return sums
    return _total(
        of_logits(*(output(features[part]) for features in passes), *(tensor[part] for tensor in others))
        for part in _chunks(output, passes)
    )


def _chunks(output: nn.Module, passes: Sequence[Tensor]) -> Iterator[slice]:
    """Slices of the N positions."""
    # Enable gradients if possible. Otherwise autocast would cache a copy of the weight without a gradient.
    with torch.set_grad_enabled(not torch.is_inference_mode_enabled()):
        size = output(passes[0][:1]).shape[-1]
    rows = max(1, chunk_rows(passes[0], size) // len(passes))
    return (slice(start, start + rows) for start in range(0, len(passes[0]), rows))


def _total(sums: Iterable[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    return tuple(torch.stack(of_chunks).sum(0) for of_chunks in zip(*sums, strict=True))


class _ChunkedSums(torch.autograd.Function):
    """See `sums_of_logits`. tensors: the features of `num_passes` passes, then the parameters of the output"""

    @staticmethod
    def forward(
        ctx: Any, of_logits: OfLogits, output: nn.Module, num_passes: int, others: Sequence[Tensor], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        passes, parameters = tensors[:num_passes], tensors[num_passes:]
        of_passes, sums = [torch.zeros_like(features) for features in passes], []
        of_parameters: list[Tensor] = []
        for part in _chunks(output, passes):
            with torch.enable_grad():
                inputs = [features[part].detach().requires_grad_(features.requires_grad) for features in passes]
                of_chunk = of_logits(*map(output, inputs), *(tensor[part] for tensor in others))
            sums.append([each.detach() for each in of_chunk])
            leaves = [leaf for leaf in (*inputs, *parameters) if leaf.requires_grad]
            found = iter(torch.autograd.grad(of_chunk[0], leaves))
            for gradient, features in zip(of_passes, inputs, strict=True):
                if features.requires_grad:
                    gradient[part] = next(found)
            of_parameters = [*map(Tensor.add_, of_parameters, found)] if of_parameters else [*found]
        total, *reported = _total(sums)
        ctx.gradients = *of_passes, *of_parameters
        ctx.mark_non_differentiable(*reported)
        return total, *reported

    @staticmethod
    def backward(ctx: Any, scale: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, None, *(gradient * scale.to(gradient.dtype) for gradient in ctx.gradients)
