"""`nmt export`: convert a model to 8-bit weights, or for another toolkit, and compare the translations."""

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
        REQUIRED, "model folder, or run folder (its best checkpoint); one", aliases=("m", "path", "models")
    )
    output: str = opt(REQUIRED, "folder to write", aliases=("o",))
    format: str = choice(
        "toolkit",
        "ctranslate2",
        "ctranslate2: for that engine, whose extra it needs; model: a model folder, of a run, with adapters merged, or with "
        "fewer layers; int8: one with weights of 8 bits; huggingface: a folder for transformers' MarianMTModel; marian: a "
        "model.npz, for models that were imported from it",
        able="writes",
    )
    encoder_layers: int | None = opt(
        None,
        "keep only the first layers of the encoder; for a model trained by --criterion in-place-distillation",
        minimum=1,
    )
    decoder_layers: int | None = opt(None, "keep only the first layers of the decoder", minimum=1)
    threads: int | None = opt(
        None, "threads for CPU work; none leaves it to torch and to the engine", minimum=1, maximum=MAX_THREADS
    )
    overwrite: bool = opt(False, "replace an existing export")

    def __post_init__(self) -> None:
        if len(self.model) > 1:
            raise ValueError(f"--model: {len(self.model)} are named, and an ensemble cannot be exported (name one)")
        chosen = registry.options_class_of("toolkit", self.format)
        for name in registry.names("toolkit"):
            if (other := registry.options_class_of("toolkit", name)) is not chosen:
                for option in options_of(other):
                    if getattr(self, option.name) != option.default:
                        raise ValueError(f"{option.flag}: works with --format {name} only (leave it out)")


def run(options: ExportOptions) -> None:
    """Write a model folder, also with weights of 8 bits as --precision int8 makes them at each start; or one for another toolkit.

    For CTranslate2 lines are translated both ways, greedily and with a beam of 4, and each search gets a row: equal translations,
    others as good by our model, different ones, and those that reach the limit of length.
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
        raise UserError(f"{quoted(output)}: is the model to export (name another --output)")
    if loaded.facts.weights == "int8":
        raise UserError(f"{quoted(loaded.folder)}: has weights of 8 bits already (export the model it was made of)")
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
