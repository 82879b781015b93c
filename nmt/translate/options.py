"""The translation options that commands, the Python API and servers share."""

from typing import Final, Literal

from nmt import registry
from nmt.errors import unknown
from nmt.log import log
from nmt.options import AUTO, MAX_THREADS, choice, opt

MAX_REPLICAS: Final = 256
MAX_DEFAULT_REPLICAS: Final = 16  # each replica keeps the tensors of one batch in memory
ENGINE_HELP: Final = "search engine (nmt list engine)"
OLD_ENGINE_NAMES: Final = {"own": "torch"}  # deprecated since 0.1.0


def engine_name(given: str) -> str:
    """The engine (or auto) that a value of `--engine` names. Raises ValueError if no engine has that name."""
    if (name := OLD_ENGINE_NAMES.get(given, given)) != given:
        log.deprecated(f"--engine {given}", f"--engine {name}")
    if name != AUTO and name not in (known := registry.names("engine")):
        raise ValueError(str(unknown("engine", name, [AUTO, *known], "nmt list engine")))
    return name


@registry.open_options_class("pass", "search-speedup", "filter", "wrapper")
class TranslatorOptions:
    """The options of a Translator, without its models and its decoder."""

    engine: str = opt(AUTO, ENGINE_HELP, group="Search", common=True)
    max_source_length: int = opt(
        1024, "truncate longer source lines to this many tokens, with a warning", group="Search", minimum=1
    )
    symbols: Literal["keep", "translate"] = opt(
        "keep",
        "whether to copy (keep) or translate lines without words, such as numbers, emoji or URLs",
        group="Search",
    )
    model_weights: tuple[float, ...] = opt(
        (), "weight of each model, such as 0.7,0.3", group="Several models", common=True
    )
    ensemble: Literal["log-probabilities", "probabilities"] = opt(
        "log-probabilities", "what to average across models", group="Several models", common=True
    )
    batch_tokens: int | Literal["auto"] = opt(
        "auto",
        "source tokens per batch, including padding",
        group="Speed and memory",
        common=True,
        minimum=1,
    )
    precision: str = choice(
        "weight-format",
        "fp32",
        "number format (nmt list weight-format)",
        also=("bf16",),
        able="converts",
        group="Speed and memory",
        common=True,
    )
    replicas: int | None = opt(
        None,
        "batches to translate in parallel; if unset, one per CPU thread, up to 16",
        group="Speed and memory",
        minimum=1,
        maximum=MAX_REPLICAS,
    )
    device: str = opt("auto", "device to run on: auto, cpu, cuda or cuda:N", group="Hardware", common=True)
    threads: int | None = opt(
        None,
        "CPU threads; if unset, as many as torch chooses",
        group="Hardware",
        common=True,
        minimum=1,
        maximum=MAX_THREADS,
    )
    raw_tokens: bool = opt(
        False,
        "print the model's tokens, separated by spaces, instead of words",
        group="Details of the output",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "engine", engine_name(self.engine))
