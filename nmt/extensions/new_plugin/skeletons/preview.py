"""A preview: `nmt train` prints the names of the chosen components instead of training.

nmt train --plugin my_preview.py --my-preview --data DATA --output RUN
nmt train --plugin my_preview.py --my-preview --json --data DATA --output RUN
"""

from collections.abc import Iterator
from typing import Any

from nmt import opt, options_class, register
from nmt.previews.base import Preview


@options_class
class MyPreviewOptions:  # the preview is in use when one of its options differs from its default
    my_preview: bool = opt(False, "print the chosen components instead of training", group="Logging")


@register("preview", "my-preview", MyPreviewOptions)
class MyPreview(Preview):
    """The chosen model, criterion, optimizer, schedule and decoder."""

    def __init__(self, options: Any, parts: Any) -> None:
        self.names = {kind: part.name for kind, part in parts.by_kind.items()}  # CHANGE: what is computed

    def values(self) -> dict[str, Any]:
        """What --json prints."""
        return self.names

    def lines(self) -> Iterator[str]:
        """The same values as lines of text."""
        for kind, name in self.names.items():
            yield f"{kind}: {name}"
