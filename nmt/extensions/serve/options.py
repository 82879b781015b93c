"""The options of `nmt serve`."""

from typing import Final, Literal

from nmt.options import AUTO, MAX_THREADS, REQUIRED, make, opt
from nmt.registry import open_options_class
from nmt.translate.options import MAX_REPLICAS, TranslatorOptions

MAX_PORT: Final = 65535


@open_options_class("protocol")
class ServeOptions:
    model: tuple[str, ...] = opt(
        REQUIRED,
        "model folders or runs, `FOLDER` or `NAME=FOLDER`; each is loaded at its first request",
        aliases=("m", "path", "models"),
    )
    host: str = opt("127.0.0.1", "address to listen on; 0.0.0.0 for all addresses of this machine")
    port: int = opt(5000, "port to listen on; 0 picks a free one", minimum=0, maximum=MAX_PORT, aliases=("p",))
    preload: bool = opt(False, "load all models before the first request")
    max_memory: float | None = opt(
        None,
        "unload idle models before loading another one while this process uses more than this, in GiB",
        above=0,
    )
    wait: float = opt(4.0, "milliseconds that a batch waits for texts from other clients", minimum=0, maximum=1000)
    timeout: float = opt(60.0, "seconds that a request may take, from its body to its translation", above=0)
    max_body: float = opt(2.0, "largest body of a request, in MiB", above=0)
    max_characters: int = opt(100_000, "most characters in the texts of one request", minimum=1)
    max_texts: int = opt(1000, "most texts in one request", minimum=1)
    max_waiting: int = opt(10_000, "most lines that may wait for one model", minimum=1)
    max_connections: int = opt(1000, "most connections at the same time", minimum=1)
    requests_per_minute: int = opt(
        0, "requests per minute for each key or, without keys, each address; 0 sets no limit", minimum=0
    )
    keys: str | None = opt(None, "file of keys, one per line; each request needs one of them")
    cors: tuple[str, ...] = opt((), "origins of web pages that may send requests, or *")
    access_log: bool = opt(True, "write one line per request to stderr, without its texts")
    engine: str = opt(AUTO, "see `nmt translate`")
    precision: Literal["fp32", "bf16", "int8"] = opt("fp32", "see `nmt translate`")
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    threads: int | None = opt(None, "threads of each model for CPU work; none uses all", minimum=1, maximum=MAX_THREADS)
    replicas: int | None = opt(
        None, "batches of one model that are searched in parallel, sharing the threads", minimum=1, maximum=MAX_REPLICAS
    )
    batch_tokens: int | Literal["auto"] = opt("auto", "source tokens per batch, with padding", minimum=1)
    max_source_length: int = opt(1024, "tokens per line; a longer line is truncated, with a warning", minimum=1)
    replace_unk: bool = opt(False, "replace each unknown word with the source word that has the most attention")

    @property
    def of_translators(self) -> TranslatorOptions:
        """How models translate."""
        return make(TranslatorOptions, vars(self))
