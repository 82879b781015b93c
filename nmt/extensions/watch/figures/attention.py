"""Figures of attention: the maps of a layer's heads, what each head looks at on average, and the entropy of each head."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt import register
from nmt.data.encode import LengthFilter
from nmt.data.shards import PreparedData
from nmt.errors import InputError, UserError, quoted
from nmt.extensions.watch.figure import Figure, FigureRow, open_model, settings_of
from nmt.extensions.watch.figures.options import AttentionFigureOptions
from nmt.extensions.watch.pictures.attention import KINDS, AttentionMaps, attention_maps, visible_token
from nmt.extensions.watch.pictures.figures import POINTS_PER_INCH
from nmt.log import log
from nmt.runs import SETTINGS
from nmt.text.context import DocumentLines
from nmt.text.corpus import misaligned, read_lines
from nmt.translate.pair_scores import encode_pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Share = Callable[[NDArray[np.int64], NDArray[np.int64], int, int], Any]  # see SHARES

MAP_COLOURS: Final = "Blues"
ENTROPY_COLOURS: Final = "cividis"  # colour-blind people see the same order of brightness
MAX_CELLS: Final = 14  # maximum width of a token, in characters
MAPS_PER_LINE: Final = 4  # maps next to each other
TOKEN_POINTS, HEAD_POINTS, ENTROPY_POINTS, PANEL_POINTS = 13, 15, 34, 300

# What a self-attention head looks at, as functions of query i and key j (arrays that broadcast) and the numbers of queries and
# keys. Of several that fit, the first counts. A decoder's key 0 is the start symbol; an encoder's last key is the end symbol.
SELF_SHARES: Final[dict[str, Share]] = {
    "the token itself": lambda i, j, T, S: i == j,
    "the token before": lambda i, j, T, S: j == i - 1,
    "the token after": lambda i, j, T, S: j == i + 1,
}
SHARES: Final[dict[str, dict[str, Share]]] = {
    "encoder": SELF_SHARES | {"the end symbol": lambda i, j, T, S: j == S - 1},
    "decoder": SELF_SHARES | {"the start symbol": lambda i, j, T, S: j == 0},
    "cross": {
        "the end symbol": lambda i, j, T, S: j == S - 1,
        "the same place": lambda i, j, T, S: abs(j - i * S / T) <= 1,
        "before that place": lambda i, j, T, S: j < i * S / T,
        "after that place": lambda i, j, T, S: j > i * S / T,
    },
}
OTHERS: Final = "other tokens"
SHARE_COLOURS: Final = {  # by Okabe and Ito, and greys
    "the token itself": "#0072b2",
    "the token before": "#d55e00",
    "the token after": "#009e73",
    "the start symbol": "#f0e442",
    "the end symbol": "#cc79a7",
    "the same place": "#e69f00",
    "before that place": "#56b4e9",
    "after that place": "#555555",
    OTHERS: "#bbbbbb",
}


class AttentionFigure(Figure):
    """A figure of the attention of a model to sentence pairs."""

    options: AttentionFigureOptions

    def maps(self, names: Sequence[str], first: int, count: int) -> Iterator[AttentionMaps]:
        """The attention to up to `count` sentence pairs. first: number of the first pair, from 1

        Raises UserError for a model without attention, or if there are no pairs.
        """
        name = self.only(names)
        loaded = open_model(name)
        if not loaded.model.has_attention:
            which = f"{quoted(loaded.folder)}: a {loaded.facts.model} has no attention to draw"
            raise UserError(f"{which} (name a model with attention, such as a transformer)")
        sources, targets = (side[first - 1 :][:count] for side in self._texts(name))
        if not sources:
            raise InputError(f"there is no sentence pair {first} (choose a smaller --drawn-pair)")
        limits, document = LengthFilter(max_length=10**9), DocumentLines(loaded.pipeline.context)
        pairs = zip(
            *(side.rows() for side in encode_pairs(loaded.pipeline, sources, targets, limits, document)), strict=True
        )
        with log.progress("reading attention", len(sources), "pairs") as bar:
            for source, target in pairs:
                yield attention_maps(loaded.model, loaded.pipeline, source.tolist(), target.tolist())
                bar.advance()

    def _texts(self, name: str) -> tuple[Sequence[str], Sequence[str]]:
        """The sources and targets of the sentence pairs: the given files, or the validation set of the run's data."""
        source, target = self.options.source, self.options.target
        if source is not None and target is not None:
            sources, targets = read_lines(Path(source)), read_lines(Path(target))
            if len(sources) != len(targets):
                raise misaligned(Path(source), Path(target), len(sources), len(targets))
            return sources, targets
        needed = f"--figure {self.part_name} needs sentence pairs: use --source and --target"
        if not (Path(name) / SETTINGS).is_file():
            raise UserError(f"{quoted(name)} is not a run, so it has no validation set; {needed}")
        data = Path(settings_of(name)["data"])
        valid = next(iter(PreparedData(data).valid.values()), None) if data.is_dir() else None
        if valid is None:
            raise UserError(f"the data of the run, {quoted(data)}, has no validation set or is not there; {needed}")
        return valid.source_lines, valid.target_lines


@register("figure", "attention-maps", AttentionFigureOptions)
class HeadMaps(AttentionFigure):
    """What each head of a layer looks at in one sentence pair: a map of its weights, with the tokens.

    Rows are queries, columns are keys. In cross-attention and in the decoder, a query is the token that is predicted.
    """

    title = "What each attention head looks at"

    def rows(self, names: Sequence[str]) -> list[FigureRow]:
        [maps], kind = self.maps(names, self.options.drawn_pair, 1), self.options.attention
        weights = _of_kind(maps, kind)
        layer = len(weights) if self.options.drawn_layer is None else self.options.drawn_layer
        if layer > len(weights):
            raise UserError(f"--drawn-layer {layer}: the model has {len(weights)} layers of {KINDS[kind]}")
        queries, keys = ([visible_token(token, MAX_CELLS).strip() for token in side] for side in maps.labels(kind))
        return [
            {
                "attention": KINDS[kind],
                "layer": layer,
                "head": head + 1,
                "query": i + 1,
                "query_token": query,
                "key": j + 1,
                "key_token": key,
                "weight": float(weights[layer - 1, head, i, j]),
            }
            for head in range(weights.shape[1])
            for i, query in enumerate(queries)
            for j, key in enumerate(keys)
        ]

    def draw(self, canvas: "Canvas", rows: Sequence[FigureRow]) -> None:
        H, T, S = (rows[-1][name] for name in ("head", "query", "key"))
        queries, keys = [row["query_token"] for row in rows[: T * S : S]], [row["key_token"] for row in rows[:S]]
        weights = np.array([row["weight"] for row in rows]).reshape(H, T, S)
        columns = min(H, MAPS_PER_LINE)
        lines = -(-H // columns)
        labels = TOKEN_POINTS * 6  # space for the tokens
        width = columns * (S * TOKEN_POINTS + 30) + labels + 60
        height = lines * (T * TOKEN_POINTS + 30) + labels + 60
        canvas.set_size_inches(width / POINTS_PER_INCH, height / POINTS_PER_INCH)
        canvas.set_layout_engine("constrained")
        canvas.suptitle(
            f"{_title(rows[0]['attention'])}, layer {rows[0]['layer']}: what each head looks at", fontweight="bold"
        )
        grid = canvas.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[H:]:
            axes.set_visible(False)
        for head, axes in enumerate(grid.flat[:H]):
            image = axes.imshow(weights[head], MAP_COLOURS, vmin=0, vmax=1, interpolation="none", aspect="auto")
            axes.set_title(f"head {head + 1}", fontsize=10)
            axes.set_xticks(range(S), keys, rotation=90, fontsize=9)
            axes.set_yticks(range(T), queries, fontsize=9)
            axes.tick_params(length=0, labelbottom=head + columns >= H, labelleft=head % columns == 0)
        canvas.supxlabel("attended token", fontsize=10)
        canvas.supylabel("token" if rows[0]["attention"] == KINDS["encoder"] else "predicted token", fontsize=10)
        canvas.colorbar(image, ax=grid, label="attention weight", shrink=min(1.0, 2 / lines), aspect=30)


@register("figure", "attention-focus", AttentionFigureOptions)
class HeadFocus(AttentionFigure):
    """What each attention head looks at on average: the shares of its weights, over many sentence pairs.

    In self-attention, a share of the weight goes to the token itself, its neighbours, the start or end symbol, or other tokens.
    In cross-attention, it goes to the end symbol, to about the same place of the sentence, or to tokens before or after it.
    """

    title = "What each attention head looks at, on average"

    def rows(self, names: Sequence[str]) -> list[FigureRow]:
        sums: dict[str, dict[str, Any]] = {}
        counts: dict[str, int] = {}
        for maps in self.maps(names, 1, self.options.pairs):
            for kind, weights in maps.weights.items():
                shares = focus(kind, weights)
                own = sums.setdefault(kind, dict.fromkeys(shares, 0.0))
                for name, share in shares.items():
                    own[name] += share
                counts[kind] = counts.get(kind, 0) + weights.shape[2]
        return [
            {
                "attention": KINDS[kind],
                "layer": layer + 1,
                "head": head + 1,
                "looks_at": name,
                "share": float(total[layer, head] / counts[kind]),
            }
            for kind, shares in sums.items()
            for layer, head in np.ndindex(*next(iter(shares.values())).shape)
            for name, total in shares.items()
        ]

    def draw(self, canvas: "Canvas", rows: Sequence[FigureRow]) -> None:
        kinds = list(dict.fromkeys(row["attention"] for row in rows))
        by_kind = {kind: [row for row in rows if row["attention"] == kind] for kind in kinds}
        names = {kind: list(dict.fromkeys((row["layer"], row["head"]) for row in own)) for kind, own in by_kind.items()}
        width, height = len(kinds) * PANEL_POINTS + 20, HEAD_POINTS * max(map(len, names.values())) + 130
        canvas.set_size_inches(width / POINTS_PER_INCH, height / POINTS_PER_INCH)
        canvas.set_layout_engine("constrained")
        canvas.suptitle(self.title, fontweight="bold")
        bars = {}
        for axes, kind in zip(canvas.subplots(1, len(kinds), squeeze=False).flat, kinds, strict=True):
            starts = np.zeros(len(names[kind]))
            for place in dict.fromkeys(row["looks_at"] for row in by_kind[kind]):
                shares = np.array([100 * row["share"] for row in by_kind[kind] if row["looks_at"] == place])
                colour = SHARE_COLOURS[place]
                bars[place] = axes.barh(
                    range(len(shares)), shares, left=starts, color=colour, edgecolor="white", linewidth=0.5
                )
                starts += shares
            axes.set_yticks(
                range(len(starts)), [f"layer {layer}, head {head}" for layer, head in names[kind]], fontsize=9
            )
            axes.set_title(kind, fontsize=11)
            axes.set(xlabel="share of the attention in %", xlim=(0, 100))
            axes.invert_yaxis()
            axes.margins(y=0.01)
            axes.spines[["top", "right"]].set_visible(False)
        canvas.legend(
            list(bars.values()),
            list(bars),
            loc="outside lower center",
            ncols=min(len(bars), 2 * len(kinds)),
            fontsize=9,
            frameon=False,
        )


@register("figure", "attention-entropy", AttentionFigureOptions)
class HeadEntropy(AttentionFigure):
    """The entropy of each attention head in nats: the mean over the queries of many sentence pairs.

    0 means that a head looks at a single token, and the logarithm of the number of visible tokens that it looks at all alike.
    """

    title = "Entropy of each attention head"

    def rows(self, names: Sequence[str]) -> list[FigureRow]:
        sums: dict[str, list[Any]] = {}
        for maps in self.maps(names, 1, self.options.pairs):
            for kind, weights in maps.weights.items():
                numbers = entropies(weights).sum(-1), uniform_entropies(weights).sum(-1), weights.shape[2]
                before = sums.get(kind, [0.0, 0.0, 0])
                sums[kind] = [old + new for old, new in zip(before, numbers, strict=True)]
        return [
            {
                "attention": KINDS[kind],
                "layer": layer + 1,
                "head": head + 1,
                "entropy_nats": float(entropy[layer, head] / count),
                "uniform_nats": float(uniform[layer, head] / count),
            }
            for kind, (entropy, uniform, count) in sums.items()
            for layer, head in np.ndindex(*entropy.shape)
        ]

    def draw(self, canvas: "Canvas", rows: Sequence[FigureRow]) -> None:
        kinds = list(dict.fromkeys(row["attention"] for row in rows))
        L, H = (max(row[name] for row in rows) for name in ("layer", "head"))
        panel = max(PANEL_POINTS - 110, H * ENTROPY_POINTS)
        canvas.set_size_inches(
            (len(kinds) * (panel + 45) + 100) / POINTS_PER_INCH, (L * ENTROPY_POINTS + 125) / POINTS_PER_INCH
        )
        canvas.set_layout_engine("constrained")
        canvas.suptitle(f"{self.title}, in nats", fontweight="bold")
        highest, grid = max(row["uniform_nats"] for row in rows), canvas.subplots(1, len(kinds), squeeze=False)
        for axes, kind in zip(grid.flat, kinds, strict=True):
            own = [row for row in rows if row["attention"] == kind]
            values = np.array([row["entropy_nats"] for row in own]).reshape(own[-1]["layer"], -1)
            uniform = np.mean([row["uniform_nats"] for row in own])
            image = axes.imshow(values, ENTROPY_COLOURS, vmin=0, vmax=highest, interpolation="none", aspect="auto")
            for (layer, head), value in np.ndenumerate(values):
                colour = "black" if value > highest / 2 else "white"
                axes.text(head, layer, f"{value:.2f}", ha="center", va="center", fontsize=9, color=colour)
            axes.set_title(f"{kind}\n(uniform: {uniform:.2f})", fontsize=10)
            axes.set(xlabel="head", ylabel="layer")
            axes.set_xticks(range(values.shape[1]), range(1, values.shape[1] + 1))
            axes.set_yticks(range(values.shape[0]), range(1, values.shape[0] + 1))
            axes.tick_params(length=0)
        canvas.colorbar(image, ax=grid, label="0: one token   \N{RIGHTWARDS ARROW}   all tokens alike")


def _of_kind(maps: AttentionMaps, kind: str) -> NDArray[np.float32]:
    """The weights (L, H, T, S) of a kind of attention. Raises UserError if the model does not have it."""
    if kind not in maps.weights:
        known = " or ".join(maps.weights)
        raise UserError(f"--attention {kind}: the model has no {KINDS[kind]} with weights (use {known})")
    return maps.weights[kind]


def _title(text: str) -> str:
    return text[0].upper() + text[1:]


def focus(kind: str, weights: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
    """The weight that goes to each place, summed over queries: (L, H) each. weights: (L, H, T, S)"""
    T, S = weights.shape[2:]
    i, j = np.arange(T)[:, None], np.arange(S)[None]
    rest, sums = np.ones((T, S), dtype=bool), {}
    for name, fits in SHARES[kind].items():
        chosen = rest & fits(i, j, T, S)
        rest &= ~chosen
        sums[name] = (weights * chosen).sum((2, 3), dtype=np.float64)
    if kind != "cross":
        sums[OTHERS] = (weights * rest).sum((2, 3), dtype=np.float64)
    return {name: total for name, total in sums.items() if (kind, name) != ("decoder", "the token after")}


def entropies(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """The entropy of each row of weights (..., S) in nats: (...)"""
    exact = weights.astype(np.float64)
    return np.asarray(-(exact * np.log(np.where(exact > 0, exact, 1.0))).sum(-1))


def uniform_entropies(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """The entropy in nats if all visible keys had the same weight: (...). Keys of weight 0 are masked. weights: (..., S)"""
    return np.asarray(np.log(np.maximum((weights > 0).sum(-1), 1)))
