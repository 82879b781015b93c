"""`nmt train --dry-run` as a preview."""

from collections.abc import Iterator
from typing import Any

from nmt import register
from nmt.extensions.watch import dry_run
from nmt.extensions.watch.previews.options import DryRunOptions
from nmt.previews.base import Preview


@register("preview", "dry-run", DryRunOptions)
class DryRun(Preview):
    """The time, memory and cost of a run, measured by a few updates."""

    def __init__(self, options: Any, parts: Any) -> None:
        """See Preview. Raises the errors of a training."""
        self._estimate = dry_run.dry_run_of(options, parts)

    def values(self) -> dict[str, Any]:
        """See Preview."""
        return vars(self._estimate)

    def lines(self) -> Iterator[str]:
        """See Preview."""
        return self._estimate.lines()
