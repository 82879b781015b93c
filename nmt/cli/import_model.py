"""`nmt import`: a model of another toolkit as a model folder."""

from pathlib import Path
from typing import Literal

from nmt.cli.command import Command
from nmt.log import log
from nmt.options import REQUIRED, opt, options_class


@options_class
class ImportOptions:
    model: str = opt(REQUIRED, "file or folder of the other toolkit's model", aliases=("m", "path"))
    output: str = opt(REQUIRED, "model folder to write", aliases=("o",))
    format: Literal["marian"] = opt("marian", "toolkit that wrote the model: marian (also OPUS-MT's folders)")
    vocab: tuple[str, ...] = opt(
        (), "vocabularies of source and target, or one for both; none: those that the model's settings name"
    )
    source_lang: str = opt(REQUIRED, "source language, a two-letter code", aliases=("s",))
    target_lang: str = opt(REQUIRED, "target language, a two-letter code", aliases=("t",))
    overwrite: bool = opt(False, "replace a model that is there")

    def __post_init__(self) -> None:
        if len(self.vocab) > 2:
            raise ValueError(f"--vocab: {len(self.vocab)} files are named; must be one or two, SOURCE and TARGET")


def run(options: ImportOptions) -> None:
    """Write a model folder of a model of Marian, with its vocabularies as the text pipeline."""
    from nmt.artefact import check_output
    from nmt.imports.marian import read_marian
    from nmt.signals import Signals

    output = Path(options.output)
    check_output(output, "model", options.overwrite)
    with Signals() as signals, log.progress("importing the model"):
        imported = read_marian(Path(options.model), options.vocab, (options.source_lang, options.target_lang))
        imported.save(output, signals.check)
    log.info(f"{output}: the model of {imported.place}")


COMMAND = Command("import", run.__doc__, ImportOptions, run)
