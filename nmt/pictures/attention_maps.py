"""Attention weights of a sentence pair, with their tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size

from nmt.batch import flatten, make_batch
from nmt.device import device_of
from nmt.errors import UserError
from nmt.models.base import Model
from nmt.symbols import BOS, EOS, SYMBOLS
from nmt.text.pipeline import Pipeline

KINDS: Final = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
JOINERS: Final = "\u200c\u200d"  # not printable, but they shape the letters beside them (Persian, Indic scripts, emoji)


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of a model for a sentence pair.

    source: tokens, EOS included
    target: tokens, EOS included; the query of a token is the decoder's state that predicts it
    weights: by kind ("encoder", "decoder", "cross"), an array (layers, heads, queries, keys) whose rows sum to 1;
        a kind that the model lacks is absent
    alignment_layer: the layer of "cross" that aligns best, see Model
    Raises ValueError for weights of an unknown kind, or of another shape than the tokens have.
    """

    source: list[str]
    target: list[str]
    weights: Mapping[str, NDArray[np.float32]]
    alignment_layer: int = 0

    def __post_init__(self) -> None:
        if not self.weights.keys() & KINDS.keys() or self.weights.keys() - KINDS.keys():
            raise ValueError(
                f"weights of {', '.join(self.weights) or 'no kind'}; must be of some of {', '.join(KINDS)}"
            )
        for kind, weights in self.weights.items():
            sizes = tuple(map(len, self.labels(kind)))
            if weights.ndim != 4 or weights.shape[2:] != sizes or weights.size == 0:
                raise ValueError(f"{kind}: weights of shape {weights.shape}; must be (layers, heads, *{sizes})")

    def labels(self, kind: str) -> tuple[list[str], list[str]]:
        """The tokens of the queries and of the keys; the decoder's keys are its inputs, BOS and the previous tokens."""
        return {
            "encoder": (self.source, self.source),
            "decoder": (self.target, [SYMBOLS[BOS], *self.target[:-1]]),
            "cross": (self.target, self.source),
        }[kind]

    def first_shown(self, kind: str) -> int:
        """The layer to show first: of cross-attention the one that aligns best, else the last."""
        return self.alignment_layer if kind == "cross" else len(self.weights[kind]) - 1

    def mean_map(self, kind: str) -> tuple[str, NDArray[np.float32]]:
        """The name and weights (queries, keys) of the layer to show first, the mean of its heads."""
        num_layers, num_heads = self.weights[kind].shape[:2]
        layer, heads = self.first_shown(kind), f"mean of {num_heads} heads" if num_heads > 1 else "one head"
        weights: NDArray[np.float32] = self.weights[kind][layer].mean(0)
        return f"{KINDS[kind]}, layer {layer + 1} of {num_layers}, {heads}", weights


@torch.inference_mode()
def attention_maps(model: Model, pipeline: Pipeline, source: Sequence[int], target: Sequence[int]) -> AttentionMaps:
    """The attention of every layer and head over a source and its translation; an ensemble has one layer and head.

    source, target: ids without EOS, in the model's order
    Raises UserError for a model without attention.
    """
    weights = model.attentions(make_batch(flatten([source]), flatten([target])).to(device_of(model)))
    if not weights:
        raise UserError("--attention: the model has no attention to draw (leave it out)")
    return AttentionMaps(
        [pipeline.source.piece(token) for token in [*source, EOS]],
        [pipeline.target.piece(token) for token in [*target, EOS]],
        {kind: layers[:, 0].float().cpu().numpy() for kind, layers in weights.items()},
        model.alignment_layer,
    )


def visible_token(token: str, max_cells: int) -> str:
    """A token as a person may safely see it: control characters escaped, cut at `max_cells` cells of a terminal."""
    text = "".join(c if c.isprintable() or c in JOINERS else c.encode("unicode_escape").decode() for c in token)
    return text if cell_len(text) <= max_cells else set_cell_size(text, max_cells - 1) + "…"
