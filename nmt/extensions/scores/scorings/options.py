"""Options of the scorings. This module does not import torch, so that `--help` is fast."""

from typing import Any, ClassVar

from nmt import opt, options_class


@options_class
class ContrastOptions:
    contrast: tuple[str, ...] = opt(
        (),
        "wrong translations to compare with --target",
        group="Analysis",
        common=True,
        excludes=("per_token",),
        metavar="FILE",
    )
    category: str | None = opt(
        None,
        "file with one category per line; --contrast then also prints the accuracy per category",
        group="Analysis",
        needs=("contrast",),
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        options: Any = self
        if self.contrast and "-" in (options.source, options.target, *self.contrast):
            raise ValueError(
                "--contrast reads its files several times, so it cannot read stdin (replace - with a file)"
            )


@options_class
class CalibrationOptions:
    calibrates: ClassVar[str] = "nmt score --calibrate"

    calibrate: bool = opt(
        False,
        "calibrate the model's confidences on these pairs",
        group="Analysis",
        common=True,
        excludes=("contrast", "per_token", "normalize"),
    )
