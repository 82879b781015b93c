"""The figure of position encodings (Vaswani et al., 2017, section 3.5)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from nmt import register
from nmt.errors import UserError, quoted
from nmt.extensions.watch.figure import Figure, FigureRow, model_of
from nmt.extensions.watch.figures.options import PositionFigureOptions
from nmt.extensions.watch.pictures.figures import COLOURS, LINE_STYLES
from nmt.models.base import Model
from nmt.positions.base import PositionEncoding

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

DRAWN_DISTANCES: Final = 0.5  # share of the distances between positions with enough pairs for a mean


@register("figure", "position-encodings", PositionFigureOptions)
class PositionEncodings(Figure):
    """The vectors that a model adds to the embeddings of each position, and how similar those of two positions are."""

    title = "Position encodings"
    options: PositionFigureOptions

    def rows(self, names: Sequence[str]) -> list[FigureRow]:
        name = self.only(names)
        tables = encodings(model_of(name), self.options.positions, not Path(name).exists())
        if not tables:
            raise UserError(
                f"{quoted(name)}: the model adds no vectors for positions to its embeddings, or they are not trained yet "
                "(name a model with --positions sinusoidal, or a run with learned positions)"
            )
        return [
            {"side": side, "position": position, "dimension": dimension, "value": float(value)}
            for side, table in tables.items()
            for (position, dimension), value in np.ndenumerate(table.numpy())
        ]

    def draw(self, canvas: "Canvas", rows: Sequence[FigureRow]) -> None:
        sides = list(dict.fromkeys(row["side"] for row in rows))
        canvas.set_size_inches(11, 0.4 + 3.6 * len(sides))
        canvas.set_layout_engine("constrained")
        canvas.suptitle(self.title, fontweight="bold")
        grid = canvas.subplots(len(sides), 2, squeeze=False, width_ratios=(3, 2))
        for (left, right), side in zip(grid, sides, strict=True):
            values = np.array([row["value"] for row in rows if row["side"] == side])
            table = values.reshape(-1, 1 + max(row["dimension"] for row in rows))
            most = float(abs(table).max())
            image = left.imshow(table, "RdBu", vmin=-most, vmax=most, interpolation="none", aspect="auto")
            left.set(
                title=f"the vector of each position ({side})",
                xlabel="dimension of the vector",
                ylabel="position in the sentence",
            )
            canvas.colorbar(image, ax=left, label="value")
            right.plot(similarities(table), color=COLOURS[0], linestyle=LINE_STYLES[0])
            right.set(
                title="similarity of two positions",
                xlabel="distance between the positions, in tokens",
                ylabel="cosine (1: same direction)",
            )
            right.grid(alpha=0.3)


def encodings(model: Model, length: int, untrained: bool) -> dict[str, Tensor]:
    """The vectors of the first positions, (length, D), by side. Equal tables of two sides are one.

    untrained: whether to leave out vectors that training determines
    """
    tables: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, PositionEncoding) and not (untrained and any(True for _ in module.parameters())):
            with torch.inference_mode():
                table = module(0, length)
            side = name.removesuffix("_positions")
            if isinstance(table, Tensor):
                equal = next((other for other, known in tables.items() if torch.equal(known, table)), None)
                if equal is not None:
                    tables[f"{equal} and {side}"] = tables.pop(equal)
                else:
                    tables[side] = table.float()
    return tables


def similarities(table: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> list[float]:
    """The mean cosine of the vectors of two positions, by their distance from 0. table: (positions, D)"""
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    cosines = unit @ unit.T
    return [float(np.diagonal(cosines, k).mean()) for k in range(max(2, int(len(table) * DRAWN_DISTANCES)))]
