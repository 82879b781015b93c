"""The server's models: loaded at their first request, unloaded when memory is short, and reloaded on demand."""

import asyncio
import contextlib
import ctypes
import gc
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from nmt import registry
from nmt.artefact import Artefact
from nmt.engines.base import kind_of_folder
from nmt.errors import ResourceError, UserError, one_line, quoted
from nmt.extensions.serve.codes import code_distance, standard_code
from nmt.extensions.serve.metrics import Metrics
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError, busy
from nmt.extensions.serve.scheduler import ClosedError, NumberedTranslation, Scheduler
from nmt.extensions.texts.again import search_again, with_phrases
from nmt.log import log
from nmt.options import Part
from nmt.runs import find_model
from nmt.text.pipeline import Pipeline
from nmt.translate.requests import Request
from nmt.translators import SharedModels, open_translator

_T = TypeVar("_T")

LOADER: Final = "loader"  # name of the threads that load and close models
GIB: Final = 1 << 30
NUM_ALTERNATIVES: Final = 8  # number of words that the search tries after a prefix; each has a beam of its own
LOAD_SECONDS: Final = 10  # delay before the next attempt to load a model that failed to load


class Details(NamedTuple):
    """What a request needs besides the best translation. These details decide which search is used.

    scores: several candidates, and the scores of words
    alignment: the alignment between words
    phrases: phrases that the translation must contain
    tags: attention between tokens, to place tags
    repair: the search that retries failed translations
    alternatives: candidates that differ in the word after the prefix
    """

    scores: bool = False
    alignment: bool = False
    phrases: bool = False
    tags: bool = False
    repair: bool = False
    alternatives: bool = False


class ServedModel:
    """A named model, with one queue for each combination of details requested so far. The queues share the weights.

    pipeline: text pipeline of the loaded model, or of its folder before the first load
    last_used: time of the last request, by time.monotonic
    """

    def __init__(self, name: str, path: Path, options: ServeOptions, part: Part, metrics: Metrics) -> None:
        """Read the text pipeline but not the weights. Raises ArtefactError."""
        self.name, self.path, self.options, self.part = name, path, options, part
        folder = find_model(path)
        self.pipeline = Pipeline.load(Artefact(folder, kind_of_folder(folder)))
        self.last_used = 0.0
        self.metrics = metrics.of_model(name, lambda: self.waiting_lines, lambda: self.is_loaded)
        self._schedulers: dict[Details, Scheduler] = {}
        self._shared = SharedModels()
        self._loads: dict[Details, asyncio.Task[Scheduler]] = {}
        self._changing = asyncio.Lock()

    @property
    def source_lang(self) -> str:
        return self.pipeline.source_lang

    @property
    def target_lang(self) -> str:
        return self.pipeline.target_lang

    @property
    def is_loaded(self) -> bool:
        return bool(self._schedulers)

    @property
    def waiting_lines(self) -> int:
        return sum(scheduler.waiting_lines for scheduler in self._schedulers.values())

    def distance(self, source: str | None, target: str | None) -> int | None:
        """How far the model's languages are from a direction. None as an argument means any language.

        returns: the distance, 0 for equal codes; None if the languages differ
        """
        asked = (source, self.source_lang), (target, self.target_lang)
        distances = [code_distance(code, own) for code, own in asked if code is not None]
        known = [distance for distance in distances if distance is not None]
        return sum(known) if len(known) == len(distances) else None

    async def load(self, details: Details) -> Scheduler:
        """The queue for these details. Opens the model for them if necessary.

        Opening continues even if the client disconnects. After a failure, the next attempt waits LOAD_SECONDS.
        Raises UserError, OSError and MemoryError.
        """
        self.last_used = time.monotonic()
        if (scheduler := self._schedulers.get(details)) is not None:
            return scheduler
        if details not in self._loads:
            task = self._loads[details] = asyncio.ensure_future(self._load(details))
            task.add_done_callback(partial(self._end_load, details))
        return await asyncio.shield(self._loads[details])

    async def can_load(self) -> bool:
        """Whether the model can be loaded, at least without details. Loads it if necessary."""
        with contextlib.suppress(UserError, OSError, MemoryError, RuntimeError):
            await self.load(Details())
        return self.is_loaded

    async def _load(self, details: Details) -> Scheduler:
        async with self._changing:
            scheduler = self._schedulers[details] = await in_thread(partial(self._open, details, self._shared))
            self.pipeline = scheduler.translator.pipeline
        return scheduler

    def _end_load(self, details: Details, task: "asyncio.Task[Scheduler]") -> None:
        """Forget a load: at once if it succeeded, or after a delay if it failed. Until then, each request gets the error."""
        has_failed = not task.cancelled() and task.exception() is not None
        if has_failed:
            asyncio.get_running_loop().call_later(LOAD_SECONDS, self._loads.pop, details, None)
        else:
            self._loads.pop(details, None)

    def _open(self, details: Details, shared: SharedModels) -> Scheduler:
        options: Any = self.options.translator_options  # details override some of these
        part = self.part
        if any(details):
            alignment = "soft" if details.alignment or details.tags else None
            replaces = options.replace_unk and not details.tags  # --replace-unk would change words inside tags
            options = replace(
                options,
                engine="torch",
                word_scores=details.scores,
                alignment=alignment,
                raw_tokens=details.tags,
                replace_unk=replaces,
            )
        if details.phrases:
            part = with_phrases(part)
        if details.repair:
            part = search_again(part, [self.path])
        if details.alternatives:
            part = registry.choose("decoder", "alternatives", {**vars(part.options), "n_best": NUM_ALTERNATIVES})
        elif details.scores and hasattr(part.options, "n_best") and hasattr(part.options, "beam_size"):
            part = replace(part, options=replace(part.options, n_best=part.options.beam_size))
        began = time.monotonic()
        translator = open_translator([self.path], options, part, shared=shared)
        if not details.scores:
            translator.engine.without_scores()
        log.info(f"{self.name}: loaded in {time.monotonic() - began:.1f} s ({translator.engine.signature})")
        return Scheduler(translator, self.options.max_waiting, self.metrics)

    async def reload(self) -> None:
        """Reload the model for all details. The old model translates until the new one is loaded, and stays if loading fails."""
        async with self._changing:
            unused, shared = dict[Details, Scheduler](), SharedModels()
            try:
                for details in list(self._schedulers):
                    unused[details] = await in_thread(partial(self._open, details, shared))
                self._schedulers, unused, self._shared = unused, self._schedulers, shared
                for scheduler in self._schedulers.values():
                    self.pipeline = scheduler.translator.pipeline
            except Exception as error:
                log.warn(f"{self.name}: reloading failed, so the old model stays in use: {one_line(str(error))}")
            schedulers = list(unused.values())
            unused.clear()
            await _close(schedulers)

    async def unload(self) -> None:
        """Close all queues and free the model."""
        schedulers, self._schedulers, self._shared = list(self._schedulers.values()), {}, SharedModels()
        await _close(schedulers)


class Models:
    """All models of the server, found by name or by direction. They report to the server's metrics."""

    def __init__(self, options: ServeOptions, part: Part) -> None:
        """Read all text pipelines. Raises UserError for two models with the same name."""
        self.options, self.by_name, self.metrics = options, dict[str, ServedModel](), Metrics()
        for given in options.model:
            name, folder = _named(given)
            if name in self.by_name:
                raise UserError(f"--model {quoted(given)}: another model has the same name (use NAME=FOLDER)")
            self.by_name[name] = ServedModel(name, folder, options, part, self.metrics)

    def find(self, name: str | None = None, source: str | None = None, target: str | None = None) -> ServedModel:
        """The model with this name, or the model whose languages are closest to a direction. Raises ProblemError."""
        if name is not None and name not in self.by_name:
            raise ProblemError(400, f"unknown model '{one_line(name)}' (available: {', '.join(self.by_name)})")
        models = self.by_name.values() if name is None else [self.by_name[name]]
        found = [(distance, model) for model in models if (distance := model.distance(source, target)) is not None]
        if found:
            return min(found, key=lambda row: row[0])[1]
        known = ", ".join(f"{model.source_lang}-{model.target_lang}" for model in models)
        direction = f"{one_line(source or '*')}-{one_line(target or '*')}"
        raise ProblemError(400, f"no model translates {direction} (available: {known})")

    async def translate(
        self, model: ServedModel, requests: Sequence[Request], details: Details, max_batch_lines: int
    ) -> AsyncGenerator[NumberedTranslation, None]:
        """Yield the translations of requests with their indices, like `Scheduler.translate`. Raises ProblemError."""
        left = dict(enumerate(requests))
        for attempt in (1, 2):
            if not model.is_loaded:
                await self._make_room(model)
            try:
                scheduler = await model.load(details)
            except (UserError, OSError, MemoryError, RuntimeError) as error:
                if isinstance(error, UserError) and error.code == UserError.code and await model.can_load():
                    asked = ", ".join(name for name, is_asked in details._asdict().items() if is_asked)
                    raise ProblemError(400, f"model '{model.name}' does not support {asked}") from error
                log.error(f"{model.name}: {one_line(str(error))}")
                message = f"model '{model.name}' cannot be loaded"
                raise ProblemError(503, message, {"Retry-After": str(LOAD_SECONDS)}) from error
            numbers = list(left)
            try:
                async with contextlib.aclosing(
                    scheduler.translate(list(left.values()), max_batch_lines)
                ) as translations:
                    async for i, translation in translations:
                        del left[numbers[i]]
                        yield numbers[i], translation
                return
            except ClosedError as error:
                if attempt == 2:  # the model was reloaded or unloaded twice in the meantime
                    raise busy(1) from error
            except ResourceError as error:
                raise ProblemError(
                    503, "the search ran out of memory or another resource (see the server's log)"
                ) from error
            except UserError as error:
                raise ProblemError(400, str(error)) from error

    async def _make_room(self, wanted: ServedModel) -> None:
        """While this process exceeds its memory limit, unload the least recently used models."""
        if self.options.max_memory is None:
            return
        idle = [model for model in self.by_name.values() if model.is_loaded and model is not wanted]
        for model in sorted(idle, key=lambda model: model.last_used):
            if resident_bytes() <= self.options.max_memory * GIB:
                return
            if not model.waiting_lines:
                log.info(f"{model.name}: unloaded to free memory for {wanted.name}")
                await model.unload()

    async def reload(self) -> None:
        """Reload all loaded models."""
        for model in self.by_name.values():
            if model.is_loaded:
                await model.reload()

    async def close(self) -> None:
        """Unload all models."""
        await asyncio.gather(*(model.unload() for model in self.by_name.values()))


def _named(given: str) -> tuple[str, Path]:
    """The name and the folder in `NAME=FOLDER` or `FOLDER`. Bytes of a name that are not UTF-8 are escaped, as JSON requires.

    The folder's name itself may contain `=`, as it does in a sweep.
    """
    name, equals, path = given.partition("=")
    if not equals or Path(given).exists():
        name, path = Path(given).resolve().name, given
    return quoted(name), Path(path)


async def in_thread(work: Callable[[], _T]) -> _T:
    """Run some work in a new daemon thread, which the process does not wait for when it exits, and await its result."""
    result = Future[_T]()
    result.set_running_or_notify_cancel()  # the waiting task may be cancelled, but the work cannot be

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name=LOADER, daemon=True).start()
    return await asyncio.wrap_future(result)


async def _close(schedulers: list[Scheduler]) -> None:
    """Close queues that are no longer used, and return the memory of their models to the system."""
    await asyncio.gather(*(in_thread(scheduler.close) for scheduler in schedulers))
    schedulers.clear()
    await in_thread(trim_memory)


def trim_memory() -> None:
    """Return unused memory to the system. glibc itself would keep it: each thread's memory is freed only from its end."""
    gc.collect()  # a closed queue and its threads refer to each other
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def resident_bytes() -> int:
    """Resident memory of this process, in bytes. Mapped pages are counted only after they have been read."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def known_languages(models: Models) -> dict[str, list[str]]:
    """The target languages for each source language, as standard codes in the order of the models."""
    targets: dict[str, list[str]] = {}
    for model in models.by_name.values():
        source_targets = targets.setdefault(standard_code(model.source_lang), [])
        if (target := standard_code(model.target_lang)) not in source_targets:
            source_targets.append(target)
    return targets
