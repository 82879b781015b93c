"""BLEU, chrF and TER by sacreBLEU, never without the signature that says how they were computed."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from nmt.errors import InputError, ResourceError, UserError, quoted, unknown
from nmt.log import log

METRICS: Final = ("bleu", "chrf", "ter")
PACKAGES: Final = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}
SUBWORD: Final = re.compile(r"\S@@(?:\s|$)|(?:^|\s)\u2581")  # as subword-nmt and as SentencePiece write them
LINES_WITH_SUBWORDS: Final = 0.1  # the share of lines beyond which it is no accident
TESTS: Final = {"bootstrap": "bs", "randomization": "ar"}  # as sacreBLEU calls them
NEWSTEST2014: Final = re.compile(r"(?:newstest|wmt)[-_.]?(?:20)?14", re.IGNORECASE)
FILTERED, WHOLE = 2737, 3003  # lines of newstest2014 German-English: sacreBLEU's wmt14, and its wmt14/full

Test = Literal["bootstrap", "randomization"]


@dataclass(frozen=True)
class Score:
    """One score of a whole test set, 0 to 100.

    metric: of METRICS, or the name of a definition
    signature: sacreBLEU's, after what was done to the text before, in words
    detail: sacreBLEU's own line, as "BLEU = 27.3 58.1/..."
    """

    metric: str
    value: float
    signature: str
    detail: str


@dataclass(frozen=True)
class Comparison:
    """A score of one system beside a baseline's. signature: with the test, its trials and its seed.

    mean, ci: of the score over bootstrap resamples; 95 % of them lie within mean - ci and mean + ci
    p_value: of a difference as large as this one if there were none; None for the baseline
    """

    system: str
    metric: str
    value: float
    mean: float
    ci: float
    p_value: float | None
    signature: str


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
    return [score(_metric(name, tokenize, lowercase), name, hypotheses, references) for name in metrics]


def score(metric: Any, name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """The score of a sacreBLEU metric, under a name."""
    result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
    return Score(name, float(result.score), str(metric.get_signature()), str(result))


def compare(
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenize: str,
    lowercase: bool,
    test: Test,
    trials: int,
) -> list[Comparison]:
    """sacreBLEU's paired test of each system against the first, in this process, metric by metric.

    systems: names and lines, two or more
    trials: resamples (bootstrap) or shuffles (randomization); 0 is sacreBLEU's own number, 1,000 or 10,000
    Raises UserError when SACREBLEU_SEED would make the result another one each time.
    """
    from sacrebleu.significance import PairedTest

    check_seed()
    for system, lines in systems[1:]:
        if list(lines) == list(systems[0][1]):  # sacreBLEU counts what exceeds a difference of zero: nothing does
            log.warn(f"{quoted(system)}: the same lines as {quoted(systems[0][0])}'s: their p says nothing")
    found = []
    for name in metrics:
        paired = PairedTest(
            [(system, list(lines)) for system, lines in systems],
            {name: _metric(name, tokenize, lowercase)},
            [list(lines) for lines in references],
            test_type=TESTS[test],
            n_samples=trials,
            n_ar_confidence=0 if test == "randomization" else -1,  # randomization alone gives no interval
        )
        signatures, columns = paired()
        [(key, signature)] = signatures.items()
        results: list[Any] = columns[key]
        for (system, _), result in zip(systems, results, strict=True):
            numbers = float(result.score), float(result.mean), float(result.ci)
            p_value = None if result.p_value is None else float(result.p_value)
            found.append(Comparison(system, name, *numbers, p_value, str(signature)))
    return found


def check_seed() -> None:
    """Raises UserError unless SACREBLEU_SEED, if set, is a positive number: sacreBLEU takes 0 and none for no seed."""
    seed = os.environ.get("SACREBLEU_SEED", "1")
    if not (seed.isascii() and seed.isdigit() and int(seed) > 0):
        raise UserError(f"SACREBLEU_SEED is '{quoted(seed)}'; wanted a positive number, or no such variable")


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str) -> tuple[float, str]:
    """(BLEU, its signature)"""
    found = score(_bleu(tokenize, False), "bleu", hypotheses, [references])
    return found.value, found.signature


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


def refuse_subwords(name: str, lines: Sequence[str]) -> None:
    """Raises InputError when more than a tenth of the lines are split into parts of words."""
    count = num_split(lines)
    if count > LINES_WITH_SUBWORDS * len(lines):
        raise InputError(
            f"{quoted(name)}: {count:,} of {len(lines):,} lines are split into subwords (tokens that end in @@ or begin "
            "with \u2581), and scores are of detokenised text (join them: nmt translate does, as do sed 's/@@ //g' or "
            "spm_decode; then undo the tokens, if any)"
        )


def unequal(hypothesis: str, num_lines: int, reference: str, num_reference_lines: int) -> InputError:
    """The error for translations and references of different length; the two versions of newstest2014 are named."""
    told = f"{quoted(hypothesis)} has {num_lines:,} lines, {quoted(reference)} has {num_reference_lines:,}"
    if {num_lines, num_reference_lines} != {FILTERED, WHOLE}:
        return InputError(told)
    filtered, whole = (hypothesis, reference) if num_lines == FILTERED else (reference, hypothesis)
    return InputError(
        f"{told}: {quoted(filtered)} looks like newstest2014 as it was filtered for the campaign (sacreBLEU's wmt14), "
        f"{quoted(whole)} like all of it (wmt14/full), which the paper scores (sacrebleu -t wmt14/full -l en-de --echo "
        "src, or ref, prints the files of 3,003 lines; -t wmt14 those of 2,737)"
    )


def filtered_newstest2014(names: Sequence[str], num_lines: int) -> str | None:
    """What to warn of when a test set is the filtered newstest2014 by its length and by a name; None when it is not."""
    if num_lines != FILTERED or not any(NEWSTEST2014.search(name) for name in names):
        return None
    return (
        f"{FILTERED:,} lines are newstest2014 as it was filtered for the campaign (sacreBLEU's wmt14); the paper's figures "
        f"are of all {WHOLE:,} (wmt14/full), and the two cannot be compared"
    )


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
