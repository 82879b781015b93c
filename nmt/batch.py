"""A batch of sentence pairs as tensors. B sentences, S source and T target positions, padded at the right."""

from dataclasses import dataclass

from torch import Tensor

from nmt.symbols import PAD


@dataclass(frozen=True)
class Batch:
    """Sentence pairs of ids (int64).

    source: (B, S) each ends with EOS
    target: (B, T + 1) each starts with BOS and ends with EOS
    """

    source: Tensor
    target: Tensor

    @property
    def target_input(self) -> Tensor:
        """(B, T) what the model reads: BOS w1 ... wn."""
        return self.target[:, :-1]

    @property
    def target_output(self) -> Tensor:
        """(B, T) what the model is to say: w1 ... wn EOS."""
        return self.target[:, 1:]

    @property
    def num_target_tokens(self) -> Tensor:
        """() target tokens to predict, EOS counted, padding not."""
        return (self.target_output != PAD).sum()
