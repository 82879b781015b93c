"""The options of the plans of this extension. Without torch, so that `--help` answers at once."""

from typing import ClassVar

from nmt import opt, options_class
from nmt.extensions.methods.stages import parse_stages


@options_class
class MixtureOptions:
    stands_for: ClassVar[str] = "corpus"

    data_weights: tuple[str, ...] = opt(
        (),
        "mix the corpora of the data (nmt prepare --train NAME=PREFIX): `news=2 web=1`, two of three pairs from news; "
        "`temperature=5`, sizes to the power of 1/5; `news=1 until=20000u web=1`: stages, by updates of the run (u) or epochs "
        "(e), which a rollback does not move",
        must_stay=True,
    )

    def is_active(self) -> bool:
        """Whether a stage is given."""
        return bool(parse_stages(self.data_weights))

    def __post_init__(self) -> None:
        parse_stages(self.data_weights)
