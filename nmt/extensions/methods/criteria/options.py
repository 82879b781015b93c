"""The options of the criteria of this extension. Without torch, so that `--help` answers at once."""

from typing import Literal

from nmt import opt, options_class
from nmt.criteria.options import CrossEntropyOptions
from nmt.options import Part, part


@options_class
class RDropOptions(CrossEntropyOptions):
    divergence_weight: float = opt(
        5.0,
        "weight of the divergence between two passes with different dropout masks, alpha in Liang et al. (2021)",
        minimum=0,
    )


@options_class
class InPlaceDistillationOptions(RDropOptions):
    divergence_weight: float = opt(
        1.0, "weight of the divergence between the whole network and the shallower one", minimum=0
    )
    min_encoder_layers: int = opt(1, "layers of the shallowest encoder that is trained", minimum=1)
    min_decoder_layers: int = opt(1, "layers of the shallowest decoder that is trained", minimum=1)


@options_class
class DistillationOptions(CrossEntropyOptions):
    teacher: tuple[str, ...] = opt(
        (), "models whose distributions the model learns, by the mean of their probabilities; of the data's vocabulary"
    )
    teacher_weight: float = opt(
        0.5, "weight of the divergence from the teacher; the cross entropy has the rest of 1", minimum=0, maximum=1
    )
    temperature: float = opt(
        1.0, "divides the logits of both in the divergence, T in Hinton et al. (2015)", minimum=1e-3
    )


@options_class
class GuidedAlignmentOptions(CrossEntropyOptions):
    alignment_weight: float = opt(0.1, "weight of the alignment's cross entropy; 0.1 in Marian", minimum=0)
    alignment_column: str = opt("alignment", "column of links that has the alignments (nmt prepare --column)")


@options_class
class UnlikelihoodOptions(CrossEntropyOptions):
    unlikelihood_weight: float = opt(1.0, "weight of the unlikelihood, alpha in Welleck et al. (2020)", minimum=0)


@options_class
class RewardOptions:
    likelihood_weight: float = opt(
        0.017, "factor of the reference's log-likelihood, added to a reward of 0 to 1; 0.017 in GNMT", minimum=0
    )
    reward: Part = part("metric", "gleu", "metric of a sample against the reference; a hundredth of it is the reward")
    decoder: Part = part(
        "decoder",
        "sampling",
        "search that draws the samples; its n_best is their number, 15 in GNMT",
        aliases=("sampler",),
        values={"n_best": 15},
    )
    objective: Literal["reward", "risk"] = opt(
        "reward",
        "reward: samples weighted by reward - mean reward (GNMT); risk: expected reward under the model's "
        "distribution over the different samples (Shen et al., 2016)",
    )
    sharpness: float = opt(
        0.005, "with objective risk: power of the samples' probabilities, alpha in Shen et al.", above=0
    )
    with_reference: bool = opt(False, "with objective risk: the reference is among the samples, as in Shen et al.")

    def __post_init__(self) -> None:
        if self.with_reference and self.objective == "reward":
            raise ValueError(
                "--with-reference: the mean over samples needs samples alone (leave it out, or give --objective risk)"
            )
