"""CTranslate2 (https://opennmt.net/CTranslate2): import of its models, and export with a check of the translations."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from nmt import register
from nmt.artefact import MANIFEST
from nmt.checkpoint import LoadedModel
from nmt.errors import one_line
from nmt.extensions.ctranslate2 import CTRANSLATE2_KIND
from nmt.extensions.ctranslate2.comparison import MAX_DIFFERENT_SHARE, DevelopmentSet, invented_lines, real_lines
from nmt.extensions.ctranslate2.engine import import_ctranslate2
from nmt.extensions.ctranslate2.export import CTranslate2Export, export_ctranslate2
from nmt.extensions.ctranslate2.model_bin import CTRANSLATE2_MODEL, read_ctranslate2
from nmt.extensions.ctranslate2.toolkits.options import CTranslate2Options
from nmt.extensions.toolkits.comparison import random_lines
from nmt.extensions.toolkits.toolkit import ScoredPair, Toolkit
from nmt.extensions.toolkits.transformer import ImportedModel, TextFiles
from nmt.files import json_text, sha256
from nmt.log import log
from nmt.text.corpus import misaligned, read_lines


@register("toolkit", "ctranslate2", CTranslate2Options)
class CTranslate2(Toolkit):
    """CTranslate2: a folder with model.bin. An export is checked by translating lines with both engines.

    The report has one row for greedy search and one row for a beam of 4. Each row counts the translations that are identical,
    different but tied, different, and too long to compare.
    """

    order: ClassVar[int] = 1
    kind: ClassVar[str] = CTRANSLATE2_KIND
    package: ClassVar[str] = "ctranslate2"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._dev: DevelopmentSet | None = None

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return (path / CTRANSLATE2_MODEL).is_file()

    def read(self, path: Path, files: TextFiles) -> ImportedModel:
        return read_ctranslate2(path, files)

    def check(self) -> None:
        """Raise UserError if CTranslate2 is not installed, InputError if the --tune files have different numbers of lines."""
        import_ctranslate2()
        if self.options.tune:
            source, reference = self.options.tune
            sources, references = read_lines(Path(source)), read_lines(Path(reference))
            if len(sources) != len(references):
                raise misaligned(Path(source), Path(reference), len(sources), len(references))
            self._dev = DevelopmentSet(source, reference, sources, references)

    def write(self, loaded: LoadedModel, output: Path) -> str:
        options = self.options
        if options.check is None:
            lines = invented_lines(loaded.pipeline, options.check_lines)
        else:
            source = read_lines(Path(options.check))
            lines = real_lines(loaded.pipeline, source, options.check_lines, options.check)
        is_whole = options.encoder_layers is None and options.decoder_layers is None
        export = export_ctranslate2(
            loaded,
            output,
            options.quantization,
            lines,
            self._dev,
            options.threads,
            # `nmt translate` uses this to recognise exports of this model.
            more_facts={"made_of": sha256(loaded.folder / MANIFEST)} if is_whole else {},
            max_different=0 if options.check else round(MAX_DIFFERENT_SHARE * len(lines)),
        )
        log.info(f"exported {options.model[0]} to {output} for CTranslate2 ({options.quantization})")
        worst = max(export.agreements, key=lambda agreement: agreement.different)
        if worst.different:
            share = f"{worst.different:,} of {worst.lines:,} lines ({worst.search})"
            log.warn(
                f"{output} translates {share} differently from the original model (measure BLEU before you use the export)"
            )
        if options.json:
            facts = {"output": one_line(options.output), "quantization": options.quantization}
            return json_text({**facts, **asdict(export)})
        return "".join(f"{row}\n" for row in _rows(export))

    def scores(self, imported: ImportedModel) -> Iterator[ScoredPair]:
        translator = import_ctranslate2().Translator(imported.place, compute_type="float32", intra_threads=1)
        sides = imported.source.side, imported.target.side
        for source, target in random_lines(imported.source, imported.target):
            names = ([list(map(side.piece, ids))] for side, ids in zip(sides, (source, target), strict=True))
            [scored] = translator.score_batch(*names)
            yield ScoredPair(source, target, scored.log_probs)


def _rows(export: CTranslate2Export) -> list[str]:
    """One row per search and, after tuning, one row per length penalty. Columns are separated by tabs."""
    rows = [
        f"{agreement.search}\tlines {agreement.lines}\tequal {agreement.equal}\tas good {agreement.tied}"
        f"\tdifferent {agreement.different}\ttoo long to compare {agreement.endless}"
        f"\tcontrol symbols {agreement.control}"
        for agreement in export.agreements
    ]
    if export.tuned is not None:
        rows.append(f"nmt\tBLEU {export.tuned.ours:.2f}\t{export.tuned.decoder}")
        rows += [
            f"CTranslate2\tBLEU {bleu:.2f}\tlength_penalty {penalty}\tlike nmt {export.tuned.likeness[penalty]:.2f}"
            for penalty, bleu in export.tuned.bleu.items()
        ]
    return [*rows, f"length_penalty\t{export.length_penalty}"]
