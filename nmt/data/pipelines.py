"""The text pipeline of prepared data: that of a model, or one that is learnt from the training pairs."""

from contextlib import closing
from pathlib import Path
from typing import Final

from nmt.data.encode import CountTask, TextTask, count_words
from nmt.data.learn import SubwordSettings, learn_apart, sum_counts
from nmt.data.options import SIDE_OPTIONS, PrepareOptions
from nmt.data.sets import TextSet
from nmt.data.shards import named_pipeline
from nmt.data.workers import in_order
from nmt.errors import UserError, expecting, quoted
from nmt.files import read_bytes
from nmt.log import log
from nmt.options import flag_of
from nmt.signals import Signals
from nmt.text.context import SEPARATOR
from nmt.text.pipeline import Pipeline, Side, TextPreparer
from nmt.text.steps import Truecaser, count_casings
from nmt.text.vocabulary import CodesVocabulary, Merges, Vocabulary, WordVocabulary

TEXT_SETTINGS: Final = (  # options that --vocabulary decides
    *(name for name in SIDE_OPTIONS if name != "user_symbols"),
    "target_subword", "vocab_size", "min_frequency", "joint_vocabulary", "character_coverage", "byte_fallback",
    "subword_sample", "codes",
)  # fmt: skip


def learnt_pipeline(options: PrepareOptions, train: TextSet, signals: Signals) -> Pipeline:
    """A pipeline whose vocabularies and casings are learnt from the training pairs."""
    source, target = options.side(options.source_lang), options.for_target.side(options.target_lang)
    casings: list[Truecaser | None] = [None, None]
    for side, settings in enumerate((source, target) if options.truecase else ()):
        texts = TextTask({side: TextPreparer(settings).without_symbols}, options.on_bad_line)
        task = CountTask(texts, count_casings)
        sample = train.sample(_sample_size(options, train), options.seed)
        casings[side] = Truecaser.learn(sum_counts(in_order(task, sample, options.workers, signals)))
    both = {0: TextPreparer(source, casings[0]), 1: TextPreparer(target, casings[1])}
    parts = [both] if options.joint_vocabulary else [{side: preparer} for side, preparer in both.items()]
    vocabularies = [
        _learn_vocabulary(of_side, train, TextTask(part, options.on_bad_line), signals)
        for of_side, part in zip((options, options.for_target), parts, strict=False)
    ]
    sides = Side(source, vocabularies[0], casings[0]), Side(target, vocabularies[-1], casings[1])
    return Pipeline(*sides, options.joint_vocabulary)


def reused_pipeline(options: PrepareOptions, name: str) -> Pipeline:
    """The pipeline of a model, run or prepared data; UserError when options of text are given beside it."""
    pipeline = named_pipeline(Path(name), options.languages)
    given = [key for key in TEXT_SETTINGS if getattr(options, key) != getattr(type(options), key)]
    known = pipeline.source.settings.user_symbols
    for symbol in options.symbols:
        if symbol not in known and not (options.context and symbol == SEPARATOR):
            have = f"it has {', '.join(map(quoted, known))}" if known else "it has none"
            have += "; --extend-with FILE adds entries"
            raise UserError(f"--user-symbols '{quoted(symbol)}': is no user symbol of {quoted(name)} ({have})")
    if given:
        raise UserError(
            f"{flag_of(given[0])} and --vocabulary: the text is treated as {quoted(name)} does it (leave one out)"
        )
    return pipeline


def _sample_size(options: PrepareOptions, train: TextSet) -> int:
    """Pairs that vocabularies and casings are learnt from."""
    return min(options.subword_sample or train.num_pairs, train.num_pairs)


def _learn_vocabulary(options: PrepareOptions, train: TextSet, task: TextTask, signals: Signals) -> Vocabulary:
    """A vocabulary of the text that `task` gives."""
    if options.subword in ("none", "subword-nmt"):
        codes = _read_codes(Path(options.codes[0])) if options.subword == "subword-nmt" else None
        counts = sum_counts(in_order(CountTask(task, count_words), train.chunks(), options.workers, signals))
        if codes is not None:
            return CodesVocabulary.learn(codes, counts, options.vocab_size, options.symbols)
        return WordVocabulary.learn(counts, options.vocab_size, options.min_frequency, options.symbols)
    limits = options.vocab_size, options.character_coverage, options.byte_fallback
    settings = SubwordSettings(options.subword, *limits, options.symbols)
    size = _sample_size(options, train)
    log.info(f"learning {options.subword} from {size:,} of {train.num_pairs:,} pairs")
    with closing(in_order(task, train.sample(size, options.seed), options.workers, signals)) as texts:
        learnt = learn_apart(texts, settings, signals, train.files[0].name)
    if learnt.size < options.vocab_size and options.subword != "char":
        log.warn(f"the text gives a vocabulary of {learnt.size:,} entries only, --vocab-size is {options.vocab_size:,}")
    return learnt


def _read_codes(path: Path) -> str:
    with expecting("merges of subword-nmt", path):
        codes = read_bytes(path).decode("utf-8-sig")  # a BOM would hide the version in the first line
        Merges(codes)
    return codes
