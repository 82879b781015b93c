"""BLEU as Vaswani et al. (2017) report it, beside sacreBLEU's: Moses tokens, German compounds split, multi-bleu.perl.

The paper does not say how its BLEU was made; tensor2tensor's get_ende_bleu.sh, by its authors, does. Each step here is
one of that script's, done to the translations and to raw references alike (docs/scoring.md tells where that departs).
"""

import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from nmt.errors import unknown
from nmt.metrics.evaluate import Score, score
from nmt.text.tokenize import Tokenizer

SPLIT_COMPOUNDS: Final = ("de",)  # the languages whose published BLEU is that of split compounds

# What replace-unicode-punctuation.perl replaces. The fullwidth one becomes a quote there: a slip, but part of the figure.
MARKS: Final = "，、”“∶：？《》）！（；１」「０３２５６９７８４～’━〈〉【】％"
WRITTEN: Final = ',,""::?"")!(;"""032569784~\'-<>[]%'  # mark by mark
REPLACED: Final[dict[int, int | str]] = {**str.maketrans(MARKS, WRITTEN), ord("…"): "..."}
FULL_STOP: Final = re.compile("[。．] *")  # these two take the spaces after them and leave one
COMPOUND: Final = re.compile(rb"(\S)-(\S)")


def replace_punctuation(text: str) -> str:
    """text as Moses' replace-unicode-punctuation.perl leaves it; no other mark is touched, nor any space."""
    return FULL_STOP.sub(". ", text).translate(REPLACED)


def split_compounds(text: str) -> str:
    """text as `perl -ple 's{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g'` leaves it: what a match has used, the next cannot.

    So a-b-c is split once, ab-bc-cd twice. Perl reads bytes there, so a letter of two bytes serves two matches, and
    a-ü-c is split twice.
    """
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", text.encode()).decode()


def check_language(name: str) -> None:
    """Raises UserError when the Moses tokeniser has no rules for the language; Moses would take those of English."""
    if name not in (known := _languages()):
        raise unknown("target language of the Moses tokeniser", name, known)


def language_of(path: str) -> str | None:
    """The language that a file name ends in, as in ref.de or ref.de.gz; None when it ends in none."""
    ending = Path(path.removesuffix(".gz")).suffix.removeprefix(".")
    return ending if ending in _languages() else None


class PaperBleu:
    """BLEU of translations into one language under several definitions, against one set of references."""

    def __init__(self, references: Sequence[Sequence[str]], language: str) -> None:
        """Raises UserError when the Moses tokeniser has no rules for the language."""
        check_language(language)
        self._references, self._language = references, language
        self._tokenizer = Tokenizer("moses", language)
        self._tokens = [self._tokenized(lines) for lines in references]

    def scores(self, hypotheses: Sequence[str]) -> list[Score]:
        """sacreBLEU's 13a and intl, and the paper's; for German also the paper's without its splitting of compounds.

        hypotheses: detokenised lines, as many as each reference has
        returns: scores whose metric is the name of the definition and whose signature begins with its steps in words
        """
        named = [
            score(_bleu(tokenize=name), f"sacreBLEU {name}", hypotheses, self._references) for name in ("13a", "intl")
        ]
        tokens = self._tokenized(hypotheses)
        steps = f"punctuation replaced, Moses tokens (sacremoses {version('sacremoses')}, {self._language})"
        if self._language not in SPLIT_COMPOUNDS:
            return [*named, multi_bleu("paper", tokens, self._tokens, steps)]
        split = [[split_compounds(line) for line in lines] for lines in (tokens, *self._tokens)]
        return [
            *named,
            multi_bleu("tokenised", tokens, self._tokens, steps),
            multi_bleu("paper", split[0], split[1:], f"{steps}, compounds split"),
        ]

    def _tokenized(self, lines: Sequence[str]) -> list[str]:
        return [self._tokenizer.tokenize(replace_punctuation(line)) for line in lines]


def multi_bleu(name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], steps: str) -> Score:
    """What multi-bleu.perl computes of lines with a space between tokens: no smoothing, the closest reference's length.

    name, steps: what the lines are called, and what was done to them
    """
    found = score(_bleu(tokenize="none", smooth_method="none"), name, hypotheses, references)
    return Score(name, found.value, f"{steps}, multi-bleu: {found.signature}", found.detail)


def _bleu(tokenize: str, smooth_method: str = "exp") -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize=tokenize, smooth_method=smooth_method, force=True)


def _languages() -> frozenset[str]:
    from sacremoses.corpus import NonbreakingPrefixes  # slow to import, so only when asked for

    return frozenset(NonbreakingPrefixes().available_langs.values())
