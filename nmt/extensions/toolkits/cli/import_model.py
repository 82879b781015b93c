"""`nmt import`: make a model folder of a model of another toolkit."""

from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from nmt import registry
from nmt.cli.command import Command
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.options import REQUIRED, choice, opt

if TYPE_CHECKING:  # torch is imported when the command runs
    from nmt.extensions.toolkits.toolkit import Toolkit

ONE_OR_TWO: Final = "SOURCE and TARGET, or one for both"


@registry.open_options_class()
class ImportOptions:
    model: str = opt(REQUIRED, "file or folder of the other toolkit's model", aliases=("m", "path"))
    output: str = opt(REQUIRED, "model folder to write", aliases=("o",))
    format: str = choice(
        "toolkit",
        "auto",
        "toolkit that wrote the model: marian (also OPUS-MT's files), huggingface (its Marian folders), fairseq, ctranslate2; "
        "auto looks at the names of files",
        able="reads",
    )
    vocab: tuple[str, ...] = opt((), f"vocabularies, {ONE_OR_TWO}; none uses those next to the model")
    segmenter: tuple[str, ...] = opt(
        (),
        f"models of sentencepiece or merges of subword-nmt, {ONE_OR_TWO}; none uses those next to the model, if any",
    )
    tokenizer: str = choice(
        "tokenizer", "none", "tokenizer of the text before the segmenter; the model does not name it"
    )
    source_lang: str | None = opt(None, "source language, a two-letter code; none takes it from the model")
    target_lang: str | None = opt(None, "target language, a two-letter code; none takes it from the model")
    overwrite: bool = opt(False, "replace an existing model")

    def __post_init__(self) -> None:
        for flag, files in (("--vocab", self.vocab), ("--segmenter", self.segmenter)):
            if len(files) > 2:
                raise ValueError(f"{flag}: {len(files)} files are named; must be one or two, SOURCE and TARGET")


def run(options: ImportOptions) -> None:
    """Write a model folder of a model of another toolkit, with its vocabularies as the text pipeline."""
    from nmt import signals
    from nmt.artefact import check_output
    from nmt.extensions.toolkits.comparison import compare_with_toolkit
    from nmt.extensions.toolkits.transformer import TextFiles

    output, path = Path(options.output), Path(options.model)
    check_output(output, "model", options.overwrite)
    files = TextFiles((options.source_lang, options.target_lang), options.vocab, options.segmenter, options.tokenizer)
    with signals.Signals(), log.progress("importing the model"):
        toolkit = _toolkit(options)
        imported = toolkit.read(path, files)
        model = imported.build()
        signals.check()
        imported.save(model, output)
    log.info(f"{output}: the model of {imported.place}")
    compare_with_toolkit(toolkit, imported, model)


def _toolkit(options: ImportOptions) -> "Toolkit":
    """The toolkit of --format, or the one that recognizes the files. Raises OSError or UserError if there is none."""
    if options.format != "auto":
        return registry.find("toolkit", options.format).cls(options)  # type: ignore[no-any-return]
    path, names = Path(options.model), registry.choosable("toolkit", "reads")
    path.stat()
    classes = [cast("type[Toolkit]", registry.find("toolkit", name).cls) for name in names]
    if not (found := [cls for cls in classes if cls.recognizes(path)]):
        raise UserError(
            f"{quoted(path)}: no model of a toolkit that is known (--format {' or '.join(names)} names one)"
        )
    return min(found, key=lambda cls: (cls.order, cls.part_name))(options)


COMMAND = Command(
    "import",
    ImportOptions,
    run,
    positional=("model",),
    group="export",
    examples=(
        "nmt import opus-mt-en-de --output model",
        "nmt import model.npz --vocab vocab.spm -o model",
        "nmt import checkpoint_best.pt --tokenizer moses-aggressive -o model",
    ),
)
