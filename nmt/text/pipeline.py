"""The text pipeline, saved in every model folder: converts raw text to token ids and back, for both languages."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
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
from nmt.symbols import SEPARATOR, SPACE_MARK, UNK
from nmt.text.context import context_text, encode_with_contexts
from nmt.text.corpus import NO_WIDTH, clean, is_invisible
from nmt.text.forms import SIGNED_FORMS, SIGNS, UNICODE_FORMS, as_written
from nmt.text.languages import base_language
from nmt.text.settings import SideSettings
from nmt.text.steps import NOT_TEXT_BUT_LF, Truecaser, lowered
from nmt.text.vocabulary import EncodedTexts, SentencepieceVocabulary, Vocabulary
from nmt.tokenizers.base import Tokenizer

PIPELINE_FOLDER: Final = "pipeline"  # subfolder of a model folder, checkpoint or data folder
PIPELINE_FILE: Final = "pipeline.json"
CHARACTERS_PER_TOKEN: Final = 64  # a limit far above the average of real text; longer texts are truncated or dropped
BYTE_PIECE: Final = re.compile(r"<0x([0-9A-F]{2})>")  # token for a single byte of a character without an entry

NOT_SEEN: Final = re.compile(f"[{NO_WIDTH}{''.join(SIGNS)}]")

_Item = TypeVar("_Item")


class TextPreparer:
    """Applies the steps before subword splitting for one language: normalisation, tokenisation and truecasing."""

    def __init__(self, settings: SideSettings, truecaser: Truecaser | None = None) -> None:
        self.truecaser, self._settings = truecaser, settings
        tokenizer: Tokenizer = registry.find("tokenizer", settings.tokenizer).cls(settings.language)
        self._tokenizer = tokenizer.reversible() if settings.reversible else tokenizer
        self.as_written = as_written if settings.normalization in SIGNED_FORMS else str
        keeps = settings.normalization in ("exact", "none")
        self.alters = not keeps or settings.lowercase or settings.normalize_punctuation
        symbols = "|".join(map(re.escape, settings.user_symbols))
        # Like MarianTokenizer, accept `>>deu<<` as a tag even without a space after it.
        self._symbols = re.compile(rf"(?<!\S)({symbols})(?:(?!\S)|(?<=<<))") if symbols else None

    def __call__(self, texts: Sequence[str], starts_sentence: bool = True) -> list[str]:
        """Prepare texts. Raises UserError if a tokenizer returns a line break.

        starts_sentence: whether each text starts a sentence
        """
        if self._symbols is None:
            return self._prepared(texts, starts_sentence)
        rows = list(map(self._symbols.split, texts))  # each row: text, symbol, text, ..., text
        prepared = iter(self._prepared([text for row in rows for text in row[::2]], starts_sentence))
        return [_joined(next(prepared) if i % 2 == 0 else part for i, part in enumerate(row)) for row in rows]

    def without_symbols(self, texts: Sequence[str]) -> list[str]:
        """Prepare the parts of the texts that lie between user symbols."""
        parts = texts if self._symbols is None else [part for text in texts for part in self._symbols.split(text)[::2]]
        return self._prepared(parts, True)

    def _prepared(self, texts: Sequence[str], starts_sentence: bool) -> list[str]:
        """Prepare texts that contain no user symbols."""
        tokenized = list(map(self._tokenizer.tokenize, self.normalize(texts)))
        if any("\n" in text for text in tokenized):  # `normalize` leaves no line breaks
            raise UserError(
                f"tokenizer '{self._settings.tokenizer}' returned a line break (it must return a single line)"
            )
        return tokenized if self.truecaser is None else [self.truecaser(text, starts_sentence) for text in tokenized]

    def normalize(self, texts: Sequence[str]) -> list[str]:
        """Normalise Unicode form, punctuation and case, and make each text one line, empty if nothing in it is visible."""
        if not texts:
            return []
        joined = "\n".join(map(str.replace, texts, repeat("\n"), repeat(" ")))
        clean_lines = NOT_TEXT_BUT_LF.sub(" ", joined).split("\n")  # much faster than one text at a time
        lines = list(map(UNICODE_FORMS[self._settings.normalization], clean_lines))
        if self._settings.normalize_punctuation:
            lines = list(map(self._moses.normalize, lines))
        lines = ["" if is_invisible(line) else line for line in lines]
        language = self._settings.language if self._settings.language_case else ""
        return [lowered(line, language) for line in lines] if self._settings.lowercase else lines

    @cached_property
    def _moses(self) -> Any:
        from sacremoses import MosesPunctNormalizer  # imported only when needed: it takes a second

        return MosesPunctNormalizer(lang=base_language(self._settings.language))

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The user symbols that can occur in texts, such as language tags."""
        return tuple(symbol for symbol in self._settings.user_symbols if symbol != SEPARATOR)

    def alterations(self, texts: Sequence[str]) -> Counter[str]:
        """Count the lines altered and the characters lost by `normalize` or, if it never alters text, by NFC."""
        if not (self._settings.lowercase or self._settings.normalize_punctuation):  # Unicode forms do not change ASCII
            texts = [text for text in texts if not text.isascii()]
        after = map(self.as_written, self.normalize(texts)) if self.alters else map(UNICODE_FORMS["nfc"], texts)
        pairs = [(old, new) for old, new in zip(texts, after, strict=True) if old != new]
        lost = Counter("".join(old for old, _ in pairs)) - Counter("".join(new for _, new in pairs))
        named = {f"U+{ord(key):04X} {key * key.isprintable()}".strip(): lost[key] for key in lost if not key.isascii()}
        return +Counter({"lines": len(pairs), **named})

    def undo(self, text: str) -> str:
        """Undo truecasing and tokenising. Normalisation is not undone."""
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
    """The pipeline of one language. Ids are in the order in which the model reads them.

    size: number of vocabulary entries, including control symbols
    piece: maps an id to its name, for display
    """

    def __init__(self, settings: SideSettings, vocabulary: Vocabulary, truecaser: Truecaser | None = None) -> None:
        self.settings, self.vocabulary = settings, vocabulary
        self.prepare = TextPreparer(settings, truecaser)
        self.size, self.piece = vocabulary.size, vocabulary.piece

    def surface(self, token: int) -> str:
        """The text that an id adds to a prepared text, with a space before it if it starts a word."""
        return self.prepare.as_written(self.vocabulary.surface(token))

    def spelling(self, token: int) -> bytes:
        """The text that an id adds, in UTF-8; for a single-byte token, that byte."""
        surface = self.surface(token)
        byte = BYTE_PIECE.fullmatch(self.piece(token)) if surface == "\ufffd" else None
        return bytes.fromhex(byte[1]) if byte else surface.encode()

    def encode(self, text: str) -> list[int]:
        """Encode a line of raw text as ids, without EOS."""
        return self.encode_batch([text]).lists()[0]

    def unknown_tag(self, text: str) -> str:
        """The first word of a raw text if it looks like a user symbol, `<...>`, but has no vocabulary entry; otherwise empty."""
        if not self._tag_ends:
            return ""
        word = next((word for word in text.split() if word not in self.prepare.tags), "")
        if len(word) < 3 or (word[0], word[-1]) not in self._tag_ends:
            return ""
        ids = self.encode(word)
        return word if len(ids) > 1 or ids == [UNK] else ""

    @cached_property
    def spells_words(self) -> bool:
        """Whether any entry of the vocabulary contains a letter. A vocabulary of numbers, for example, has no such entry."""
        return any(any(map(str.isalpha, self.surface(token))) for token in range(UNK + 1, self.size))

    @cached_property
    def _tag_ends(self) -> set[tuple[str, str]]:
        """The first and last character of each tag, such as `<` and `>`."""
        return {(tag[0], tag[-1]) for tag in self.prepare.tags if not tag[0].isalnum()}

    def encode_batch(self, texts: Sequence[str]) -> EncodedTexts:
        """Encode lines of raw text as ids, without EOS."""
        return self.encode_prepared(self.prepare(texts))

    def encode_in_context(
        self, texts: Sequence[str], contexts: Sequence[Sequence[str]], max_length: int
    ) -> tuple[EncodedTexts, NDArray[np.int64]]:
        """Encode lines of raw text with their contexts, without EOS. Also returns (N,) the number of context tokens of each line.

        contexts: previous sentences of each line; only the last ones are used, as many as the settings allow
        max_length: maximum tokens in a line with its context; a line that would exceed it loses its context
        """
        size, limit = self.settings.context, CHARACTERS_PER_TOKEN * max_length
        if not size:
            return self.encode_batch(texts), np.zeros(len(texts), np.int64)
        of_lines = [text if len(text := context_text(lines[-size:])) <= limit else "" for lines in contexts]
        return encode_with_contexts(self.encode_batch, of_lines, texts, max_length)

    def encode_prepared(self, texts: Sequence[str]) -> EncodedTexts:
        """Encode texts that a TextPreparer has prepared."""
        encoded = self.vocabulary.encode_batch(texts)
        if any(NOT_SEEN.search(texts[row]) for row in np.flatnonzero(encoded.unknown).tolist()):
            encoded = self.vocabulary.encode_batch([NOT_SEEN.sub(self._if_known, text) for text in texts])
        return encoded.reversed() if self.settings.right_to_left else encoded

    def _if_known(self, found: re.Match[str]) -> str:
        """Drop or replace a sign or zero-width character that the vocabulary lacks.

        Otherwise it would become an unknown token, which can change the whole translation.
        """
        is_unknown = self.vocabulary.encode_batch([found[0]]).unknown.any()
        return SIGNS.get(found[0], ("", ""))[1] if is_unknown else found[0]

    def in_reading_order(self, items: Sequence[_Item]) -> list[_Item]:
        """Convert a text's tokens, or one value per token, from the model's order to reading order, or back."""
        return list(reversed(items) if self.settings.right_to_left else items)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to a line of raw text. UNK is the only control symbol that has a text."""
        return self.restore(self.vocabulary.decode(self.in_reading_order(ids)))

    def decode_line(self, ids: Sequence[int]) -> str:
        """Decode ids to raw text, leaving out the context."""
        if self.settings.context:
            ends = [end for end, token in enumerate(ids, 1) if token == self._separator]
            ids = ids[ends[-1] :] if ends else ids
        return self.decode(ids)

    @cached_property
    def _separator(self) -> int:
        [token] = self.encode(SEPARATOR)
        return token

    def restore(self, prepared: str) -> str:
        """Convert a prepared text back to a line of raw text."""
        return clean(self.prepare.undo(prepared))

    def pieces(self, text: str) -> list[str]:
        """The names of the tokens in a line of raw text."""
        return [self.piece(token) for token in self.in_reading_order(self.encode(text))]

    def words(self, prepared: str) -> list[str]:
        """The words of a prepared text, split at spaces."""
        if isinstance(self.vocabulary, SentencepieceVocabulary):  # sentencepiece reads this character as a space
            prepared = prepared.replace(SPACE_MARK, " ")
        return [word for word in prepared.split(" ") if word]


class Pipeline:
    """The pipelines of source and target.

    joint: whether both sides share one vocabulary, so that ids mean the same on both sides
    sizes: number of entries of the source and the target vocabulary, including control symbols
    context: maximum number of previous sentences to read with a source line
    """

    def __init__(self, source: Side, target: Side, joint: bool) -> None:
        self.source, self.target, self.joint = source, target, joint
        self.source_lang, self.target_lang = source.settings.language, target.settings.language
        self.sizes = source.size, target.size
        self.context = source.settings.context

    def right_to_left(self) -> "Pipeline":
        """The same pipeline, with the target read from last token to first."""
        settings = replace(self.target.settings, right_to_left=True)
        target = Side(settings, self.target.vocabulary, self.target.prepare.truecaser)
        return Pipeline(self.source, target, self.joint)

    def with_context(self, size: int) -> "Pipeline":
        """The same pipeline with a context of up to `size` sentences. Its vocabulary must contain SEPARATOR."""
        settings = self.source.settings
        symbols = tuple(dict.fromkeys([*settings.user_symbols, SEPARATOR]))
        settings = replace(settings, user_symbols=symbols, context=size)
        return Pipeline(Side(settings, self.source.vocabulary, self.source.prepare.truecaser), self.target, self.joint)

    @property
    def hash(self) -> str:
        """sha256 of the pipeline's files. Pipelines with equal hashes give the same ids for the same text."""
        digest = hashlib.sha256()
        for name, content in sorted(self.files().items()):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    def files(self) -> dict[str, bytes]:
        """The content of the pipeline's files by name."""
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
        """Write the pipeline's files into a folder."""
        for name, content in self.files().items():
            (folder / name).write_bytes(content)

    @classmethod
    def load(cls, artefact: Artefact) -> "Pipeline":
        """Load the pipeline of a model folder, checkpoint or data folder. Raises ArtefactError if it is damaged."""
        folder = artefact.folder / PIPELINE_FOLDER
        return cls.from_files(lambda name: artefact.read(f"{PIPELINE_FOLDER}/{name}"), folder)

    @classmethod
    def from_files(cls, read: Callable[[str], bytes], place: object) -> "Pipeline":
        """Load a pipeline from its files. read: maps a file name to its content; place: location, for errors"""
        content = read(PIPELINE_FILE)
        with expecting("a text pipeline", f"{place}/{PIPELINE_FILE}"):
            settings = msgspec.json.decode(content, type=_PipelineFile)
        if settings.joint and settings.source.subword != settings.target.subword:
            raise ArtefactError(
                f"{quoted(place)}/{PIPELINE_FILE}: a joint vocabulary needs the same subwords on both sides"
            )
        sides: list[Side] = []
        for name, side in (("source", settings.source), ("target", settings.target)):
            for part in ("tokenizer", "subword"):
                if (given := getattr(side, part)) not in (known := registry.names(part)):
                    missing = f"{part} '{quoted(given)}' is not available (installed: {', '.join(known)})"
                    raise ArtefactError(f"{quoted(place)}/{PIPELINE_FILE}: {missing}")
            kind: type[Vocabulary] = registry.find("subword", side.subword).cls.vocabulary  # type: ignore[attr-defined]
            file, cases = ("joint" if settings.joint else name) + kind.suffix, name + Truecaser.suffix
            shared = settings.joint and sides
            vocabulary = sides[0].vocabulary if shared else kind.from_bytes(read(file), f"{place}/{file}")
            truecaser = Truecaser.from_bytes(read(cases), f"{place}/{cases}") if side.truecase else None
            sides.append(Side(side, vocabulary, truecaser))
            has_separator = SEPARATOR in side.user_symbols and len(sides[-1].encode(SEPARATOR)) == 1
            if side.context < 0 or (side.context and not has_separator):
                raise ArtefactError(f"{quoted(place)}/{PIPELINE_FILE}: invalid context {side.context}")
            if any(symbol.split() != [symbol] for symbol in side.user_symbols):
                raise ArtefactError(f"{quoted(place)}/{PIPELINE_FILE}: user symbols must be words without spaces")
        return cls(sides[0], sides[1], settings.joint)


class _PipelineFile(msgspec.Struct):
    """The content of pipeline.json."""

    joint: bool
    source: SideSettings
    target: SideSettings
