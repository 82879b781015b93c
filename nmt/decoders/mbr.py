"""Minimum Bayes risk (Kumar and Byrne, 2004; Eikema and Aziz, 2020): the translation most like all that the model would say.

Candidates are samples, each of the same weight, or the hypotheses of a beam, weighted by their probability. The score of one is
its expected utility: the weighted mean, over all candidates, of how good it is if that one were the reference.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt import UserError, opt, register, registry
from nmt.decoders.base import Decoder, Hypothesis, signature
from nmt.decoders.filters import Constraints
from nmt.decoders.sampling import SamplingOptions
from nmt.errors import quoted
from nmt.models.base import Scorer
from nmt.options import as_dict, options_of

CHARACTERS: Final = 6  # the longest n-grams of chrF
PAIRS_AT_ONCE: Final = 64  # that COMET reads
BETA: Final = 2  # how many times recall counts as much as precision in chrF2

Utility = Callable[[str, Sequence[str]], NDArray[np.float64]]
"""(source, K texts) -> (K, K): how good each (row) is if another (column) is the reference, 0 to 100."""


@dataclass(frozen=True, kw_only=True)
class MbrOptions(SamplingOptions):
    n_best: int = opt(1, "translations shown, each another one, with the greatest expected utility first")
    candidates: Literal["sampling", "beam"] = opt(
        "sampling", "where the candidates come from; a beam has no length penalty"
    )
    num_candidates: int = opt(32, "candidates of a sentence: samples, or the size of the beam")
    utility: Literal["chrf", "bleu", "comet"] = opt(
        "chrf", "what is expected of a translation: chrF2, BLEU of the sentence, or COMET"
    )
    comet_model: str | None = opt(
        None, "with --utility comet: the checkpoint of a COMET model, which that library runs: a file to be trusted"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.utility == "comet") != (self.comet_model is not None):
            raise ValueError("utility comet needs a comet_model, and no other utility has one")
        if not self.n_best <= self.num_candidates:
            raise ValueError(f"num_candidates is {self.num_candidates}; it must be at least n_best, {self.n_best}")


@register("decoder", "mbr", MbrOptions)
class Mbr(Decoder):
    """Minimum Bayes risk: of samples or of a beam, the one that is most like the others."""

    takes_shortlist = False  # it reads its candidates as text

    def __init__(self, options: MbrOptions) -> None:
        self.options = options
        self.n_best = options.n_best
        entry = registry.find("decoder", options.candidates)
        known = {option.name for option in options_of(entry.options)}
        shared = {key: value for key, value in as_dict(options).items() if key in known}
        if options.candidates == "beam":
            shared |= {"beam_size": options.num_candidates, "length_penalty": "none"}
        self._utility = Comet(Path(options.comet_model)) if options.comet_model else UTILITIES[options.utility]
        self._inner: Decoder = entry.cls(entry.options(**shared | {"n_best": options.num_candidates}))
        self.paths = self._inner.paths

    @property
    def signature(self) -> str:
        return signature("mbr", self.options)

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """See Decoder; the score is the expected utility."""
        self._inner.target = self.target
        found = self._inner.search(scorer, source, constraints)
        return [self._ranked(row, ones) for row, ones in zip(source.tolist(), found, strict=True)]

    def _ranked(self, source: list[int], found: list[Hypothesis]) -> list[Hypothesis]:
        """Different candidates of a row of the source by their expected utility, the best first, n_best of them."""
        found = [one for one in found if math.isfinite(one.log_prob)] or found[:1]
        different = {tuple(one.tokens): one for one in found}
        weights = np.array([one.log_prob for one in different.values()])
        if self.options.candidates == "beam":
            weights = np.exp(weights - weights.max())
        else:
            times = Counter(tuple(one.tokens) for one in found)
            weights = np.array([float(times[tokens]) for tokens in different])
        texts = [
            self.target.decode(one.tokens) if self.target else " ".join(map(str, one.tokens))
            for one in different.values()
        ]
        text = self.source_text(source) if self.source_text else " ".join(map(str, source))
        expected = self._utility(text, texts) @ (weights / weights.sum())
        expected = np.where(np.isfinite([one.log_prob for one in different.values()]), expected, -math.inf)
        ranked = [replace(one, score=float(score)) for one, score in zip(different.values(), expected, strict=True)]
        return sorted(ranked, key=lambda one: -one.score)[: self.n_best]


def chrf(texts: Sequence[str]) -> NDArray[np.float64]:
    """chrF2 of each text (row) against each (column), as sacrebleu has it: characters, spaces left out."""
    bare = ["".join(text.split()) for text in texts]
    precisions, recalls, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for n in range(1, CHARACTERS + 1):
        counts = _counted([[text[i : i + n] for i in range(len(text) - n + 1)] for text in bare])  # K G
        totals = counts.sum(1)
        common = np.array([np.minimum(row, counts).sum(1) for row in counts], dtype=np.float64)  # K K
        both = np.outer(totals, totals) > 0
        precisions += np.where(both, common / np.maximum(totals, 1)[:, None], 0)
        recalls += np.where(both, common / np.maximum(totals, 1)[None, :], 0)
        orders += both
    precision, recall = precisions / np.maximum(orders, 1), recalls / np.maximum(orders, 1)
    whole = BETA**2 * precision + recall
    found: NDArray[np.float64] = 100 * (1 + BETA**2) * precision * recall / np.where(whole > 0, whole, 1)
    return found


def _counted(rows: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """How often each of K rows has each of the G things that there are: (K, G)."""
    number = {thing: place for place, thing in enumerate(sorted({thing for row in rows for thing in row}))}
    counts = np.zeros((len(rows), len(number)), np.int64)
    for row, things in zip(counts, rows, strict=True):
        np.add.at(row, [number[thing] for thing in things], 1)
    return counts


def bleu(texts: Sequence[str]) -> NDArray[np.float64]:
    """sacrebleu's BLEU of each text (row) as a sentence against each (column)."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)
    return np.array([[metric.sentence_score(text, [other]).score for other in texts] for text in texts])


class Comet:
    """COMET (Rei et al., 2020), 100 times what its library gives. UserError where that, or the model, is not there."""

    def __init__(self, checkpoint: Path) -> None:
        try:
            from comet import load_from_checkpoint
        except ImportError:
            raise UserError("--utility comet: needs the package comet (pip install 'nmt-toolkit[comet]')") from None
        if not checkpoint.is_file():
            raise UserError(f"{quoted(checkpoint)}: no COMET model (--comet-model names its checkpoint, a file)")
        self._model = load_from_checkpoint(str(checkpoint))
        self._alone = Lock()  # batches are searched side by side, and it is one model

    def __call__(self, source: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """See Utility."""
        pairs = [{"src": source, "mt": text, "ref": other} for text in texts for other in texts]
        with self._alone:
            found = self._model.predict(
                pairs, batch_size=PAIRS_AT_ONCE, gpus=int(torch.cuda.is_available()), progress_bar=False
            )
        return 100 * np.array(found.scores, dtype=np.float64).reshape(len(texts), -1)


UTILITIES: Final[dict[str, Utility]] = {
    "chrf": lambda source, texts: chrf(texts),
    "bleu": lambda source, texts: bleu(texts),
}
