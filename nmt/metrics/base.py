"""The base class of all metrics: a score of translations against references, with the signature that makes it comparable."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.text.corpus import is_invisible

Lines = Sequence[str]
References = Sequence[Lines]  # one or more lists, each as long as the translations


@dataclass(frozen=True)
class Score:
    """The score of a test set.

    value: the number, in most metrics 0 to 100
    signature: how the value was computed, in sacreBLEU's form `key:value|key:value`
    detail: the value as one line of text, such as `BLEU = 27.3 58.1/...`; empty if there is no more than the value
    """

    value: float
    signature: str
    detail: str = ""


class Metric(ABC):
    """A score of translations against references. A registered metric is built as `cls(options)`.

    higher_is_better: whether a better translation has a higher score
    needs_sources: whether the metric reads the source lines
    language: of the texts, as `use_language` sets it; empty where it is unknown
    """

    higher_is_better: ClassVar[bool] = True
    needs_sources: ClassVar[bool] = False
    language: str = ""

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def __call__(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> Score:
        """Score the lines of a test set.

        hypotheses: detokenised translations, one or more
        references: one or more lists of raw references, each as long as hypotheses; a blank line in one of several is no
            reference (`given_references`)
        sources: the source lines, as many as hypotheses; None is an error if `needs_sources`
        """

    def use_language(self, language: str) -> None:
        """Set the language of the texts, where it is known. Called before `check`; an option of the metric has precedence."""
        self.language = language

    def check(self) -> None:  # noqa: B027 most metrics have nothing to check
        """Raise UserError or ResourceError if the metric cannot be used here; computes nothing."""

    def sentence_scores(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> list[float]:
        """Score each line on its own; see `__call__`. By default each line is a test set of one line."""
        return [
            self([line], [[lines[i]] for lines in references], None if sources is None else [sources[i]]).value
            for i, line in enumerate(hypotheses)
        ]


def given_references(references: References) -> list[list[str | None]]:
    """The references, with None for a blank line of one of several, as sacreBLEU has it. Where all are blank, they stay."""
    rows = (
        texts if all(map(is_invisible, texts)) else [None if is_invisible(text) else text for text in texts]
        for texts in zip(*references, strict=True)
    )
    return [list(lines) for lines in zip(*rows, strict=True)]
