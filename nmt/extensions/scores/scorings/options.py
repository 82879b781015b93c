"""The options of scorings. Without torch, so that `--help` answers at once."""

from typing import Any, ClassVar

from nmt import opt, options_class


@options_class
class ContrastOptions:
    contrast: tuple[str, ...] = opt(
        (),
        "instead print how often --target has the higher score than the wrong translations in these files, a line for each of "
        "its lines, blank where there is none; a tie is wrong",
        excludes=("per_token",),
    )
    category: str | None = opt(
        None, "file with the category of each line, for an accuracy of each", needs=("contrast",)
    )

    def __post_init__(self) -> None:
        options: Any = self
        if self.contrast and "-" in (options.source, options.target, *self.contrast):
            raise ValueError("--contrast: reads files several times, and so not from stdin (leave - out)")


@options_class
class CalibrationOptions:
    calibrates: ClassVar[str] = "nmt score --calibrate"

    calibrate: bool = opt(
        False,
        "instead fit a temperature on these pairs, a development set (Guo et al., 2017), print how often the model is as right "
        "as it is sure, and keep the temperature in the model folder for confidences",
        excludes=("contrast", "per_token", "normalize"),
    )
