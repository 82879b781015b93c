"""The options of evaluations. They import no package that is slow."""

from typing import Any, Literal

from nmt import opt, options_class


@options_class
class SignificanceOptions:
    significance: Literal["none", "bootstrap", "randomization"] = opt(
        "none", "test each hypothesis against the first: sacreBLEU's paired bootstrap or approximate randomization"
    )
    trials: int = opt(
        0,
        "resamples or shuffles of --significance; 0 is sacreBLEU's default: 1000 for bootstrap, else 10000",
        minimum=0,
        maximum=1_000_000,
        needs=("significance",),
    )

    def __post_init__(self) -> None:
        options: Any = self
        if self.significance != "none" and (len(options.hypothesis) < 2 or options.paper):
            raise ValueError(
                "--significance: compares two or more files of --hypothesis by --metrics, not by --paper (give a second file)"
            )


@options_class
class PaperOptions:
    paper: bool = opt(False, "instead of --metrics: BLEU under each definition, the paper's own among them")

    def __post_init__(self) -> None:
        from nmt.cli.evaluate import DEFAULT_METRICS
        from nmt.registry import shared_values

        options: Any = self
        if self.paper and (
            options.metrics != DEFAULT_METRICS or not shared_values("metric", self).keys() <= {"target_lang"}
        ):
            raise ValueError("--paper: has its own definitions of BLEU (leave --metrics and their options out)")
