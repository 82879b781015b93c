"""CTranslate2 as an engine (https://opennmt.net/CTranslate2): the searches that it does as ours do, without torch.

It gets the model as `nmt export` writes it. Its hypotheses are ranked here, by our length penalty. Lines that it cannot
search as we do, which are few, go to our own engine.
"""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
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

SHORTLIST: Final = "shortlist"  # the wrapper that it has too, as a map of the vocabulary
MAP_FILE: Final = "vmap.txt"  # of an exported folder: target tokens by source token
POSITIONS: Final = 2048  # of an exported model, on either side, at least; CTranslate2 stops at their end
# Source tokens of a batch, padding counted; each is the fastest of those tried (docs/measurements.md). With a map fewer source
# tokens have fewer target tokens to choose among.
BATCH_TOKENS: Final = 1024
INT8_BATCH_TOKENS: Final = 512
MAP_BATCH_TOKENS: Final = 256
MAX_PENALTY_EXPONENT: Final = 0.6  # with more, hypotheses that end later won now and then (docs/measurements.md)
PATIENCE: Final = 2.0  # times a full beam; with 1, 5 of 1,000 translations of Multi30k were others, with 1.5 none
TYPICAL_LENGTH: Final = 25  # tokens
MAX_EMPTY_NATS: Final = -1e-3  # of a sentence without words; the rest of the probability is not exact for more
MIN_PAUSE: Final = 0.001  # seconds, of a wait for a batch
MAX_PAUSE: Final = 0.05
BATCHES_AHEAD: Final = 4  # of each worker, that are given to CTranslate2 before the first has ended


_GIVEN_UP: Final[list[tuple[Any, list[Any]]]] = []
"""Models with batches that nobody waits for. The end of such a model would wait for all of them."""


def is_searching() -> bool:
    """Whether batches that nobody waits for are still searched. Models without are let go."""
    _GIVEN_UP[:] = [(model, results) for model, results in _GIVEN_UP if not all(result.done() for result in results)]
    return bool(_GIVEN_UP)


WORKING_ON.append(is_searching)


def import_ctranslate2() -> Any:
    """The package ctranslate2. Raises UserError if it cannot be imported."""
    return required("ctranslate2", "translating or exporting with CTranslate2", "ctranslate2")


class CTranslate2Model:
    """An exported model in CTranslate2 on the CPU, by ids.

    computation: int8, or default: in the type of the stored weights
    workers: batches side by side; threads: of each, 0 leaves the choice to CTranslate2
    Raises ResourceError for files that it cannot read.
    """

    def __init__(self, folder: Path, pipeline: Pipeline, computation: str, workers: int, threads: int) -> None:
        parallel = {"inter_threads": workers, "intra_threads": threads, "max_queued_batches": -1}
        library = import_ctranslate2()
        try:
            self._translator = library.Translator(str(folder), device="cpu", compute_type=computation, **parallel)
        except RuntimeError as error:
            raise ResourceError(f"{quoted(folder)}: CTranslate2 cannot read it: {quoted(error)}") from error
        self._source_pieces, self._target_pieces = (
            [side.piece(token) for token in range(side.size)] for side in (pipeline.source, pipeline.target)
        )
        self._ids = {piece: token for token, piece in enumerate(self._target_pieces)}

    def submit(self, sources: Sequence[Sequence[int]], **settings: Any) -> list[Any]:
        """Begin to translate a batch; `AsyncTranslationResult`s. sources: ids without EOS; settings: of `translate_batch`"""
        rows = [list(map(self._source_pieces.__getitem__, source)) for source in sources]
        results: list[Any] = self._translator.translate_batch(rows, max_input_length=0, asynchronous=True, **settings)
        return results

    def translate(self, sources: Sequence[Sequence[int]], **settings: Any) -> list[list[int]]:
        """The best translation of each sentence, as ids without EOS; see `submit`."""
        return [self.tokens(result.result().hypotheses[0]) for result in self.submit(sources, **settings)]

    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Nats of the tokens of each target and of EOS. sources, targets: ids without EOS"""
        rows = [list(map(self._source_pieces.__getitem__, source)) for source in sources]
        of_targets = [list(map(self._target_pieces.__getitem__, target)) for target in targets]
        results = self._translator.score_batch(rows, of_targets)
        return [list(result.log_probs) for result in results]

    def tokens(self, pieces: Sequence[str]) -> list[int]:
        """The ids of target pieces."""
        return list(map(self._ids.__getitem__, pieces))


def refusal(options: TranslatorOptions, part: Part, models: int) -> str:
    """Why CTranslate2 does not translate as our own engine would with these options; empty if it does.

    part: the search; models: how many there are
    """
    if find_spec("ctranslate2") is None:
        return "it is not installed"
    if models > 1:
        return "it searches with one model"
    if options.device not in ("auto", "cpu") or (options.device == "auto" and _has_gpu()):
        return "it is used on CPUs only"
    if options.precision == "bf16":
        return "--precision bf16 is torch's"
    if getattr(options, "matmul", "auto") != "auto":
        return "--matmul is for torch's products"
    active = [(kind, name) for kind in ("filter", "wrapper") for name in registry.active_names(kind, options)]
    flags = [flag for kind, name in active if name != SHORTLIST for flag in registry.given_flags(kind, name, options)]
    flags += [flag_of(name) for name in ("compile", "capture") if getattr(options, name, False)]
    if "--alignment" in flags:
        return "--alignment, --markup and --glossary need the attention of our own search"
    if flags:
        return f"{flags[0]} needs our own search"
    search = part.options
    if part.name not in ("beam", "greedy"):
        return f"--decoder {part.name} needs our own search"
    is_too_long = max(options.max_source_length, search.limit(options.max_source_length)) >= POSITIONS
    if search.no_unk or search.min_length > 1 or search.no_repeat_ngram or is_too_long:
        return "--no-unk, --min-length, --no-repeat-ngram and lengths beyond its positions need our own search"
    if isinstance(search, BeamOptions):
        if search.n_best > 1 or search.coverage_penalty or search.prune is not None:
            return "--n-best, --coverage-penalty and --prune need our own search"
        if search.beam_size > 1 and search.stop == "best" and _exponent(search) > MAX_PENALTY_EXPONENT:
            return "with --stop best a length penalty of more than about sqrt(n) needs our own search"
    return ""


def _has_gpu() -> bool:
    """Whether this machine may have a GPU that torch can use. torch itself is not asked: it is slow to import."""
    return has_torch() and (Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists())


class CTranslate2Engine(SearchEngine):
    """Searches of an exported model by CTranslate2.

    folder: of the exported model
    part: the search, which `refusal` allows
    own: opens our own engine with the same options, for lines with constraints and those without an end; None: there is none
    takes_phrases: whether that engine does
    """

    def __init__(
        self,
        folder: Path,
        options: TranslatorOptions,
        part: Part,
        own: Callable[[], SearchEngine] | None = None,
        takes_phrases: bool = False,
    ) -> None:
        self.pipeline = Pipeline.load(Artefact(folder, CTRANSLATE2_KIND))
        self.device, self.search_options = "cpu", part.options
        threads = options.threads or available_threads()
        self.replicas = options.replicas or min(threads, MAX_DEFAULT_REPLICAS)
        computation = "int8" if options.precision == "int8" else "default"
        workers = self.replicas, max(1, threads // self.replicas)
        self._model = CTranslate2Model(folder, self.pipeline, computation, *workers)
        self.n_best, self.takes_phrases = 1, takes_phrases
        version = import_ctranslate2().__version__
        self.signature = f"{search_signature(part.name, part.options)}|engine:ctranslate2-{version}"
        self._settings = search_settings(part.options) | {"use_vmap": (folder / MAP_FILE).exists()}
        usual = INT8_BATCH_TOKENS if computation == "int8" else BATCH_TOKENS
        if self._settings["use_vmap"] and self._settings["beam_size"] > 1:
            usual = MAP_BATCH_TOKENS
        self.batch_tokens = usual if options.batch_tokens == "auto" else options.batch_tokens
        self._own = cache(own) if own else None
        log.detail(f"engine ctranslate2: {quoted(folder)}")

    def search(self, batches: Sequence[list[EncodedLine]]) -> Iterator[BatchOutcome]:
        waiting: deque[tuple[list[EncodedLine], list[EncodedLine], list[Any]]] = deque()
        remaining = iter(batches)
        try:
            while True:
                while len(waiting) < BATCHES_AHEAD * self.replicas and (lines := next(remaining, None)) is not None:
                    plain = [line for line in lines if not _is_constrained(line)]
                    waiting.append((lines, plain, self._submit(plain)))
                if not waiting:
                    return
                signals.check()
                pause = MIN_PAUSE
                while not all(result.done() for result in waiting[0][2]):  # `result` cannot be interrupted
                    time.sleep(pause)
                    pause = min(2 * pause, MAX_PAUSE)
                    signals.check()
                lines, plain, results = waiting.popleft()
                of_plain, warning = self._outcomes(plain, results)
                found = iter(of_plain)
                outcomes = [None if _is_constrained(line) else next(found) for line in lines]
                yield BatchOutcome(self._completed(lines, outcomes), warning)
        finally:
            is_searching()  # forget what has ended meanwhile
            if waiting:
                _GIVEN_UP.append((self._model, [result for _, _, results in waiting for result in results]))

    def without_scores(self) -> None:
        replaces_empty = self._own is None and self.search_options.min_length > 0
        self._settings["return_scores"] = self._settings["beam_size"] > 1 or replaces_empty

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore | Failure]:
        if self._own is None:
            raise UserError("a folder for CTranslate2 scores no translations (give the model that it was made of)")
        return self._own().score(sources, targets)

    def _submit(self, lines: Sequence[EncodedLine], min_length: int = 0) -> list[Any]:
        """Begin to translate lines. Each may have a token more than our longest translation, by which it is recognised."""
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
        """The outcome of each line, None where our own engine must search, and a warning if the batch was retried."""

        def work(part: slice) -> list[list[Candidate] | Failure | None]:
            own = lines[part]
            begun = results if len(own) == len(lines) else self._submit(own)
            found = [self._hypotheses(result.result()) for result in begun]
            self._replace_empty(own, found)
            if self._own is None and len(own) > 1:
                self._search_alone(own, found)
            return list(map(self._candidates, own, found))

        return retry_split(work, len(lines)) if lines else ([], "")

    def _replace_empty(self, lines: Sequence[EncodedLine], found: list[list[Hypothesis]]) -> None:
        """Search again, for a token at least, where a hypothesis is empty.

        CTranslate2 then shares out the probability of the empty one among the others, and ours does not.
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
        """Search again, alone, for each line with a hypothesis beyond its limit: CTranslate2 has one limit for a batch."""
        limits = [self.search_options.limit(len(line.source)) for line in lines]
        long = [i for i, row in enumerate(found) if any(len(hypothesis.tokens) > limits[i] for hypothesis in row)]
        for i, [result] in [(i, self._submit([lines[i]])) for i in long]:
            alone = [self._hypotheses(result.result())]
            self._replace_empty([lines[i]], alone)
            found[i] = alone[0]

    def _candidates(self, line: EncodedLine, hypotheses: Sequence[Hypothesis]) -> list[Candidate] | Failure | None:
        """The best hypothesis by our score; None where one is none that our search would have."""
        limit = self.search_options.limit(len(line.source))
        if self._own is None:
            hypotheses = [each for each in hypotheses if len(each.tokens) <= limit] or hypotheses
        if self._own is None or self._settings["beam_size"] == 1:
            hypotheses = [self._ended(line, hypothesis, limit) for hypothesis in hypotheses]
        if self._own is not None and not all(self._is_allowed(hypothesis.tokens, limit) for hypothesis in hypotheses):
            return None
        best = max(hypotheses, key=lambda hypothesis: hypothesis.score)
        if self._settings["return_scores"] and not math.isfinite(best.score):
            return NOT_FINITE
        return [Candidate.of(best, self.pipeline.target)]

    def _ended(self, line: EncodedLine, hypothesis: Hypothesis, limit: int) -> Hypothesis:
        """The only hypothesis of a line as our search ends it: at the greatest length, with the probability of the end there.

        That is the probability without a map of the vocabulary.
        limit: that length, in tokens
        """
        tokens = hypothesis.tokens[:limit]
        if len(tokens) == len(hypothesis.tokens) or PAD in tokens or BOS in tokens:
            return hypothesis
        if not self._settings["return_scores"]:
            return self._scored(tokens, math.nan)
        [log_probs] = self._model.log_probs([line.source], [tokens])
        return self._scored(tokens, math.fsum(log_probs))

    def _is_allowed(self, tokens: Sequence[int], limit: int) -> bool:
        """Whether our search allows a hypothesis. CTranslate2 could too, but would give the other tokens more probability."""
        return self.search_options.min_length <= len(tokens) <= limit and PAD not in tokens and BOS not in tokens

    def _hypotheses(self, result: Any, more_nats: float = 0.0) -> list[Hypothesis]:
        """The hypotheses of CTranslate2, whose scores are divided by its own length penalty, with our scores.

        more_nats: added to each log-probability
        """
        exponent = self._settings["length_penalty"]
        scores = result.scores if self._settings["return_scores"] else [math.nan] * len(result.hypotheses)
        return [
            self._scored(self._model.tokens(pieces), score * (len(pieces) + 1) ** exponent + more_nats)
            for pieces, score in zip(result.hypotheses, scores, strict=True)
        ]

    def _scored(self, tokens: Sequence[int], log_prob: float) -> Hypothesis:
        """A hypothesis with our score. log_prob: nats, EOS counted"""
        is_beam = isinstance(self.search_options, BeamOptions)
        divisor: float = self.search_options.divisor(len(tokens) + 1) if is_beam else 1.0
        return Hypothesis(list(tokens), log_prob, log_prob / divisor)

    def _completed(
        self, lines: Sequence[EncodedLine], outcomes: Sequence[list[Candidate] | Failure | None]
    ) -> list[list[Candidate] | Failure]:
        """The outcomes of lines, those that are None from our own engine."""
        if self._own is None:
            refused = Failure(
                "CTranslate2 takes no prefix, phrases or texts to avoid (they need torch and the model itself)"
            )
            return [refused if outcome is None else outcome for outcome in outcomes]
        found: dict[int, list[Candidate] | Failure] = {}
        if left := [i for i, outcome in enumerate(outcomes) if outcome is None]:
            searched = self._together(left, lines)
            [batch] = self._own().search([[lines[i] for i in searched]])
            found = dict(zip(searched, batch.lines, strict=True))
        return [found[i] if outcome is None else outcome for i, outcome in enumerate(outcomes)]

    def _together(self, chosen: list[int], lines: Sequence[EncodedLine]) -> list[int]:
        """The numbers of lines to search again. With a shortlist all lines of a batch decide which tokens there are."""
        return list(range(len(lines))) if chosen and self._settings["use_vmap"] else chosen


def search_settings(options: SearchOptions) -> dict[str, Any]:
    """The settings of `translate_batch` that search as our beam or greedy search does."""
    settings = {"beam_size": 1, "length_penalty": 0.0, "return_scores": True}
    if not isinstance(options, BeamOptions) or options.beam_size == 1:
        return settings
    settings["beam_size"] = options.beam_size
    settings["length_penalty"] = _exponent(options)
    if not settings["length_penalty"] and options.stop == "full":
        settings["length_penalty"] = 1e-9  # with 0 the search ends when the best hypothesis of a step has ended
    if settings["length_penalty"]:
        settings["num_hypotheses"] = options.beam_size  # those that have ended when the search ends
        if options.stop == "best":  # ours ends when no better one can come, which may be later than a full beam
            settings["patience"] = PATIENCE
    return settings


def _exponent(options: BeamOptions) -> float:
    """The p of CTranslate2's penalty n ** p that grows with the length n as ours does at TYPICAL_LENGTH."""
    if options.length_penalty == "gnmt":  # ((5 + n) / 6) ** alpha
        return options.alpha * TYPICAL_LENGTH / (5 + TYPICAL_LENGTH)
    return options.alpha if options.length_penalty == "average" else 0.0


def _is_constrained(line: EncodedLine) -> bool:
    return line.constraints != Constraints()


def available_threads() -> int:
    """Threads that this process may use, as torch counts them: OMP_NUM_THREADS, else the processors that it may run on."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
