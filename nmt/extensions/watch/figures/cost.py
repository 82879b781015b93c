"""The figure of a network's cost by layer, and of its growth with the length of sentences (Vaswani et al., 2017, Table 1)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from torch import nn

from nmt import register
from nmt.batch import dummy_batch
from nmt.extensions.watch.figure import Figure, FigureRow, model_of
from nmt.extensions.watch.figures.options import CostFigureOptions
from nmt.extensions.watch.pictures.figures import COLOURS, LINE_STYLES, POINTS_PER_INCH
from nmt.models.base import Model
from nmt.nn.cost import LENGTH_STRIDE, MIN_MEASURED_LENGTH, counting_flops

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

LONGEST: Final = 512  # last length of the curves
LAYER_POINTS: Final = 16
REST: Final = "other"
LayerPart = tuple[str, str]  # a layer and a part of it


@register("figure", "layer-costs", CostFigureOptions)
class LayerCosts(Figure):
    """The floating-point operations of each layer for a sentence pair, and how those of each part grow with its length.

    Both sentences have the same number of tokens, n. Operations are counted for three lengths and interpolated by
    a n^2 + b n + c, which is exact if the layers cost as much as in Table 1.
    """

    title = "Cost by layer"
    options: CostFigureOptions

    def rows(self, names: Sequence[str]) -> list[FigureRow]:
        n = self.options.length
        costs = growth(model_of(self.only(names), self.options.entries))
        return [
            {
                "layer": layer,
                "part": part,
                "n": n,
                "mflop": (a * n * n + b * n + c) / 1e6,
                "flops_per_n2": a,
                "flops_per_n": b,
                "flops_fixed": c,
            }
            for (layer, part), (a, b, c) in costs.items()
        ]

    def draw(self, canvas: "Canvas", rows: Sequence[FigureRow]) -> None:
        layers, parts = (list(dict.fromkeys(row[name] for row in rows)) for name in ("layer", "part"))
        styles = {
            part: (COLOURS[i % len(COLOURS)], LINE_STYLES[i // len(COLOURS) % len(LINE_STYLES)])
            for i, part in enumerate(parts)
        }
        canvas.set_size_inches(11, max(4.4, (LAYER_POINTS * len(layers) + 90) / POINTS_PER_INCH))
        canvas.set_layout_engine("constrained")
        left, right = canvas.subplots(1, 2)
        n, total = rows[0]["n"], sum(row["mflop"] for row in rows)
        _draw_bars(left, rows, layers, styles)
        left.set_title(
            f"Cost by layer: {total:,.4g} MFLOP\nfor a sentence pair of {n} + {n} tokens", loc="left", fontweight="bold"
        )
        lengths = np.unique(np.geomspace(1, LONGEST, 200).round())
        for part in parts:
            terms = np.array(
                [[row[f"flops_{name}"] for name in ("per_n2", "per_n", "fixed")] for row in rows if row["part"] == part]
            )
            a, b, c = terms.sum(0)
            right.plot(
                lengths,
                (a * lengths + b + c / lengths) / 1e6,
                color=styles[part][0],
                linestyle=styles[part][1],
                label=f" {part}",
            )
        right.set(xlabel="sentence length n, in tokens", ylabel="MFLOP per token", xlim=(0, LONGEST))
        right.set_ylim(bottom=0)
        right.set_title(
            "Cost per token by sentence length\n(a slope: attention reads all n tokens)", loc="left", fontweight="bold"
        )
        right.grid(alpha=0.3)
        right.legend()


def _draw_bars(axes: Any, rows: Sequence[FigureRow], layers: Sequence[str], styles: dict[str, tuple[str, str]]) -> None:
    """Draw a bar for each layer, with a segment for each part."""
    starts = dict.fromkeys(layers, 0.0)
    for part, (colour, style) in styles.items():
        own = {row["layer"]: row["mflop"] for row in rows if row["part"] == part}
        hatch = "" if style == LINE_STYLES[0] else "//"
        places = [layers.index(layer) for layer in own]
        axes.barh(
            places,
            list(own.values()),
            left=[starts[layer] for layer in own],
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=f" {part}",
        )
        for layer, cost in own.items():
            starts[layer] += cost
    axes.set_yticks(range(len(layers)), layers)
    axes.invert_yaxis()
    axes.set_xlabel("MFLOP (10^6 operations, forward pass)")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def growth(model: Model) -> dict[LayerPart, tuple[float, float, float]]:
    """The factors (a, b, c) of each part's cost a n^2 + b n + c in FLOPs, for pairs of n + n tokens."""
    lengths = [MIN_MEASURED_LENGTH + i * LENGTH_STRIDE for i in range(3)]
    measured = [flops_by_part(model, n) for n in lengths]
    places = dict.fromkeys(place for costs in measured for place in costs)
    found = {}
    for place in places:
        x, y, z = (costs.get(place, 0) for costs in measured)
        a = (z - 2 * y + x) / (2 * LENGTH_STRIDE**2)
        b = (y - x) / LENGTH_STRIDE - a * (lengths[0] + lengths[1])
        found[place] = a, b, x - a * lengths[0] ** 2 - b * lengths[0]
    return found


def flops_by_part(model: Model, n: int) -> dict[LayerPart, int]:
    """The FLOPs of each part of each layer for a pair of n + n tokens, in the order of the forward pass."""
    names = {module: name for name, module in model.named_modules()}
    batch, costs, running = dummy_batch(1, n, n), dict[LayerPart, int](), [""]

    with counting_flops() as counter:
        seen = 0

        def account() -> None:
            """Add the operations since the last call to the innermost running module."""
            nonlocal seen
            total = counter.get_total_flops()
            if total > seen:
                place = layer_part(running[-1])
                costs[place] = costs.get(place, 0) + total - seen
            seen = total

        def before(module: nn.Module, _: Any) -> None:
            account()
            running.append(names.get(module, running[-1]))

        def after(module: nn.Module, _: Any, __: Any) -> None:
            account()
            running.pop()

        hooks = [
            hook
            for module in names
            for hook in (module.register_forward_pre_hook(before), module.register_forward_hook(after))
        ]
        try:
            model.output(model(batch).features)
            account()
        finally:
            for hook in hooks:
                hook.remove()
    return costs


def layer_part(name: str) -> LayerPart:
    """The layer and the part of a module, by its name: `encoder.0.self_attention.output` is in "encoder 1", "self-attention"."""
    words = name.split(".")
    is_layer = len(words) > 1 and words[1].isdecimal()
    layer = f"{words[0]} {int(words[1]) + 1}" if is_layer else words[0] or REST
    rest = words[2:] if is_layer else words[1:]
    return layer.replace("_", "-"), (rest[0] if rest else words[0] or REST).replace("_", "-")
