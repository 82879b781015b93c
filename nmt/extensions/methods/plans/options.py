"""Options of the plans in this extension. This module does not import torch, so that `--help` is fast."""

from typing import ClassVar

from nmt import opt, options_class
from nmt.extensions.methods.stages import parse_stages


@options_class
class MixtureOptions:
    stands_for: ClassVar[str] = "corpus"

    data_weights: tuple[str, ...] = opt(
        (),
        "proportions for mixing named corpora, such as `news=2 web=1` or `temperature=5`. "
        "`news=1 until=20000u web=1` switches after 20,000 updates",
        group="Data",
        must_stay=True,
        metavar="NAME=WEIGHT",
    )

    def is_active(self) -> bool:
        """Whether the option names at least one stage."""
        return bool(parse_stages(self.data_weights))

    def __post_init__(self) -> None:
        parse_stages(self.data_weights)
