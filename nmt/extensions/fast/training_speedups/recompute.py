"""Activation checkpointing, which trades computation for memory (Chen et al., 2016)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt import UserError, register
from nmt.extensions.fast.training_speedups.options import RecomputedTrainingOptions
from nmt.nn.attention import recompute_contexts
from nmt.nn.extra_losses import at_tokens, token_rows
from nmt.train.parallel import layers_of
from nmt.training_speedups.base import TrainingSpeedup


@register("training-speedup", "activation-checkpointing", RecomputedTrainingOptions)
class RecomputedTraining(TrainingSpeedup):
    """Keeps only the input of each layer and recomputes the rest in the backward pass."""

    order: ClassVar[int] = -1  # must come before torch.compile, which compiles the changed layers

    def change_layers(self, model: nn.Module) -> None:
        """See TrainingSpeedup."""
        recompute(model)


def recompute(model: nn.Module) -> None:
    """Keep only the input of each layer and recompute the rest for the gradient. Raises UserError for a model without layers."""
    layer: Any
    for layer in required_layers(model, "--activation-checkpointing"):
        layer.forward = partial(_checkpointed, layer.forward)


def _checkpointed(forward: Any, *inputs: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **named)
    if torch.compiler.is_compiling():  # torch.compile does not support `context_fn`; nothing is recorded then
        return checkpoint(forward, *inputs, use_reentrant=False, **named)
    return checkpoint(forward, *inputs, use_reentrant=False, context_fn=partial(_contexts, token_rows()), **named)


def _contexts(tokens: Tensor | None) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The contexts for a layer's forward pass and for its recomputation. tokens: `token_rows` of the forward pass"""
    plain, again = recompute_contexts()
    return plain, _with_tokens(again, tokens)


@contextmanager
def _with_tokens(context: AbstractContextManager[Any], tokens: Tensor | None) -> Iterator[None]:
    with context, at_tokens(tokens):
        yield


def required_layers(model: nn.Module, flag: str) -> list[nn.Module]:
    """The layers of a model (see `layers_of`). Raises UserError if it has none. flag: the option that needs layers"""
    if not (layers := layers_of(model)):
        raise UserError(f"{flag} needs a model whose layers are in an nn.ModuleList (drop {flag})")
    return layers
