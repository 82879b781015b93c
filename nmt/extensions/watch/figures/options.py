"""The options of figures. Imports no torch, so that `--help` is fast."""

from typing import Literal

from nmt import opt, options_class


@options_class
class AttentionFigureOptions:
    source: str | None = opt(
        None,
        "source sentences, for attention figures (default: the run's validation set)",
        aliases=("s",),
        needs=("target",),
        group="Figures",
        metavar="FILE",
    )
    target: str | None = opt(
        None,
        "translations of --source, such as its references",
        aliases=("t",),
        needs=("source",),
        group="Figures",
        metavar="FILE",
    )
    pairs: int = opt(
        100, "number of sentence pairs that attention-focus and attention-entropy average", minimum=1, group="Figures"
    )
    drawn_pair: int = opt(
        1, "number of the sentence pair that attention-maps draws, from 1", minimum=1, group="Figures"
    )
    attention: Literal["encoder", "decoder", "cross"] = opt(
        "cross", "attention that attention-maps draws", group="Figures"
    )
    drawn_layer: int | None = opt(
        None, "layer that attention-maps draws, from 1 (default: the last one)", minimum=1, group="Figures"
    )


@options_class
class PositionFigureOptions:
    positions: int = opt(
        100, "number of positions that position-encodings draws", minimum=2, maximum=10_000, group="Figures"
    )


@options_class
class CostFigureOptions:
    length: int = opt(28, "tokens per sentence, for layer-costs", minimum=1, maximum=100_000, group="Figures")
    entries: int = opt(
        37_000, "size of a preset's vocabulary, for layer-costs", minimum=4, maximum=10_000_000, group="Figures"
    )


@options_class
class ScheduleFigureOptions:
    updates: int | None = opt(
        None, "last update that lr-schedule draws (default: that of the run or preset)", minimum=2, group="Figures"
    )


@options_class
class EffectFigureOptions:
    compared_setting: str = opt(
        "label_smoothing", "setting that differs between the runs, for setting-effect", group="Figures"
    )
