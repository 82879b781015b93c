"""Losses of the inner parts of a model, such as those that balance experts: collected during a pass, not returned by layers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from torch import Tensor


class ExtraLosses(NamedTuple):
    """What a part of a model adds to a pass: scalars () by name.

    losses: to train with, already weighted; statistics: without gradient, logged only
    """

    losses: Mapping[str, Tensor] = {}
    statistics: Mapping[str, Tensor] = {}


_collected: ContextVar[list[ExtraLosses] | None] = ContextVar("collected", default=None)
_tokens: ContextVar[Tensor | None] = ContextVar("tokens", default=None)


@contextmanager
def collecting() -> Iterator[list[ExtraLosses]]:
    """Collect the losses of all parts that are computed in this context, in order."""
    found: list[ExtraLosses] = []
    before = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(before)


def add_losses(losses: ExtraLosses) -> None:
    """Add the losses of a part to the current pass; without effect if nobody collects them."""
    if (collected := _collected.get()) is not None:
        collected.append(losses)


@contextmanager
def at_tokens(tokens: Tensor | None) -> Iterator[None]:
    """Tell the parts that are computed in this context which flat positions have tokens, (N,); None means all."""
    before = _tokens.set(tokens)
    try:
        yield
    finally:
        _tokens.reset(before)


def token_rows() -> Tensor | None:
    """The flat positions of tokens, (N,), in the states that a part reads; None means all. Losses ignore the others."""
    return _tokens.get()
