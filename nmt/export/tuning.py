"""Tuning of another engine's length penalty, so that its beam search translates as our default search does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from nmt import registry
from nmt.checkpoint import LoadedModel
from nmt.export.comparison import MAX_SOURCE_TOKENS, CTranslate2Engine
from nmt.metrics.bleu import Bleu, BleuOptions
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.open import build_translator
from nmt.translate.options import TranslatorOptions

TUNED_BEAM_SIZE: Final = 4
DEFAULT_PENALTY: Final = 0.5  # at n = 25 tokens it grows with n as GNMT's ((5 + n) / 6) ** 0.6: by 0.6 * n / (5 + n)
PENALTIES: Final = tuple(tenths / 10 for tenths in range(0, 17, 2))
MAX_TARGET_TOKENS: Final = 256  # of a translation: CTranslate2's own default
TUNING_BATCH_TOKENS: Final = 2000


@dataclass(frozen=True)
class DevelopmentSet:
    """Lines and their references, with the names of their files."""

    source: str
    reference: str
    sources: list[str]
    references: list[str]


@dataclass(frozen=True)
class TunedPenalty:
    """Scores of a development set by length penalty.

    source, reference: names of the files
    lines: number of lines
    decoder: signature of our default search
    ours: BLEU of our search
    bleu: BLEU of the engine's search, by penalty
    likeness: BLEU of the engine's translations with ours as the references, by penalty
    signature: of BLEU
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
        """The penalty whose translations are most like ours; of equals the nearest to DEFAULT_PENALTY."""
        return max(self.likeness, key=lambda penalty: (self.likeness[penalty], -abs(penalty - DEFAULT_PENALTY)))


def tune_length_penalty(
    loaded: LoadedModel, engine: CTranslate2Engine, dev: DevelopmentSet, check: Callable[[], None]
) -> TunedPenalty:
    """Translate a development set by our default search, and by the engine's beam search with each of PENALTIES.

    check: called now and then; may raise to stop
    """
    pipeline, decoder = loaded.pipeline, registry.build(registry.choose("decoder", "beam"))
    options = TranslatorOptions(batch_tokens=TUNING_BATCH_TOKENS, max_source_length=MAX_SOURCE_TOKENS)
    results = build_translator(pipeline, loaded.model, options, decoder).translate(dev.sources, check)
    LineWarnings(dev.source).add_translations(results)
    translations = [translation.text for translation in results]
    bleu = Bleu(BleuOptions())
    ours = bleu(translations, [dev.references])
    lines = [ids[:MAX_SOURCE_TOKENS].tolist() for ids in pipeline.source.encode_batch(dev.sources).rows()]
    scores: dict[float, float] = {}
    likeness: dict[float, float] = {}
    for penalty in PENALTIES:
        tokens = engine.translate(lines, TUNED_BEAM_SIZE, penalty, MAX_TARGET_TOKENS)
        texts = list(map(pipeline.target.decode, tokens))
        scores[penalty], likeness[penalty] = (bleu(texts, [others]).value for others in (dev.references, translations))
        check()
    return TunedPenalty(
        dev.source, dev.reference, len(lines), decoder.signature, ours.value, scores, likeness, ours.signature
    )
