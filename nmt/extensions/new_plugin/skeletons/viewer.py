"""A viewer: `nmt translate` prints the number of tokens after each translation.

nmt translate --plugin my_viewer.py --my-viewer --model RUN --input TEXT
nmt translate --plugin my_viewer.py --my-viewer --json --model RUN --input TEXT
"""

from typing import Any

from nmt import opt, options_class, register
from nmt.translate.requests import Request
from nmt.translate.results import Candidate, Translation
from nmt.viewers.base import Viewer


@options_class
class MyViewerOptions:  # the viewer is in use when one of its options differs from its default
    my_viewer: bool = opt(False, "print the length of each translation in tokens", group="Details of the output")


@register("viewer", "my-viewer", MyViewerOptions)
class MyViewer(Viewer):
    """The number of tokens of each candidate."""

    def see(self, number: int, request: Request, translation: Translation) -> None:
        """Called for each line, in order, before it is printed. number: index of the line"""

    def columns(self, candidate: Candidate) -> list[str]:
        """The items to print after a candidate, each preceded by `|||`."""  # CHANGE: what is printed
        return [str(len(candidate.tokens))]

    def fields(self, candidate: Candidate) -> dict[str, Any]:
        """Additional fields of a candidate in the output of --json."""
        return {"num_tokens": len(candidate.tokens)}
