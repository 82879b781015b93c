"""Options of the criteria in this extension. This module does not import torch, so that `--help` is fast."""

from typing import Literal

from nmt import opt, options_class
from nmt.criteria.options import CrossEntropyOptions
from nmt.options import Part, part


@options_class
class RDropOptions(CrossEntropyOptions):
    divergence_weight: float = opt(
        5.0,
        "weight of the divergence between two dropout passes; alpha in Liang et al. (2021)",
        minimum=0,
    )


@options_class
class InPlaceDistillationOptions(RDropOptions):
    divergence_weight: float = opt(
        1.0, "weight of the divergence between the full network and a shallower one", minimum=0
    )
    min_encoder_layers: int = opt(1, "number of layers in the shallowest encoder to train", minimum=1)
    min_decoder_layers: int = opt(1, "number of layers in the shallowest decoder to train", minimum=1)


@options_class
class DistillationOptions(CrossEntropyOptions):
    teacher: tuple[str, ...] = opt(
        (),
        "teacher models, whose probabilities are averaged; they must have the vocabulary of the data",
    )
    teacher_weight: float = opt(
        0.5,
        "weight of the divergence from the teacher; the cross entropy gets 1 minus this weight",
        minimum=0,
        maximum=1,
    )
    temperature: float = opt(
        1.0,
        "temperature that divides teacher and student logits in the divergence; T in Hinton et al. (2015)",
        minimum=1e-3,
    )


@options_class
class GuidedAlignmentOptions(CrossEntropyOptions):
    alignment_weight: float = opt(
        0.1, "weight of the cross entropy between alignment and attention; 0.1 in Marian", minimum=0
    )
    encoder_weight: float = opt(
        0.0,
        "weight of the cross entropy of target tokens given the encoder's output at their links",
        minimum=0,
    )
    alignment_column: str = opt(
        "alignment", "column of the data that contains the alignments (see nmt prepare --column)"
    )


@options_class
class UnlikelihoodOptions(CrossEntropyOptions):
    unlikelihood_weight: float = opt(1.0, "weight of the unlikelihood term; alpha in Welleck et al. (2020)", minimum=0)


@options_class
class RewardOptions:
    likelihood_weight: float = opt(
        0.017, "weight of the reference's log-likelihood, relative to the reward; 0.017 in GNMT", minimum=0
    )
    reward: Part = part(
        "metric", "gleu", "metric that scores a sample against the reference; the reward is its score / 100"
    )
    decoder: Part = part(
        "decoder",
        "sampling",
        "decoder that draws the samples; its n_best sets their number (15 in GNMT)",
        aliases=("sampler",),
        values={"n_best": 15},
    )
    objective: Literal["reward", "risk"] = opt(
        "reward",
        "reward: weight each sample by its reward minus the mean reward, as in GNMT. "
        "risk: maximise the expected reward over the distinct samples (Shen et al., 2016)",
    )
    sharpness: float = opt(
        0.005, "exponent of the samples' probabilities with --objective risk; alpha in Shen et al. (2016)", above=0
    )
    with_reference: bool = opt(False, "add the reference to the samples of --objective risk, as in Shen et al. (2016)")

    def __post_init__(self) -> None:
        if self.with_reference and self.objective == "reward":
            raise ValueError("--with-reference needs --objective risk (add it, or drop --with-reference)")
