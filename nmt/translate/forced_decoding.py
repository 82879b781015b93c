"""A second reading of what was found: how sure a Scorer is of each word, and where it looks when it says it.

Every Scorer can be read so, one of a plug-in or an ensemble too, because it is led step by step through the words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.batch import flatten, make_batch, pad_rows
from nmt.errors import UserError
from nmt.models.base import Model, Scorer, prepare
from nmt.pictures.attention_maps import AttentionMaps
from nmt.symbols import BOS, EOS
from nmt.text.pipeline import Pipeline
from nmt.translate.ensemble import Ensemble


@dataclass(frozen=True)
class ForcedDecoding:
    """Of one translation.

    log_probs: nats of each token and of EOS
    weights: (tokens + EOS, source tokens + EOS) where each looked; None for a Scorer without attention
    """

    log_probs: list[float]
    weights: NDArray[np.float32] | None

    def in_order(self, places: Sequence[int]) -> "ForcedDecoding":
        """The same of the tokens at these places, EOS's among them."""
        weights = None if self.weights is None else self.weights[list(places)]
        return ForcedDecoding([self.log_probs[place] for place in places], weights)


@torch.inference_mode()
def read(
    scorer: Scorer, device: torch.device, sources: Sequence[NDArray[Any]], targets: Sequence[Sequence[int]]
) -> list[ForcedDecoding]:
    """Each source with its target, both ids without EOS."""
    source = pad_rows(sources).to(device)
    wanted = pad_rows(targets).to(device)  # N T
    scorer = prepare(scorer)
    state = scorer.start(source)
    state.watched = True
    tokens, log_probs, weights = torch.full((len(source),), BOS, device=device), [], []
    for step in range(wanted.shape[1]):
        found, state = scorer.step(tokens, state)
        tokens = wanted[:, step]
        log_probs.append(found.gather(1, tokens[:, None]).squeeze(1))
        if state.attention is not None:
            weights.append(state.attention)
    rows = torch.stack(log_probs, 1).cpu()
    seen = torch.stack(weights, 1).float().cpu().numpy() if weights else None  # N T S
    return [
        ForcedDecoding(
            rows[number, : len(target) + 1].tolist(),
            None if seen is None else seen[number, : len(target) + 1, : len(one) + 1],
        )
        for number, (one, target) in enumerate(zip(sources, targets, strict=True))
    ]


@torch.inference_mode()
def attended(
    model: Model | Ensemble, pipeline: Pipeline, source: Sequence[int], target: Sequence[int]
) -> AttentionMaps:
    """Where every layer and head of a model looks, over a source and its translation, both ids without EOS.

    Several models look as one, with one layer and head. Raises UserError where there is no attention.
    """
    device = next(model.parameters()).device
    batch = make_batch(flatten([source]), flatten([target])).to(device)
    found: dict[str, Tensor] = model.attentions(batch)
    if not found:
        raise UserError("the model has no attention that could be drawn")
    return AttentionMaps(
        [pipeline.source.piece(token) for token in [*source, EOS]],
        [pipeline.target.piece(token) for token in [*target, EOS]],
        {kind: weights[:, 0].float().cpu().numpy() for kind, weights in found.items()},
        model.alignment_layer,
    )
