"""The interface of engines, and the choice of one.

A registered engine is built as `cls(options)`. It says what it refuses, and opens a `SearchEngine` for the rest.
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

MODEL_KINDS: Final = ("model", "checkpoint")  # of the folders that every engine is offered


@dataclass(frozen=True)
class EngineRequest:
    """What an engine is to do.

    folders: of the models, of which several are an ensemble
    search: the decoder; phrase_search: the same, or one that also takes phrases
    load: loads models, which several engines may share (`nmt.translate.open_own.load_scorer`)
    refused: why engines that were asked before do not search, by their titles
    """

    folders: Sequence[Path]
    options: TranslatorOptions
    search: Part
    phrase_search: Part
    world: World
    load: Callable[..., Any]
    refused: dict[str, str] = field(default_factory=dict)

    @cached_property
    def kinds(self) -> list[str]:
        """What the manifests of the folders say they are. Raises ArtefactError for a folder of no model."""
        return list(map(kind_of_folder, self.folders))


class Engine(ABC):
    """A way to search.

    title: its name in messages
    order: `auto` asks engines with a smaller number first
    folder_kinds: kinds of model folders that it alone can read
    """

    title: ClassVar[str]
    order: ClassVar[int]
    folder_kinds: ClassVar[Sequence[str]] = ()

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def is_installed(self) -> bool:
        """Whether the packages that it needs are installed; none is imported."""
        return True

    @abstractmethod
    def refusal(self, request: EngineRequest) -> str:
        """Why it does not search as the engine `torch` would; empty if it does. Raises UserError if it is not installed."""

    @abstractmethod
    def open(self, request: EngineRequest) -> SearchEngine:
        """Load the models. Raises UserError if they do not fit each other or the options."""

    def description(self, manifest: Mapping[str, Any]) -> str:
        """What `nmt describe` says of a folder of `folder_kinds`, before its languages."""
        return self.title


def engines() -> dict[str, Engine]:
    """All engines by name, in the order in which `auto` asks them."""
    return {entry.name: entry.cls(NoOptions()) for entry in registry.every("engine")}


def kind_of_folder(folder: Path) -> str:
    """The kind of a model folder. Raises ArtefactError for a folder that is none."""
    others = [kind for engine in engines().values() for kind in engine.folder_kinds]
    return str(Artefact(folder, *MODEL_KINDS, *others).manifest["kind"])


def open_engine(request: EngineRequest) -> SearchEngine:
    """Open the engine that the options name, or the first that does not refuse. Raises UserError."""
    known, given, reason = engines(), request.options.engine, ""
    readers = [name for name, engine in known.items() if set(engine.folder_kinds) & set(request.kinds)]
    if readers and given not in (AUTO, *readers):
        raise UserError(
            f"{quoted(request.folders[0])}: is a folder for {known[readers[0]].title}: --engine {given} cannot read it"
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
                # Only what the user can fix is worth a line: the next engine searches other models anyway.
                if isinstance(error, ResourceError):
                    log.info(f"{engine.title} is not used, and translating may be slower: {reason}")
        request.refused[engine.title] = reason
    if readers:
        raise UserError(f"{quoted(request.folders[0])}: is a folder for {last.title}: {reason}")
    raise UserError(f"--engine {given}: {reason} (leave it out)")
