"""The options of `nmt serve`."""

from typing import Final, Literal

from nmt.options import MAX_THREADS, REQUIRED, make, opt
from nmt.registry import open_options_class
from nmt.translate.options import AUTO_ENGINE, MAX_REPLICAS, TranslatorOptions

MAX_PORT: Final = 65535


@open_options_class("protocol")
class ServeOptions:
    model: tuple[str, ...] = opt(
        REQUIRED,
        "model folders or runs, `FOLDER` or `NAME=FOLDER`; each is loaded when it is asked for first",
        aliases=("m", "path", "models"),
    )
    host: str = opt("127.0.0.1", "address to listen at; 0.0.0.0 for all of this machine")
    port: int = opt(5000, "port to listen at; 0: a free one", minimum=0, maximum=MAX_PORT, aliases=("p",))
    preload: bool = opt(False, "load all models before the first request")
    max_memory: float | None = opt(
        None,
        "GiB of this process above which a model that nobody waits for is unloaded before another is loaded",
        above=0,
    )
    wait: float = opt(4.0, "milliseconds that a batch waits for the texts of other clients", minimum=0, maximum=1000)
    timeout: float = opt(60.0, "seconds that a request may take, its body and its translation", above=0)
    max_body: float = opt(2.0, "MiB of a request's body", above=0)
    max_characters: int = opt(100_000, "characters of a request's texts", minimum=1)
    max_texts: int = opt(1000, "texts of a request", minimum=1)
    max_waiting: int = opt(10_000, "lines that may wait for a model", minimum=1)
    max_connections: int = opt(1000, "connections at a time", minimum=1)
    requests_per_minute: int = opt(0, "of a key, or of an address without one; 0 is any number", minimum=0)
    keys: str | None = opt(None, "file of keys, one a line, of which each request must have one")
    cors: tuple[str, ...] = opt((), "origins of web pages that may ask, or *")
    access_log: bool = opt(True, "write a line a request to stderr, without its texts")
    engine: str = opt(AUTO_ENGINE, "see `nmt translate`")
    precision: Literal["fp32", "bf16", "int8"] = opt("fp32", "see `nmt translate`")
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    threads: int | None = opt(None, "threads of each model for CPU work; none: all", minimum=1, maximum=MAX_THREADS)
    replicas: int | None = opt(
        None, "batches of a model that are searched side by side, sharing the threads", minimum=1, maximum=MAX_REPLICAS
    )
    batch_tokens: int | Literal["auto"] = opt("auto", "source tokens of a batch, padding counted", minimum=1)
    max_source_length: int = opt(1024, "tokens of a line; a longer line is cut, with a warning", minimum=1)
    replace_unk: bool = opt(False, "replace each unknown word by the source word with the most attention")

    @property
    def of_translators(self) -> TranslatorOptions:
        """How models translate."""
        return make(TranslatorOptions, vars(self))
