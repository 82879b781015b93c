"""The options that say how to translate, shared by commands, the Python API and servers."""

from typing import Final, Literal

from nmt import registry
from nmt.errors import unknown
from nmt.log import log
from nmt.options import AUTO, MAX_THREADS, choice, opt

MAX_REPLICAS: Final = 256
MAX_DEFAULT_REPLICAS: Final = 16  # each has the tensors of a batch in memory
ENGINE_HELP: Final = (
    "what searches: torch, the built-in search, or another engine (nmt list engine); auto: the fastest that gives the results "
    "of torch (--verbose names it)"
)
OLD_ENGINE_NAMES: Final = {"own": "torch"}  # deprecated since 0.1.0


def engine_name(given: str) -> str:
    """The name of an engine, or auto, as `--engine` has it. Raises ValueError if there is none."""
    if (name := OLD_ENGINE_NAMES.get(given, given)) != given:
        log.deprecated(f"--engine {given}", f"--engine {name}")
    if name != AUTO and name not in (known := registry.names("engine")):
        raise ValueError(str(unknown("engine", name, [AUTO, *known], "nmt list engine")))
    return name


@registry.open_options_class("pass", "search-speedup", "filter", "wrapper")
class TranslatorOptions:
    """The options of a Translator besides its models and its search."""

    model_weights: tuple[float, ...] = opt((), "weight of each of several models, `0.7,0.3`; none: equal weights")
    ensemble: Literal["log-probabilities", "probabilities"] = opt(
        "log-probabilities",
        "mean of several models: of log-probabilities (Marian, Sockeye) or of probabilities (fairseq)",
    )
    engine: str = opt(AUTO, ENGINE_HELP)
    batch_tokens: int | Literal["auto"] = opt(
        "auto",
        "source tokens of a batch, padding counted; auto: fast, and fits into memory. It changes no result",
        minimum=1,
    )
    max_source_length: int = opt(1024, "tokens of a line; a longer line is cut, with a warning", minimum=1)
    symbols: Literal["keep", "translate"] = opt(
        "keep", "whether lines without words (numbers, emoji, addresses) are kept as they are or translated"
    )
    raw_tokens: bool = opt(False, "print the model's tokens, separated by spaces, instead of words")
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    replicas: int | None = opt(
        None,
        "batches that are searched side by side, sharing the threads; none: on a CPU one a thread, up to 16",
        minimum=1,
        maximum=MAX_REPLICAS,
    )
    precision: str = choice(
        "weight-format",
        "fp32",
        "fp32; bf16 products by autocast; or a format of weights that `nmt list weight-format` describes",
        also=("bf16",),
        able="converts",
    )
    threads: int | None = opt(None, "threads for CPU work; none: torch's default", minimum=1, maximum=MAX_THREADS)

    def __post_init__(self) -> None:
        object.__setattr__(self, "engine", engine_name(self.engine))
