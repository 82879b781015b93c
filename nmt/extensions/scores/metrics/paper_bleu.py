"""BLEU as reported by Vaswani et al. (2017): Moses tokens, split German compounds, multi-bleu.perl.

The paper does not say how its BLEU was computed; its authors' script in tensor2tensor, get_ende_bleu.sh, does. Each step here is
a step of that script, applied to both translations and raw references. docs/explanation/bleu.md lists the differences.
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

COMPOUND_LANGUAGES: Final = ("de",)  # published BLEU for these languages uses split compounds
CACHED_LINES: Final = 65536  # cache, so that lines are tokenized only once for several scores

# The marks that replace-unicode-punctuation.perl replaces. It turns a fullwidth 1 into a quote. This bug is part of the score.
MARKS: Final = "，、”“∶：？《》）！（；１」「０３２５６９７８４～’━〈〉【】％"
REPLACEMENTS: Final = ',,""::?"")!(;"""032569784~\'-<>[]%'  # the replacement for each mark, a single character
REPLACEMENT_TABLE: Final[dict[int, int | str]] = {**str.maketrans(MARKS, REPLACEMENTS), ord("…"): "..."}
FULL_STOP: Final = re.compile("[。．] *")  # each of these two marks also absorbs the spaces after it
COMPOUND: Final = re.compile(rb"(\S)-(\S)")


def replace_punctuation(text: str) -> str:
    """Replace the marks that Moses' replace-unicode-punctuation.perl replaces. Everything else stays unchanged."""
    return FULL_STOP.sub(". ", text).translate(REPLACEMENT_TABLE)


def split_compounds(text: str) -> str:
    """Split compounds as `perl -ple 's{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g'` does; matches do not overlap.

    So a-b-c is split once, and ab-bc-cd twice. Perl works on bytes, so a two-byte letter can be part of two matches, and
    a-ü-c is split twice.
    """
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", text.encode()).decode()


def check_language(name: str) -> None:
    """Raise UserError if the Moses tokenizer has no rules for the language, because Moses would use English rules."""
    if name not in (known := _languages()):
        raise unknown("target language of the Moses tokenizer", name, known)


def language_of(path: str) -> str | None:
    """The language at the end of a file name, such as ref.de, ref.de.xz or ref.de.sgm; None if there is none."""
    ending = Path(text_name(Path(path))).suffix.removeprefix(".")
    return ending if ending in _languages() else None


@register("metric", "paper-bleu", PaperBleuOptions)
class PaperBleu(Metric):
    """BLEU as reported by Vaswani et al. (2017): Moses tokens, split German compounds, multi-bleu.perl."""

    def __init__(self, options: PaperBleuOptions) -> None:
        self._language = options.target_lang
        tokenizer = registry.find("tokenizer", "moses").cls(options.target_lang or "")
        self._tokenize = lru_cache(CACHED_LINES)(lambda line: tokenizer.tokenize(replace_punctuation(line)))

    def check(self) -> None:
        """Raise UserError if there is no target language, or if the Moses tokenizer has no rules for it."""
        if self._language is None:
            raise UserError("metric paper-bleu needs the target language (add --target-lang)")
        check_language(self._language)

    def __call__(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> Score:
        """See Metric. For languages without compounds to split, this equals `tokenised`."""
        if self._language not in COMPOUND_LANGUAGES:
            return self.tokenised(hypotheses, references)
        tokens = [[split_compounds(line) for line in lines] for lines in self._tokens(hypotheses, references)]
        return multi_bleu(tokens[0], tokens[1:], f"{self._steps}, compounds split")

    def tokenised(self, hypotheses: Lines, references: References) -> Score:
        """The score without splitting compounds."""
        tokens = self._tokens(hypotheses, references)
        return multi_bleu(tokens[0], tokens[1:], self._steps)

    def definitions(self, hypotheses: Lines, references: References) -> list[tuple[str, Score]]:
        """The name and BLEU score of each definition: sacreBLEU's 13a and intl, `tokenised` for German, and the paper's."""
        self.check()  # check first, because sacreBLEU takes a while
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
        """Tokenized lines with spaces between Moses tokens: the hypotheses, then each list of references."""
        self.check()
        return [list(map(self._tokenize, lines)) for lines in (hypotheses, *references)]


def multi_bleu(hypotheses: Lines, references: References, steps: str) -> Score:
    """BLEU as computed by multi-bleu.perl: without smoothing, and with the closest reference length.

    hypotheses, references: lines with spaces between tokens
    steps: how the lines were processed, for the signature
    """
    from sacrebleu.metrics import BLEU

    score = corpus_score(BLEU(tokenize="none", smooth_method="none", force=True), hypotheses, references)
    return Score(score.value, f"{steps}, multi-bleu: {score.signature}", score.detail)


def _languages() -> frozenset[str]:
    from sacremoses.corpus import NonbreakingPrefixes  # slow to import

    return frozenset(NonbreakingPrefixes().available_langs.values())
