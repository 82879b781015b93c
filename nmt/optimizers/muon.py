"""Muon (Jordan et al., 2024): steps of hidden matrices are orthogonalised momenta; all other weights have AdamW."""

from collections.abc import Callable
from typing import Any

import torch

from nmt import UserError, register
from nmt.optimizers.adam import AdamW
from nmt.optimizers.base import UNSET_LR, Groups, Uncompiled, has_sharded
from nmt.optimizers.options import MuonOptions


@register("optimizer", "muon", MuonOptions)
class Muon(Uncompiled, torch.optim.Optimizer):
    """Muon for the matrices inside a network, AdamW for embeddings, the output layer and vectors.

    A step of a matrix (A, B) is scaled by 0.2 * sqrt(max(A, B)), the usual size of AdamW's (Liu et al., 2025, section 2.2), so
    that one learning rate and one weight decay serve both.
    """

    def __init__(self, options: MuonOptions, parameters: Groups) -> None:
        if has_sharded(parameters):
            raise UserError(
                "--optimizer muon: needs whole matrices, and --engine fsdp shards them (give ddp, or adamw)"
            )
        if not hasattr(torch.optim, "Muon"):
            raise UserError(
                f"--optimizer muon: torch {torch.__version__} has none (install 2.9 or later, or give adamw)"
            )

        class OfMatrices(Uncompiled, torch.optim.Muon):
            """torch's Muon, for matrices alone."""

        matrices, others = _split(parameters)
        self._optimizers: list[torch.optim.Optimizer] = []
        if matrices:
            decay, momentum = options.weight_decay, options.momentum
            muon = OfMatrices(matrices, UNSET_LR, decay, momentum, adjust_lr_fn="match_rms_adamw")
            self._optimizers.append(muon)
        if others:
            self._optimizers.append(AdamW(options, others))
        super().__init__([group for optimizer in self._optimizers for group in optimizer.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Let both optimizers work on this one's groups and state."""
        groups = iter(self.param_groups)
        for optimizer in self._optimizers:
            optimizer.param_groups = [next(groups) for _ in optimizer.param_groups]
            optimizer.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make an update; closure is not called."""
        for optimizer in self._optimizers:
            optimizer.step()


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
