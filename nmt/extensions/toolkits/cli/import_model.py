"""`nmt import`: make a model folder of a model of another toolkit."""

from pathlib import Path
from typing import Final, Literal

from nmt.cli.command import Command
from nmt.log import log
from nmt.options import REQUIRED, opt, options_class
from nmt.text.steps import TokenizerName

ONE_OR_TWO: Final = "SOURCE and TARGET, or one for both"


@options_class
class ImportOptions:
    model: str = opt(REQUIRED, "file or folder of the other toolkit's model", aliases=("m", "path"))
    output: str = opt(REQUIRED, "model folder to write", aliases=("o",))
    format: Literal["auto", "marian", "huggingface", "fairseq", "ctranslate2"] = opt(
        "auto",
        "toolkit that wrote the model: marian (also OPUS-MT's files), huggingface (its Marian folders), fairseq, ctranslate2; "
        "auto looks at the names of files",
    )
    vocab: tuple[str, ...] = opt((), f"vocabularies, {ONE_OR_TWO}; none: those beside the model")
    segmenter: tuple[str, ...] = opt(
        (),
        f"models of sentencepiece or merges of subword-nmt, {ONE_OR_TWO}; none: those beside the model, if there are any",
    )
    tokenizer: TokenizerName = opt("none", "of the text before the segmenter, which the model does not name")
    source_lang: str | None = opt(None, "source language, a two-letter code; none: as the model says")
    target_lang: str | None = opt(None, "target language, a two-letter code; none: as the model says")
    overwrite: bool = opt(False, "replace a model that is there")

    def __post_init__(self) -> None:
        for flag, files in (("--vocab", self.vocab), ("--segmenter", self.segmenter)):
            if len(files) > 2:
                raise ValueError(f"{flag}: {len(files)} files are named; must be one or two, SOURCE and TARGET")


def run(options: ImportOptions) -> None:
    """Write a model folder of a model of another toolkit, with its vocabularies as the text pipeline."""
    from nmt.artefact import check_output
    from nmt.extensions.toolkits.oracle import compare_with_toolkit
    from nmt.extensions.toolkits.read import MODEL_READERS, format_of
    from nmt.extensions.toolkits.transformer import TextFiles
    from nmt.signals import Signals

    output, path = Path(options.output), Path(options.model)
    check_output(output, "model", options.overwrite)
    files = TextFiles((options.source_lang, options.target_lang), options.vocab, options.segmenter, options.tokenizer)
    with Signals() as signals, log.progress("importing the model"):
        format = format_of(path) if options.format == "auto" else options.format
        imported = MODEL_READERS[format](path, files)
        model = imported.build()
        signals.check()
        imported.save(model, output, signals.check)
    log.info(f"{output}: the model of {imported.place}")
    compare_with_toolkit(imported, model, format)


COMMAND = Command("import", ImportOptions, run, positional=("model",), group="models")
