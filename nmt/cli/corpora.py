"""Finds a corpus named without a flag, either by its two files, `corpus.en corpus.de`, or by their common prefix, `corpus`."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nmt.cli.command import texts_of
from nmt.cli.parameters import FLAG
from nmt.cli.settings import Layer
from nmt.errors import UserError, quoted
from nmt.options import flag_of
from nmt.storages.base import text_exists
from nmt.text.corpus import text_name

CORPUS_HELP: Final = "corpus.en corpus.de, or their common prefix: corpus"
ORIGIN: Final = "the names of the files"  # where such settings come from, for messages
# A language code in a file name: en, ast, pt_BR, zh-Hans. Some other suffixes look like languages.
LANGUAGE_ENDING: Final = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,4})*")
OTHER_ENDINGS: Final = re.compile(
    "txt|tsv|csv|xml|tmx|log|out|src|tgt|trg|ref|hyp|tok|bpe|raw|md|sh|py|env|cfg|ini|yml|bak|old|new|tmp|pdf|doc|rtf|tex|zip"
)
PAIR_IN_NAME: Final = re.compile(r"(?:.*[._])?([a-z]{2,3})-([a-z]{2,3})")  # europarl-v7.de-en
TRAINING_FILES: Final = ("train", "train_tsv", "source", "target")  # options that name training files


def named_corpus(given: Mapping[str, Any], needs_direction: bool = True) -> Layer | None:
    """The settings that the arguments without a flag stand for; None without such arguments.

    given: all other settings
    needs_direction: whether to refuse a prefix if nothing says which language is the source
    Raises UserError if the arguments name no corpus, or if a flag also sets one of the settings.
    """
    if not (words := corpus_words(given)):
        return None
    layer = _found(words, given, needs_direction)
    if twice := next((name for name in TRAINING_FILES if name in layer.values and name in given), None):
        named, flag = " ".join(map(quoted, words)), flag_of(twice)
        raise UserError(
            f"'{named}' and {flag} both name training files (use only one; for several files use {flag} A {flag} B)"
        )
    return layer


def corpus_words(given: Mapping[str, Any]) -> Sequence[str]:
    """The arguments without a flag; empty if one is not text or is an unknown flag, because that is already an error."""
    value = given.get("corpus", ())
    words = texts_of(value) if isinstance(value, str | list | tuple) else ()
    return () if any(not isinstance(word, str) or FLAG.match(word) for word in words) else words


def _found(words: Sequence[str], given: Mapping[str, Any], needs_direction: bool) -> Layer:
    """The files that the arguments name, and their languages unless flags set them."""
    named = " ".join(map(quoted, words))
    languages = [given.get(f"{side}_lang") for side in ("source", "target")]
    exist = [text_exists(Path(word)) for word in words]
    if len(words) == 1 and all(exist) and not Path(words[0]).is_dir():
        return _one_file(Path(words[0]), languages)
    of_names = [_language(Path(word)) for word in words]
    if len(words) == 2 and None not in of_names and of_names[0] != of_names[1]:
        return _of_files(words, [one or other for one, other in zip(languages, of_names, strict=True)])
    if len(words) == 2 and all(exist):
        if None in languages:
            raise UserError(f"{named}: names must end in language codes (or add --source-lang en --target-lang de)")
        return _of_files(words, languages)
    if None not in languages:
        return Layer(ORIGIN, {"train": list(words)})
    if len(words) == 1:
        return _prefix(words[0], languages, needs_direction)
    if not all(exist):
        missing = quoted(words[exist.index(False)])
        raise UserError(
            f"{missing}: no such file (for several prefixes use --train A B, --source-lang and --target-lang)"
        )
    raise UserError(
        f"got {len(words)} files, but a corpus has two (for several corpora use --source A.en B.en --target A.de B.de)"
    )


def _one_file(path: Path, languages: Sequence[str | None]) -> Layer:
    """The settings for a file of pairs. Raises UserError if it is only one side of a corpus."""
    if text_name(path).endswith(".tsv"):
        if None in languages:
            raise UserError(f"{quoted(path)}: the languages are unknown (add --source-lang en --target-lang de)")
        return Layer(ORIGIN, {"train_tsv": [str(path)]})
    stem = text_name(path).removesuffix(f".{_language(path)}")
    others = [
        str(other) for language, other in corpus_files(path.with_name(stem)).items() if language != _language(path)
    ]
    example = shlex.join([str(path), others[0] if len(others) == 1 else "OTHER"])
    raise UserError(f"{quoted(path)} is only one of the two files of a corpus (name both: {quoted(example)})")


def _of_files(files: Sequence[str], languages: Sequence[str | None]) -> Layer:
    source, target = files
    source_lang, target_lang = languages
    values = {"source": [source], "target": [target], "source_lang": source_lang, "target_lang": target_lang}
    return Layer(ORIGIN, values)


def _prefix(prefix: str, given: Sequence[str | None], needs_direction: bool) -> Layer:
    """The two files named by a prefix and a language. given: the languages of source and target, or None"""
    files = corpus_files(Path(prefix))
    listed = ", ".join(quoted(file) for file in files.values())
    if not Path(prefix).name:
        raise UserError(f"'{quoted(prefix)}' does not name a file (name the two files of a corpus, source first)")
    if not files:
        raise UserError(f"{quoted(prefix)}: no such file, and no files such as {quoted(prefix)}.en")
    wanted = [language for language in given if language is not None]
    if absent := [language for language in wanted if language not in files]:
        raise UserError(
            f"{quoted(prefix)}.{quoted(absent[0])}: no such file, but found {listed} (name two files, source first)"
        )
    if len(files) != 2:
        raise UserError(
            f"{quoted(prefix)}: a corpus has two files, but these were found: {listed} (name two, source first)"
        )
    direction = PAIR_IN_NAME.fullmatch(Path(prefix).name)
    pair = sorted(files)
    if wanted:
        pair.sort(key=lambda language: (language == given[1]) - (language == given[0]))
    elif direction and set(direction.groups()) == files.keys():
        pair = [*direction.groups()]
    elif needs_direction:
        names = [str(files[language]) for language in pair]
        orders = " or ".join(quoted(shlex.join(order)) for order in (names, names[::-1]))
        raise UserError(f"{quoted(prefix)}: which language is the source? (name the files, source first: {orders})")
    return _of_files([str(files[language]) for language in pair], pair)


def corpus_files(prefix: Path) -> dict[str, Path]:
    """The files of a corpus by language; their names consist of the prefix, a language and possibly a compression suffix."""
    files: dict[str, Path] = {}
    if not prefix.name:  # such as `.` or `/`, which is not a prefix
        return files
    for path in sorted(prefix.parent.iterdir() if prefix.parent.is_dir() else ()):  # a plain file sorts before its .gz
        language = text_name(path).removeprefix(f"{prefix.name}.")
        if path.name.startswith(f"{prefix.name}.") and language == _language(path) and path.is_file():
            files.setdefault(language, path)
    return files


def _language(path: Path) -> str | None:
    """The language at the end of a file name, or None."""
    ending = text_name(path).rpartition(".")[2] if "." in text_name(path) else ""
    return ending if LANGUAGE_ENDING.fullmatch(ending) and not OTHER_ENDINGS.fullmatch(ending) else None
