"""The interface for filters, which forbid tokens in the translations of requests that contain texts for the filter.

The filter's name is a keyword of `Request` and a field of a JSON request. A registered filter is built as `cls(target)` when
the first request has texts for it. It must work without torch, because servers check requests without torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt import registry
from nmt.text.pipeline import Side

Forbid = Callable[[Sequence[int], int], NDArray[np.bool_]]
"""(tokens of a translation so far, number of forced tokens) -> (V,) True for each token that must not come next."""


class Filter(ABC):
    """A filter, which forbids tokens depending on the texts of a request.

    target: target side of the model's text pipeline
    """

    def __init__(self, target: Side) -> None:
        self.target = target

    @classmethod
    def texts_of_all(cls, options: Any) -> Sequence[str]:
        """The texts that apply to every request, from the filter's options. Called only once, because a file may be a pipe."""
        return ()

    def prepared(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Convert the texts of a request to the form that the search reads."""
        return tuple(texts)

    def refusal(self, given: Sequence[str], texts: Sequence[str], phrases: Sequence[str]) -> str:
        """The reason why a request cannot be fulfilled; empty if it can.

        given: texts of the request itself; texts: all texts that apply to it, prepared
        phrases: phrases that its translation must contain
        """
        return ""

    @abstractmethod
    def begin(self, texts: tuple[str, ...]) -> Forbid:
        """The function that forbids tokens in one translation. texts: prepared texts"""


class TargetFilters(dict[str, Filter]):
    """The filters for a target side, by name. Each is built when it is first needed."""

    def __init__(self, target: Side) -> None:
        super().__init__()
        self.target = target

    def __missing__(self, name: str) -> Filter:
        self[name] = registry.find("filter", name).cls(self.target)
        return self[name]


def texts_of_all(options: Any) -> dict[str, Sequence[str]]:
    """The texts that apply to every request, by filter."""
    names = registry.active_names("filter", options)
    return {name: registry.find("filter", name).cls.texts_of_all(options) for name in names}  # type: ignore[attr-defined]
