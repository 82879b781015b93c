"""A filter: translations contain none of the given characters, such as digits.

nmt translate --plugin my_filter.py --my-filter 0123456789 --model RUN --input TEXT
nmt translate --plugin my_filter.py --model RUN --json --input REQUESTS  # lines such as {"text": "...", "my-filter": ["12"]}
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt import opt, options_class, register
from nmt.filters.base import Filter, Forbid


@options_class
class MyFilterOptions:  # a request in JSON may also have a field "my-filter" with a list of texts
    my_filter: str | None = opt(None, "characters that translations must not contain", group="Constraints and terms")


@register("filter", "my-filter", MyFilterOptions)
class MyFilter(Filter):
    """Forbids all tokens that contain any of the given characters."""

    @classmethod
    def texts_of_all(cls, options: MyFilterOptions) -> Sequence[str]:
        """The option's texts, which apply to every request."""
        return [options.my_filter] if options.my_filter else []

    def begin(self, texts: tuple[str, ...]) -> Forbid:
        """Called for each translation. Returns a function that is called before each token."""
        characters = set("".join(texts))
        surfaces = [self.target.vocabulary.surface(token) for token in range(self.target.size)]
        forbidden = np.array([not characters.isdisjoint(surface) for surface in surfaces])  # V

        def forbid(tokens: Sequence[int], num_forced: int) -> NDArray[np.bool_]:
            """(V,) True for each token that must not follow `tokens`."""
            return forbidden  # CHANGE: the forbidden tokens, which may depend on `tokens`

        return forbid
