"""The options of starts, and the defaults that fine-tuning gives a run. Without torch, so that `--help` answers at once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nmt import opt, options_class
from nmt.artefact import Artefact
from nmt.errors import ArtefactError

MIN_BATCH_TOKENS, MAX_BATCH_TOKENS = 512, 4096  # target tokens per update
UPDATES_PER_EPOCH: Final = 100  # that the size of an update aims at
EPOCHS: Final = 10  # Luong and Manning (2015) fine-tune for 12, Freitag and Al-Onaizan (2016) for 6
MIN_UPDATES, MAX_UPDATES = 500, 20_000
INTERVALS: Final = (1000, 500, 200, 100, 50)  # updates between validations: the longest that makes at least ten of them
SHORTEST_INTERVAL: Final = 25
FAILED_VALIDATIONS: Final = 5  # in a row end the run
MAX_WARMUP_UPDATES: Final = 500
LENGTHS: Final = (
    "max_updates",
    "max_epochs",
    "max_minutes",
)  # if one is given, fine-tuning limits the length no further


@options_class
class InitFromOptions:
    init_from: str | None = opt(
        None,
        "model, run or checkpoint to start from",
        group="Fine-tuning",
        common=True,
        must_stay=True,
        metavar="MODEL",
    )

    @staticmethod
    def defaults(given: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """Sizes for the data of a fine-tuning, in place of those of the paper's training; see `nmt.cli.train.start_defaults`.

        A preset has sizes of its own, and then there are no others.
        """
        if not given.get("init_from") or given.get("preset") or not given.get("data"):
            return values
        try:
            tokens, is_validated = _facts_of_data(Path(given["data"]))
        except (ArtefactError, LookupError, TypeError):
            return values  # the run reports what is wrong with its data
        size = MIN_BATCH_TOKENS
        while size < MAX_BATCH_TOKENS and size * UPDATES_PER_EPOCH < tokens:
            size *= 2
        per_epoch = -(-tokens // given.get("batch_tokens", size))
        updates = min(max(EPOCHS * per_epoch, MIN_UPDATES), MAX_UPDATES)
        length: dict[str, Any] = {"max_updates": updates, **({"patience": FAILED_VALIDATIONS} if is_validated else {})}
        planned = given.get("max_updates", updates)
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
    """The target tokens of the training pairs of prepared data, EOS included; and whether there is a validation set."""
    from nmt.data.shards import DATA_KIND, REPORT_FILE  # these import numpy

    sets = {each["kind"]: each for each in reversed(Artefact(folder, DATA_KIND).json(REPORT_FILE)["sets"])}
    return sets["train"]["target"]["tokens"] + sets["train"]["kept"], "valid" in sets
