"""The interface of engines, and the choice of an engine.

A registered engine is built as `cls(options)`. It reports which requests it refuses, and opens a `SearchEngine` for the others.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

from nmt import registry
from nmt.artefact import Artefact
from nmt.dist import World
from nmt.errors import ResourceError, UserError, quoted
from nmt.log import log
from nmt.options import AUTO, NoOptions, Part
from nmt.translate.engine import SearchEngine
from nmt.translate.options import TranslatorOptions

MODEL_KINDS: Final = ("model", "checkpoint")  # kinds of folders that are offered to every engine


@dataclass(frozen=True)
class EngineRequest:
    """A request to open an engine.

    folders: the model folders; several form an ensemble
    search: the decoder
    phrase_search: the decoder, or one that also accepts phrases
    load: loads models, which several engines may share (`nmt.translate.open_built_in.load_scorer`)
    is_served: whether several threads of a server will call the engine
    refused: the reason of each engine that refused earlier, by engine title
    """

    folders: Sequence[Path]
    options: TranslatorOptions
    search: Part
    phrase_search: Part
    world: World
    load: Callable[..., Any]
    is_served: bool = False
    refused: dict[str, str] = field(default_factory=dict)

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of the folders, from their manifests. Raises ArtefactError for a folder without a model."""
        return list(map(kind_of_folder, self.folders))


class Engine(ABC):
    """An implementation of searches.

    title: its name in messages
    order: `auto` asks engines with a lower order first
    folder_kinds: kinds of model folders that only this engine can read
    """

    title: ClassVar[str]
    order: ClassVar[int]
    folder_kinds: ClassVar[Sequence[str]] = ()

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def is_installed(self) -> bool:
        """Whether the packages that the engine needs are installed. Does not import them."""
        return True

    @abstractmethod
    def refusal(self, request: EngineRequest) -> str:
        """The reason why results would differ from those of the engine `torch`; empty if results would be the same.

        Raises UserError if the engine is not installed.
        """

    @abstractmethod
    def open(self, request: EngineRequest) -> SearchEngine:
        """Load the models. Raises UserError if the models do not fit each other or the options."""

    def description(self, manifest: Mapping[str, Any]) -> str:
        """What `nmt describe` says about a folder of `folder_kinds`, apart from its languages."""
        return self.title


def engines() -> dict[str, Engine]:
    """All engines by name, in the order of `auto`."""
    return {entry.name: entry.cls(NoOptions()) for entry in registry.every("engine")}


def kind_of_folder(folder: Path) -> str:
    """The kind of a model folder. Raises ArtefactError if it is not a model folder."""
    others = [kind for engine in engines().values() for kind in engine.folder_kinds]
    return str(Artefact(folder, *MODEL_KINDS, *others).manifest["kind"])


def open_engine(request: EngineRequest) -> SearchEngine:
    """Open the engine that the options name, or with `auto` the first that accepts the request. Raises UserError if none does."""
    known, given, reason = engines(), request.options.engine, ""
    readers = [name for name, engine in known.items() if set(engine.folder_kinds) & set(request.kinds)]
    if readers and given not in (AUTO, *readers):
        raise UserError(
            f"--engine {given} cannot read {quoted(request.folders[0])}, a folder for {known[readers[0]].title} (drop --engine)"
        )
    names = readers or (list(known) if given == AUTO else [given])
    for name in names:
        engine, last = known[name], known[names[-1]]
        if not (reason := engine.refusal(request)):
            try:
                return engine.open(request)
            except UserError as error:
                if engine is last or not last.is_installed():
                    raise
                reason = str(error)
                # Log only what the user can fix. Otherwise the next engine simply does the work.
                if isinstance(error, ResourceError):
                    log.warn(f"{engine.title} is not used, so translation may be slower: {reason}")
        request.refused[engine.title] = reason
    if readers:
        raise UserError(f"{quoted(request.folders[0])} is a folder for {last.title}, but {reason}")
    raise UserError(f"--engine {given}: {reason} (drop --engine)")
