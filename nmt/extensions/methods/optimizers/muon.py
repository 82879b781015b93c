"""Muon (Jordan et al., 2024): steps of hidden matrices are orthogonalised momenta; all other weights have AdamW."""

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

COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)  # of x, x^3 and x^5 in an iteration
ITERATIONS: Final = 5
MIN_NORM: Final = 1e-7
# Matrices of one shape are orthogonalised together: on a CPU few enough for its caches, on a GPU enough to fill it.
MAX_CPU_STACK: Final = 1 << 18  # numbers
MAX_STACK: Final = 1 << 24


@register("optimizer", "muon", MuonOptions)
class Muon(Uncompiled, torch.optim.Optimizer):
    """Muon for linear layers inside a network and adapters, AdamW for embeddings, output layer, vectors and recurrent weights.

    A step of a matrix (A, B) is scaled by 0.2 * sqrt(max(A, B)), the usual size of AdamW's (Liu et al., 2025, section 2.2), so
    that one learning rate and one weight decay serve both.
    product_type: of the products that orthogonalise the momenta, bfloat16 where the device has instructions for it
    """

    def __init__(self, options: MuonOptions, parameters: Groups) -> None:
        if has_sharded(parameters):
            raise UserError(
                "--optimizer muon: needs whole matrices, and --engine fsdp shards them (give ddp, or adamw)"
            )
        matrices, others = _split(parameters)
        if not matrices:
            raise UserError("--optimizer muon: no weight of a linear layer inside the network is trained (give adamw)")
        self.momentum, self._num_groups = options.momentum, len(matrices)
        self.product_type = torch.bfloat16 if has_bfloat16(matrices[0]["params"][0].device) else torch.float32
        self._adamw = [AdamW(options, others)] if others else []
        groups = [*matrices, *(group for optimizer in self._adamw for group in optimizer.param_groups)]
        super().__init__(groups, {"lr": UNSET_LR, "weight_decay": options.weight_decay})
        self._share()

    def agree(self, world: World) -> str:
        """See nmt.optimizers.base: all ranks multiply in one type, since results on another kind of machine differ."""
        if world.any(self.product_type == torch.float32):
            self.product_type = torch.float32
        how = "bfloat16" if self.product_type == torch.bfloat16 else "float32, because bfloat16 is slow here"
        return f"matrix products in {how}"

    def _share(self) -> None:
        """Let AdamW work on its part of this optimizer's groups, and on its state."""
        for optimizer in self._adamw:
            optimizer.param_groups, optimizer.state = self.param_groups[self._num_groups :], self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make an update; closure is not called. That of matrices is torch.optim.Muon's, which takes one after the other."""
        for group in self.param_groups[: self._num_groups]:
            for matrices in _of_one_shape(group["params"]):
                self._step(matrices, group["lr"], group["weight_decay"])
        for optimizer in self._adamw:
            optimizer.step()

    def _step(self, matrices: Sequence[Tensor], lr: float, decay: float) -> None:
        """Step matrices (A, B) of one shape."""
        ahead = []
        for matrix in matrices:
            state, gradient = self.state[matrix], matrix.grad
            assert gradient is not None
            if not state:
                state["momentum_buffer"] = torch.zeros_like(matrix)
            mean = state["momentum_buffer"].lerp_(gradient, 1 - self.momentum)
            ahead.append(gradient.lerp(mean, self.momentum).to(self.product_type))  # Nesterov's
        scale = 0.2 * max(matrices[0].shape) ** 0.5
        for matrix, direction in zip(matrices, orthogonalised(ahead), strict=True):
            matrix.mul_(1 - lr * decay).add_(direction, alpha=-lr * scale)


def orthogonalised(matrices: list[Tensor]) -> Tensor:
    """Bring the singular values of matrices near 1 by a quintic Newton-Schulz iteration: N of (A, B) -> (N, A, B)."""
    first, third, fifth = COEFFICIENTS
    states = torch.stack(matrices)
    add_product: Callable[..., Tensor] = torch.baddbmm
    if len(matrices) == 1:  # the kernels of one product are faster
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
    """Parameters that have a gradient, in stacks of one shape, of not too many numbers."""
    stacks: dict[Any, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            stacks.setdefault((parameter.shape, parameter.device, parameter.dtype), []).append(parameter)
    for stack in stacks.values():
        limit = MAX_CPU_STACK if stack[0].device.type == "cpu" else MAX_STACK
        size = max(1, limit // stack[0].numel())
        yield from (stack[start : start + size] for start in range(0, len(stack), size))


def _split(parameters: Groups) -> tuple[Groups, Groups]:
    """The groups of matrices, and those of all other parameters; without `matrices` whatever has two dimensions is one."""
    split: tuple[Groups, Groups] = [], []
    for group in parameters:
        is_matrix = group.get("matrices") or [parameter.ndim == 2 for parameter in group["params"]]
        for groups, chosen in zip(split, (True, False), strict=True):
            part = [parameter for parameter, is_so in zip(group["params"], is_matrix, strict=True) if is_so == chosen]
            if part:
                groups.append({**group, "params": part, "matrices": [chosen] * len(part)})
    return split
