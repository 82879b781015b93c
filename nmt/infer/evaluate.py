"""BLEU, chrF and TER by sacreBLEU, never without the signature that says how they were computed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nmt.errors import ResourceError, UserError, quoted, unknown

METRICS: Final = ("bleu", "chrf", "ter")
PACKAGES: Final = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}
SUBWORD: Final = re.compile(r"\S@@(?:\s|$)|(?:^|\s)\u2581")  # as subword-nmt and as SentencePiece write them


@dataclass(frozen=True)
class Score:
    """One score of a whole test set, 0 to 100. signature: sacreBLEU's; detail: its own line, as "BLEU = 27.3 58.1/..."."""

    metric: str
    value: float
    signature: str
    detail: str


def evaluate(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenize: str,
    lowercase: bool,
) -> list[Score]:
    """Score detokenised lines against raw references.

    references: one or more lists as long as hypotheses
    metrics: of METRICS
    tokenize: BLEU's tokenizer: 13a, intl, char, none, ...; "none" is for text that is tokenised already
    """
    return [_score(metric, hypotheses, references, tokenize, lowercase) for metric in metrics]


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str) -> tuple[float, str]:
    """(BLEU, its signature)"""
    score = _score("bleu", hypotheses, [references], tokenize, False)
    return score.value, score.signature


def check_metric(name: str) -> None:
    """Raises UserError when there is no such metric."""
    if name not in METRICS:
        raise unknown("metric", name, METRICS)


def check_tokenizer(name: str) -> None:
    """Raises UserError when BLEU has no such tokenizer or it cannot be used here; nothing is computed."""
    _bleu(name, False)


def num_split(lines: Sequence[str]) -> int:
    """How many lines hold what looks like a part of a word: a token that ends in "@@" or begins with "\u2581"."""
    return sum(SUBWORD.search(line) is not None for line in lines)


def _score(
    name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenize: str, lowercase: bool
) -> Score:
    metric = _metric(name, tokenize, lowercase)
    result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
    return Score(name, float(result.score), str(metric.get_signature()), str(result))


def _metric(name: str, tokenize: str, lowercase: bool) -> Any:
    from sacrebleu.metrics import CHRF, TER  # 0.2 s: not for those who only translate

    check_metric(name)
    if name == "bleu":
        return _bleu(tokenize, lowercase)
    return CHRF(lowercase=lowercase) if name == "chrf" else TER(case_sensitive=not lowercase)


def _bleu(tokenize: str, lowercase: bool) -> Any:
    from sacrebleu.metrics import BLEU
    from sacrebleu.tokenizers import tokenizer_spm

    if tokenize not in BLEU.TOKENIZERS:
        raise unknown("tokenizer of BLEU", tokenize, BLEU.TOKENIZERS)
    if tokenize in tokenizer_spm.SPM_MODELS:
        address = tokenizer_spm.SPM_MODELS[tokenize]["url"]
        file = Path(tokenizer_spm.SACREBLEU_DIR, "models", address.rpartition("/")[2])
        if not file.is_file():  # sacreBLEU would download it, unpinned and without a time-out
            raise ResourceError(
                f"{quoted(file)}: not there; BLEU's tokenizer '{tokenize}' needs it (download it from {address})"
            )
    try:
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        if tokenize in PACKAGES:
            raise UserError(
                f"BLEU's tokenizer '{tokenize}' needs packages that are not installed (pip install '{PACKAGES[tokenize]}')"
            ) from error
        raise ResourceError(f"BLEU's tokenizer '{tokenize}' cannot be used: {quoted(error)}") from error
