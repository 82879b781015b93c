"""Reports blank lines of references."""

from collections.abc import Iterator, Sequence

from nmt import register
from nmt.errors import quoted
from nmt.evaluations.base import System, TextCheck
from nmt.log import log
from nmt.metrics.base import Metric, References
from nmt.options import NoOptions
from nmt.text.corpus import is_invisible


@register("text-check", "blank-references", NoOptions)
class BlankReferences(TextCheck):
    """Counts lines without a reference: those that count as wrong, and those that another file has."""

    def examine(self, systems: Sequence[System], references: Sequence[System]) -> None:
        blanks = [{i for i, line in enumerate(text.lines, 1) if is_invisible(line)} for text in references]
        without = set.intersection(*blanks)
        for text, blank in zip(references, blanks, strict=True):
            if others := blank - without:
                log.info(f"{quoted(text.name)}: {len(others):,} of {len(text.lines):,} lines are blank: no reference")

    def doubts(self, metrics: Sequence[Metric], references: References) -> Iterator[str]:
        without = [i for i, texts in enumerate(zip(*references, strict=True), 1) if all(map(is_invisible, texts))]
        if without:
            yield (
                f"{len(without):,} of {len(references[0]):,} lines have no reference, line {without[0]} the first; any "
                "translation of them counts as wrong (remove these lines from all files)"
            )
