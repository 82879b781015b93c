"""`nmt export`: convert a model to 8-bit weights or to another toolkit's format, and compare the translations."""

import sys
from pathlib import Path

from nmt import registry, signals
from nmt.cli.command import Command
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.options import MAX_THREADS, REQUIRED, choice, opt, options_of


@registry.open_options_class("toolkit")
class ExportOptions:
    model: tuple[str, ...] = opt(
        REQUIRED,
        "model folder, or run folder (best checkpoint)",
        group="Input and output",
        common=True,
        aliases=("m", "path", "models"),
    )
    output: str = opt(
        REQUIRED, "folder to write", group="Input and output", common=True, aliases=("o",), metavar="FOLDER"
    )
    format: str = choice(
        "toolkit",
        "ctranslate2",
        "format to write (nmt list toolkit)",
        able="writes",
        group="Input and output",
        common=True,
    )
    overwrite: bool = opt(False, "replace an existing export", group="Input and output", common=True)
    encoder_layers: int | None = opt(
        None,
        "keep only the first N encoder layers",
        group="Number of layers",
        common=True,
        minimum=1,
    )
    decoder_layers: int | None = opt(
        None,
        "keep only the first N decoder layers",
        group="Number of layers",
        common=True,
        minimum=1,
    )
    threads: int | None = opt(
        None,
        "CPU threads; by default, the libraries choose",
        group="Hardware",
        common=True,
        minimum=1,
        maximum=MAX_THREADS,
    )

    def __post_init__(self) -> None:
        if len(self.model) > 1:
            raise ValueError(f"--model names {len(self.model)} models, but only one can be exported (name one)")
        chosen = registry.options_class_of("toolkit", self.format)
        for name in registry.names("toolkit"):
            if (other := registry.options_class_of("toolkit", name)) is not chosen:
                for option in options_of(other):
                    if getattr(self, option.name) != option.default:
                        raise ValueError(f"{option.flag} needs --format {name} (add it, or drop {option.flag})")


def run(options: ExportOptions) -> None:
    """Export a model with 8-bit weights, with fewer layers, or in the format of another toolkit.

    With --format ctranslate2, the command also compares the translations of nmt and CTranslate2, for greedy search and for a
    beam of 4.
    """
    import torch

    from nmt.artefact import check_output
    from nmt.checkpoint import load_model
    from nmt.device import use_threads
    from nmt.extensions.toolkits.model_folder import first_layers
    from nmt.extensions.toolkits.toolkit import Toolkit

    toolkit: Toolkit = registry.find("toolkit", options.format).cls(options)
    toolkit.check()
    use_threads(options.threads)
    output = Path(options.output)
    check_output(output, toolkit.kind or options.format, options.overwrite)
    loaded = load_model(Path(options.model[0]), torch.device("cpu"))
    if output.resolve() == loaded.folder.resolve():
        raise UserError(f"--output {quoted(output)} is the model to export (name another folder)")
    if loaded.facts.weights == "int8":
        raise UserError(f"{quoted(loaded.folder)} already has 8-bit weights (export the original model)")
    if options.encoder_layers is not None or options.decoder_layers is not None:
        loaded = first_layers(loaded, options.encoder_layers, options.decoder_layers)
    with signals.Signals(), log.progress("exporting the model"):
        text = toolkit.write(loaded, output)
    sys.stdout.write(text)


COMMAND = Command(
    "export",
    ExportOptions,
    run,
    positional=("model",),
    group="export",
    examples=(
        "nmt export model --format ctranslate2 --output model-ct2",
        "nmt export model --format int8 --output model-int8",
        "nmt export model --format ctranslate2 -o model-ct2 --check test.en",
    ),
)
