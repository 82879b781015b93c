"""Word dropout: replaces tokens with <unk> during training, as a pure function of (seed, epoch, pair, position).

If mixed corpora repeat a pair within an epoch, it gets different noise each time.
"""

from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from nmt import register
from nmt.batch import Batch
from nmt.data.batching import Indices, hashed
from nmt.extensions.methods.noises.options import WordDropoutOptions
from nmt.extensions.vocabularies.user_symbols import user_symbol_ids
from nmt.noises.base import Noise, NoiseContext
from nmt.symbols import BOS, EOS, PAD, UNK

POSITION_BITS: Final = 20


@register("noise", "word-dropout", WordDropoutOptions)
class WordDropout(Noise):
    """Replaces tokens that the model reads with `<unk>` (Gal and Ghahramani, 2016; Sennrich and Zhang, 2019).

    The tokens to predict stay unchanged. EOS, BOS and user symbols, such as tags, are never dropped.
    """

    order: ClassVar[int] = 3

    def __init__(self, options: WordDropoutOptions, context: NoiseContext) -> None:
        self.source, self.target, self.seed = options.source_word_dropout, options.target_word_dropout, context.seed
        sides = context.pipeline.source, context.pipeline.target
        self.kept = tuple([PAD, BOS, EOS, *user_symbol_ids(side)] for side in sides)  # ids that are not dropped

    def read(self, batch: Batch, draws: Indices, epoch: int) -> Batch:
        """See Noise."""
        is_first = self.source and batch.clean_source is None
        return replace(
            batch,
            clean_source=batch.source if is_first else batch.clean_source,
            source=self._dropped(batch.source, draws, self.source, epoch, side=0),
            noisy_target_input=self._dropped(batch.target_input, draws, self.target, epoch, side=1),
        )

    def _dropped(self, tokens: Tensor, draws: Indices, probability: float, epoch: int, side: int) -> Tensor:
        """Replace some tokens (B, L) with UNK."""
        positions = np.arange(tokens.shape[1], dtype=np.uint64)
        places = (draws.astype(np.uint64)[:, None] << np.uint64(POSITION_BITS)) | positions
        chances = hashed(places, self.seed, epoch, 2, side) / 2.0**64
        stays = torch.isin(tokens, torch.tensor(self.kept[side]))
        return torch.where(stays | torch.from_numpy(chances >= probability), tokens, UNK)
