"""Losses from inner parts of a model, such as the load balance of experts. A pass collects them; layers do not return them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from torch import Tensor


class ExtraLosses(NamedTuple):
    """The losses that a part of a model adds to a pass: scalars () by name.

    losses: trained, already weighted
    statistics: only logged, without gradients
    """

    losses: Mapping[str, Tensor] = {}
    statistics: Mapping[str, Tensor] = {}


_collected: ContextVar[list[ExtraLosses] | None] = ContextVar("collected", default=None)
_tokens: ContextVar[Tensor | None] = ContextVar("tokens", default=None)


@contextmanager
def collecting() -> Iterator[list[ExtraLosses]]:
    """Context that collects the losses of all parts computed in it, in order."""
    found: list[ExtraLosses] = []
    before = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(before)


def add_losses(losses: ExtraLosses) -> None:
    """Add the losses of a part to the current pass. Has no effect outside `collecting`."""
    if (collected := _collected.get()) is not None:
        collected.append(losses)


@contextmanager
def at_tokens(tokens: Tensor | None) -> Iterator[None]:
    """Context that tells the parts computed in it which positions of flattened states hold tokens, (N,); None means all."""
    before = _tokens.set(tokens)
    try:
        yield
    finally:
        _tokens.reset(before)


def token_rows() -> Tensor | None:
    """The positions of tokens, (N,), in the flattened states that a part reads; None means all. Losses ignore other positions."""
    return _tokens.get()
