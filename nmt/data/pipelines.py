"""The text pipeline for `nmt prepare`: reused from a model, or learnt from the training pairs."""

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nmt import registry
from nmt.data.encode import CountTask, TextTask, count_words
from nmt.data.learn import SubwordSettings, learn_in_subprocess, sum_counts
from nmt.data.options import SIDE_OPTIONS, PrepareOptions
from nmt.data.sets import TextSet
from nmt.data.shards import named_pipeline
from nmt.data.workers import in_order
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.options import flag_of
from nmt.subwords.base import Subword
from nmt.symbols import SEPARATOR
from nmt.text.pipeline import Pipeline, Side, TextPreparer
from nmt.text.steps import Truecaser, count_casings
from nmt.text.vocabulary import SentencepieceVocabulary

TEXT_SETTINGS: Final = (  # text options, which cannot be combined with --vocabulary
    *(name for name in SIDE_OPTIONS if name != "user_symbols"),
    "target_subword", "target_normalization", "vocab_size", "min_frequency", "joint_vocabulary", "character_coverage",
    "byte_fallback", "subword_sample",
)  # fmt: skip


def learnt_pipeline(options: PrepareOptions, train: TextSet, scratch: Path) -> Pipeline:
    """Learn a pipeline's vocabularies and casings from the training pairs. scratch: folder for unnamed temporary files"""
    source, target = options.side(0), options.side(1)
    casings: list[Truecaser | None] = [None, None]
    for side, settings in enumerate((source, target) if options.truecase else ()):
        texts = TextTask({side: TextPreparer(settings).without_symbols}, options.on_bad_line)
        task = CountTask(texts, count_casings)
        sample = train.sample(_sample_size(options, train), options.seed)
        casings[side] = Truecaser.learn(sum_counts(in_order(task, sample, options.workers)))
    both = {0: TextPreparer(source, casings[0]), 1: TextPreparer(target, casings[1])}
    parts = [both] if options.joint_vocabulary else [{side: preparer} for side, preparer in both.items()]
    vocabularies = []
    for number, part in enumerate(parts):
        text = _TrainingText(options, train, TextTask(part, options.on_bad_line), scratch)
        subword: Subword = registry.find("subword", options.subwords[number]).cls(options, number)
        vocabularies.append(subword.learn(text))
    sides = Side(source, vocabularies[0], casings[0]), Side(target, vocabularies[-1], casings[1])
    return Pipeline(*sides, options.joint_vocabulary)


def reused_pipeline(options: PrepareOptions, name: str) -> Pipeline:
    """Reuse the pipeline of a model, run or data folder. Raises UserError if text options are also set."""
    pipeline = named_pipeline(Path(name), options.languages)
    settings = *TEXT_SETTINGS, *registry.option_names("subword")
    given = [key for key in settings if getattr(options, key) != getattr(type(options), key)]
    known = pipeline.source.settings.user_symbols
    for symbol in options.symbols:
        if symbol not in known and not (options.context and symbol == SEPARATOR):
            have = f"existing user symbols: {', '.join(map(quoted, known)) or 'none'}"
            hint = "; ".join([have, *registry.declared("preparation", "adds_entries")])
            raise UserError(f"--user-symbols '{quoted(symbol)}': not a user symbol of {quoted(name)} ({hint})")
    if given:
        reason = f"--vocabulary reuses the text settings of {quoted(name)}; drop one of them"
        raise UserError(f"{flag_of(given[0])} and --vocabulary cannot be combined ({reason})")
    return pipeline


def _sample_size(options: PrepareOptions, train: TextSet) -> int:
    """Number of pairs to learn vocabularies and casings from."""
    return min(options.subword_sample or train.num_pairs, train.num_pairs)


@dataclass(frozen=True)
class _TrainingText:
    """See nmt.subwords.base.TrainingText. task: maps pairs to their prepared text"""

    options: PrepareOptions
    train: TextSet
    task: TextTask
    scratch: Path

    def word_counts(self) -> Counter[str]:
        task = CountTask(self.task, count_words)
        return sum_counts(in_order(task, self.train.chunks(), self.options.workers))

    def learn_sentencepiece(self, model_type: str) -> SentencepieceVocabulary:
        options, train = self.options, self.train
        limits = options.vocab_size, options.character_coverage, options.byte_fallback
        settings = SubwordSettings(model_type, *limits, options.symbols)
        size = _sample_size(options, train)
        [*sides], first = self.task.prepare, train.files[0]
        place = (
            first.name if first.is_tsv else " and ".join(quoted((first.source, first.target)[side]) for side in sides)
        )
        log.info(f"learning {model_type} from {size:,} of {train.num_pairs:,} pairs")
        sample = train.sample(size, options.seed)
        with closing(in_order(self.task, sample, options.workers)) as texts:
            learnt = learn_in_subprocess(texts, settings, self.scratch, place)
        if learnt.size < options.vocab_size and model_type != "char":
            wanted = f"fewer than --vocab-size {options.vocab_size:,}"
            log.warn(f"{place}: the text yields only {learnt.size:,} vocabulary entries, {wanted}")
        return learnt
