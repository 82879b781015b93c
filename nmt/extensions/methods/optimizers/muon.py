"""Muon (Jordan et al., 2024): hidden matrices step along orthogonalized momenta; all other weights use AdamW."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from nmt import UserError, register
from nmt.dist import World
from nmt.extensions.fast.nn.instructions import has_bfloat16
from nmt.extensions.methods.optimizers.options import MuonOptions
from nmt.optimizers.adam import AdamW
from nmt.optimizers.base import UNSET_LR, Groups, Uncompiled, has_sharded

COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)  # coefficients of x, x^3 and x^5 in an iteration
ITERATIONS: Final = 5
MIN_NORM: Final = 1e-7
# Matrices of the same shape are orthogonalized together: as many as fit a CPU's caches, or enough to keep a GPU busy.
MAX_CPU_STACK: Final = 1 << 18  # numbers per stack
MAX_STACK: Final = 1 << 24


@register("optimizer", "muon", MuonOptions)
class Muon(Uncompiled, torch.optim.Optimizer):
    """Muon for inner linear layers and adapters; AdamW for embeddings, output layer, vectors and recurrent weights.

    The step of a matrix (A, B) is scaled by 0.2 * sqrt(max(A, B)) to the usual size of AdamW's steps (Liu et al., 2025, section
    2.2), so both can share one learning rate and one weight decay.
    product_type: type of the products that orthogonalize the momenta: bfloat16 if the device has instructions for it
    """

    def __init__(self, options: MuonOptions, parameters: Groups) -> None:
        if has_sharded(parameters):
            raise UserError(
                "--optimizer muon and --engine fsdp cannot be combined: fsdp shards matrices (use --engine ddp)"
            )
        matrices, others = _split(parameters)
        if not matrices:
            raise UserError(
                "--optimizer muon needs trainable inner linear layers, but there are none (use --optimizer adamw)"
            )
        self.momentum, self._num_groups = options.momentum, len(matrices)
        self.product_type = torch.bfloat16 if has_bfloat16(matrices[0]["params"][0].device) else torch.float32
        self._adamw = [AdamW(options, others)] if others else []
        groups = [*matrices, *(group for optimizer in self._adamw for group in optimizer.param_groups)]
        super().__init__(groups, {"lr": UNSET_LR, "weight_decay": options.weight_decay})
        self._share()

    def agree(self, world: World) -> str:
        """See nmt.optimizers.base. All ranks use the same type for products, so that all machines get the same results."""
        if world.any(self.product_type == torch.float32):
            self.product_type = torch.float32
        how = "bfloat16" if self.product_type == torch.bfloat16 else "float32, because bfloat16 is slow here"
        return f"matrix products in {how}"

    def _share(self) -> None:
        """Let AdamW update its share of the groups, and keep the state of AdamW in the state of this optimizer."""
        for optimizer in self._adamw:
            optimizer.param_groups, optimizer.state = self.param_groups[self._num_groups :], self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make an update; closure is not called. Matrices are updated as in torch.optim.Muon, but several at once."""
        for group in self.param_groups[: self._num_groups]:
            for matrices in _of_one_shape(group["params"]):
                self._step(matrices, group["lr"], group["weight_decay"])
        for optimizer in self._adamw:
            optimizer.step()

    def _step(self, matrices: Sequence[Tensor], lr: float, decay: float) -> None:
        """Update matrices of the same shape (A, B)."""
        ahead = []
        for matrix in matrices:
            state, gradient = self.state[matrix], matrix.grad
            assert gradient is not None
            if not state:
                state["momentum_buffer"] = torch.zeros_like(matrix)
            mean = state["momentum_buffer"].lerp_(gradient, 1 - self.momentum)
            ahead.append(gradient.lerp(mean, self.momentum).to(self.product_type))  # Nesterov momentum
        scale = 0.2 * max(matrices[0].shape) ** 0.5
        for matrix, direction in zip(matrices, orthogonalised(ahead), strict=True):
            matrix.mul_(1 - lr * decay).add_(direction, alpha=-lr * scale)


def orthogonalised(matrices: list[Tensor]) -> Tensor:
    """Bring the singular values of N matrices (A, B) close to 1 with a quintic Newton-Schulz iteration: (N, A, B)."""
    first, third, fifth = COEFFICIENTS
    states = torch.stack(matrices)
    add_product: Callable[..., Tensor] = torch.baddbmm
    if len(matrices) == 1:  # kernels for a single product are faster
        states, add_product = states[0], torch.addmm
    is_tall = states.shape[-2] > states.shape[-1]
    states = states.mT if is_tall else states
    states = states / states.norm(dim=(-2, -1), keepdim=True).clamp(min=MIN_NORM)
    for _ in range(ITERATIONS):
        gram = states @ states.mT
        states = add_product(states, add_product(gram, gram, gram, beta=third, alpha=fifth), states, beta=first)
    states = states.mT if is_tall else states
    return states.reshape(len(matrices), *states.shape[-2:])


def _of_one_shape(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Group parameters that have a gradient into stacks of limited size, each with a single shape."""
    stacks: dict[Any, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            stacks.setdefault((parameter.shape, parameter.device, parameter.dtype), []).append(parameter)
    for stack in stacks.values():
        limit = MAX_CPU_STACK if stack[0].device.type == "cpu" else MAX_STACK
        size = max(1, limit // stack[0].numel())
        yield from (stack[start : start + size] for start in range(0, len(stack), size))


def _split(parameters: Groups) -> tuple[Groups, Groups]:
    """Split groups into those of matrices and those of other parameters. By default, two dimensions make a matrix."""
    split: tuple[Groups, Groups] = [], []
    for group in parameters:
        is_matrix = group.get("matrices") or [parameter.ndim == 2 for parameter in group["params"]]
        for groups, chosen in zip(split, (True, False), strict=True):
            part = [parameter for parameter, is_so in zip(group["params"], is_matrix, strict=True) if is_so == chosen]
            if part:
                groups.append({**group, "params": part, "matrices": [chosen] * len(part)})
    return split
