"""The interface of filters: they forbid tokens in the translations of requests that give them texts.

A filter gives its name to its texts: a keyword of `Request`, and a field of a JSON request. A registered filter is built as
`cls(target)` when the first request has texts for it. It works without torch, because servers check requests without it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt import registry
from nmt.text.pipeline import Side

Forbid = Callable[[Sequence[int], int], NDArray[np.bool_]]
"""(tokens of a translation so far, how many of them were forced) -> (V,) True for each token that must not come next."""


class Filter(ABC):
    """Forbids tokens, depending on the texts of a request.

    target: the target side of the model's pipeline
    """

    def __init__(self, target: Side) -> None:
        self.target = target

    @classmethod
    def texts_of_all(cls, options: Any) -> Sequence[str]:
        """The texts for every request, from the filter's own options. Called once, because a file may be a pipe."""
        return ()

    def prepared(self, texts: Sequence[str]) -> tuple[str, ...]:
        """The texts of a request in the form that the search reads."""
        return tuple(texts)

    def refusal(self, given: Sequence[str], texts: Sequence[str], phrases: Sequence[str]) -> str:
        """Why a request cannot be fulfilled; empty if it can.

        given: the request's own texts; texts: all texts for it, prepared
        phrases: those that its translation must contain
        """
        return ""

    @abstractmethod
    def begin(self, texts: tuple[str, ...]) -> Forbid:
        """The function that forbids tokens of one translation. texts: prepared"""


class TargetFilters(dict[str, Filter]):
    """The filters of a target side by name, each built when it is first needed."""

    def __init__(self, target: Side) -> None:
        super().__init__()
        self.target = target

    def __missing__(self, name: str) -> Filter:
        self[name] = registry.find("filter", name).cls(self.target)
        return self[name]


def texts_of_all(options: Any) -> dict[str, Sequence[str]]:
    """The texts for every request, by filter."""
    names = registry.active_names("filter", options)
    return {name: registry.find("filter", name).cls.texts_of_all(options) for name in names}  # type: ignore[attr-defined]
