"""The options of scorings. Without torch, so that `--help` answers at once."""

from typing import Any

from nmt import opt, options_class


@options_class
class ContrastOptions:
    contrast: tuple[str, ...] = opt(
        (),
        "instead print how often --target has the higher score than the wrong translations in these files, a line for each of "
        "its lines, blank where there is none; a tie is wrong",
    )
    category: str | None = opt(None, "with --contrast: file with the category of each line, for an accuracy of each")

    def __post_init__(self) -> None:
        options: Any = self
        if self.contrast and (options.per_token or "-" in (options.source, options.target, *self.contrast)):
            raise ValueError(
                "--contrast: reads files several times, and prints no scores (leave - and --per-token out)"
            )
        if self.category is not None and not self.contrast:
            raise ValueError("--category: has no effect without --contrast (give it too)")


@options_class
class CalibrationOptions:
    calibrate: bool = opt(
        False,
        "instead fit a temperature on these pairs, a development set (Guo et al., 2017), print how often the model is as right "
        "as it is sure, and keep the temperature in the model folder for confidences",
    )

    def __post_init__(self) -> None:
        options: Any = self
        if self.calibrate and (options.contrast or options.per_token or options.normalize):
            raise ValueError("--calibrate: prints no scores (leave --contrast, --per-token and --normalize out)")
