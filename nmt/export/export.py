"""Models for other engines, each checked before it is there: it must translate as ours does; and ours in 8 bits."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from nmt import registry
from nmt.artefact import new_folder, to_json, write_file
from nmt.batch import pad_rows
from nmt.checkpoint import LoadedModel, save_model, weights_of
from nmt.errors import ArtefactError, InputError, one_line, quoted
from nmt.export.ctranslate2 import SENTENCES, Engine, library, specification
from nmt.metrics.bleu import Bleu, BleuOptions
from nmt.models.base import Model
from nmt.nn.quantized import quantize
from nmt.symbols import EOS, SYMBOLS
from nmt.text.pipeline import FOLDER, Pipeline
from nmt.translate.forced_decoding import target_log_probs
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.open import build_translator
from nmt.translate.options import TranslatorOptions

KIND: Final = "ctranslate2"
SEARCH: Final = "nmt-search.json"
TOLERANCE: Final = 1e-4  # nats: words whose scores differ by less are equally good, to float32
LONGEST: Final = 1023  # tokens of a source line, so that with EOS they are the most that CTranslate2 reads by default
LONGEST_INVENTED: Final = 20  # tokens of an invented line
MORE: Final = 50  # tokens that a translation may have beyond the longest source, as in our own searches
BEAM_SIZE: Final = 4
UNTUNED: Final = 0.5  # at n = 25 tokens it grows with them as GNMT's ((5 + n) / 6) ** 0.6 does: 0.6 * n / (5 + n)
PENALTIES: Final = tuple(tenths / 10 for tenths in range(0, 17, 2))
MAX_LENGTH: Final = 256  # tokens of a translation: CTranslate2's own default
BATCH_TOKENS: Final = 2000

Ids = NDArray[Any]


@dataclass(frozen=True)
class Agreement:
    """How alike our search and CTranslate2's translate the same lines: each line is of one of four sorts.

    search: greedy, or beam 4, neither with a length penalty
    equal: the same tokens; tied: others that are as good, to TOLERANCE, by our model; different: others
    endless: not compared, because a translation ran to the limit, where the two beam searches have other rules
    example: the first line that is different, with both translations; empty when there is none
    """

    search: str
    lines: int
    equal: int
    tied: int
    different: int
    endless: int
    example: str


@dataclass(frozen=True)
class DevelopmentSet:
    """Lines and their references, with the names of their files."""

    source: str
    reference: str
    sources: list[str]
    references: list[str]


@dataclass(frozen=True)
class Tuned:
    """What tuning the length penalty found.

    ours: BLEU of our own search, whose signature is `decoder`; bleu: of CTranslate2's, by penalty
    likeness: by penalty, BLEU of CTranslate2's translations with ours as the references
    """

    source: str
    reference: str
    lines: int
    decoder: str
    ours: float
    bleu: dict[float, float]
    likeness: dict[float, float]
    signature: str

    @property
    def best(self) -> float:
        """The penalty whose translations are most like ours; of equals the one nearest to what is taken untuned."""
        return max(self.likeness, key=lambda penalty: (self.likeness[penalty], -abs(penalty - UNTUNED)))


@dataclass(frozen=True)
class Exported:
    """What was written. tuned: None where nothing was tuned"""

    agreements: list[Agreement]
    length_penalty: float
    tuned: Tuned | None


def export_int8(loaded: LoadedModel, output: Path, check: Callable[[], None]) -> None:
    """Write a model folder with weights of 8 bits, whole or not at all; what was loaded has them too then.

    check: called before it gets its name; may raise to stop
    """
    quantize(loaded.model)
    facts, told = replace(loaded.facts, weights="int8"), {"made_of": one_line(str(loaded.folder))}
    save_model(output, weights_of(loaded.model), facts, loaded.pipeline, told, check)


def export_ctranslate2(
    loaded: LoadedModel,
    output: Path,
    quantization: str,
    lines: Sequence[Ids],
    dev: DevelopmentSet | None,
    threads: int | None,
    check: Callable[[], None],
) -> Exported:
    """Write a model as a folder that CTranslate2 reads, whole or not at all, with its pipeline and its search beside it.

    quantization: float32, int8, ... by the names of CTranslate2
    lines: source ids that both engines are to translate; dev: tune the length penalty on it
    threads: of CTranslate2, None leaves it to it; check: called now and then; may raise to stop
    Raises UserError for a model that CTranslate2 cannot run, ArtefactError when in float32 the two translate otherwise.
    """
    spec = specification(loaded)
    spec.optimize(quantization)
    facts = {"ctranslate2": library().__version__, "quantization": quantization, "vocabulary": loaded.pipeline.hash}
    with new_folder(output, KIND, {"torch": str(torch.__version__), **facts}) as folder:
        spec.save(str(folder))
        (folder / FOLDER).mkdir()
        loaded.pipeline.save(folder / FOLDER)
        engine = Engine(folder, loaded.pipeline, threads)
        agreements = [compare(loaded, engine, lines, beam_size, check) for beam_size in (1, BEAM_SIZE)]
        if quantization == "float32":
            for agreement in agreements:
                _refuse_other(agreement, output)
        tuned = tune(loaded, engine, dev, check) if dev is not None else None
        exported = Exported(agreements, tuned.best if tuned else UNTUNED, tuned)
        write_file(folder / SEARCH, to_json(_search(exported)))
        check()
    return exported


def _search(exported: Exported) -> dict[str, Any]:
    """How CTranslate2 is to search with the model, by the names of its translate_batch, and how that was found."""
    options = {
        "beam_size": BEAM_SIZE,
        "length_penalty": exported.length_penalty,
        "max_decoding_length": MAX_LENGTH,
    }
    return {"translate_batch": options, "tuned": asdict(exported.tuned) if exported.tuned else None}


def _refuse_other(agreement: Agreement, output: Path) -> None:
    if agreement.different:
        raise ArtefactError(
            f"{quoted(output)}: not written: of {agreement.lines:,} lines CTranslate2 translates {agreement.different:,} "
            f"otherwise than nmt does ({agreement.search}), first {agreement.example}"
        )


def invented_lines(pipeline: Pipeline, count: int) -> list[Ids]:
    """Lines of 1 to LONGEST_INVENTED ids of the source vocabulary, by chance, the same each time; control symbols in none."""
    chance = np.random.default_rng(1)
    lengths = chance.integers(1, LONGEST_INVENTED, endpoint=True, size=count)
    return [chance.integers(len(SYMBOLS), pipeline.source.size, size=length) for length in lengths]


def real_lines(pipeline: Pipeline, lines: Sequence[str], count: int, name: str) -> list[Ids]:
    """The first `count` lines that have tokens, as ids. name: of their file. Raises InputError when there are none."""
    found = [ids[:LONGEST] for ids in pipeline.source.encode_batch(lines).rows() if len(ids)][:count]
    if not found:
        raise InputError(f"{quoted(name)}: has no line with words to check")
    return found


@torch.inference_mode()
def compare(
    loaded: LoadedModel, engine: Engine, lines: Sequence[Ids], beam_size: int, check: Callable[[], None]
) -> Agreement:
    """Translate lines both ways, without a length penalty. beam_size: 1 is greedy search"""
    model, text = loaded.model, loaded.pipeline.target.decode
    limit = max(map(len, lines)) + MORE
    options = {"max_len_a": 0, "max_len_b": limit}
    beam = {"beam_size": beam_size, "length_penalty": "none"}
    greedy = beam_size == 1
    decoder = registry.build("decoder", "greedy" if greedy else "beam", options if greedy else options | beam)
    ours: list[list[int]] = []
    for first in range(0, len(lines), SENTENCES):
        check()
        found = decoder.search(model, pad_rows(lines[first : first + SENTENCES]))
        ours += [hypotheses[0].tokens for hypotheses in found]
    theirs = engine.translate(map(np.ndarray.tolist, lines), beam_size, 0.0, limit)
    check()
    counts, example = {"equal": 0, "tied": 0, "different": 0, "endless": 0}, ""
    for number, (line, own, other) in enumerate(zip(lines, ours, theirs, strict=True), 1):
        if own == other:
            sort = "equal"
        elif not greedy and max(len(own), len(other)) >= limit:
            sort = "endless"
        else:
            sort = "tied" if _tied(model, line, own, other, greedy) else "different"
        if sort == "different" and not example:
            example = f"line {number}: '{quoted(text(own))}' by nmt, '{quoted(text(other))}' by CTranslate2"
        counts[sort] += 1
    return Agreement("greedy" if greedy else f"beam {beam_size}", len(lines), **counts, example=example)


def _tied(model: Model, line: Ids, own: list[int], other: list[int], greedy: bool) -> bool:
    """Whether two translations are equally good by the model: as a whole or, in greedy search, where they part."""
    sides = [np.array(tokens, dtype=np.int64) for tokens in (own, other)]
    ours, theirs = (target_log_probs(model, [line], [side], BATCH_TOKENS)[0] for side in sides)
    if greedy:
        pairs = zip([*own, EOS], [*other, EOS], strict=False)
        parting = next(place for place, (one, another) in enumerate(pairs) if one != another)
        ours, theirs = ours[parting : parting + 1], theirs[parting : parting + 1]
    difference: float = abs(sum(ours) - sum(theirs))
    return difference <= TOLERANCE


def tune(loaded: LoadedModel, engine: Engine, dev: DevelopmentSet, check: Callable[[], None]) -> Tuned:
    """A development set by CTranslate2's beam search with each of PENALTIES, beside our default search."""
    pipeline, decoder = loaded.pipeline, registry.build("decoder", "beam", {})
    options = TranslatorOptions(batch_tokens=BATCH_TOKENS, max_source_length=LONGEST)
    translations = build_translator(pipeline, loaded.model, options, decoder).translate(dev.sources, check)
    LineWarnings(dev.source).add_translations(translations)
    translated = [translation.text for translation in translations]
    bleu = Bleu(BleuOptions())
    ours = bleu(translated, [dev.references])
    lines = [ids[:LONGEST].tolist() for ids in pipeline.source.encode_batch(dev.sources).rows()]
    found: dict[float, float] = {}
    likeness: dict[float, float] = {}
    for penalty in PENALTIES:
        texts = list(map(pipeline.target.decode, engine.translate(lines, BEAM_SIZE, penalty, MAX_LENGTH)))
        found[penalty], likeness[penalty] = (bleu(texts, [others]).value for others in (dev.references, translated))
        check()
    return Tuned(dev.source, dev.reference, len(lines), decoder.signature, ours.value, found, likeness, ours.signature)
