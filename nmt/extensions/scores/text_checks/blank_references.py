"""Reports blank lines in references."""

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
    """Reports blank lines in a reference file, and lines for which no file has a reference."""

    def examine(self, systems: Sequence[System], references: Sequence[System]) -> None:
        blanks = [{i for i, line in enumerate(text.lines, 1) if is_invisible(line)} for text in references]
        without = set.intersection(*blanks)
        for text, blank in zip(references, blanks, strict=True):
            if others := blank - without:
                log.info(
                    f"{quoted(text.name)}: {len(others):,} of {len(text.lines):,} lines are blank, so they have no reference here"
                )

    def doubts(self, metrics: Sequence[Metric], references: References) -> Iterator[str]:
        without = [i for i, texts in enumerate(zip(*references, strict=True), 1) if all(map(is_invisible, texts))]
        if without:
            yield (
                f"{len(without):,} of {len(references[0]):,} lines have no reference (the first is line {without[0]}), so any "
                "translation of them counts as wrong (remove these lines from all files)"
            )
