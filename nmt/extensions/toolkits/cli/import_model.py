"""`nmt import`: convert another toolkit's model to a model folder."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from nmt import registry
from nmt.cli.command import Command
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.options import REQUIRED, choice, opt

if TYPE_CHECKING:  # torch is imported only when the command runs
    from nmt.extensions.toolkits.toolkit import Toolkit


@registry.open_options_class()
class ImportOptions:
    model: str = opt(
        REQUIRED,
        "model file or folder from the other toolkit",
        group="Input and output",
        common=True,
        aliases=("m", "path"),
    )
    output: str = opt(
        REQUIRED, "model folder to write", group="Input and output", common=True, aliases=("o",), metavar="MODEL"
    )
    format: str = choice(
        "toolkit",
        "auto",
        "toolkit that wrote the model; auto detects it",
        able="reads",
        group="Input and output",
        common=True,
    )
    overwrite: bool = opt(False, "replace an existing model", group="Input and output", common=True)
    source_lang: str | None = opt(
        None, "source language code; by default, the model's", group="Languages", common=True, metavar="LANG"
    )
    target_lang: str | None = opt(
        None, "target language code; by default, the model's", group="Languages", common=True, metavar="LANG"
    )
    vocab: tuple[str, ...] = opt(
        (), "vocabulary files, if not next to the model", group="Subwords and vocabulary", common=True, metavar="FILE"
    )
    segmenter: tuple[str, ...] = opt(
        (), "SentencePiece models or BPE merge files", group="Subwords and vocabulary", common=True, metavar="FILE"
    )
    tokenizer: str = choice(
        "tokenizer",
        "none",
        "tokenizer applied before subword segmentation",
        group="Subwords and vocabulary",
        common=True,
    )

    def __post_init__(self) -> None:
        for flag, files in (("--vocab", self.vocab), ("--segmenter", self.segmenter)):
            if len(files) > 2:
                raise ValueError(f"{flag} names {len(files)} files, but takes one for both languages, or one for each")


def run(options: ImportOptions) -> None:
    """Convert another toolkit's model to a model folder, whose text pipeline is made from the model's vocabularies."""
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
    log.info(f"imported {imported.place} to {output}")
    compare_with_toolkit(toolkit, imported, model)


def _toolkit(options: ImportOptions) -> "Toolkit":
    """The toolkit that --format names, or the one that recognizes the files. Raises UserError if none does."""
    if options.format != "auto":
        return registry.find("toolkit", options.format).cls(options)  # type: ignore[no-any-return]
    path, names = Path(options.model), registry.choosable("toolkit", "reads")
    path.stat()
    classes = [cast("type[Toolkit]", registry.find("toolkit", name).cls) for name in names]
    if not (found := [cls for cls in classes if cls.recognizes(path)]):
        raise UserError(f"{quoted(path)}: cannot tell which toolkit wrote this model (use --format {', '.join(names)})")
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
