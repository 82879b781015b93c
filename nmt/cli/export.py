"""`nmt export`: a model with weights of 8 bits; or one for another engine, checked to translate as ours does."""

import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from nmt.cli.command import Command
from nmt.errors import UserError, one_line, quoted
from nmt.log import log
from nmt.options import REQUIRED, opt

if TYPE_CHECKING:  # torch is imported when the command runs
    from nmt.checkpoint import LoadedModel
    from nmt.export.export import DevelopmentSet, Exported

OF_CTRANSLATE2: Final = ("quantization", "check", "check_lines", "tune", "json")


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    model: tuple[str, ...] = opt(
        REQUIRED, "model folder, or run folder (its best checkpoint); one", aliases=("m", "path", "models")
    )
    output: str = opt(REQUIRED, "folder to write", aliases=("o",))
    format: Literal["ctranslate2", "int8"] = opt(
        "ctranslate2", "ctranslate2: for that engine, whose extra it needs; int8: a model folder with weights of 8 bits"
    )
    quantization: Literal[
        "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16", "int8_bfloat16"
    ] = opt("float32", "how the weights are stored, by CTranslate2's names")
    check: str | None = opt(None, "file of source lines to translate both ways; none invents lines of the vocabulary")
    check_lines: int = opt(100, "lines to translate both ways; in float32 any that differs is an error")
    tune: tuple[str, ...] = opt(
        (), "SOURCE and REFERENCE files: take the length penalty that translates most like our search"
    )
    threads: int | None = opt(None, "threads for CPU work; none leaves it to torch and to the engine")
    overwrite: bool = opt(False, "replace an export that is there")
    json: bool = opt(False, "print what was compared and tuned as JSON")

    def __post_init__(self) -> None:
        if len(self.model) > 1:
            raise ValueError(f"{len(self.model)} models are an ensemble, which cannot be exported; name one")
        if self.check_lines < 1:
            raise ValueError(f"check_lines is {self.check_lines}; it must be at least 1")
        if len(self.tune) not in (0, 2):
            raise ValueError(f"--tune has {len(self.tune)} files; it wants two, SOURCE and REFERENCE")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads is {self.threads}; it must be at least 1, or none")
        for field in fields(self):
            if self.format == "int8" and field.name in OF_CTRANSLATE2 and getattr(self, field.name) != field.default:
                raise ValueError(f"{field.name} is for --format ctranslate2")


def run(options: ExportOptions) -> None:
    """Write the folder; of two engines, print how they compare."""
    import torch

    from nmt.artefact import check_output
    from nmt.checkpoint import load_model
    from nmt.device import use_threads
    from nmt.export.ctranslate2 import library

    if options.format == "ctranslate2":
        library()  # a missing package is told before any work is done
    use_threads(options.threads)
    output = Path(options.output)
    check_output(output, options.overwrite)
    dev = _development_set(*options.tune) if options.tune else None
    loaded = load_model(Path(options.model[0]), torch.device("cpu"))
    if output.resolve() == loaded.folder.resolve():
        raise UserError(f"{quoted(output)}: is the model to export (name another --output)")
    if loaded.facts.weights == "int8":
        raise UserError(f"{quoted(loaded.folder)}: has weights of 8 bits already (export the model it was made of)")
    if options.format == "int8":
        _export_int8(options, loaded, output)
    else:
        _export_ctranslate2(options, loaded, output, dev)


def _export_int8(options: ExportOptions, loaded: "LoadedModel", output: Path) -> None:
    from nmt.export.export import export_int8
    from nmt.runs import WEIGHTS
    from nmt.signals import Signals

    with Signals() as signals:
        export_int8(loaded, output, signals.check)
    before, after = ((folder / WEIGHTS).stat().st_size / 1e6 for folder in (loaded.folder, output))
    log.info(f"{output}: {options.model[0]} with weights of 8 bits, {after:.1f} MB instead of {before:.1f}")


def _export_ctranslate2(
    options: ExportOptions, loaded: "LoadedModel", output: Path, dev: "DevelopmentSet | None"
) -> None:
    from nmt.export.export import export_ctranslate2, invented_lines, real_lines
    from nmt.signals import Signals
    from nmt.text.corpus import read_lines

    if options.check is None:
        lines = invented_lines(loaded.pipeline, options.check_lines)
    else:
        lines = real_lines(loaded.pipeline, read_lines(Path(options.check)), options.check_lines, options.check)
    with Signals() as signals:
        settings = options.quantization, lines, dev, options.threads, signals.check
        exported = export_ctranslate2(loaded, output, *settings)
    log.info(f"{output}: {options.model[0]} for CTranslate2, {options.quantization}")
    sys.stdout.buffer.write((_as_json if options.json else _as_rows)(options, exported).encode())
    sys.stdout.buffer.flush()


def _development_set(source: str, reference: str) -> "DevelopmentSet":
    from nmt.export.export import DevelopmentSet
    from nmt.text.corpus import misaligned, read_lines

    sources, references = read_lines(Path(source)), read_lines(Path(reference))
    if len(sources) != len(references):
        raise misaligned(Path(source), Path(reference), len(sources), len(references))
    return DevelopmentSet(source, reference, sources, references)


def _as_rows(options: ExportOptions, exported: "Exported") -> str:
    rows = [
        f"{one.search}\tlines {one.lines}\tequal {one.equal}\ttied {one.tied}\tdifferent {one.different}"
        f"\tendless {one.endless}"
        for one in exported.agreements
    ]
    if exported.tuned is not None:
        rows += [f"nmt\tBLEU {exported.tuned.ours:.2f}\t{exported.tuned.decoder}"]
        rows += [
            f"CTranslate2\tBLEU {bleu:.2f}\tlength_penalty {one}\tlike ours {exported.tuned.likeness[one]:.2f}"
            for one, bleu in exported.tuned.bleu.items()
        ]
    return "".join(row + "\n" for row in [*rows, f"length_penalty\t{exported.length_penalty}"])


def _as_json(options: ExportOptions, exported: "Exported") -> str:
    found = {"output": one_line(options.output), "quantization": options.quantization, **asdict(exported)}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


COMMAND = Command(
    "export",
    "Write a model folder with weights of 8 bits, as --precision int8 makes them at each start; or one for another engine. "
    "For that, lines are translated both ways, greedily and with a beam of 4, and each search gets a row: equal "
    "translations, tied ones (as good by our model), different ones, and those that do not end.",
    ExportOptions,
    run,
)
