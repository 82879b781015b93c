"""The base class of all metrics. A metric scores translations against references. Its signature says how."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.text.corpus import is_invisible

Lines = Sequence[str]
References = Sequence[Lines]  # one or more lists, each as long as the list of translations


@dataclass(frozen=True)
class Score:
    """The score of a test set.

    value: the score, from 0 to 100 for most metrics
    signature: how the score was computed, in sacreBLEU's format `key:value|key:value`
    detail: the score and its components as one line, such as `BLEU = 27.3 58.1/...`; empty if there are none
    """

    value: float
    signature: str
    detail: str = ""


class Metric(ABC):
    """Scores translations against references. A registered metric is built as `cls(options)`.

    higher_is_better: whether a better translation has a higher score
    needs_sources: whether the metric reads the source lines
    language: language of the texts, set by `use_language`; empty if unknown
    """

    higher_is_better: ClassVar[bool] = True
    needs_sources: ClassVar[bool] = False
    language: str = ""

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def __call__(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> Score:
        """Score the lines of a test set.

        hypotheses: detokenised translations, at least one
        references: one or more lists of raw references, each as long as `hypotheses`; with several lists, blank lines are
            ignored (`given_references`)
        sources: source lines, one per hypothesis; required if `needs_sources`
        """

    def use_language(self, language: str) -> None:
        """Set the language of the texts, if known. Called before `check`; an option of the metric takes precedence."""
        self.language = language

    def check(self) -> None:  # noqa: B027 most metrics have nothing to check
        """Raise UserError or ResourceError if the metric cannot be used on this machine. Computes nothing."""

    def sentence_scores(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> list[float]:
        """Score each line separately; see `__call__`. By default each line is scored as a test set of one line."""
        return [
            self([line], [[lines[i]] for lines in references], None if sources is None else [sources[i]]).value
            for i, line in enumerate(hypotheses)
        ]


def given_references(references: References) -> list[list[str | None]]:
    """Replace blank lines with None, sacreBLEU's mark for missing references. If all those of a line are blank, keep them."""
    rows = (
        texts if all(map(is_invisible, texts)) else [None if is_invisible(text) else text for text in texts]
        for texts in zip(*references, strict=True)
    )
    return [list(lines) for lines in zip(*rows, strict=True)]
