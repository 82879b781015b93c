"""BLEU as Vaswani et al. (2017) report it: Moses tokens, German compounds split, multi-bleu.perl.

The paper does not say how its BLEU was computed; tensor2tensor's get_ende_bleu.sh, by its authors, does. Each step here is
a step of that script, applied to translations and raw references alike (docs/explanation/bleu.md lists the differences).
"""

import re
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from nmt import UserError, register, registry
from nmt.errors import unknown
from nmt.extensions.scores.metrics.options import PaperBleuOptions
from nmt.metrics.base import Lines, Metric, References, Score
from nmt.metrics.bleu import Bleu
from nmt.metrics.options import BleuOptions
from nmt.metrics.sacrebleu import corpus_score
from nmt.text.corpus import text_name

COMPOUND_LANGUAGES: Final = ("de",)  # the published BLEU of these languages is that of split compounds
CACHED_LINES: Final = 65536  # references and hypotheses are tokenised once for several scores

# The marks that replace-unicode-punctuation.perl replaces. It turns the fullwidth 1 into a quote: a slip, but part of the score.
MARKS: Final = "，、”“∶：？《》）！（；１」「０３２５６９７８４～’━〈〉【】％"
REPLACEMENTS: Final = ',,""::?"")!(;"""032569784~\'-<>[]%'  # mark by mark
REPLACEMENT_TABLE: Final[dict[int, int | str]] = {**str.maketrans(MARKS, REPLACEMENTS), ord("…"): "..."}
FULL_STOP: Final = re.compile("[。．] *")  # these two absorb the spaces that follow and leave one
COMPOUND: Final = re.compile(rb"(\S)-(\S)")


def replace_punctuation(text: str) -> str:
    """Replace the marks that Moses' replace-unicode-punctuation.perl replaces; other marks and spaces stay."""
    return FULL_STOP.sub(". ", text).translate(REPLACEMENT_TABLE)


def split_compounds(text: str) -> str:
    """Split compounds as `perl -ple 's{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g'` does; matches do not overlap.

    So a-b-c is split once, ab-bc-cd twice. Perl reads bytes there, so a letter of two bytes can be part of two matches, and
    a-ü-c is split twice.
    """
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", text.encode()).decode()


def check_language(name: str) -> None:
    """Raise UserError if the Moses tokeniser has no rules for the language; Moses would use those of English."""
    if name not in (known := _languages()):
        raise unknown("target language of the Moses tokeniser", name, known)


def language_of(path: str) -> str | None:
    """The language that a file name ends in, as in ref.de, ref.de.xz or ref.de.sgm; None if it ends in none."""
    ending = Path(text_name(Path(path))).suffix.removeprefix(".")
    return ending if ending in _languages() else None


@register("metric", "paper-bleu", PaperBleuOptions)
class PaperBleu(Metric):
    """BLEU as Vaswani et al. (2017) report it: Moses tokens, German compounds split, multi-bleu.perl."""

    def __init__(self, options: PaperBleuOptions) -> None:
        self._language = options.target_lang
        tokenizer = registry.find("tokenizer", "moses").cls(options.target_lang or "")
        self._tokenize = lru_cache(CACHED_LINES)(lambda line: tokenizer.tokenize(replace_punctuation(line)))

    def check(self) -> None:
        """Raise UserError without a target language, and if the Moses tokeniser has no rules for it."""
        if self._language is None:
            raise UserError("metric paper-bleu: needs the target language (give --target-lang)")
        check_language(self._language)

    def __call__(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> Score:
        """See Metric; for languages without compounds to split, the same as `tokenised`."""
        if self._language not in COMPOUND_LANGUAGES:
            return self.tokenised(hypotheses, references)
        tokens = [[split_compounds(line) for line in lines] for lines in self._tokens(hypotheses, references)]
        return multi_bleu(tokens[0], tokens[1:], f"{self._steps}, compounds split")

    def tokenised(self, hypotheses: Lines, references: References) -> Score:
        """The score without splitting of compounds."""
        tokens = self._tokens(hypotheses, references)
        return multi_bleu(tokens[0], tokens[1:], self._steps)

    def definitions(self, hypotheses: Lines, references: References) -> list[tuple[str, Score]]:
        """BLEU by each definition, with its name: sacreBLEU's 13a and intl, for German `tokenised`, and the paper's."""
        self.check()  # before sacreBLEU takes its time
        scores = [
            (f"sacreBLEU {tokenize}", Bleu(BleuOptions(tokenize=tokenize))(hypotheses, references))
            for tokenize in ("13a", "intl")
        ]
        if self._language in COMPOUND_LANGUAGES:
            scores.append(("tokenised", self.tokenised(hypotheses, references)))
        return [*scores, ("paper", self(hypotheses, references))]

    @property
    def _steps(self) -> str:
        return f"punctuation replaced, Moses tokens (sacremoses {version('sacremoses')}, {self._language})"

    def _tokens(self, hypotheses: Lines, references: References) -> list[list[str]]:
        """Lines with a space between Moses tokens: the hypotheses', then those of each list of references."""
        self.check()
        return [list(map(self._tokenize, lines)) for lines in (hypotheses, *references)]


def multi_bleu(hypotheses: Lines, references: References, steps: str) -> Score:
    """BLEU as multi-bleu.perl computes it: no smoothing, the closest reference's length.

    hypotheses, references: lines with a space between tokens
    steps: how the lines were made, for the signature
    """
    from sacrebleu.metrics import BLEU

    score = corpus_score(BLEU(tokenize="none", smooth_method="none", force=True), hypotheses, references)
    return Score(score.value, f"{steps}, multi-bleu: {score.signature}", score.detail)


def _languages() -> frozenset[str]:
    from sacremoses.corpus import NonbreakingPrefixes  # slow to import

    return frozenset(NonbreakingPrefixes().available_langs.values())
