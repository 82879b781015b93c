"""BLEU, chrF and TER by sacreBLEU, never without the signature that says how they were computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nmt.errors import UserError, quoted

Metric = Literal["bleu", "chrf", "ter"]


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
    metrics: Sequence[Metric],
    tokenize: str,
    lowercase: bool,
) -> list[Score]:
    """Score detokenised lines against raw references.

    references: one or more lists as long as hypotheses
    tokenize: BLEU's tokenizer: 13a, intl, char, none, ...; "none" is for text that is tokenised already
    """
    return [_score(metric, hypotheses, references, tokenize, lowercase) for metric in metrics]


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str) -> tuple[float, str]:
    """(BLEU, its signature)"""
    score = _score("bleu", hypotheses, [references], tokenize, False)
    return score.value, score.signature


def _score(
    name: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenize: str, lowercase: bool
) -> Score:
    metric = _metric(name, tokenize, lowercase)
    result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
    return Score(name, float(result.score), str(metric.get_signature()), str(result))


def _metric(name: Metric, tokenize: str, lowercase: bool) -> Any:
    from sacrebleu.metrics import BLEU, CHRF, TER  # 0.2 s: not for those who only translate

    if name == "bleu":
        if tokenize not in BLEU.TOKENIZERS:
            raise UserError(f"tokenize is '{quoted(tokenize)}'; sacreBLEU has {', '.join(sorted(BLEU.TOKENIZERS))}")
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    if name == "chrf":
        return CHRF(lowercase=lowercase)
    return TER(case_sensitive=not lowercase)
