"""`nmt export`: convert a model to 8-bit weights, or for another toolkit, and compare the translations."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from nmt.cli.command import Command, print_json, print_lines
from nmt.errors import UserError, one_line, quoted
from nmt.log import log
from nmt.models.saved import FLOAT32
from nmt.options import MAX_THREADS, REQUIRED, flag_of, opt, options_class
from nmt.quantities import size
from nmt.signals import Signals

if TYPE_CHECKING:  # torch is imported when the command runs
    from nmt.checkpoint import LoadedModel
    from nmt.extensions.ctranslate2.comparison import DevelopmentSet
    from nmt.extensions.ctranslate2.export import CTranslate2Export

CTRANSLATE2_OPTIONS: Final = ("quantization", "check", "check_lines", "tune", "json")


@options_class
class ExportOptions:
    model: tuple[str, ...] = opt(
        REQUIRED, "model folder, or run folder (its best checkpoint); one", aliases=("m", "path", "models")
    )
    output: str = opt(REQUIRED, "folder to write", aliases=("o",))
    format: Literal["ctranslate2", "model", "int8", "huggingface", "marian"] = opt(
        "ctranslate2",
        "ctranslate2: for that engine, whose extra it needs; model: a model folder, of a run, with adapters merged, or with "
        "fewer layers; int8: one with weights of 8 bits; huggingface: a folder for transformers' MarianMTModel; marian: a "
        "model.npz, for models that were imported from it",
    )
    encoder_layers: int | None = opt(
        None, "keep the first layers of the encoder only, of a model of --criterion in-place-distillation", minimum=1
    )
    decoder_layers: int | None = opt(None, "keep the first layers of the decoder only", minimum=1)
    quantization: Literal[
        "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16", "int8_bfloat16"
    ] = opt("float32", "type of the stored weights, by CTranslate2's names")
    check: str | None = opt(None, "file of source lines to translate both ways; none draws lines from the vocabulary")
    check_lines: int = opt(
        100,
        "lines to translate both ways; in float32 one of --check that differs is an error, or more than a tenth of drawn ones",
        minimum=1,
        maximum=1_000_000,
    )
    tune: tuple[str, ...] = opt(
        (), "SOURCE and REFERENCE files: take the length penalty that translates most like our search"
    )
    threads: int | None = opt(
        None, "threads for CPU work; none leaves it to torch and to the engine", minimum=1, maximum=MAX_THREADS
    )
    overwrite: bool = opt(False, "replace an export that is there")
    json: bool = opt(False, "print the comparison and the tuning as JSON")

    def __post_init__(self) -> None:
        if len(self.model) > 1:
            raise ValueError(f"--model: {len(self.model)} are named, and an ensemble cannot be exported (name one)")
        if len(self.tune) not in (0, 2):
            raise ValueError(f"--tune: {len(self.tune)} files are named; must be two, SOURCE and REFERENCE")
        for field in fields(self) if self.format != "ctranslate2" else ():
            if field.name in CTRANSLATE2_OPTIONS and getattr(self, field.name) != field.default:
                raise ValueError(f"{flag_of(field.name)}: works with --format ctranslate2 only (leave it out)")


def run(options: ExportOptions) -> None:
    """Write a model folder, also with weights of 8 bits as --precision int8 makes them at each start; or one for another toolkit.

    For CTranslate2 lines are translated both ways, greedily and with a beam of 4, and each search gets a row: equal translations,
    others as good by our model, different ones, and those that reach the limit of length.
    """
    import torch

    from nmt.artefact import check_output
    from nmt.checkpoint import load_model, size_of, weights_of
    from nmt.device import use_threads
    from nmt.extensions.ctranslate2.engine import import_ctranslate2
    from nmt.extensions.toolkits.model_folder import export_model, first_layers
    from nmt.runs import WEIGHTS

    if options.format == "ctranslate2":
        import_ctranslate2()  # raises before any work
    use_threads(options.threads)
    output = Path(options.output)
    check_output(output, "model" if options.format in ("model", "int8") else options.format, options.overwrite)
    dev = _development_set(*options.tune) if options.tune else None
    loaded = load_model(Path(options.model[0]), torch.device("cpu"))
    if output.resolve() == loaded.folder.resolve():
        raise UserError(f"{quoted(output)}: is the model to export (name another --output)")
    if loaded.facts.weights == "int8":
        raise UserError(f"{quoted(loaded.folder)}: has weights of 8 bits already (export the model it was made of)")
    if options.encoder_layers is not None or options.decoder_layers is not None:
        loaded = first_layers(loaded, options.encoder_layers, options.decoder_layers)
    if options.format in ("model", "int8"):
        before = size_of(weights_of(loaded.model))
        with Signals() as signals, log.progress("writing the model"):
            export_model(loaded, output, signals.check, "int8" if options.format == "int8" else FLOAT32)
        how = f" with {' + '.join(map(str, loaded.model.depths))} layers" if loaded.model.depths else ""
        if options.format == "int8":
            how = f" with weights of 8 bits, {size((output / WEIGHTS).stat().st_size)} instead of {size(before)}"
        log.info(f"{output}: {options.model[0]}{how}")
    elif options.format in ("huggingface", "marian"):
        _export_for_toolkit(options, loaded, output)
    else:
        _export_ctranslate2(options, loaded, output, dev)


def _export_for_toolkit(options: ExportOptions, loaded: "LoadedModel", output: Path) -> None:
    from nmt.extensions.toolkits.huggingface_writer import write_huggingface
    from nmt.extensions.toolkits.marian_writer import write_marian
    from nmt.extensions.toolkits.oracle import compare_with_toolkit
    from nmt.extensions.toolkits.read import MODEL_READERS
    from nmt.extensions.toolkits.transformer import TextFiles

    with Signals() as signals, log.progress("exporting the model"):
        write = write_huggingface if options.format == "huggingface" else write_marian
        write(loaded, output, signals.check)
    log.info(f"{output}: {options.model[0]} for {options.format}")
    imported = MODEL_READERS[options.format](
        output, TextFiles((loaded.pipeline.source_lang, loaded.pipeline.target_lang))
    )
    compare_with_toolkit(imported, imported.build(), options.format)


def _export_ctranslate2(
    options: ExportOptions, loaded: "LoadedModel", output: Path, dev: "DevelopmentSet | None"
) -> None:
    from nmt.artefact import MANIFEST
    from nmt.extensions.ctranslate2.comparison import MAX_DIFFERENT_SHARE, invented_lines, real_lines
    from nmt.extensions.ctranslate2.export import export_ctranslate2
    from nmt.files import sha256
    from nmt.text.corpus import read_lines

    if options.check is None:
        lines = invented_lines(loaded.pipeline, options.check_lines)
    else:
        lines = real_lines(loaded.pipeline, read_lines(Path(options.check)), options.check_lines, options.check)
    with Signals() as signals:
        settings = options.quantization, lines, dev, options.threads, signals.check
        may_differ = 0 if options.check else round(MAX_DIFFERENT_SHARE * len(lines))
        is_whole = options.encoder_layers is None and options.decoder_layers is None
        # By this `nmt translate` knows that the export is of this model.
        facts = {"made_of": sha256(loaded.folder / MANIFEST)} if is_whole else {}
        export = export_ctranslate2(loaded, output, *settings, more_facts=facts, max_different=may_differ)
    log.info(f"{output}: {options.model[0]} for CTranslate2, {options.quantization}")
    worst = max(export.agreements, key=lambda agreement: agreement.different)
    if worst.different:
        share = f"{worst.different:,} of {worst.lines:,} lines ({worst.search})"
        log.warn(f"{output}: translates {share} otherwise than the model does; measure BLEU before you use it")
    if options.json:
        print_json({"output": one_line(options.output), "quantization": options.quantization, **asdict(export)})
    else:
        print_lines(_rows(export))


def _development_set(source: str, reference: str) -> "DevelopmentSet":
    """Raises InputError if the files have different numbers of lines."""
    from nmt.extensions.ctranslate2.comparison import DevelopmentSet
    from nmt.text.corpus import misaligned, read_lines

    sources, references = read_lines(Path(source)), read_lines(Path(reference))
    if len(sources) != len(references):
        raise misaligned(Path(source), Path(reference), len(sources), len(references))
    return DevelopmentSet(source, reference, sources, references)


def _rows(export: "CTranslate2Export") -> list[str]:
    """A row a search and, after tuning, a row a length penalty, in columns divided by tabs."""
    rows = [
        f"{agreement.search}\tlines {agreement.lines}\tequal {agreement.equal}\tas good {agreement.tied}"
        f"\tdifferent {agreement.different}\ttoo long to compare {agreement.endless}"
        f"\tcontrol symbols {agreement.control}"
        for agreement in export.agreements
    ]
    if export.tuned is not None:
        rows.append(f"nmt\tBLEU {export.tuned.ours:.2f}\t{export.tuned.decoder}")
        rows += [
            f"CTranslate2\tBLEU {bleu:.2f}\tlength_penalty {penalty}\tlike ours {export.tuned.likeness[penalty]:.2f}"
            for penalty, bleu in export.tuned.bleu.items()
        ]
    return [*rows, f"length_penalty\t{export.length_penalty}"]


COMMAND = Command("export", ExportOptions, run, positional=("model",), group="models")
