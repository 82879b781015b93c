"""Noise of training: words that become unknown, a pure function of (seed, epoch, pair, position), so that order, a resume and
ranks change nothing. A pair that mixed corpora give several times in an epoch has other noise each time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from nmt.batch import Batch
from nmt.data.batching import Indices, hashed
from nmt.symbols import BOS, EOS, PAD, UNK

POSITION_BITS: Final = 20


@dataclass(frozen=True)
class WordDropout:
    """Word dropout (Gal and Ghahramani, 2016; Sennrich and Zhang, 2019): a token that the model reads becomes `<unk>`.

    The tokens to predict stay as they are. EOS, BOS and user symbols, such as tags, are never dropped.
    source, target: probability for each token of a side
    kept: ids of source and target that are not dropped
    """

    source: float = 0.0
    target: float = 0.0
    seed: int = 1
    kept: tuple[Sequence[int], Sequence[int]] = ((), ())

    def __call__(self, batch: Batch, pairs: Indices, epoch: int) -> Batch:
        """The batch as the model reads it in an epoch. pairs: (B,) its pairs, numbered as in `Plan.order`"""
        if not self.source and not self.target:
            return batch
        is_first = self.source and batch.clean_source is None
        return replace(
            batch,
            clean_source=batch.source if is_first else batch.clean_source,
            source=self._dropped(batch.source, pairs, self.source, epoch, side=0),
            noisy_target_input=self._dropped(batch.target_input, pairs, self.target, epoch, side=1),
        )

    def _dropped(self, tokens: Tensor, pairs: Indices, probability: float, epoch: int, side: int) -> Tensor:
        """tokens: (B, L)"""
        positions = np.arange(tokens.shape[1], dtype=np.uint64)
        places = (pairs.astype(np.uint64)[:, None] << np.uint64(POSITION_BITS)) | positions
        draws = hashed(places, self.seed, epoch, 2, side) / 2.0**64
        stays = torch.isin(tokens, torch.tensor([PAD, BOS, EOS, *self.kept[side]]))
        return torch.where(stays | torch.from_numpy(draws >= probability), tokens, UNK)
