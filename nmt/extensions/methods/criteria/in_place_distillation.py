"""In-place distillation: trains one network at all depths. The full network and a shallower one teach each other.

This follows Miao et al. (2023), "Exploring All-In-One Knowledge Distillation Framework for Neural Machine Translation", but with
one student per update and the symmetric divergence of R-Drop.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from nmt import UserError, register
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext
from nmt.extensions.methods.criteria.options import InPlaceDistillationOptions
from nmt.extensions.methods.criteria.r_drop import RDrop
from nmt.models.base import Model


@contextmanager
def sub_network(model: Model, encoder: int, decoder: int) -> Iterator[None]:
    """A context in which passes use only the first layers of each stack. The model must have `depths`."""
    whole, model.depths = model.depths, (encoder, decoder)
    try:
        yield
    finally:
        model.depths = whole


@register("criterion", "in-place-distillation", InPlaceDistillationOptions)
class InPlaceDistillation(RDrop):
    """R-Drop with a second pass through only the first layers, so that the model can be exported at any depth."""

    needs_dropout: ClassVar[bool] = False

    def __init__(self, options: InPlaceDistillationOptions, context: CriterionContext) -> None:
        super().__init__(options, context)
        self.context, self.least = context, (options.min_encoder_layers, options.min_decoder_layers)

    def passes(self, model: Model, batch: Batch) -> Tensor:
        """See RDrop. The second pass uses a shallower network, which changes at each update."""
        depths = self._depths(model)
        first = model(batch).features
        with sub_network(model, *depths):
            return torch.cat([first, model(batch).features])

    def training_flops(self, model: Model, source: Tensor, target: Tensor) -> int:
        """See Criterion. The sum of the FLOPs of the full network and the shallower one."""
        whole = model.training_flops(source, target)
        with sub_network(model, *self._depths(model)):
            return whole + model.training_flops(source, target)

    def _depths(self, model: Model) -> tuple[int, int]:
        """The depths of the shallower encoder and decoder, determined by options, seed and update; for update 0, the deepest."""
        if model.depths is None:
            raise UserError(
                "--criterion in-place-distillation needs a model with removable layers (use --model transformer)"
            )
        if any(least > depth for least, depth in zip(self.least, model.depths, strict=True)):
            flags = f"--min-encoder-layers {self.least[0]} --min-decoder-layers {self.least[1]}"
            raise UserError(
                f"{flags}: the model has only {model.depths[0]} encoder and {model.depths[1]} decoder layers (use smaller values)"
            )
        encoders, decoders = (range(least, depth + 1) for least, depth in zip(self.least, model.depths, strict=True))
        choices = [depths for depths in product(encoders, decoders) if depths != model.depths]
        if not self.context.update and choices:  # update 0 is a memory probe
            return max(choices, key=sum)
        random = np.random.Generator(np.random.Philox(key=[self.context.seed, self.context.update]))
        return choices[int(random.integers(len(choices)))] if choices else model.depths
