"""The options of mixtures of experts. Imports no torch, so that `--help` is fast."""

from typing import Any, Final, Literal

from nmt import opt, options_class
from nmt.models.options import TransformerOptions
from nmt.options import size_opt

# Help texts of options that several models share.
EXPERTS: Final = "number of experts in each mixture, n in the paper"
ACTIVE_EXPERTS: Final = "experts that process each token, k in the paper; with groups, k groups of k experts"
EXPERT_GROUPS: Final = "number of expert groups in a two-level hierarchy of gates; 1 for a single level"
EXPERT_EVERY: Final = "put experts into every n-th layer, starting with layer n (Lepikhin et al., 2021)"
GATES: Final = (
    "noisy-top-k: each token chooses experts; balanced: each expert chooses tokens in training (Shazeer et al., 2017)"
)
IMPORTANCE_WEIGHT: Final = "weight of the loss that balances the sums of the experts' gates"
LOAD_WEIGHT: Final = "weight of the loss that balances the tokens per expert; only for noisy-top-k gates"


def check_experts(o: Any, num_layers: int = 0) -> None:
    """Raise ValueError for contradictory options for experts.

    num_layers: number of layers, of which every n-th has experts; 0 if the mixtures are between the layers
    """
    if o.experts % o.expert_groups:
        raise ValueError(f"--experts {o.experts}: must be a multiple of --expert-groups {o.expert_groups}")
    largest = o.experts if o.expert_groups == 1 else min(o.expert_groups, o.experts // o.expert_groups)
    if o.active_experts > largest:
        raise ValueError(
            f"--active-experts {o.active_experts}: must be at most {largest}, the number of experts or groups per gate"
        )
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
            raise ValueError(
                f"--activation {self.activation}: experts support only relu (drop --activation, or --ffn moe)"
            )
        if self.ffn == "moe" and self.tie_layers != "none":
            raise ValueError(f"--tie-layers {self.tie_layers} and --ffn moe cannot be combined (drop one of them)")
