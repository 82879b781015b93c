"""The decoder layers of a search by torch.compile."""

from functools import cached_property, partial
from typing import Final

import torch
from torch import Tensor

from nmt.errors import UserError
from nmt.extensions.fast.nn.quantized import Int8Linear
from nmt.models.base import State
from nmt.models.transformer import Transformer, TransformerSearch

MAX_COMPILED_GRAPHS: Final = 64  # per function


def allow_graphs() -> None:
    """Raise torch.compile's limit of 8 graphs per function, after which it silently falls back to uncompiled code."""
    from torch._dynamo import config

    config.recompile_limit = MAX_COMPILED_GRAPHS


def compile_steps(model: Transformer) -> None:
    """Compile the layers' search steps. One graph serves all lengths and batch sizes, but a batch of one, which has its own.

    Raises UserError for a model whose steps cannot be compiled.
    """
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        raise UserError("--compile: torch cannot compile products of 8-bit weights (leave it out)")
    if any(not layer.feed_forward.can_be_captured for layer in model.decoder_layers):
        raise UserError(
            f"--compile: the sizes of products with --ffn {model.options.ffn} depend on the text (leave it out)"
        )
    allow_graphs()
    layers = [torch.compile(step, dynamic=True) for step in model.prepared_layers()]
    model.new_search = partial(SearchOfCompiledSteps, layers=layers)


class SearchOfCompiledSteps(TransformerSearch):
    """A search whose steps are compiled, but for those whose attention is watched, which compiled layers do not record."""

    @cached_property
    def _recording(self) -> TransformerSearch:
        return TransformerSearch(self.model, self.output)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer."""
        return self._recording.step(tokens, state) if state.watched else super().step(tokens, state)
