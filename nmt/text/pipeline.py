"""The text pipeline of a model, saved in every model folder: raw text to ids and back, for both languages."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from nmt import registry
from nmt.artefact import Artefact
from nmt.errors import ArtefactError, UserError, expecting, quoted
from nmt.files import to_json
from nmt.symbols import UNK
from nmt.text.context import SEPARATOR, context_text, encode_with_contexts
from nmt.text.corpus import NO_WIDTH, clean, is_invisible
from nmt.text.forms import SIGNED_FORMS, SIGNS, UNICODE_FORMS, UnicodeForm, as_written
from nmt.text.languages import base_language
from nmt.text.steps import NOT_TEXT_BUT_LF, Truecaser, lowered
from nmt.text.vocabulary import SPACE_MARK, EncodedTexts, SentencepieceVocabulary, Vocabulary
from nmt.tokenizers.base import Tokenizer

PIPELINE_FOLDER: Final = "pipeline"  # of a model, checkpoint or prepared-data folder
PIPELINE_FILE: Final = "pipeline.json"
CHARACTERS_PER_TOKEN: Final = 64  # far more than tokens of text have; texts with more are not encoded whole
ALWAYS_SAVED: Final = {"truecase"}  # fields of SideSettings that every pipeline has had in its file, and so in its hash
BYTE_PIECE: Final = re.compile(r"<0x([0-9A-F]{2})>")  # of a byte, for characters without an entry

NOT_SEEN: Final = re.compile(f"[{NO_WIDTH}{''.join(SIGNS)}]")

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class SideSettings:
    """The text steps of one language.

    language: also of the rules for punctuation and of the tokenizer: "en"
    normalization: the Unicode form, a name in UNICODE_FORMS
    normalize_punctuation: whether Moses' rules for punctuation are applied (sacremoses)
    lowercase: whether all text is lower-cased
    tokenizer: the name of a part of the kind `tokenizer`
    subword: the name of a part of the kind `subword`, which has the class of the vocabulary
    right_to_left: whether a model reads the tokens from the last to the first
    user_symbols: words that are never altered nor split, such as tags of languages
    context: sentences before a line that are read with it, at most (nmt.text.context); of the source
    reversible: whether the tokenizer is the one that gives all text back, which earlier pipelines did not have
    language_case: whether lower case is that of the language, which earlier pipelines did not know
    """

    language: str
    normalization: UnicodeForm
    normalize_punctuation: bool
    lowercase: bool
    tokenizer: str
    subword: str
    truecase: bool = False
    right_to_left: bool = False
    user_symbols: tuple[str, ...] = ()
    context: int = 0
    reversible: bool = False
    language_case: bool = False

    def to_json(self) -> dict[str, Any]:
        """The saved settings, without fields at their default, so that a new field changes no hash of older pipelines."""
        defaults = {field.name: field.default for field in fields(self) if field.name not in ALWAYS_SAVED}
        return {key: value for key, value in asdict(self).items() if key not in defaults or value != defaults[key]}


class TextPreparer:
    """The steps before subword splitting, for one language: normalise, tokenise, truecase."""

    def __init__(self, settings: SideSettings, truecaser: Truecaser | None = None) -> None:
        self.truecaser, self._settings = truecaser, settings
        tokenizer: Tokenizer = registry.find("tokenizer", settings.tokenizer).cls(settings.language)
        self._tokenizer = tokenizer.reversible() if settings.reversible else tokenizer
        self.as_written = as_written if settings.normalization in SIGNED_FORMS else str
        keeps = settings.normalization in ("exact", "none")
        self.alters = not keeps or settings.lowercase or settings.normalize_punctuation
        symbols = "|".join(map(re.escape, settings.user_symbols))
        # MarianTokenizer takes `>>deu<<` for a tag without a space after it too.
        self._symbols = re.compile(rf"(?<!\S)({symbols})(?:(?!\S)|(?<=<<))") if symbols else None

    def __call__(self, texts: Sequence[str], begins: bool = True) -> list[str]:
        """The prepared texts. begins: whether they begin a sentence. Raises UserError for a tokenizer that gives a line break."""
        if self._symbols is None:
            return self._prepared(texts, begins)
        rows = list(map(self._symbols.split, texts))  # each: text, symbol, text, ..., text
        prepared = iter(self._prepared([text for row in rows for text in row[::2]], begins))
        return [_joined(next(prepared) if i % 2 == 0 else part for i, part in enumerate(row)) for row in rows]

    def without_symbols(self, texts: Sequence[str]) -> list[str]:
        """The prepared parts of the texts between user symbols."""
        parts = texts if self._symbols is None else [part for text in texts for part in self._symbols.split(text)[::2]]
        return self._prepared(parts, True)

    def _prepared(self, texts: Sequence[str], begins: bool) -> list[str]:
        """Texts without user symbols, prepared."""
        tokenized = list(map(self._tokenizer.tokenize, self.normalize(texts)))
        if any("\n" in text for text in tokenized):  # `normalize` leaves none
            raise UserError(
                f"tokenizer '{self._settings.tokenizer}' gave a line break; it must give one line for a line"
            )
        return tokenized if self.truecaser is None else [self.truecaser(text, begins) for text in tokenized]

    def normalize(self, texts: Sequence[str]) -> list[str]:
        """Each text as one line: Unicode form, then punctuation, then case. One that shows nothing becomes empty."""
        if not texts:
            return []
        joined = "\n".join(map(str.replace, texts, repeat("\n"), repeat(" ")))
        clean_lines = NOT_TEXT_BUT_LF.sub(" ", joined).split("\n")  # in all texts at once: much faster
        lines = list(map(UNICODE_FORMS[self._settings.normalization], clean_lines))
        if self._settings.normalize_punctuation:
            lines = list(map(self._moses.normalize, lines))
        lines = ["" if is_invisible(line) else line for line in lines]
        language = self._settings.language if self._settings.language_case else ""
        return [lowered(line, language) for line in lines] if self._settings.lowercase else lines

    @cached_property
    def _moses(self) -> Any:
        from sacremoses import MosesPunctNormalizer  # imported when used: it takes a second

        return MosesPunctNormalizer(lang=base_language(self._settings.language))

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The user symbols that stand in texts, such as tags of languages."""
        return tuple(symbol for symbol in self._settings.user_symbols if symbol != SEPARATOR)

    def alterations(self, texts: Sequence[str]) -> Counter[str]:
        """Counts of the lines that `normalize` alters, or NFC would where text is kept, and of the characters that they lose."""
        if not (self._settings.lowercase or self._settings.normalize_punctuation):  # Unicode forms keep ASCII
            texts = [text for text in texts if not text.isascii()]
        after = map(self.as_written, self.normalize(texts)) if self.alters else map(UNICODE_FORMS["nfc"], texts)
        pairs = [(old, new) for old, new in zip(texts, after, strict=True) if old != new]
        lost = Counter("".join(old for old, _ in pairs)) - Counter("".join(new for _, new in pairs))
        named = {f"U+{ord(key):04X} {key * key.isprintable()}".strip(): lost[key] for key in lost if not key.isascii()}
        return +Counter({"lines": len(pairs), **named})

    def undo(self, text: str) -> str:
        """The text before truecasing and tokenising; normalisation stays."""
        if self._symbols is None:
            return self._undone(text)
        parts = self._symbols.split(text)
        return _joined(self._undone(part.strip(" ")) if i % 2 == 0 else part for i, part in enumerate(parts))

    def _undone(self, text: str) -> str:
        if self.truecaser is not None:
            text = self.truecaser.undo(text, self._settings.language)
        return self.as_written(self._tokenizer.detokenize(text))


def _joined(parts: Iterable[str]) -> str:
    return " ".join(filter(None, (part.strip(" ") for part in parts)))


class Side:
    """The pipeline of one language. Ids are in the order in which a model reads them.

    size: entries of the vocabulary, control symbols counted
    piece: id -> its name, for people
    """

    def __init__(self, settings: SideSettings, vocabulary: Vocabulary, truecaser: Truecaser | None = None) -> None:
        self.settings, self.vocabulary = settings, vocabulary
        self.prepare = TextPreparer(settings, truecaser)
        self.size, self.piece = vocabulary.size, vocabulary.piece

    def surface(self, token: int) -> str:
        """The text that an id adds to a prepared text, with a space before it if it begins a word."""
        return self.prepare.as_written(self.vocabulary.surface(token))

    def spelling(self, token: int) -> bytes:
        """The text that an id adds, in UTF-8; a byte alone is that byte."""
        surface = self.surface(token)
        byte = BYTE_PIECE.fullmatch(self.piece(token)) if surface == "\ufffd" else None
        return bytes.fromhex(byte[1]) if byte else surface.encode()

    def encode(self, text: str) -> list[int]:
        """The ids of a line of raw text, without EOS."""
        return self.encode_batch([text]).lists()[0]

    def unknown_tag(self, text: str) -> str:
        """A word at the beginning of a raw text that is written like the user symbols, `<...>`, but is no entry; else empty."""
        if not self._tag_ends:
            return ""
        word = next((word for word in text.split() if word not in self.prepare.tags), "")
        if len(word) < 3 or (word[0], word[-1]) not in self._tag_ends:
            return ""
        ids = self.encode(word)
        return word if len(ids) > 1 or ids == [UNK] else ""

    @cached_property
    def spells_words(self) -> bool:
        """Whether an entry of the vocabulary has a letter: a model of numbers, say, has none."""
        return any(any(map(str.isalpha, self.surface(token))) for token in range(UNK + 1, self.size))

    @cached_property
    def _tag_ends(self) -> set[tuple[str, str]]:
        """The first and the last character of the tags: `<` and `>`."""
        return {(tag[0], tag[-1]) for tag in self.prepare.tags if not tag[0].isalnum()}

    def encode_batch(self, texts: Sequence[str]) -> EncodedTexts:
        """The ids of lines of raw text, without EOS."""
        return self.encode_prepared(self.prepare(texts))

    def encode_in_context(
        self, texts: Sequence[str], contexts: Sequence[Sequence[str]], max_length: int
    ) -> tuple[EncodedTexts, NDArray[np.int64]]:
        """The ids of lines of raw text with their contexts, without EOS, and (N,) tokens of the context of each.

        contexts: the sentences before each line, of which the last are read, as many as the settings say
        max_length: tokens of a line with its context; one that would have more is left without
        """
        size, limit = self.settings.context, CHARACTERS_PER_TOKEN * max_length
        if not size:
            return self.encode_batch(texts), np.zeros(len(texts), np.int64)
        of_lines = [text if len(text := context_text(lines[-size:])) <= limit else "" for lines in contexts]
        return encode_with_contexts(self.encode_batch, of_lines, texts, max_length)

    def encode_prepared(self, texts: Sequence[str]) -> EncodedTexts:
        """The ids of texts that the TextPreparer gave."""
        encoded = self.vocabulary.encode_batch(texts)
        if any(NOT_SEEN.search(texts[row]) for row in np.flatnonzero(encoded.unknown).tolist()):
            encoded = self.vocabulary.encode_batch([NOT_SEEN.sub(self._if_known, text) for text in texts])
        return encoded.reversed() if self.settings.right_to_left else encoded

    def _if_known(self, found: re.Match[str]) -> str:
        """A sign or a character without a width, if the vocabulary has it: an unknown token would change a whole translation."""
        is_unknown = self.vocabulary.encode_batch([found[0]]).unknown.any()
        return SIGNS.get(found[0], ("", ""))[1] if is_unknown else found[0]

    def in_reading_order(self, items: Sequence[_Item]) -> list[_Item]:
        """A text's tokens, or values of its tokens, from the model's order into that of reading, or back."""
        return list(reversed(items) if self.settings.right_to_left else items)

    def decode(self, ids: Sequence[int]) -> str:
        """The raw text of ids, one line; of the control symbols only UNK has a text."""
        return self.restore(self.vocabulary.decode(self.in_reading_order(ids)))

    def decode_line(self, ids: Sequence[int]) -> str:
        """The raw text of ids without their context."""
        if self.settings.context:
            ends = [end for end, token in enumerate(ids, 1) if token == self._separator]
            ids = ids[ends[-1] :] if ends else ids
        return self.decode(ids)

    @cached_property
    def _separator(self) -> int:
        [token] = self.encode(SEPARATOR)
        return token

    def restore(self, prepared: str) -> str:
        """The raw text, one line, of a text as the TextPreparer gives it."""
        return clean(self.prepare.undo(prepared))

    def pieces(self, text: str) -> list[str]:
        """The names of the tokens of a line of raw text."""
        return [self.piece(token) for token in self.in_reading_order(self.encode(text))]

    def words(self, prepared: str) -> list[str]:
        """The words between spaces of a text that the TextPreparer gave."""
        if isinstance(self.vocabulary, SentencepieceVocabulary):  # which takes this character for a space
            prepared = prepared.replace(SPACE_MARK, " ")
        return [word for word in prepared.split(" ") if word]


class Pipeline:
    """The pipelines of source and target.

    joint: whether they share one vocabulary, and so the meaning of ids
    sizes: entries of the source and the target vocabulary, control symbols counted
    context: sentences before a source line that are read with it, at most
    """

    def __init__(self, source: Side, target: Side, joint: bool) -> None:
        self.source, self.target, self.joint = source, target, joint
        self.source_lang, self.target_lang = source.settings.language, target.settings.language
        self.sizes = source.size, target.size
        self.context = source.settings.context

    def right_to_left(self) -> "Pipeline":
        """The same pipeline with the target read from the last token to the first."""
        settings = replace(self.target.settings, right_to_left=True)
        target = Side(settings, self.target.vocabulary, self.target.prepare.truecaser)
        return Pipeline(self.source, target, self.joint)

    def with_context(self, size: int) -> "Pipeline":
        """The same pipeline, whose vocabulary has the SEPARATOR, with a context of up to `size` sentences."""
        settings = self.source.settings
        symbols = tuple(dict.fromkeys([*settings.user_symbols, SEPARATOR]))
        settings = replace(settings, user_symbols=symbols, context=size)
        return Pipeline(Side(settings, self.source.vocabulary, self.source.prepare.truecaser), self.target, self.joint)

    @property
    def hash(self) -> str:
        """sha256 of its files: two pipelines of one hash give the same ids for the same text."""
        digest = hashlib.sha256()
        for name, content in sorted(self.files().items()):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    def files(self) -> dict[str, bytes]:
        """The content of its files by name."""
        sides = {"source": self.source, "target": self.target}
        settings = {name: side.settings.to_json() for name, side in sides.items()}
        files = {PIPELINE_FILE: to_json({"joint": self.joint, **settings})}
        for name, side in {"joint": self.source}.items() if self.joint else sides.items():
            files[name + side.vocabulary.suffix] = side.vocabulary.to_bytes()
        for name, side in sides.items():
            if side.prepare.truecaser is not None:
                files[name + Truecaser.suffix] = side.prepare.truecaser.to_bytes()
        return files

    def save(self, folder: Path) -> None:
        """Write its files into a folder that is being made."""
        for name, content in self.files().items():
            (folder / name).write_bytes(content)

    @classmethod
    def load(cls, artefact: Artefact) -> "Pipeline":
        """The pipeline of a model, checkpoint or prepared-data folder. Raises ArtefactError for a damaged one."""
        folder = artefact.folder / PIPELINE_FOLDER
        return cls.from_files(lambda name: artefact.read(f"{PIPELINE_FOLDER}/{name}"), folder)

    @classmethod
    def from_files(cls, read: Callable[[str], bytes], place: object) -> "Pipeline":
        """The pipeline of saved files. read: name -> content; place: where they are, for errors"""
        content = read(PIPELINE_FILE)
        with expecting("a text pipeline", f"{place}/{PIPELINE_FILE}"):
            settings = msgspec.json.decode(content, type=_PipelineFile)
        if settings.joint and settings.source.subword != settings.target.subword:
            raise ArtefactError(f"{quoted(place)}/{PIPELINE_FILE}: a joint vocabulary of two kinds")
        sides: list[Side] = []
        for name, side in (("source", settings.source), ("target", settings.target)):
            for part in ("tokenizer", "subword"):
                if (given := getattr(side, part)) not in (known := registry.names(part)):
                    missing = f"{part} '{quoted(given)}' is not in this nmt (known: {', '.join(known)})"
                    raise ArtefactError(f"{quoted(place)}/{PIPELINE_FILE}: {missing}")
            kind: type[Vocabulary] = registry.find("subword", side.subword).cls.vocabulary  # type: ignore[attr-defined]
            file, cases = ("joint" if settings.joint else name) + kind.suffix, name + Truecaser.suffix
            shared = settings.joint and sides
            vocabulary = sides[0].vocabulary if shared else kind.from_bytes(read(file), f"{place}/{file}")
            truecaser = Truecaser.from_bytes(read(cases), f"{place}/{cases}") if side.truecase else None
            sides.append(Side(side, vocabulary, truecaser))
            has_separator = SEPARATOR in side.user_symbols and len(sides[-1].encode(SEPARATOR)) == 1
            if side.context < 0 or (side.context and not has_separator):
                raise ArtefactError(f"{quoted(place)}/{PIPELINE_FILE}: a context of {side.context} that it cannot read")
            if any(symbol.split() != [symbol] for symbol in side.user_symbols):
                raise ArtefactError(f"{quoted(place)}/{PIPELINE_FILE}: user symbols that are no words")
        return cls(sides[0], sides[1], settings.joint)


class _PipelineFile(msgspec.Struct):
    """pipeline.json."""

    joint: bool
    source: SideSettings
    target: SideSettings
