"""A noise: replaces some source tokens, different ones in each epoch, with random tokens (SwitchOut, Wang et al., 2018).

    nmt train --plugin my_noise.py --my-noise 0.1 --data DATA --output RUN
    nmt status RUN

Dimensions: B sentences, S source positions.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nmt import opt, options_class, register
from nmt.batch import Batch
from nmt.noises.base import Noise, NoiseContext
from nmt.symbols import SYMBOLS, UNK


@options_class
class MyNoiseOptions:  # the noise is in use when one of its options differs from its default
    my_noise: float = opt(
        0.0,
        "probability of replacing a source token with a random one",
        minimum=0,
        below=1,
        must_stay=True,
        group="Regularization",
    )


@register("noise", "my-noise", MyNoiseOptions)
class MyNoise(Noise):
    """Random tokens in place of source tokens."""

    keeps_text = True  # set this to False if the noise changes the text; validation then also gets the original source

    def __init__(self, options: MyNoiseOptions, context: NoiseContext) -> None:
        self.probability, self.seed = options.my_noise, context.seed
        self.size = context.pipeline.source.size

    def read(self, batch: Batch, draws: NDArray[Any], epoch: int) -> Batch:
        """The batch that the model reads. Random numbers depend only on seed, epoch and pair, so that runs can be resumed."""
        length = batch.source.shape[1]
        rows = [np.random.default_rng((self.seed, epoch, int(draw))).random((length, 2)) for draw in draws]
        chances = torch.from_numpy(np.stack(rows))  # B S 2
        others = len(SYMBOLS) + (chances[..., 1] * (self.size - len(SYMBOLS))).long()
        # CHANGE: which tokens are replaced, and by what. Control symbols, such as padding and EOS, are kept.
        is_replaced = (chances[..., 0] < self.probability) & (batch.source >= UNK)
        return replace(batch, source=torch.where(is_replaced, others, batch.source))
