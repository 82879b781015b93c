"""Subword vocabularies by sentencepiece: BPE (Sennrich et al., 2016) and unigram (Kudo, 2018)."""

import io
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Final, Literal

import numpy as np
import sentencepiece

from nmt.errors import ArtefactError, UserError, quoted
from nmt.symbols import BOS, EOS, PAD, SYMBOLS, UNK
from nmt.text.vocabulary import Ids, Numbers, divide, sums

SubwordName = Literal["bpe", "unigram", "none"]

MOST_KNOWN_WORDS: Final = 1 << 17
MOST_KNOWN_CHARACTERS: Final = 1 << 22  # of all of them: what stands between two spaces may be as long as a line
SPACE_MARK: Final = "\u2581"  # how sentencepiece writes a space, so that in text it is one

# sentencepiece cuts its control pieces out of the text it learns from, so in the model they get names that no text can
# hold: rule 4 has turned every control character into a space.
PIECES: Final = tuple(f"\x01{symbol}" for symbol in SYMBOLS)


@dataclass(frozen=True)
class SubwordSettings:
    """What a sentencepiece model is learnt with. vocab_size: control symbols counted."""

    name: Literal["bpe", "unigram"]
    vocab_size: int
    character_coverage: float
    byte_fallback: bool


class Sentencepiece:
    """A sentencepiece model as a vocabulary."""

    suffix = ".model"

    def __init__(self, model: bytes, place: object = "the model") -> None:
        """Raises ArtefactError when it is not a model, or not one whose control symbols are ours."""
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
        self._known = _KnownWords()

    def __reduce__(self) -> tuple[type["Sentencepiece"], tuple[bytes]]:
        return Sentencepiece, (self._bytes,)

    @property
    def size(self) -> int:
        return self._size

    def encode_batch(self, texts: Sequence[str]) -> Ids:
        """Word by word: no piece crosses a space, so that a word has the same ids wherever it stands, and is kept."""
        if not texts:
            return Ids(*(np.zeros(0, dtype=np.uint32) for _ in range(4)))
        words, counts = divide([text.replace(SPACE_MARK, " ") for text in texts])
        first_met: defaultdict[str, int] = defaultdict(count().__next__)  # each different word gets the next number
        at = np.fromiter(map(first_met.__getitem__, words), dtype=np.int64, count=len(words))
        known = self._known
        new = [word for word in first_met if word not in known.places]
        known.add(new, self._model.encode(new, out_type=int, num_threads=1))
        at = np.fromiter(map(known.places.__getitem__, first_met), dtype=np.int64, count=len(first_met))[at]
        lengths = known.lengths[at]
        starts = known.starts[at] - (np.cumsum(lengths) - lengths)
        ids = known.ids[np.repeat(starts, lengths) + np.arange(int(lengths.sum()))]
        found = Ids(ids, sums(lengths, counts), sums(lengths > 0, counts), sums(known.unknown[at], counts))
        if len(known.places) > MOST_KNOWN_WORDS or known.num_characters > MOST_KNOWN_CHARACTERS:
            self._known = _KnownWords()
        return found

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._model.decode(list(ids)))

    def piece(self, token: int) -> str:
        return SYMBOLS[token] if token < len(SYMBOLS) else str(self._model.id_to_piece(token))

    def surface(self, token: int) -> str:
        """See Vocabulary; a byte alone is no character yet."""
        if token < len(SYMBOLS):
            return SYMBOLS[UNK] if token == UNK else ""
        return "\ufffd" if self._model.is_byte(token) else self.piece(token).replace(SPACE_MARK, " ")

    def to_bytes(self) -> bytes:
        return self._bytes


class _KnownWords:
    """The ids of words met before: of word w those from starts[p] on, lengths[p] of them, at its place p = places[w]."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.num_characters = 0
        self.ids: Numbers = np.zeros(0, dtype=np.uint32)
        self.starts, self.lengths, self.unknown = (np.zeros(0, dtype=np.int64) for _ in range(3))

    def add(self, words: Sequence[str], found: Sequence[Sequence[int]]) -> None:
        """found: the ids of each word."""
        if not words:
            return
        lengths = np.fromiter(map(len, found), dtype=np.int64, count=len(words))
        ids = np.fromiter(chain.from_iterable(found), dtype=np.uint32)
        unknown = np.fromiter((row.count(UNK) for row in found), dtype=np.int64, count=len(words))
        starts = len(self.ids) + np.cumsum(lengths) - lengths
        self.num_characters += sum(map(len, words))
        self.places.update(zip(words, range(len(self.places), len(self.places) + len(words)), strict=True))
        self.ids = np.concatenate([self.ids, ids])
        self.starts, self.lengths, self.unknown = (
            np.concatenate(pair) for pair in ((self.starts, starts), (self.lengths, lengths), (self.unknown, unknown))
        )


def learn(texts: Iterator[str], settings: SubwordSettings) -> Sentencepiece:
    """Learn a model from texts that are already normalised and tokenised; they are read once, as they come.

    A corpus too small for vocab_size gives a smaller vocabulary. Raises UserError when no model can be learnt.
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
            pad_piece=PIECES[PAD],
            bos_piece=PIECES[BOS],
            eos_piece=PIECES[EOS],
            unk_piece=PIECES[UNK],
            shuffle_input_sentence=False,
            num_threads=1,  # more would sum in another order and give other models
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _cannot_learn(str(error), settings) from None
    return Sentencepiece(model.getvalue())


def _cannot_learn(message: str, settings: SubwordSettings) -> UserError:
    if found := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return UserError(
            f"--vocab-size {settings.vocab_size} is too small: the text has {found[2]} characters and control symbols "
            f"(at least --vocab-size {found[2]}, or lower --character-coverage)"
        )
    if "!sentences_.empty()" in message:
        return UserError(
            "there is no text to learn a vocabulary from (every line is empty, or longer than 4,192 bytes)"
        )
    return UserError(f"no {settings.name} vocabulary can be learnt: {quoted(message)}")
