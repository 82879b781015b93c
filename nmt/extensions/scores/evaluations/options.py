"""Options of the evaluations. This module imports no slow packages."""

from typing import Any, Literal

from nmt import opt, options_class


@options_class
class SignificanceOptions:
    significance: Literal["none", "bootstrap", "randomization"] = opt(
        "none", "significance test against the first system", group="Significance", common=True
    )
    trials: int = opt(
        0,
        "number of resamples or shuffles for --significance; 0 uses sacreBLEU's default",
        group="Significance",
        minimum=0,
        maximum=1_000_000,
        needs=("significance",),
    )

    def __post_init__(self) -> None:
        options: Any = self
        if self.significance != "none" and (len(options.hypothesis) < 2 or options.paper):
            raise ValueError(
                "--significance needs two or more --hypothesis files and cannot be combined with --paper (add a second file, or "
                "drop --paper)"
            )


@options_class
class PaperOptions:
    paper: bool = opt(
        False, "compute BLEU under several definitions, such as the paper's, instead of --metrics", group="Metrics"
    )

    def __post_init__(self) -> None:
        from nmt.cli.evaluate import DEFAULT_METRICS
        from nmt.registry import shared_values

        options: Any = self
        if self.paper and (
            options.metrics != DEFAULT_METRICS or not shared_values("metric", self).keys() <= {"target_lang"}
        ):
            raise ValueError("--paper and --metrics cannot be combined (drop --metrics and its options)")
