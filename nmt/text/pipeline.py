"""The text pipeline of a model: raw text to ids and back, for both languages; saved inside every model folder."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from nmt.artefact import Artefact, to_json, write_file
from nmt.errors import ArtefactError, quoted
from nmt.text.corpus import clean
from nmt.text.normalize import Form, Normalizer
from nmt.text.subword import Sentencepiece, SubwordName
from nmt.text.tokenize import Tokenizer, TokenizerName
from nmt.text.truecase import Truecaser
from nmt.text.vocabulary import Ids, Vocabulary, Words

FOLDER: Final = "pipeline"
FACTS: Final = "pipeline.json"

Item = TypeVar("Item")


@dataclass(frozen=True)
class SideSettings:
    """How the text of one language is treated. right_to_left: whether a model reads it from the last token to the first"""

    language: str
    normalization: Form
    normalize_punctuation: bool
    lowercase: bool
    tokenizer: TokenizerName
    subword: SubwordName
    truecase: bool = False
    right_to_left: bool = False

    def told(self) -> dict[str, Any]:
        """What is saved; the order only where it is not the usual one, so that pipelines keep the hash they always had."""
        return {key: value for key, value in asdict(self).items() if value or key != "right_to_left"}


class TextPreparer:
    """Normalise, tokenise and truecase the text of one language: all that comes before subwords."""

    def __init__(self, settings: SideSettings, truecaser: Truecaser | None = None) -> None:
        self.truecaser = truecaser
        self._normalize = Normalizer(
            settings.language, settings.normalization, settings.normalize_punctuation, settings.lowercase
        )
        self._tokenizer = Tokenizer(settings.tokenizer, settings.language)

    def __call__(self, texts: Sequence[str]) -> list[str]:
        found = [self._tokenizer.tokenize(text) for text in self._normalize.batch(texts)]
        return found if self.truecaser is None else list(map(self.truecaser, found))

    def undo(self, text: str) -> str:
        return self._tokenizer.detokenize(text if self.truecaser is None else self.truecaser.undo(text))


class Side:
    """The pipeline of one language. Ids stand in the order in which a model reads them."""

    def __init__(self, settings: SideSettings, vocabulary: Vocabulary, truecaser: Truecaser | None = None) -> None:
        self.settings, self.vocabulary = settings, vocabulary
        self.prepare = TextPreparer(settings, truecaser)

    @property
    def size(self) -> int:
        """Entries of the vocabulary, control symbols counted."""
        return self.vocabulary.size

    def encode(self, text: str) -> list[int]:
        """The ids of a line of raw text, without EOS."""
        return [int(token) for token in self.encode_batch([text]).ids]

    def encode_batch(self, texts: Sequence[str]) -> Ids:
        """The ids of lines of raw text."""
        return self.encode_prepared(self.prepare(texts))

    def encode_prepared(self, texts: Sequence[str]) -> Ids:
        """The ids of texts as they stand before they are cut into subwords."""
        ids = self.vocabulary.encode_batch(texts)
        return ids.backwards() if self.settings.right_to_left else ids

    def in_reading_order(self, items: Sequence[Item]) -> list[Item]:
        """A text's tokens, or what belongs to each, from the model's order into that of reading, or back."""
        return list(reversed(items) if self.settings.right_to_left else items)

    def decode(self, ids: Sequence[int]) -> str:
        """The raw text of ids, one line; control symbols have no text but UNK."""
        return self.of_prepared(self.vocabulary.decode(self.in_reading_order(ids)))

    def of_prepared(self, text: str) -> str:
        """The raw text, one line, of a text as it stands before it is cut into subwords."""
        return clean(self.prepare.undo(text))

    def surface(self, token: int) -> str:
        """What an id adds to a prepared text, a space before it where it begins a word."""
        return self.vocabulary.surface(token)

    def piece(self, token: int) -> str:
        """How an id is shown to a person."""
        return self.vocabulary.piece(token)

    def pieces(self, text: str) -> list[str]:
        """The tokens of a line of raw text as a person may read them."""
        return [self.piece(token) for token in self.in_reading_order(self.encode(text))]


class Pipeline:
    """Both sides. joint: whether they share one vocabulary; then an id means the same on either side."""

    def __init__(self, source: Side, target: Side, joint: bool) -> None:
        self.source, self.target, self.joint = source, target, joint

    @property
    def source_lang(self) -> str:
        return self.source.settings.language

    @property
    def target_lang(self) -> str:
        return self.target.settings.language

    def right_to_left(self) -> "Pipeline":
        """The same, but its target is read from the last token to the first."""
        target = replace(self.target.settings, right_to_left=True)
        side = Side(target, self.target.vocabulary, self.target.prepare.truecaser)
        return Pipeline(self.source, side, self.joint)

    @property
    def hash(self) -> str:
        """sha256 of all that determines it: two pipelines of one hash give the same ids for the same text."""
        digest = hashlib.sha256()
        for name, content in sorted(self.files().items()):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    def files(self) -> dict[str, bytes]:
        """What is saved: content by file name."""
        facts = {
            "joint": self.joint,
            "source": self.source.settings.told(),
            "target": self.target.settings.told(),
        }
        sides = {"joint": self.source} if self.joint else {"source": self.source, "target": self.target}
        vocabularies = {f"{name}{side.vocabulary.suffix}": side.vocabulary.to_bytes() for name, side in sides.items()}
        casings = {
            f"{name}{Truecaser.suffix}": side.prepare.truecaser.to_bytes()
            for name, side in (("source", self.source), ("target", self.target))
            if side.prepare.truecaser is not None
        }
        return {FACTS: to_json(facts), **vocabularies, **casings}

    def save(self, folder: Path) -> None:
        """Write its files into a folder that is there."""
        for name, content in self.files().items():
            write_file(folder / name, content)

    @classmethod
    def load(cls, artefact: Artefact) -> "Pipeline":
        """The pipeline of a model, checkpoint or prepared-data folder. Raises ArtefactError when it is damaged."""
        return cls.from_files(lambda name: artefact.path(f"{FOLDER}/{name}").read_bytes(), artefact.folder / FOLDER)

    @classmethod
    def from_files(cls, read: Callable[[str], bytes], place: object) -> "Pipeline":
        """The pipeline of what `files` gave. read: the content of a file by name."""
        try:
            facts = msgspec.json.decode(read(FACTS), type=_Facts)
        except msgspec.DecodeError as error:
            raise ArtefactError(f"{quoted(place)}/{FACTS}: not a text pipeline: {error}") from None
        if facts.joint and facts.source.subword != facts.target.subword:
            raise ArtefactError(f"{quoted(place)}/{FACTS}: a joint vocabulary of two kinds")
        names = ("joint", "joint") if facts.joint else ("source", "target")
        source = _read_vocabulary(read, names[0], facts.source.subword, place)
        target = source if facts.joint else _read_vocabulary(read, names[1], facts.target.subword, place)
        casings = [
            _read_truecaser(read, name, place) if side.truecase else None
            for name, side in (("source", facts.source), ("target", facts.target))
        ]
        return cls(Side(facts.source, source, casings[0]), Side(facts.target, target, casings[1]), facts.joint)


class _Facts(msgspec.Struct):
    """pipeline.json."""

    joint: bool
    source: SideSettings
    target: SideSettings


def _read_vocabulary(read: Callable[[str], bytes], name: str, subword: SubwordName, place: object) -> Vocabulary:
    if subword == "none":
        return Words.from_bytes(read(name + Words.suffix), f"{place}/{name}{Words.suffix}")
    return Sentencepiece(read(name + Sentencepiece.suffix), f"{place}/{name}{Sentencepiece.suffix}")


def _read_truecaser(read: Callable[[str], bytes], name: str, place: object) -> Truecaser:
    return Truecaser.from_bytes(read(name + Truecaser.suffix), f"{place}/{name}{Truecaser.suffix}")
