"""Compares CTranslate2's searches with nmt's searches on the same lines, and tunes CTranslate2's length penalty."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from nmt import registry, signals
from nmt.batch import pad_rows
from nmt.checkpoint import LoadedModel
from nmt.errors import InputError, quoted
from nmt.extensions.ctranslate2.engine import CTranslate2Model
from nmt.log import log
from nmt.metrics.bleu import Bleu
from nmt.metrics.options import BleuOptions
from nmt.models.base import Model
from nmt.symbols import BOS, EOS, PAD, SYMBOLS
from nmt.text.pipeline import Pipeline
from nmt.translate.built_in_engine import BuiltInEngine
from nmt.translate.forced_decoding import target_log_probs
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.options import TranslatorOptions
from nmt.translate.translator import Translator

MAX_NATS_FLOAT32: Final = 1e-3  # maximum difference in a token's log-probability; observed differences reach 1e-5
MAX_DIFFERENT_SHARE: Final = 0.1  # maximum share of differing translations; those of random lines are arbitrary
TIE_TOLERANCE_NATS: Final = 1e-4  # float32 cannot distinguish scores that differ by less
MAX_SOURCE_TOKENS: Final = 1023  # without EOS; by default CTranslate2 reads 1,024 tokens including EOS
MAX_INVENTED_TOKENS: Final = 20
EXTRA_COMPARED_TOKENS: Final = 50  # a translation may exceed the longest source by this many tokens, as in nmt
TIED_BATCH_TOKENS: Final = 2000
COMPARED_BATCH_SENTENCES: Final = 32  # larger batches are not faster on a CPU
TUNED_BEAM_SIZE: Final = 4
DEFAULT_PENALTY: Final = (
    0.5  # at n = 25 tokens, n ** 0.5 grows as fast as GNMT's ((5 + n) / 6) ** 0.6: 0.6 * n / (5 + n) is 0.5
)
PENALTIES: Final = tuple(tenths / 10 for tenths in range(0, 17, 2))
MAX_TARGET_TOKENS: Final = 256  # maximum per translation; CTranslate2's default
TUNING_BATCH_TOKENS: Final = 2000

TokenIds = NDArray[Any]


@dataclass(frozen=True)
class EngineComparison:
    """How closely CTranslate2's search agrees with nmt's on the same lines; each line has one of five outcomes.

    search: "greedy" or "beam 4", without a length penalty
    lines: number of lines
    equal: lines with the same tokens
    tied: lines with different tokens whose scores under nmt's model differ by at most TIE_TOLERANCE_NATS
    different: lines with different tokens and different scores
    endless: lines not compared because a translation reached the length limit, where the rules of the two beam searches differ
    control: lines not compared because CTranslate2 generated PAD or BOS, which nmt's search never does; `nmt translate`
        searches such a line with torch
    example: the first different line with both translations; empty if there is none
    """

    search: str
    lines: int
    equal: int
    tied: int
    different: int
    endless: int
    control: int
    example: str


def invented_lines(pipeline: Pipeline, count: int) -> list[TokenIds]:
    """Return lines of 1 to MAX_INVENTED_TOKENS random source ids without control symbols. Every call returns the same lines."""
    generator = np.random.default_rng(1)
    lengths = generator.integers(1, MAX_INVENTED_TOKENS, endpoint=True, size=count)
    return [generator.integers(len(SYMBOLS), pipeline.source.size, size=length) for length in lengths]


def real_lines(pipeline: Pipeline, lines: Sequence[str], count: int, name: str) -> list[TokenIds]:
    """Return the ids of the first `count` lines that have tokens. name: the file's name. Raises InputError if no line has any."""
    encoded = pipeline.source.encode_batch(lines).rows()
    rows = [ids[:MAX_SOURCE_TOKENS] for ids in encoded if len(ids)][:count]
    if not rows:
        raise InputError(f"{quoted(name)}: no line contains words to translate (use another file for --check)")
    return rows


@torch.inference_mode()
def compare_engines(
    loaded: LoadedModel,
    engine: CTranslate2Model,
    lines: Sequence[TokenIds],
    beam_size: int,
) -> EngineComparison:
    """Translate lines with nmt's search and with CTranslate2, without a length penalty.

    lines: source ids without EOS
    beam_size: 1 means greedy search
    """
    greedy, limit = beam_size == 1, max(map(len, lines)) + EXTRA_COMPARED_TOKENS
    ours = _search(loaded.model, lines, beam_size, limit)
    theirs = _translate(engine, list(map(np.ndarray.tolist, lines)), beam_size, 0.0, limit)
    signals.check()
    counts = dict.fromkeys(("equal", "tied", "different", "endless", "control"), 0)
    example, text = "", loaded.pipeline.target.decode
    for number, (line, own, other) in enumerate(zip(lines, ours, theirs, strict=True), 1):
        if own == other:
            outcome = "equal"
        elif PAD in other or BOS in other:
            outcome = "control"
        elif not greedy and max(len(own), len(other)) >= limit:
            outcome = "endless"
        else:
            outcome = "tied" if _tied(loaded.model, line, own, other, greedy) else "different"
        if outcome == "different" and not example:
            example = f"line {number}: '{quoted(text(own))}' by nmt, '{quoted(text(other))}' by CTranslate2"
        counts[outcome] += 1
    search = "greedy" if greedy else f"beam {beam_size}"
    return EngineComparison(search, len(lines), **counts, example=example)


def largest_difference(loaded: LoadedModel, engine: CTranslate2Model, lines: Sequence[TokenIds]) -> float:
    """The largest difference, in nats, between the two log-probabilities of a token, for the lines with random targets."""
    generator = np.random.default_rng(2)
    targets = [generator.integers(len(SYMBOLS), loaded.pipeline.target.size, size=len(line)) for line in lines]
    ours = target_log_probs(loaded.model, lines, targets, TIED_BATCH_TOKENS)
    theirs = engine.log_probs([line.tolist() for line in lines], [target.tolist() for target in targets])
    # `max` may skip a NaN; `np.max` returns it
    return float(np.max([np.abs(np.array(own) - other).max() for own, other in zip(ours, theirs, strict=True)]))


def _translate(
    engine: CTranslate2Model, lines: Sequence[Sequence[int]], beam_size: int, length_penalty: float, max_length: int
) -> list[list[int]]:
    """Translate with CTranslate2, in batches of the same size as nmt's. Returns ids without EOS.

    length_penalty: scores are divided by tokens ** length_penalty, counting EOS
    """
    settings = {"beam_size": beam_size, "length_penalty": length_penalty, "max_decoding_length": max_length}
    return engine.translate(lines, max_batch_size=COMPARED_BATCH_SENTENCES, **settings)


def _search(model: Model, lines: Sequence[TokenIds], beam_size: int, max_length: int) -> list[list[int]]:
    """Translate with nmt's greedy or beam search. Returns ids without EOS."""
    options: dict[str, Any] = {"max_len_a": 0, "max_len_b": max_length}
    if beam_size > 1:
        options |= {"beam_size": beam_size, "length_penalty": "none"}
    decoder = registry.build(registry.choose("decoder", "beam" if beam_size > 1 else "greedy", options))
    translations: list[list[int]] = []
    with log.progress("translating", len(lines), "lines") as bar:
        for start in range(0, len(lines), COMPARED_BATCH_SENTENCES):
            signals.check()
            results = decoder.search(model, pad_rows(lines[start : start + COMPARED_BATCH_SENTENCES]))
            translations += [hypotheses[0].tokens for hypotheses in results]
            bar.advance(len(results))
    return translations


def _tied(model: Model, line: TokenIds, own: list[int], other: list[int], greedy: bool) -> bool:
    """Whether the model scores two translations equally: as a whole or, in greedy search, at the token where they diverge."""
    sides = [np.array(tokens, dtype=np.int64) for tokens in (own, other)]
    ours, theirs = (target_log_probs(model, [line], [side], TIED_BATCH_TOKENS)[0] for side in sides)
    if greedy:
        pairs = zip([*own, EOS], [*other, EOS], strict=False)
        first = next(place for place, (token, other_token) in enumerate(pairs) if token != other_token)
        ours, theirs = ours[first : first + 1], theirs[first : first + 1]
    difference: float = abs(sum(ours) - sum(theirs))
    return difference <= TIE_TOLERANCE_NATS


@dataclass(frozen=True)
class DevelopmentSet:
    """Lines and their references, with the names of their files."""

    source: str
    reference: str
    sources: list[str]
    references: list[str]


@dataclass(frozen=True)
class TunedPenalty:
    """Scores on a development set for each length penalty.

    source, reference: names of the files
    lines: number of lines
    decoder: signature of nmt's default search
    ours: BLEU of nmt's search
    bleu: BLEU of CTranslate2's search, by penalty
    likeness: BLEU of CTranslate2's translations against nmt's translations, by penalty
    signature: signature of BLEU
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
        """The penalty that gives the translations closest to nmt's; in a tie, the penalty nearest to DEFAULT_PENALTY."""
        return max(self.likeness, key=lambda penalty: (self.likeness[penalty], -abs(penalty - DEFAULT_PENALTY)))


def tune_length_penalty(loaded: LoadedModel, engine: CTranslate2Model, dev: DevelopmentSet) -> TunedPenalty:
    """Translate a development set with nmt's default search, and with CTranslate2's beam search for each of PENALTIES."""
    pipeline, decoder = loaded.pipeline, registry.build(registry.choose("decoder", "beam"))
    options = TranslatorOptions(batch_tokens=TUNING_BATCH_TOKENS, max_source_length=MAX_SOURCE_TOKENS)
    translator = Translator(BuiltInEngine(pipeline, loaded.model, options, decoder), options)
    translations = translator.texts(dev.sources, LineWarnings(dev.source, length_flag=""))
    bleu = Bleu(BleuOptions())
    ours = bleu(translations, [dev.references])
    lines = [line.source for line in translator.encode(translator.parsed(dev.sources))]
    scores: dict[float, float] = {}
    likeness: dict[float, float] = {}
    with log.progress("tuning", len(PENALTIES), "length penalties") as bar:
        for penalty in PENALTIES:
            tokens = _translate(engine, lines, TUNED_BEAM_SIZE, penalty, MAX_TARGET_TOKENS)
            texts = list(map(pipeline.target.decode, tokens))
            scores[penalty], likeness[penalty] = (
                bleu(texts, [others]).value for others in (dev.references, translations)
            )
            bar.advance()
            signals.check()
    return TunedPenalty(
        dev.source, dev.reference, len(lines), decoder.signature, ours.value, scores, likeness, ours.signature
    )
