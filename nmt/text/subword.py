"""Subword vocabularies by sentencepiece: BPE (Sennrich et al., 2016) and unigram (Kudo, 2018)."""

import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Final, Literal, Self

import numpy as np
import sentencepiece

from nmt.errors import ArtefactError, UserError, quoted
from nmt.symbols import BOS, EOS, PAD, SYMBOLS, UNK
from nmt.text.vocabulary import (
    EncodedTexts,
    Numbers,
    Vocabulary,
    WordVocabulary,
    expand_ranges,
    split_words,
    sum_by_text,
)

MAX_CACHED_WORDS: Final = 1 << 17
MAX_CACHED_CHARACTERS: Final = 1 << 22  # of all cached words: what stands between two spaces may be as long as a line
SPACE_MARK: Final = "\u2581"  # sentencepiece's sign for a space; in text it is taken for a space

# sentencepiece cuts its control pieces out of the text it learns from. Their names in the model begin with a control
# character, which no cleaned text holds.
CONTROL_PIECES: Final = tuple(f"\x01{symbol}" for symbol in SYMBOLS)


@dataclass(frozen=True)
class SubwordSettings:
    """The settings that a sentencepiece model is learnt with.

    name: bpe or unigram
    vocab_size: entries, the control symbols counted
    character_coverage: share of the characters of the text that get an entry
    byte_fallback: whether other characters are spelled in bytes
    """

    name: str
    vocab_size: int
    character_coverage: float
    byte_fallback: bool


class SentencepieceVocabulary:
    """A sentencepiece model as a vocabulary."""

    suffix = ".model"

    def __init__(self, model: bytes, place: object = "the model") -> None:
        """Raises ArtefactError unless it is a sentencepiece model with the control symbols of nmt.symbols."""
        self._bytes = model
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, TypeError) as error:
            raise ArtefactError(f"{quoted(place)}: not a sentencepiece model: {error}") from None
        ids = (self._model.pad_id(), self._model.bos_id(), self._model.eos_id(), self._model.unk_id())
        if ids != (PAD, BOS, EOS, UNK):
            raise ArtefactError(
                f"{quoted(place)}: its control symbols have the ids {ids}; wanted {(PAD, BOS, EOS, UNK)}"
            )
        self._size = int(self._model.vocab_size())
        self._cache = _WordCache()

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> Self:
        return cls(content, place)

    def to_bytes(self) -> bytes:
        return self._bytes

    def __reduce__(self) -> tuple[type["SentencepieceVocabulary"], tuple[bytes]]:
        return SentencepieceVocabulary, (self._bytes,)

    @property
    def size(self) -> int:
        return self._size

    def encode_batch(self, texts: Sequence[str]) -> EncodedTexts:
        """Encode word by word: no piece crosses a space, so that a word has the same ids everywhere, and is cached."""
        if not texts:
            return EncodedTexts.empty()
        words, counts = split_words([text.replace(SPACE_MARK, " ") for text in texts])
        numbers: defaultdict[str, int] = defaultdict(count().__next__)  # each different word gets the next number
        number_of_word = np.fromiter(map(numbers.__getitem__, words), dtype=np.int64, count=len(words))
        cache = self._cache
        new = [word for word in numbers if word not in cache.rows]
        cache.add(new, self._model.encode(new, out_type=int, num_threads=1))
        rows = np.fromiter(map(cache.rows.__getitem__, numbers), dtype=np.int64, count=len(numbers))[number_of_word]
        lengths = cache.lengths[rows]
        ids = cache.ids[expand_ranges(cache.starts[rows], lengths)]
        unknown = sum_by_text(cache.unknown[rows], counts)
        if len(cache.rows) > MAX_CACHED_WORDS or cache.num_characters > MAX_CACHED_CHARACTERS:
            self._cache = _WordCache()
        return EncodedTexts(ids, sum_by_text(lengths, counts), sum_by_text(lengths > 0, counts), unknown)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._model.decode(list(ids)))

    def piece(self, token: int) -> str:
        return SYMBOLS[token] if token < len(SYMBOLS) else str(self._model.id_to_piece(token))

    def surface(self, token: int) -> str:
        """See Vocabulary. A byte alone is U+FFFD."""
        if token < len(SYMBOLS):
            return SYMBOLS[UNK] if token == UNK else ""
        return "\ufffd" if self._model.is_byte(token) else self.piece(token).replace(SPACE_MARK, " ")


class _WordCache:
    """The ids of words, concatenated: those of word w begin at starts[rows[w]], and are lengths[rows[w]] many."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.num_characters = 0
        self.ids: Numbers = np.zeros(0, dtype=np.uint32)
        self.starts, self.lengths, self.unknown = (np.zeros(0, dtype=np.int64) for _ in range(3))

    def add(self, words: Sequence[str], ids_of_words: Sequence[Sequence[int]]) -> None:
        if not words:
            return
        lengths = np.fromiter(map(len, ids_of_words), dtype=np.int64, count=len(words))
        ids = np.fromiter(chain.from_iterable(ids_of_words), dtype=np.uint32)
        unknown = np.fromiter((ids.count(UNK) for ids in ids_of_words), dtype=np.int64, count=len(words))
        starts = len(self.ids) + np.cumsum(lengths) - lengths
        self.num_characters += sum(map(len, words))
        self.rows.update(zip(words, range(len(self.rows), len(self.rows) + len(words)), strict=True))
        self.ids = np.concatenate([self.ids, ids])
        self.starts = np.concatenate([self.starts, starts])
        self.lengths = np.concatenate([self.lengths, lengths])
        self.unknown = np.concatenate([self.unknown, unknown])


VOCABULARIES: Final[Mapping[str, type[Vocabulary]]] = {
    "bpe": SentencepieceVocabulary,
    "unigram": SentencepieceVocabulary,
    "none": WordVocabulary,
}
if TYPE_CHECKING:
    SubwordName = str
else:
    SubwordName = Literal[tuple(VOCABULARIES)]  # the choices of `--subword`


def learn_subwords(texts: Iterator[str], settings: SubwordSettings) -> SentencepieceVocabulary:
    """Learn a model from normalised and tokenised texts, which are read once.

    A corpus too small for vocab_size gives a smaller vocabulary. Raises UserError where no model can be learnt.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=texts,
            model_writer=model,
            model_type=settings.name,
            vocab_size=settings.vocab_size,
            hard_vocab_limit=False,
            character_coverage=settings.character_coverage,
            byte_fallback=settings.byte_fallback,
            normalization_rule_name="identity",
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            pad_piece=CONTROL_PIECES[PAD],
            bos_piece=CONTROL_PIECES[BOS],
            eos_piece=CONTROL_PIECES[EOS],
            unk_piece=CONTROL_PIECES[UNK],
            shuffle_input_sentence=False,
            num_threads=1,  # several threads sum in another order, and give other models
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _learning_error(str(error), settings) from None
    return SentencepieceVocabulary(model.getvalue())


def _learning_error(message: str, settings: SubwordSettings) -> UserError:
    """The error for a message of sentencepiece."""
    if sizes := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return UserError(
            f"--vocab-size {settings.vocab_size} is too small: the text has {sizes[2]} characters and control symbols "
            f"(at least --vocab-size {sizes[2]}, or lower --character-coverage)"
        )
    if "!sentences_.empty()" in message:
        return UserError(
            "there is no text to learn a vocabulary from (every line is empty, or longer than 4,192 bytes)"
        )
    return UserError(f"no {settings.name} vocabulary can be learnt: {quoted(message)}")
