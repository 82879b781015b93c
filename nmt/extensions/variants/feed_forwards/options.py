"""The options of experts. Without torch, so that `--help` answers at once."""

from typing import Any, Final, Literal

from nmt import opt, options_class
from nmt.models.options import TransformerOptions
from nmt.options import size_opt

# The help of the options that several models have.
EXPERTS: Final = "experts of a mixture, n in its paper"
ACTIVE_EXPERTS: Final = "experts of a token, k in their paper; in a hierarchy groups, and experts in each"
EXPERT_GROUPS: Final = "groups of experts in a hierarchy of gates; 1 for gates without one"
EXPERT_EVERY: Final = "which layers have experts: every n-th, from layer n on (Lepikhin et al., 2021)"
GATES: Final = (
    "noisy-top-k: each token's best experts, with noise in training; balanced: each expert's best tokens of a "
    "micro-batch in training, learned thresholds in translating (Shazeer et al., 2017, section 2.1 and appendix F)"
)
IMPORTANCE_WEIGHT: Final = "weight of the loss that keeps the sums of the experts' gates even"
LOAD_WEIGHT: Final = "weight of the loss that keeps the experts' tokens even; for noisy-top-k"


def check_experts(o: Any, num_layers: int = 0) -> None:
    """num_layers: of which every n-th has experts; 0 for mixtures that stand between the layers"""
    if o.experts % o.expert_groups:
        raise ValueError(f"--experts {o.experts}: must be a multiple of --expert-groups {o.expert_groups}")
    largest = o.experts if o.expert_groups == 1 else min(o.expert_groups, o.experts // o.expert_groups)
    if o.active_experts > largest:
        raise ValueError(f"--active-experts {o.active_experts}: must be at most {largest}, of which the gates choose")
    if num_layers and o.ffn == "moe" and o.expert_every > num_layers:
        raise ValueError(f"--expert-every {o.expert_every}: must be at most {num_layers}, or no layer has experts")


@options_class
class ExpertOptions:
    experts: int = size_opt(8, EXPERTS, minimum=2)
    active_experts: int = size_opt(2, ACTIVE_EXPERTS)
    expert_groups: int = size_opt(1, EXPERT_GROUPS)
    expert_every: int = size_opt(2, EXPERT_EVERY)
    gates: Literal["noisy-top-k", "balanced"] = opt("noisy-top-k", GATES)
    importance_weight: float = opt(0.01, IMPORTANCE_WEIGHT, minimum=0)
    load_weight: float = opt(0.01, LOAD_WEIGHT, minimum=0)

    def __post_init__(self) -> None:
        if not isinstance(self, TransformerOptions):
            return
        check_experts(self, min(self.encoder_layers, self.decoder_layers))
        if self.ffn == "moe" and self.activation != "relu":
            raise ValueError(f"--activation {self.activation}: experts have relu (leave --activation or --ffn out)")
        if self.ffn == "moe" and self.tie_layers != "none":
            raise ValueError(f"--tie-layers {self.tie_layers}: not with --ffn moe (leave one of them out)")
