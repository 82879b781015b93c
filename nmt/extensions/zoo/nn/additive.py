"""Additive attention (Bahdanau, Cho and Bengio, 2014, appendix A.1.2), with variants from later papers.

Dimensions: B sentences, S source positions, A width of the hidden layer, W queries per sentence, N = B * W.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from nmt.nn.attention import not_cast
from nmt.nn.linear import Linear

AdditiveForm = Literal["sum", "product"]
"""sum: v . tanh(q + k) (Bahdanau et al., 2014); product: v . (tanh(q) * tanh(k)) (Shazeer et al., 2017, appendix G)"""


def additive_weights(query: Tensor, keys: Tensor, energy: Tensor, mask: Tensor, form: AdditiveForm = "sum") -> Tensor:
    """The attention weights: softmax of the energies over the source, (B, W, S).

    query: (N, A)
    keys: (B, S, A); with tanh already applied for the form "product"
    energy: (A,), the vector v
    mask: (B, S), False at padding
    """
    queries, energy = query.view(len(keys), -1, keys.shape[-1]), energy.to(keys.dtype)  # (B, W, A)
    with not_cast(query, keys, energy):
        if form == "sum":
            energies = torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1)) @ energy  # (B, W, S)
        else:
            energies = (queries.tanh() * energy).to(keys.dtype) @ keys.mT  # (B, W, S)
        precision = torch.promote_types(energies.dtype, torch.float32)
        lowest = torch.finfo(energies.dtype).min
        return energies.masked_fill(~mask.unsqueeze(1), lowest).softmax(-1, precision)


class AdditiveAttention(nn.Module):
    """Additive attention from decoder states to a memory. direction: (A,), the vector v"""

    def __init__(self, query: int, memory: int, hidden: int, form: AdditiveForm = "sum") -> None:
        super().__init__()
        self.form: AdditiveForm = form
        self.query = Linear(query, hidden, bias=False)
        self.keys = Linear(memory, hidden, bias=False)
        self.direction = nn.Parameter(torch.empty(hidden).uniform_(-(hidden**-0.5), hidden**-0.5))

    def project_memory(self, memory: Tensor) -> Tensor:
        """Project a memory (B, S, M) to keys (B, S, A) for `additive_weights`."""
        keys: Tensor = self.keys(memory)
        return keys if self.form == "sum" else keys.tanh()

    def forward(self, states: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """The attention weights (B, W, S). states: (N, Q); keys, mask: see `additive_weights`"""
        return self.weights(self.query(states), keys, mask)

    def weights(self, query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """The attention weights (B, W, S). query: (N, A), states multiplied by the query matrix"""
        return additive_weights(query, keys, self.direction, mask, self.form)
