"""The options of this extension's starts, and the defaults that they give a run. This module does not import torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from nmt import opt, options_class
from nmt.artefact import Artefact
from nmt.errors import ArtefactError
from nmt.options import MAX_LAYER_SIZE

MIN_BATCH_TOKENS, MAX_BATCH_TOKENS = 512, 4096  # target tokens per update
UPDATES_PER_EPOCH: Final = 100  # an update should cover about a hundredth of the data
EPOCHS: Final = 10  # Luong and Manning (2015) fine-tune for 12 epochs
MIN_UPDATES, MAX_UPDATES = 500, 20_000
INTERVALS: Final = (1000, 500, 200, 100, 50)  # updates between validations; the longest that gives at least ten is used
SHORTEST_INTERVAL: Final = 25
FAILED_VALIDATIONS: Final = 5  # the run stops after this many in a row
MAX_WARMUP_UPDATES: Final = 500
LENGTHS: Final = (
    "max_updates",
    "max_epochs",
    "max_minutes",
)  # if one of these options is given, length and patience do not depend on the data
LORA_LR: Final = 1e-3  # learning rate of adapters: five times the rate for full fine-tuning


@options_class
class FreezeOptions:
    freeze: tuple[str, ...] = opt(
        (),
        "parameters not to train, such as encoder.*",
        must_stay=True,
        group="Fine-tuning",
        metavar="PATTERN",
    )


@options_class
class LoraOptions:
    lora_rank: int = opt(
        0,
        "train only adapters of this rank; 8 is usual",
        group="Fine-tuning",
        minimum=0,
        maximum=MAX_LAYER_SIZE,
        must_stay=True,
    )
    lora_alpha: float = opt(
        16.0,
        "scale of adapters; their output is multiplied by this value divided by the rank",
        above=0,
        must_stay=True,
        group="Fine-tuning",
    )
    lora_targets: tuple[str, ...] = opt(
        (),
        "layers that get adapters, such as *attention* (default: all but the output layer)",
        must_stay=True,
        group="Fine-tuning",
        metavar="PATTERN",
    )

    @staticmethod
    def defaults(given: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """Defaults for adapters, which start at zero and need a higher learning rate than trained weights."""
        return values | {"lr": LORA_LR} if given.get("lora_rank") and "lr" in values else values

    def __post_init__(self) -> None:
        training: Any = self  # the complete class has all training options
        if self.lora_rank and training.init_from is None:
            raise ValueError(f"--lora-rank {self.lora_rank}: adapters need a trained model (add --init-from MODEL)")
        if self.lora_rank and (training.freeze or training.init_state != "none"):
            flag = "--freeze" if training.freeze else "--init-state"
            raise ValueError(
                f"{flag} and --lora-rank cannot be combined, because only new adapters are trained (drop {flag})"
            )
        if self.lora_targets and not self.lora_rank:
            raise ValueError("--lora-targets needs --lora-rank")


@options_class
class MovingAverageOptions:
    ema: float = opt(
        0.0,
        "decay of a moving average of the weights, which replaces them in checkpoints; 0.999 is usual, 0 disables it",
        group="Checkpoints",
        aliases=("ema-decay",),
        minimum=0,
        below=1,
        must_stay=True,
    )


@options_class
class DeepenOptions:
    deepen: bool = opt(
        False,
        "allow more layers than the --init-from model has; added layers initially leave outputs unchanged",
        group="Fine-tuning",
        must_stay=True,
        needs=("init_from",),
        excludes=("init_state", "lora_rank"),
    )


@options_class
class InitStateOptions:
    init_state: Literal["none", "optimizer", "schedule", "all"] = opt(
        "none",
        "training state to load besides the weights; schedule also loads the optimizer's state",
        group="Fine-tuning",
        must_stay=True,
        needs=("init_from",),
    )

    @staticmethod
    def defaults(given: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """No defaults for fine-tuning if the run continues the update count, because it resumes training."""
        return {} if given.get("init_state") in ("schedule", "all") else values


@options_class
class DataSizesOptions:
    """No options. With --init-from, the defaults of a run are fitted to the size of its data."""

    @staticmethod
    def defaults(given: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """Defaults for fine-tuning on this data, instead of the paper's defaults; see `nmt.cli.train.start_defaults`.

        A preset sets its own sizes, so these defaults do not apply to it.
        """
        if not given.get("init_from") or given.get("preset") or not given.get("data"):
            return values
        try:
            tokens, is_validated = _facts_of_data(Path(given["data"]))
        except (ArtefactError, LookupError, TypeError):
            return values  # the run itself reports what is wrong with its data
        size = MIN_BATCH_TOKENS
        while size < MAX_BATCH_TOKENS and size * UPDATES_PER_EPOCH < tokens:
            size *= 2
        per_epoch = -(-tokens // given.get("batch_tokens", size))
        updates = min(max(EPOCHS * per_epoch, MIN_UPDATES), MAX_UPDATES)
        length: dict[str, Any] = {"max_updates": updates, **({"patience": FAILED_VALIDATIONS} if is_validated else {})}
        planned = given.get("max_updates") or updates
        every = f"{next((n for n in INTERVALS if 10 * n <= planned), SHORTEST_INTERVAL)}u"
        return {
            **values,
            "batch_tokens": size,
            **({} if any(name in given for name in LENGTHS) else length),
            "schedule": "inverse-sqrt",
            "lr": 2e-4,
            "warmup_updates": max(1, min(planned // 10, MAX_WARMUP_UPDATES)),
            "valid_every": every,
            "save_every": every,
        }


def _facts_of_data(folder: Path) -> tuple[int, bool]:
    """The number of target tokens in the training pairs, including EOS, and whether there is a validation set."""
    from nmt.data.shards import DATA_KIND, REPORT_FILE  # these import numpy

    sets = {each["kind"]: each for each in reversed(Artefact(folder, DATA_KIND).json(REPORT_FILE)["sets"])}
    return sets["train"]["target"]["tokens"] + sets["train"]["kept"], "valid" in sets
