"""The CTranslate2 engine (https://opennmt.net/CTranslate2): runs the searches whose results are the same as with torch.

It uses a model that `nmt export` wrote, and does not need torch. Hypotheses are ranked here with nmt's length penalty.
The few lines where CTranslate2 would search differently go to the torch engine.
"""

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread, current_thread, main_thread
from typing import Any, Final

from nmt import registry, signals
from nmt.artefact import Artefact
from nmt.decoders.hypothesis import Constraints, Hypothesis
from nmt.decoders.options import BeamOptions, SearchOptions, search_signature
from nmt.engines.torch_engine import has_torch
from nmt.errors import ResourceError, UserError, quoted
from nmt.extensions.ctranslate2 import CTRANSLATE2_KIND
from nmt.installation import required
from nmt.log import log
from nmt.options import Part, flag_of
from nmt.signals import WORKING_ON
from nmt.symbols import BOS, PAD
from nmt.text.pipeline import Pipeline
from nmt.translate.engine import BatchOutcome, EncodedLine, SearchEngine
from nmt.translate.options import MAX_DEFAULT_REPLICAS, TranslatorOptions
from nmt.translate.results import NOT_FINITE, Candidate, Failure, PairScore, retry_split

SHORTLIST: Final = "shortlist"  # the wrapper that CTranslate2 also supports, in the form of a vocabulary map
MAP_FILE: Final = "vmap.txt"  # file of an exported folder: target tokens for each source token
POSITIONS: Final = 2048  # minimum number of positions per side of an exported model; CTranslate2 stops at the last one
# Source tokens per batch, including padding. Each value was the fastest of those tried (docs/measurements.md). With a vocabulary
# map, fewer source tokens leave fewer target tokens to choose from.
BATCH_TOKENS: Final = 1024
INT8_BATCH_TOKENS: Final = 512
MAP_BATCH_TOKENS: Final = 256
MAX_PENALTY_EXPONENT: Final = (
    0.6  # with a larger exponent, hypotheses that ended later occasionally won (docs/measurements.md)
)
PATIENCE: Final = 2.0  # multiple of the beam size; of 1,000 translations of Multi30k, 5 differed with 1, none with 1.5
TYPICAL_LENGTH: Final = 25  # tokens
MAX_EMPTY_NATS: Final = -1e-3  # if an empty translation has a higher log-probability, those of the others are inexact
CHECK_SECONDS: Final = 0.05  # time between two checks for a signal while a batch is translated
                lines, plain, results = waiting.popleft()
                of_plain, warning = self._outcomes(plain, results)
                found = iter(of_plain)
                outcomes = [None if _is_constrained(line) else next(found) for line in lines]
                yield BatchOutcome(self._completed(lines, outcomes), warning)
        finally:
            is_searching()  # release models whose batches have finished
            if waiting:
                _GIVEN_UP.append((self._model, [result for _, _, results in waiting for result in results]))

    def _wait(self, results: list[Any]) -> None:
        """Wait until a batch is translated. Raises Interrupted after a signal."""
        if current_thread() is not main_thread():
            return  # no signal arrives here, so `result` may wait
        waiting = self._watcher().watch(results)
        while not waiting.acquire(timeout=CHECK_SECONDS):
            signals.check()

    def without_scores(self) -> None:
        replaces_empty = self._torch is None and self.search_options.min_length > 0
        self._settings["return_scores"] = self._settings["beam_size"] > 1 or replaces_empty

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore | Failure]:
        if self._torch is None:
            raise UserError("an export for CTranslate2 cannot score translations (use the original model)")
        return self._torch().score(sources, targets)

    def _submit(self, lines: Sequence[EncodedLine], min_length: int = 0) -> list[Any]:
        """Start translating lines, up to one token beyond the maximum length, so that longer translations are detected."""
        if not lines:
            return []
        lengths = {
            "min_decoding_length": min_length,
            "max_decoding_length": self.search_options.limit(max(len(line.source) for line in lines)) + 1,
        }
        return self._model.submit([line.source for line in lines], **lengths, **self._settings)

    def _outcomes(
        self, lines: Sequence[EncodedLine], results: list[Any]
    ) -> tuple[list[list[Candidate] | Failure | None], str]:
        """The outcome of each line (None if the torch engine must search it), and a warning if the batch was retried."""

        def work(part: slice) -> list[list[Candidate] | Failure | None]:
            own = lines[part]
            started = results if len(own) == len(lines) else self._submit(own)
            found = [self._hypotheses(result.result()) for result in started]
            self._replace_empty(own, found)
            if self._torch is None and len(own) > 1:
                self._search_alone(own, found)
            return list(map(self._candidates, own, found))

        return retry_split(work, len(lines)) if lines else ([], "")

    def _replace_empty(self, lines: Sequence[EncodedLine], found: list[list[Hypothesis]]) -> None:
        """Search again with at least one token if a hypothesis is empty.

        Unlike nmt's search, CTranslate2 then distributes the probability of the empty hypothesis among the other hypotheses.
        """
        if not (self.search_options.min_length and self._settings["return_scores"]):
            return
        log_probs = {
            i: hypothesis.log_prob
            for i, row in enumerate(found)
            for hypothesis in row
            if not hypothesis.tokens and hypothesis.log_prob < MAX_EMPTY_NATS
        }
        again = self._together(list(log_probs), lines)
        for i, result in zip(again, self._submit([lines[i] for i in again], min_length=1), strict=True):
            if i in log_probs:
                found[i] = self._hypotheses(result.result(), math.log1p(-math.exp(log_probs[i])))

    def _search_alone(self, lines: Sequence[EncodedLine], found: list[list[Hypothesis]]) -> None:
        """Search lines again, one by one, if a hypothesis exceeds its line's limit: CTranslate2 has only one limit per batch."""
        limits = [self.search_options.limit(len(line.source)) for line in lines]
        long = [i for i, row in enumerate(found) if any(len(hypothesis.tokens) > limits[i] for hypothesis in row)]
        for i, [result] in [(i, self._submit([lines[i]])) for i in long]:
            alone = [self._hypotheses(result.result())]
            self._replace_empty([lines[i]], alone)
            found[i] = alone[0]

    def _candidates(self, line: EncodedLine, hypotheses: Sequence[Hypothesis]) -> list[Candidate] | Failure | None:
        """The hypothesis that nmt's score ranks first; None if nmt's search would not allow one of the hypotheses."""
        limit = self.search_options.limit(len(line.source))
        if self._torch is None:
            hypotheses = [each for each in hypotheses if len(each.tokens) <= limit] or hypotheses
        if self._torch is None or self._settings["beam_size"] == 1:
            hypotheses = [self._ended(line, hypothesis, limit) for hypothesis in hypotheses]
        if self._torch is not None and not all(self._is_allowed(hypothesis.tokens, limit) for hypothesis in hypotheses):
            return None
        best = max(hypotheses, key=lambda hypothesis: hypothesis.score)
        if self._settings["return_scores"] and not math.isfinite(best.score):
            return NOT_FINITE
        return [Candidate.of(best, self.pipeline.target)]

    def _ended(self, line: EncodedLine, hypothesis: Hypothesis, limit: int) -> Hypothesis:
        """Truncate the only hypothesis of a line at the maximum length and add the probability of EOS, as nmt's search does.

        The probability ignores the vocabulary map.
        limit: maximum length in tokens
        """
        tokens = hypothesis.tokens[:limit]
        if len(tokens) == len(hypothesis.tokens) or PAD in tokens or BOS in tokens:
            return hypothesis
        if not self._settings["return_scores"]:
            return self._scored(tokens, math.nan)
        [log_probs] = self._model.log_probs([line.source], [tokens])
        return self._scored(tokens, math.fsum(log_probs))

    def _is_allowed(self, tokens: Sequence[int], limit: int) -> bool:
        """Whether nmt's search allows a hypothesis. CTranslate2 has such limits too, but they would change the probabilities."""
        return self.search_options.min_length <= len(tokens) <= limit and PAD not in tokens and BOS not in tokens

    def _hypotheses(self, result: Any, more_nats: float = 0.0) -> list[Hypothesis]:
        """Convert CTranslate2's hypotheses, and replace its length penalty with nmt's.

        more_nats: added to each log-probability
        """
        exponent = self._settings["length_penalty"]
        scores = result.scores if self._settings["return_scores"] else [math.nan] * len(result.hypotheses)
        return [
            self._scored(self._model.tokens(pieces), score * (len(pieces) + 1) ** exponent + more_nats)
            for pieces, score in zip(result.hypotheses, scores, strict=True)
        ]

    def _scored(self, tokens: Sequence[int], log_prob: float) -> Hypothesis:
        """A hypothesis with nmt's score. log_prob: in nats, including EOS"""
        is_beam = isinstance(self.search_options, BeamOptions)
        divisor: float = self.search_options.divisor(len(tokens) + 1) if is_beam else 1.0
        return Hypothesis(list(tokens), log_prob, log_prob / divisor)

    def _completed(
        self, lines: Sequence[EncodedLine], outcomes: Sequence[list[Candidate] | Failure | None]
    ) -> list[list[Candidate] | Failure]:
        """Replace outcomes that are None by searching those lines with the torch engine."""
        if self._torch is None:
            refused = Failure(
                "CTranslate2 does not support prefixes, phrases or texts to avoid (use the model folder with torch)"
            )
            return [refused if outcome is None else outcome for outcome in outcomes]
        found: dict[int, list[Candidate] | Failure] = {}
        if left := [i for i, outcome in enumerate(outcomes) if outcome is None]:
            searched = self._together(left, lines)
            [batch] = self._torch().search([[lines[i] for i in searched]])
            found = dict(zip(searched, batch.lines, strict=True))
        return [found[i] if outcome is None else outcome for i, outcome in enumerate(outcomes)]

    def _together(self, chosen: list[int], lines: Sequence[EncodedLine]) -> list[int]:
        """The indices of the lines to search again. With a vocabulary map, all lines of a batch share their allowed tokens."""
        return list(range(len(lines))) if chosen and self._settings["use_vmap"] else chosen


def search_settings(options: SearchOptions) -> dict[str, Any]:
    """The settings of `translate_batch` that reproduce the results of nmt's beam or greedy search."""
    settings = {"beam_size": 1, "length_penalty": 0.0, "return_scores": True}
    if not isinstance(options, BeamOptions) or options.beam_size == 1:
        return settings
    settings["beam_size"] = options.beam_size
    settings["length_penalty"] = _exponent(options)
    if not settings["length_penalty"] and options.stop == "full":
        settings["length_penalty"] = 1e-9  # with 0, the search would stop when the best hypothesis of a step has ended
    if settings["length_penalty"]:
        settings["num_hypotheses"] = options.beam_size  # return all hypotheses that have ended by the end of the search
        if options.stop == "best":  # nmt stops when no better hypothesis is possible, even if the beam fills up earlier
            settings["patience"] = PATIENCE
    return settings


def _exponent(options: BeamOptions) -> float:
    """The exponent p of CTranslate2's penalty n ** p that grows as fast as nmt's penalty at length n = TYPICAL_LENGTH."""
    if options.length_penalty == "gnmt":  # ((5 + n) / 6) ** alpha
        return options.alpha * TYPICAL_LENGTH / (5 + TYPICAL_LENGTH)
    return options.alpha if options.length_penalty == "average" else 0.0


def _is_constrained(line: EncodedLine) -> bool:
    return line.constraints != Constraints()


def available_threads() -> int:
    """Number of threads that this process may use, as torch counts them: OMP_NUM_THREADS, or else the available processors."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
