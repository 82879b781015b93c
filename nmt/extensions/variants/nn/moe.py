"""The sparsely-gated mixture of experts (Shazeer et al., 2017), in which a few of many networks process each token.

Gates send a token to some of E experts. A hierarchy sends it to some groups first, and then to experts within them
(appendix B).

Dimensions: N tokens, D width, F inner width of an expert, E experts, G groups of experts, P pairs of a token and an expert.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from nmt import UserError
from nmt.feed_forwards.base import FeedForward
from nmt.nn.dropout import dropout
from nmt.nn.extra_losses import ExtraLosses, add_losses, token_rows
from nmt.nn.matmul import product

MIN_DEVIATION: Final = 1e-6  # minimum standard deviation of the gates' noise, because equation 9 divides by it
MIN_SQUARED_MEAN: Final = 1e-10  # added to the squared mean in CV^2, because the mean is 0 if a batch reaches no expert
GROUPED_ALIGNMENT: Final = 8  # number of bfloat16 values in 16 bytes, the alignment that CUDA's grouped products need

GateKind = Literal["noisy-top-k", "balanced"]
LOSS_NAMES: Final[Mapping[GateKind, tuple[str, ...]]] = {
    "noisy-top-k": ("importance_loss", "load_loss"),
    "balanced": ("importance_loss", "threshold_loss"),
}


@dataclass(frozen=True)
class ExpertShape:
    """The sizes of a mixture of experts.

    width, inner: D and F; experts: E
    active: experts per token, k in the paper; in a hierarchy, groups per token and experts per group
    groups: G in a hierarchy; 1 without one
    gates: "noisy-top-k" (section 2.1) or "balanced" (appendix F)
    importance_weight, load_weight: weights of the losses in section 4
    dropout: dropout probability on an expert's inner activations
    """

    width: int
    inner: int
    experts: int
    active: int
    groups: int
    gates: GateKind
    importance_weight: float
    load_weight: float
    dropout: float

    @classmethod
    def of(cls, o: Any, width: int, inner: int, dropout: float) -> "ExpertShape":
        """Take the sizes from the options of a model with experts."""
        gates = o.experts, o.active_experts, o.expert_groups, o.gates, o.importance_weight, o.load_weight
        return cls(width, inner, *gates, dropout)

    @property
    def active_experts(self) -> int:
        """Number of experts per token, over all its groups."""
        return self.active if self.groups == 1 else self.active**2


class Routing(NamedTuple):
    """Which tokens go to which experts or groups of experts, sorted by expert.

    tokens, experts: (P,) token and expert of each pair
    gates: (P,) weight of the expert's output
    counts: (E,) number of tokens per expert
    load: (E,) expected number of tokens per expert, with gradient (appendix A)
    threshold_loss: () equation 20 per token, summed over the levels of a hierarchy
    """

    tokens: Tensor
    experts: Tensor
    gates: Tensor
    counts: Tensor
    load: Tensor
    threshold_loss: Tensor

    @classmethod
    def of_all(cls, rows: Tensor) -> "Routing":
        """Put all tokens into one group. rows: (N, D)"""
        tokens = torch.arange(len(rows), device=rows.device)
        counts, gates = tokens.new_full((1,), len(rows)), rows.new_ones(len(rows))
        return cls(tokens, torch.zeros_like(tokens), gates, counts, counts.to(rows.dtype), rows.new_zeros(()))

    def refined(self, pairs: Tensor, choices: Tensor, gates: Tensor, experts: int) -> "Routing":
        """Send pairs to experts within their groups. All groups have the same number of experts.

        pairs, choices, gates: (P',) index of the old pair, index of the expert in its group, and gate of the expert
        experts: number of experts per group
        """
        chosen, order = (self.experts[pairs] * experts + choices).sort(stable=True)
        pairs = pairs[order]
        counts = self.counts.new_zeros(len(self.counts) * experts).scatter_add_(0, chosen, torch.ones_like(chosen))
        gates = self.gates[pairs] * gates[order]
        return Routing(self.tokens[pairs], chosen, gates, counts, counts.to(gates.dtype), self.threshold_loss)


class NoisyTopKGate(nn.Module):
    """Noisy top-k gating, equations 3 to 5, with separate weights for each of G groups. experts: number of experts per group"""

    def __init__(self, groups: int, width: int, experts: int, active: int) -> None:
        super().__init__()
        self.active = active
        self.weight = nn.Parameter(torch.zeros(groups, experts, width))  # W_g; initially zero (appendix A)
        self.noise = nn.Parameter(torch.zeros(groups, experts, width))  # W_noise

    def forward(self, rows: Tensor, before: Routing, with_losses: bool) -> Routing:
        """Choose the experts.

        rows: (N, D) float32
        before: the routing of the rows to groups
        with_losses: whether to estimate `load` as in appendix A
        """
        groups, experts, k = len(self.weight), self.weight.shape[1], self.active
        inputs = rows[before.tokens]
        logits = grouped_product(inputs, self.weight, before.counts)  # P E
        deviations = torch.ones_like(logits)
        if self.training or with_losses:
            deviations = functional.softplus(grouped_product(inputs, self.noise, before.counts)).clamp(
                min=MIN_DEVIATION
            )
        noisy = logits + torch.randn_like(logits) * deviations if self.training else logits
        top = noisy.topk(min(k + 1, experts), dim=-1)
        gates, choices = top.values[:, :k].softmax(-1), top.indices[:, :k]
        pairs = torch.arange(len(inputs), device=rows.device)[:, None].expand_as(choices)
        after = before.refined(pairs.flatten(), choices.flatten(), gates.flatten(), experts)
        if not with_losses:
            return after
        # kth_excluding: the k-th highest of the other logits. For an expert among the k highest, this is number k + 1.
        chosen = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, choices, True)
        probability = torch.ones_like(logits)
        if k < experts:
            rival = torch.where(chosen, top.values[:, k, None], top.values[:, k - 1, None])
            probability = 0.5 * (1 + torch.erf((logits - rival) / (deviations * math.sqrt(2))))  # equation 9
        shares = sum_by(probability, before.experts, groups) / before.counts.clamp(min=1)[:, None]
        return after._replace(load=(before.load[:, None] * shares).flatten())  # equation 14


class BalancedGate(nn.Module):
    """Strictly balanced gating (appendix F), with separate weights for each of G groups. experts: number of experts per group

    In training, each expert takes the m = k |X| / E tokens of the batch for which its gates are highest. In evaluation, each
    expert has a learned threshold, so that a token's experts do not depend on the batch.
    """

    def __init__(self, groups: int, width: int, experts: int, active: int) -> None:
        super().__init__()
        self.active = active
        self.weight = nn.Parameter(torch.empty(groups, experts, width))  # W_g; zeros would tie all tokens
        self.thresholds = nn.Parameter(torch.full((groups, experts), 1 / experts))  # T
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, rows: Tensor, before: Routing, with_losses: bool) -> Routing:
        """Choose the experts.

        rows: (N, D) float32
        before: the routing of the rows to groups
        with_losses: whether to compute `threshold_loss`
        """
        experts = self.weight.shape[1]
        scores = grouped_product(rows[before.tokens], self.weight, before.counts).softmax(-1)  # P E
        thresholds = self.thresholds[before.experts]  # P E
        above = scores > thresholds  # equation 19
        highest = self._highest(scores.detach(), before) if self.training or with_losses else above
        mask = highest if self.training else above
        kept = scores * mask
        gates = kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(kept.dtype).tiny)  # equation 16
        pairs, choices = mask.nonzero(as_tuple=True)
        after = before.refined(pairs, choices, gates[pairs, choices], experts)
        if with_losses:
            excess = above.to(scores.dtype) - highest.to(scores.dtype)
            loss = (excess * (scores.detach() - thresholds)).sum() / max(len(scores), 1)  # equation 20
            after = after._replace(threshold_loss=before.threshold_loss + loss)
        return after

    def _highest(self, scores: Tensor, before: Routing) -> Tensor:
        """Whether a score is among its expert's m highest in each group of rows (equation 18): (P, E) -> (P, E)."""
        groups, experts = self.weight.shape[:2]
        sizes = before.counts.tolist()
        quotas = [min(size, max(1, round(self.active * size / experts))) for size in sizes]  # m for each group
        places = (
            torch.arange(len(scores), device=scores.device) - (before.counts.cumsum(0) - before.counts)[before.experts]
        )
        table = scores.new_full((groups, max(sizes), experts), -1.0)
        table[before.experts, places] = scores
        top = table.topk(max(quotas), dim=1).indices  # G m E
        within = torch.arange(top.shape[1], device=top.device) < torch.tensor(quotas, device=top.device)[:, None]  # G m
        mask = torch.zeros_like(table, dtype=torch.bool).scatter_(1, top, within[:, :, None].expand_as(top))
        return mask[before.experts, places]


class MixtureOfExperts(FeedForward):
    """Feed-forward networks max(0, x W1) W2, a few of which process each token: sum_i G(x)_i E_i(x), equation 1.

    One tensor holds the weights of all experts; its first dimension is the expert.
    """

    can_be_captured = False  # the sizes of the matrix products depend on the gates
    residual_outputs = ("outer*",)

    def __init__(self, shape: ExpertShape) -> None:
        super().__init__()
        self.shape = shape
        self.auxiliary_losses: Sequence[str] = LOSS_NAMES[shape.gates]
        kind: type[NoisyTopKGate | BalancedGate] = NoisyTopKGate if shape.gates == "noisy-top-k" else BalancedGate
        G, E, D, F = shape.groups, shape.experts, shape.width, shape.inner
        self.gate = kind(1, D, E if G == 1 else G, shape.active)
        self.group_gate = None if G == 1 else kind(G, D, E // G, shape.active)
        self.inner = nn.Parameter(torch.empty(E, F, D))
        self.outer = nn.Parameter(torch.empty(E, D, F))
        for weight in (self.inner, self.outer):
            bound = math.sqrt(6 / (D + F))  # Glorot and Bengio, 2010
            nn.init.uniform_(weight, -bound, bound)

    def forward(self, states: Tensor) -> Tensor:
        """Compute (..., D) -> (..., D), with 0 for rows without a token (`token_rows`). Adds the gates' losses to the pass."""
        *shape, width = states.shape
        if (tokens := token_rows()) is None:
            tokens = torch.arange(math.prod(shape), device=states.device)
        positions = torch.unravel_index(tokens, shape)
        inputs = states[positions]  # N D
        routing = self.route(inputs, with_losses=True)
        sums = self._sums(inputs, routing)
        output = sums.new_zeros(*shape, width).index_put(
            positions, sums
        )  # not a view, because FSDP attaches hooks to the output
        add_losses(self._balance(routing))
        return output

    def search_step(self) -> Callable[[Tensor], Tensor]:
        """A version of `forward` for one search: (N, D), with tokens only, without gradient or losses."""
        return lambda rows: self._sums(rows, self.route(rows, with_losses=False))

    def route(self, rows: Tensor, with_losses: bool) -> Routing:
        """Send tokens to experts, in float32. rows: (N, D)"""
        with torch.autocast(rows.device.type, enabled=False):
            rows = _at_least_float32(rows)
            routing: Routing = self.gate(rows, Routing.of_all(rows), with_losses)
            return routing if self.group_gate is None else self.group_gate(rows, routing, with_losses)

    def _sums(self, rows: Tensor, routing: Routing) -> Tensor:
        """The sum of the experts' outputs for each token, weighted by the gates: (N, D) -> (N, D), at least float32."""
        activations = grouped_product(rows[routing.tokens], self.inner, routing.counts).relu()
        activations = dropout(activations, self.shape.dropout, self.training)
        outputs = grouped_product(activations, self.outer, routing.counts)  # P D
        return sum_by(_at_least_float32(outputs) * routing.gates[:, None], routing.tokens, len(rows))

    def _balance(self, routing: Routing) -> ExtraLosses:
        """The losses from section 4 and appendix F, and the statistics in the paper's table 6."""
        shape, counts = self.shape, routing.counts.to(routing.gates.dtype)
        importance = squared_variation(sum_by(routing.gates, routing.experts, len(counts)))
        losses = {"importance_loss": shape.importance_weight * importance}
        if shape.gates == "balanced":
            losses["threshold_loss"] = routing.threshold_loss
        else:
            losses["load_loss"] = shape.load_weight * squared_variation(routing.load)
        mean = counts.mean().clamp(min=MIN_SQUARED_MEAN)
        statistics = {"importance_cv": importance.detach().sqrt(), "load_cv": squared_variation(counts).sqrt()}
        return ExtraLosses(losses, statistics | {"max_load": counts.max() / mean})

    def check_ranks(self, ranks: int) -> None:
        """Raise UserError if this number of ranks cannot share the experts evenly."""
        if self.shape.experts % ranks:
            fix = f"use a multiple of {ranks}, another number of ranks, or --engine ddp"
            raise UserError(f"--experts {self.shape.experts}: {ranks} ranks cannot share them evenly ({fix})")

    def token_flops(self) -> int:
        """FLOPs per token for the gates and the active experts; see nmt.nn.cost.

        With balanced gates, this is the mean over a batch in training.
        """
        shape, matrices = self.shape, 2 if self.shape.gates == "noisy-top-k" else 1
        gates = self.gate.weight.numel()
        if self.group_gate is not None:
            gates += shape.active * self.group_gate.weight[0].numel()
        return 2 * (matrices * gates + shape.active_experts * 2 * shape.width * shape.inner)


def squared_variation(sums: Tensor) -> Tensor:
    """CV(x)^2, the variance divided by the squared mean (section 4). sums: (E,) -> ()"""
    return sums.var(correction=0) / (sums.mean() ** 2 + MIN_SQUARED_MEAN)


def sum_by(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Sum the rows of values (P, ...) with the same index (P,): (size, ...). The order of summation is fixed on all devices."""
    return values.new_zeros(size, *values.shape[1:]).index_put((index,), values, accumulate=True)


def grouped_product(rows: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    """Multiply each group of rows by the transpose of its own matrix.

    rows: (P, D), sorted by group
    weight: (G, E, D)
    counts: (G,) number of rows per group
    returns: (P, E)
    """
    if len(weight) == 1:
        return product(rows, weight[0])
    if _one_kernel(rows, weight):
        ends = counts.cumsum(0).to(torch.int32)
        output: Tensor = functional.grouped_mm(rows.bfloat16(), weight.bfloat16().transpose(1, 2), offs=ends)
        return output
    active = [(group, size) for group, size in enumerate(counts.tolist()) if size]
    if not active:
        return rows.new_zeros(0, weight.shape[1])
    # With gradient, the results of `unbind` share one gradient tensor. Each weight[group] would need its own, of full size.
    matrices: Any = weight.unbind() if torch.is_grad_enabled() and weight.requires_grad else weight
    parts = rows.split([size for _, size in active])
    return torch.cat([product(part, matrices[group]) for part, (group, _) in zip(parts, active, strict=True)])


def _one_kernel(rows: Tensor, weight: Tensor) -> bool:
    """Whether a GPU can multiply all groups with one kernel, in bfloat16 and without waiting for their sizes."""
    return (
        rows.device.type == "cuda"
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") == torch.bfloat16
        and weight.shape[1] % GROUPED_ALIGNMENT == weight.shape[2] % GROUPED_ALIGNMENT == 0
        and hasattr(functional, "grouped_mm")
    )


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
