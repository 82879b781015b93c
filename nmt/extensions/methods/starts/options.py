"""The options of the starts of this extension. Without torch, so that `--help` answers at once."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from nmt import opt, options_class
from nmt.options import MAX_LAYER_SIZE

LORA_LR: Final = 1e-3  # of adapters when they fine-tune a model: five times that of whole weights


@options_class
class FreezeOptions:
    freeze: tuple[str, ...] = opt(
        (),
        "names of parameters that are not trained, as patterns: `encoder.*`, `*norm*`; a wrong one lists near names",
        must_stay=True,
        metavar="PATTERN",
    )


@options_class
class LoraOptions:
    lora_rank: int = opt(
        0,
        "train adapters of this rank for the model of --init-from, and nothing else of it; 8 is usual, 0 is none",
        minimum=0,
        maximum=MAX_LAYER_SIZE,
        must_stay=True,
    )
    lora_alpha: float = opt(
        16.0, "the product of an adapter's matrices is multiplied by this, over the rank", above=0, must_stay=True
    )
    lora_targets: tuple[str, ...] = opt(
        (),
        "weights of linear layers that get adapters, as patterns: `*attention*`; by default all but the output layer's",
        must_stay=True,
        metavar="PATTERN",
    )

    @staticmethod
    def defaults(given: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """Adapters start at zero, and need a higher learning rate than trained weights."""
        return values | {"lr": LORA_LR} if given.get("lora_rank") and "lr" in values else values

    def __post_init__(self) -> None:
        training: Any = self  # it has all options of a training
        if self.lora_rank and training.init_from is None:
            raise ValueError(f"--lora-rank {self.lora_rank}: adapters need a trained model (give --init-from MODEL)")
        if self.lora_rank and (training.freeze or training.init_state != "none"):
            flag = "--freeze" if training.freeze else "--init-state"
            raise ValueError(
                f"{flag} and --lora-rank: all is frozen but the adapters, which are new (leave {flag} out)"
            )
        if self.lora_targets and not self.lora_rank:
            raise ValueError("--lora-targets: names layers for adapters (give --lora-rank)")


@options_class
class MovingAverageOptions:
    ema: float = opt(
        0.0,
        "decay of a moving average of the weights, 0.999; it is validated, saved and translated with; 0 is none",
        aliases=("ema-decay",),
        minimum=0,
        below=1,
        must_stay=True,
    )


@options_class
class DeepenOptions:
    deepen: bool = opt(
        False,
        "the model of --init-from has fewer layers; further ones follow its own, and change nothing at first "
        "(a Transformer with --norm-position pre, a language model with it, ByteNet)",
        must_stay=True,
        needs=("init_from",),
        excludes=("init_state", "lora_rank"),
    )


@options_class
class InitStateOptions:
    init_state: Literal["none", "optimizer", "schedule", "all"] = opt(
        "none",
        "what to load from the run of --init-from in addition to its weights: optimizer (its state), schedule (that, and the "
        "number of the update) or all (also the position in the same data); the rest starts from scratch",
        must_stay=True,
        needs=("init_from",),
    )

    @staticmethod
    def defaults(given: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """A run that continues the count of updates continues a training, and gets no sizes for fine-tuning."""
        return {} if given.get("init_state") in ("schedule", "all") else values
