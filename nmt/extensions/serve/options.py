"""The options of `nmt serve`."""

from typing import Final, Literal

from nmt.options import AUTO, MAX_THREADS, REQUIRED, make, opt
from nmt.registry import open_options_class
from nmt.translate.options import MAX_REPLICAS, TranslatorOptions

MAX_PORT: Final = 65535
MIB: Final = 1 << 20


@open_options_class("protocol")
class ServeOptions:
    model: tuple[str, ...] = opt(
        REQUIRED,
        "model or run folders: FOLDER, or NAME=FOLDER",
        group="Input and output",
        common=True,
        aliases=("m", "path", "models"),
    )
    host: str = opt(
        "127.0.0.1",
        "address to listen on; 0.0.0.0 for all",
        group="Input and output",
        common=True,
    )
    port: int = opt(
        5000,
        "port to listen on; 0 picks a free one",
        group="Input and output",
        common=True,
        minimum=0,
        maximum=MAX_PORT,
        aliases=("p",),
    )
    keys: str | None = opt(None, "file of accepted API keys, one per line", group="Access", common=True, metavar="FILE")
    cors: tuple[str, ...] = opt(
        (), "web origins that may send requests, or *", group="Access", common=True, metavar="ORIGIN"
    )
    hosts: tuple[str, ...] = opt(
        (), "host names that the server answers for, besides localhost", group="Access", metavar="NAME"
    )
    proxies: tuple[str, ...] = opt(
        (), "addresses or networks of proxies whose X-Forwarded-For is trusted", group="Access", metavar="ADDRESS"
    )
    requests_per_minute: int = opt(
        0, "requests per key or address; 0 for no limit", group="Access", common=True, minimum=0
    )
    timeout: float = opt(60.0, "maximum seconds per request", group="Limits", common=True, above=0)
    max_body: float = opt(2.0, "largest request body, in MiB", group="Limits", above=0)
    max_characters: int = opt(100_000, "maximum number of characters in one request", group="Limits", minimum=1)
    max_document_characters: int = opt(
        1_000_000, "maximum number of characters in one document", group="Limits", minimum=1
    )
    max_texts: int = opt(1000, "maximum number of texts in one request", group="Limits", minimum=1)
    max_waiting: int = opt(10_000, "maximum number of lines waiting for one model", group="Limits", minimum=1)
    max_connections: int = opt(1000, "maximum number of simultaneous connections", group="Limits", minimum=1)
    max_source_length: int = opt(
        1024, "maximum tokens per line; longer lines are truncated, with a warning", group="Limits", minimum=1
    )
    preload: bool = opt(False, "load all models at startup", group="Speed and memory", common=True)
    max_memory: float | None = opt(
        None,
        "unload idle models above this memory use, in GiB",
        group="Speed and memory",
        common=True,
        above=0,
    )
    engine: str = opt(AUTO, "search engine (nmt list engine)", group="Speed and memory", common=True)
    precision: Literal["fp32", "bf16", "int8"] = opt(
        "fp32", "number format (nmt list weight-format)", group="Speed and memory", common=True
    )
    replicas: int | None = opt(
        None,
        "number of batches that each model translates in parallel; they share its threads",
        group="Speed and memory",
        minimum=1,
        maximum=MAX_REPLICAS,
    )
    batch_tokens: int | Literal["auto"] = opt(
        "auto", "source tokens per batch, including padding", group="Speed and memory", minimum=1
    )
    device: str = opt("auto", "auto, cpu, cuda or cuda:N", group="Hardware", common=True)
    threads: int | None = opt(
        None,
        "CPU threads per model; all by default",
        group="Hardware",
        common=True,
        minimum=1,
        maximum=MAX_THREADS,
    )
    replace_unk: bool = opt(
        False, "replace unknown words with their source words", group="Details of the output", common=True
    )
    access_log: bool = opt(True, "log each request, without its texts", group="Logging", common=True)

    @property
    def max_body_bytes(self) -> int:
        return round(self.max_body * MIB)

    @property
    def translator_options(self) -> TranslatorOptions:
        """The options that determine how models translate."""
        return make(TranslatorOptions, vars(self))
