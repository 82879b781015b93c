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
from typing import Any, Final, NamedTuple

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
SIGNAL_CHECK_SECONDS: Final = 0.05  # time between two checks for a signal while a batch is translated
MAX_EMPTY_NATS: Final = -1e-3  # if an empty translation has a higher log-probability, those of the others are inexact
BATCHES_AHEAD: Final = 4  # batches per worker that are submitted before the first one has finished


_GIVEN_UP: Final[list[tuple[Any, list[Any]]]] = []
"""Models with abandoned batches. Deleting such a model would wait for all of its batches."""


def is_searching() -> bool:
    """Whether abandoned batches are still being searched. Models without such batches are released."""
    _GIVEN_UP[:] = [(model, results) for model, results in _GIVEN_UP if not all(result.done() for result in results)]
    return bool(_GIVEN_UP)


WORKING_ON.append(is_searching)


def import_ctranslate2() -> Any:
    """Import the package ctranslate2. Raises UserError if that fails."""
    return required("ctranslate2", "translating or exporting with CTranslate2", "ctranslate2")


class CTranslate2Model:
    """An exported model, run by CTranslate2 on the CPU; inputs and outputs are token ids.

    computation: int8, or default, which uses the type of the stored weights
    workers: number of batches that run in parallel
    threads: threads per worker; 0 leaves the choice to CTranslate2
    Raises ResourceError if CTranslate2 cannot read the files.
    """

    def __init__(self, folder: Path, pipeline: Pipeline, computation: str, workers: int, threads: int) -> None:
        parallel = {"inter_threads": workers, "intra_threads": threads, "max_queued_batches": -1}
        library = import_ctranslate2()
        try:
            self._translator = library.Translator(str(folder), device="cpu", compute_type=computation, **parallel)
        except RuntimeError as error:
            raise ResourceError(f"{quoted(folder)}: CTranslate2 cannot read this folder: {quoted(error)}") from error
        self._source_pieces, self._target_pieces = (
            [side.piece(token) for token in range(side.size)] for side in (pipeline.source, pipeline.target)
        )
        self._ids = {piece: token for token, piece in enumerate(self._target_pieces)}

    def submit(self, sources: Sequence[Sequence[int]], **settings: Any) -> list[Any]:
        """Start translating a batch. Returns `AsyncTranslationResult`s.

        sources: ids without EOS
        settings: arguments of `translate_batch`
        """
        rows = [list(map(self._source_pieces.__getitem__, source)) for source in sources]
        results: list[Any] = self._translator.translate_batch(rows, max_input_length=0, asynchronous=True, **settings)
        return results

    def translate(self, sources: Sequence[Sequence[int]], **settings: Any) -> list[list[int]]:
        """The best translation of each sentence, as ids without EOS; see `submit`."""
        return [self.tokens(result.result().hypotheses[0]) for result in self.submit(sources, **settings)]

    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probability in nats of each target token and of EOS. sources, targets: ids without EOS"""
        rows = [list(map(self._source_pieces.__getitem__, source)) for source in sources]
        of_targets = [list(map(self._target_pieces.__getitem__, target)) for target in targets]
        results = self._translator.score_batch(rows, of_targets)
        return [list(result.log_probs) for result in results]

    def tokens(self, pieces: Sequence[str]) -> list[int]:
        """The ids of target pieces."""
        return list(map(self._ids.__getitem__, pieces))


def refusal(options: TranslatorOptions, part: Part, models: int) -> str:
    """Why CTranslate2 would not translate like the torch engine with these options; empty if it would.

    part: the search; models: the number of models
    """
    if find_spec("ctranslate2") is None:
        return "it is not installed"
    if models > 1:
        return "it does not support ensembles"
    if options.device not in ("auto", "cpu") or (options.device == "auto" and _has_gpu()):
        return "it is used only on CPUs"
    if options.precision == "bf16":
        return "--precision bf16 needs --engine torch"
    if getattr(options, "matmul", "auto") != "auto":
        return "--matmul needs --engine torch"
    active = [(kind, name) for kind in ("filter", "wrapper") for name in registry.active_names(kind, options)]
    flags = [flag for kind, name in active if name != SHORTLIST for flag in registry.given_flags(kind, name, options)]
    flags += [flag_of(name) for name in ("compile", "capture") if getattr(options, name, False)]
    if "--alignment" in flags:
        return "--alignment, --markup and --glossary need the attention weights of --engine torch"
    if flags:
        return f"{flags[0]} needs --engine torch"
    search = part.options
    if part.name not in ("beam", "greedy"):
        return f"--decoder {part.name} needs --engine torch"
    is_too_long = max(options.max_source_length, search.limit(options.max_source_length)) >= POSITIONS
    if search.no_unk or search.min_length > 1 or search.no_repeat_ngram or is_too_long:
        return "--no-unk, --min-length, --no-repeat-ngram and lengths beyond the model's positions need --engine torch"
    if isinstance(search, BeamOptions):
        if search.n_best > 1 or search.coverage_penalty or search.prune is not None:
            return "--n-best, --coverage-penalty and --prune need --engine torch"
        if search.beam_size > 1 and search.stop == "best" and _exponent(search) > MAX_PENALTY_EXPONENT:
            return "with --stop best, a length penalty that grows faster than about sqrt(n) needs --engine torch"
    return ""


def _has_gpu() -> bool:
    """Whether this machine may have a GPU that torch can use. torch itself is not asked, because importing it is slow."""
    return has_torch() and (Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists())


class _Row(NamedTuple):
    """A hypothesis of CTranslate2, with nmt's score. pieces: without EOS; log_prob: in nats, including EOS"""

    pieces: Sequence[str]
    log_prob: float
    score: float


class Watcher:
    """A thread that waits for batches. The main thread must not call `result`, which no signal can interrupt."""

    def __init__(self) -> None:
        self._given: SimpleQueue[tuple[list[Any], Lock]] = SimpleQueue()
        Thread(target=self._watch, name="watcher", daemon=True).start()

    def watch(self, results: list[Any]) -> Lock:
        """A lock that is released when the results of a batch are ready."""
        ready = Lock()
        ready.acquire()
        self._given.put((results, ready))
        return ready

    def _watch(self) -> None:
        while True:
            results, ready = self._given.get()
            for result in results:
                with suppress(Exception):  # the engine raises it again
                    result.result()
            ready.release()


class CTranslate2Engine(SearchEngine):
    """Runs searches with an exported model in CTranslate2.

    folder: folder of the exported model
    part: the search; it must be one that `refusal` accepts
    open_torch: opens a torch engine with these options, for lines with constraints or endless translations; None without torch
    takes_phrases: whether the torch engine supports phrases
    is_served: whether several threads of a server call this engine. Each call then searches one batch at a time, and one more
        batch can be searched while all callers are busy.
    """

    def __init__(
        self,
        folder: Path,
        options: TranslatorOptions,
        part: Part,
        open_torch: Callable[[], SearchEngine] | None = None,
        takes_phrases: bool = False,
        is_served: bool = False,
    ) -> None:
        self.pipeline = Pipeline.load(Artefact(folder, CTRANSLATE2_KIND))
        self.device, self.search_options = "cpu", part.options
        threads = options.threads or available_threads()
        self._parallel = options.replicas or min(threads, MAX_DEFAULT_REPLICAS)
        self.replicas = 1 if is_served else self._parallel
        self._max_submitted = 1 if is_served else BATCHES_AHEAD * self._parallel
        computation = "int8" if options.precision == "int8" else "default"
        workers = self._parallel + is_served, max(1, threads // self._parallel)
        self._model = CTranslate2Model(folder, self.pipeline, computation, *workers)
        self.n_best, self.takes_phrases = 1, takes_phrases
        version = import_ctranslate2().__version__
        self.signature = f"{search_signature(part.name, part.options)}|engine:ctranslate2-{version}"
        self._settings = search_settings(part.options) | {"use_vmap": (folder / MAP_FILE).exists()}
        usual = INT8_BATCH_TOKENS if computation == "int8" else BATCH_TOKENS
        if self._settings["use_vmap"] and self._settings["beam_size"] > 1:
            usual = MAP_BATCH_TOKENS
        self.batch_tokens = usual if options.batch_tokens == "auto" else options.batch_tokens
        self._unsearched = {self.pipeline.target.piece(token) for token in (PAD, BOS)}  # never written by nmt's search
        self._torch = cache(open_torch) if open_torch else None
        self._watcher = cache(Watcher)
        log.detail(f"engine ctranslate2: {quoted(folder)}")

    def search(self, batches: Sequence[list[EncodedLine]]) -> Iterator[BatchOutcome]:
        waiting: deque[tuple[list[EncodedLine], list[EncodedLine], list[Any]]] = deque()
        remaining = iter(batches)
        try:
            while True:
                while len(waiting) < self._max_submitted and (lines := next(remaining, None)) is not None:
                    plain = [line for line in lines if not _is_constrained(line)]
                    waiting.append((lines, plain, self._submit(plain)))
                if not waiting:
                    return
                signals.check()
                self._wait(waiting[0][2])
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
        while not waiting.acquire(timeout=SIGNAL_CHECK_SECONDS):
            signals.check()

    @property
    def callers(self) -> int:
        return self._parallel

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

    def _replace_empty(self, lines: Sequence[EncodedLine], found: list[list[_Row]]) -> None:
        """Search again with at least one token if a hypothesis is empty.

        Unlike nmt's search, CTranslate2 then distributes the probability of the empty hypothesis among the other hypotheses.
        """
        if not (self.search_options.min_length and self._settings["return_scores"]):
            return
        log_probs = {
            i: hypothesis.log_prob
            for i, row in enumerate(found)
            for hypothesis in row
            if not hypothesis.pieces and hypothesis.log_prob < MAX_EMPTY_NATS
        }
        again = self._together(list(log_probs), lines)
        for i, result in zip(again, self._submit([lines[i] for i in again], min_length=1), strict=True):
            if i in log_probs:
                found[i] = self._hypotheses(result.result(), math.log1p(-math.exp(log_probs[i])))

    def _search_alone(self, lines: Sequence[EncodedLine], found: list[list[_Row]]) -> None:
        """Search lines again, one by one, if a hypothesis exceeds its line's limit: CTranslate2 has only one limit per batch."""
        limits = [self.search_options.limit(len(line.source)) for line in lines]
        long = [i for i, row in enumerate(found) if any(len(hypothesis.pieces) > limits[i] for hypothesis in row)]
        for i, [result] in [(i, self._submit([lines[i]])) for i in long]:
            alone = [self._hypotheses(result.result())]
            self._replace_empty([lines[i]], alone)
            found[i] = alone[0]

    def _candidates(self, line: EncodedLine, hypotheses: Sequence[_Row]) -> list[Candidate] | Failure | None:
        """The hypothesis that nmt's score ranks first; None if nmt's search would not allow one of the hypotheses."""
        limit = self.search_options.limit(len(line.source))
        if self._torch is None:
            hypotheses = [each for each in hypotheses if len(each.pieces) <= limit] or hypotheses
        if self._torch is None or self._settings["beam_size"] == 1:
            hypotheses = [self._ended(line, hypothesis, limit) for hypothesis in hypotheses]
        if self._torch is not None and not all(self._is_allowed(hypothesis.pieces, limit) for hypothesis in hypotheses):
            return None
        best = max(hypotheses, key=lambda hypothesis: hypothesis.score)
        if self._settings["return_scores"] and not math.isfinite(best.score):
            return NOT_FINITE
        tokens = self._model.tokens(best.pieces)
        return [Candidate.of(Hypothesis(tokens, best.log_prob, best.score), self.pipeline.target)]

    def _ended(self, line: EncodedLine, hypothesis: _Row, limit: int) -> _Row:
        """Truncate the only hypothesis of a line at the maximum length and add the probability of EOS, as nmt's search does.

        The probability ignores the vocabulary map.
        limit: maximum length in tokens
        """
        pieces = hypothesis.pieces[:limit]
        if len(pieces) == len(hypothesis.pieces) or not self._unsearched.isdisjoint(pieces):
            return hypothesis
        if not self._settings["return_scores"]:
            return self._scored(pieces, math.nan)
        [log_probs] = self._model.log_probs([line.source], [self._model.tokens(pieces)])
        return self._scored(pieces, math.fsum(log_probs))

    def _is_allowed(self, pieces: Sequence[str], limit: int) -> bool:
        """Whether nmt's search allows a hypothesis. CTranslate2 has such limits too, but they would change the probabilities."""
        return self.search_options.min_length <= len(pieces) <= limit and self._unsearched.isdisjoint(pieces)

    def _hypotheses(self, result: Any, more_nats: float = 0.0) -> list[_Row]:
        """Read CTranslate2's hypotheses, and replace its length penalty with nmt's.

        more_nats: added to each log-probability
        """
        exponent = self._settings["length_penalty"]
        scores = result.scores if self._settings["return_scores"] else [math.nan] * len(result.hypotheses)
        return [
            self._scored(pieces, score * (len(pieces) + 1) ** exponent + more_nats)
            for pieces, score in zip(result.hypotheses, scores, strict=True)
        ]

    def _scored(self, pieces: Sequence[str], log_prob: float) -> _Row:
        """A hypothesis with nmt's score. log_prob: in nats, including EOS"""
        is_beam = isinstance(self.search_options, BeamOptions)
        divisor: float = self.search_options.divisor(len(pieces) + 1) if is_beam else 1.0
        return _Row(pieces, log_prob, log_prob / divisor)

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
