"""Adds entries for new text to a vocabulary. Existing ids keep their meaning, and other text is segmented as before.

A listed entry is a word. SentencePiece also uses it at the start of longer words. A listed tag such as `<2fr>` becomes a user
symbol, which text steps leave unchanged. Learnt entries continue byte-pair encoding (Sennrich et al., 2016, algorithm 1) on
words as the vocabulary splits them. The next entry is the most frequent character without an entry, or the most frequent pair
of neighbouring pieces.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import compress, pairwise
from pathlib import Path
from typing import Final

import sentencepiece

from nmt.errors import InputError, UserError, quoted
from nmt.extensions.vocabularies.sentencepiece_file import NORMAL_PIECE, USER_DEFINED_PIECE, Piece, read_pieces
from nmt.extensions.vocabularies.sentencepiece_model import (
    BPE_MODEL,
    UNIGRAM_MODEL,
    read_model,
    with_more_pieces,
    without_prefix,
)
from nmt.extensions.vocabularies.subwords.subword_nmt import WORD_END, CodesVocabulary
from nmt.log import log
from nmt.symbols import PIECE_MARK, SPACE_MARK, SYMBOLS, UNK
from nmt.text.corpus import read_lines
from nmt.text.pipeline import Pipeline, Side
from nmt.text.vocabulary import SentencepieceVocabulary, Vocabulary, WordVocabulary

MIN_COUNT: Final = 2  # minimum count of a new entry, because a model cannot learn it from one occurrence

NewEntry = tuple[str] | tuple[str, str]
"""A new entry: a symbol that had no entry, or two symbols to merge."""


def given_entries(path: Path, pipeline: Pipeline) -> list[str]:
    """The words of a file, one per line. Raises InputError for a line that neither side's text steps leave as one word."""
    lines = [(number, line) for number, line in enumerate(read_lines(path), 1) if line]
    for number, word in lines:
        prepared = {side.prepare([word])[0] for side in (pipeline.source, pipeline.target)}
        if word not in prepared or len(word.replace(SPACE_MARK, " ").split(" ")) != 1:
            shown = " or ".join(f"'{quoted(text)}'" for text in sorted(prepared))
            raise InputError(
                f"{quoted(path)}:{number}: '{quoted(word)}' cannot be an entry, because the model's text steps "
                f"change it to {shown} (write one word in that form)"
            )
    return [word for _, word in lines]


def is_tag(word: str) -> bool:
    """Whether an entry looks like a tag for a language or domain: `<2fr>`, `__fr__`, `>>fra<<`."""
    is_marked = len(word) > 2 and len(word.split()) == 1 and not word[0].isalnum() and not word[-1].isalnum()
    return is_marked and word not in SYMBOLS and SPACE_MARK not in word and not word.endswith(PIECE_MARK)


def with_symbols(pipeline: Pipeline, symbols: Sequence[str]) -> Pipeline:
    """The pipeline with additional user symbols and the same vocabularies."""
    sides = []
    for side in (pipeline.source, pipeline.target):
        known = tuple(dict.fromkeys([*side.settings.user_symbols, *symbols]))
        sides.append(Side(replace(side.settings, user_symbols=known), side.vocabulary, side.prepare.truecaser))
    return Pipeline(sides[0], sides[1], pipeline.joint)


def extended(vocabulary: Vocabulary, given: Sequence[str], counts: Mapping[str, int], limit: int) -> Vocabulary:
    """Add entries to the end of a vocabulary.

    given: words to add, in the form that the TextPreparer produces; existing entries are skipped
    counts: words of the new text with their counts, from which up to `limit` more entries are learnt
    Raises UserError if the vocabulary cannot be extended, or if a word cannot become an entry.
    """
    new = _without_entry(vocabulary, list(dict.fromkeys(given)))
    if isinstance(vocabulary, WordVocabulary):
        known = set(vocabulary.entries) | set(new)
        unknown = {word: count for word, count in counts.items() if word and word not in known}
        learnt = WordVocabulary.learn(unknown, limit + len(SYMBOLS), MIN_COUNT).entries
        return WordVocabulary([*vocabulary.entries, *new, *learnt])
    if isinstance(vocabulary, CodesVocabulary):
        return _extended_codes(vocabulary, new, counts, limit)
    if isinstance(vocabulary, SentencepieceVocabulary):
        pieces = [Piece(SPACE_MARK + word, 0.0, USER_DEFINED_PIECE) for word in new]
        named = {piece.text for piece in read_pieces(vocabulary.to_bytes())}
        changed = [piece.text.removeprefix(SPACE_MARK) for piece in pieces if piece.text in named]
        if not changed:
            with_given = type(vocabulary)(with_more_pieces(vocabulary.to_bytes(), pieces))
            changed = _without_entry(with_given, given)
        if changed:
            raise UserError(
                f"'{quoted(changed[0])}' cannot be an entry, because the SentencePiece model splits or changes it (drop it, "
                "or the shorter entry that it starts with)"
            )
        return _extended_sentencepiece(with_given, counts, limit)
    raise UserError(f"a vocabulary of type {type(vocabulary).__name__} cannot be extended")


def _without_entry(vocabulary: Vocabulary, words: Sequence[str]) -> list[str]:
    """The words that have no entry yet."""
    encoded = vocabulary.encode_batch(words)
    return list(compress(words, (encoded.lengths != 1) | (encoded.unknown > 0)))


def _extended_codes(
    vocabulary: CodesVocabulary, given: Sequence[str], counts: Mapping[str, int], limit: int
) -> CodesVocabulary:
    if marked := next((word for word in given if word.endswith(PIECE_MARK)), ""):
        raise UserError(
            f"'{quoted(marked)}' cannot be an entry, because {PIECE_MARK} marks pieces of words (drop this entry)"
        )
    if limit and vocabulary.merges.ends_are_symbols:
        raise UserError("merges in the format of subword-nmt 0.1 cannot be extended (learn them again)")

    def symbols(word: str) -> list[str]:
        *first, last = vocabulary.merges.cut(word)
        return [*(piece.removesuffix(PIECE_MARK) for piece in first), last + WORD_END]

    names = [vocabulary.piece(token) for token in range(len(SYMBOLS), vocabulary.size)]
    named = set(names)
    names += [word for word in given if word not in named]
    user_symbols = (*vocabulary.user_symbols, *given)
    uncut = frozenset(user_symbols)
    known = {name.removesuffix(PIECE_MARK) if name.endswith(PIECE_MARK) else name + WORD_END for name in names}
    marks = PIECE_MARK, WORD_END  # inside a word, these could result in two pieces with the same name
    learnable = [word for word in counts if word and word not in uncut and not any(mark in word for mark in marks)]
    words = [(symbols(word), counts[word]) for word in learnable]
    learnt = [entry for entry, _ in learn_entries(words, known, known, limit)]
    lines = vocabulary.codes.removesuffix("\n").split("\n")
    has_counts = len(lines[-1].split(" ")) == 3
    merges = [" ".join(entry) + (" 0" if has_counts else "") for entry in learnt if len(entry) == 2]
    codes = vocabulary.codes.removesuffix("\n") + "".join(f"\n{merge}" for merge in merges) + "\n"
    texts = ["".join(entry) for entry in learnt]
    pieces = [text.removesuffix(WORD_END) if text.endswith(WORD_END) else text + PIECE_MARK for text in texts]
    return CodesVocabulary(codes, [*names, *pieces], user_symbols)


def _extended_sentencepiece(
    vocabulary: SentencepieceVocabulary, counts: Mapping[str, int], limit: int
) -> SentencepieceVocabulary:
    """Extend a SentencePiece model. New BPE merges come last; the scores of new unigram entries are log frequencies."""
    model = vocabulary.to_bytes()
    kind, pieces = read_model(model)
    normal = {piece.text: piece.score for piece in pieces if piece.kind == NORMAL_PIECE}
    merged = Counter[str]()  # words, split at spaces and at SentencePiece's marks for spaces
    for word, count in counts.items():
        for part in word.replace(SPACE_MARK, " ").split(" "):
            merged[part] += count
    cut = cut_words(model, list(filter(None, merged)))
    words = [(symbols, merged[word]) for word, symbols in cut.items()]
    joinable = set(normal) if kind in (BPE_MODEL, UNIGRAM_MODEL) else set()
    learnt = learn_entries(words, joinable, {piece.text for piece in pieces}, limit)
    lowest, highest = min(normal.values()), max(normal.values())
    total = sum(len(symbols) * count for symbols, count in words)
    more = []
    for number, (entry, count) in enumerate(learnt, 1):
        by_frequency = min(max(math.log(count / total), lowest), highest)
        more.append(Piece("".join(entry), by_frequency if kind == UNIGRAM_MODEL else lowest - number, NORMAL_PIECE))
    return SentencepieceVocabulary(with_more_pieces(model, more))


def cut_words(model: bytes, words: Sequence[str]) -> dict[str, list[str]]:
    """Split each word into the texts of its pieces. Unknown parts, and parts split into bytes, are split into characters."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    rows = zip(words, processor.encode(words, out_type=int), processor.encode(words, out_type=str), strict=True)
    result = {}
    for word, ids, pieces in rows:
        symbols: list[str] = []
        spelled = b""
        for token, piece in zip(ids, pieces, strict=True):
            if processor.is_byte(token):
                spelled += bytes([int(piece[3:5], 16)])  # a byte such as <0xE4>
                continue
            symbols += [*spelled.decode(errors="ignore"), *(piece if token == UNK else [piece])]
            spelled = b""
        result[word] = [*symbols, *spelled.decode(errors="ignore")]
    return result


def learn_entries(
    words: Sequence[tuple[list[str], int]], joinable: Iterable[str], taken: Iterable[str], limit: int
) -> list[tuple[NewEntry, int]]:
    """Learn new entries from words, the most frequent first, each with its count. Code points break ties.

    words: symbols of each distinct word, and its count
    joinable: symbols that may be merged with a neighbour
    taken: symbols that already have an entry
    """
    rows, joinable, taken = [list(symbols) for symbols, _ in words], set(joinable), set(taken)
    counts, places = Counter[NewEntry](), defaultdict[NewEntry, set[int]](set)

    def candidates(row: list[str]) -> list[NewEntry]:
        pairs: list[NewEntry] = [
            (left, right) for left, right in pairwise(row) if left in joinable and right in joinable
        ]
        return pairs + [(symbol,) for symbol in row if symbol not in taken]

    for number, row in enumerate(rows):
        for entry in candidates(row):
            counts[entry] += words[number][1]
            places[entry].add(number)
    queue = [(-times, entry) for entry, times in counts.items()]  # the queue may contain outdated counts
    heapify(queue)
    learnt: list[tuple[NewEntry, int]] = []
    with log.progress("learning entries", limit, "entries") as bar:
        while queue and len(learnt) < limit:
            times, entry = heappop(queue)
            text = "".join(entry)
            if -times != counts[entry] or text in taken:
                continue
            if -times < MIN_COUNT:
                break
            learnt.append((entry, -times))
            numbers, changes = sorted(places.pop(entry) | places.pop((text,), set())), Counter[NewEntry]()
            for number in numbers:
                for other in candidates(rows[number]):
                    changes[other] -= words[number][1]
            taken.add(text)
            if joinable:
                joinable.add(text)
            for number in numbers:
                rows[number] = _joined(rows[number], entry)
                for other in candidates(rows[number]):
                    changes[other] += words[number][1]
                    places[other].add(number)
            for other, change in changes.items():
                if change:
                    counts[other] += change
                    heappush(queue, (-counts[other], other))
            bar.advance()
    return learnt


def _joined(symbols: list[str], entry: NewEntry) -> list[str]:
    """Join each occurrence of a pair of symbols, from the left."""
    result: list[str] = []
    for symbol in symbols:
        if result and (result[-1], symbol) == entry:  # a joined symbol cannot equal the left one
            result[-1] += symbol
        else:
            result.append(symbol)
    return result


def is_extension(new: Pipeline, old: Pipeline) -> bool:
    """Whether `new` equals `old` except for entries added to the end of its vocabularies, and possibly tags or a context."""
    old = with_symbols(old, [symbol for symbol in new.target.settings.user_symbols if is_tag(symbol)])
    old = old.with_context(new.context) if new.context else old
    suffixes = tuple(side.vocabulary.suffix for one in (new, old) for side in (one.source, one.target))
    ours, theirs = (
        {name: None if name.endswith(suffixes) else content for name, content in pipeline.files().items()}
        for pipeline in (new, old)
    )
    sides = (new.source.vocabulary, old.source.vocabulary), (new.target.vocabulary, old.target.vocabulary)
    return ours == theirs and all(_starts_with(*side) for side in sides)


def _starts_with(new: Vocabulary, old: Vocabulary) -> bool:
    if isinstance(new, CodesVocabulary) and isinstance(old, CodesVocabulary):
        return (
            new.size >= old.size
            and all(new.piece(token) == old.piece(token) for token in range(old.size))
            and new.user_symbols[: len(old.user_symbols)] == old.user_symbols
            and new.codes.startswith(old.codes.removesuffix("\n"))
        )
    return new.to_bytes().startswith(old.to_bytes())


def parts_of_new_entries(new: Vocabulary, old: Vocabulary) -> list[list[int]]:
    """For each added entry, the ids of its text in the old vocabulary; UNK for an unknown word or character."""
    tokens = range(old.size, new.size)
    if isinstance(old, CodesVocabulary):
        return [_ids_of_codes(old, new.piece(token)) for token in tokens]
    if isinstance(old, SentencepieceVocabulary):
        processor = sentencepiece.SentencePieceProcessor(model_proto=without_prefix(old.to_bytes()))
        return [processor.encode(new.piece(token), out_type=int) for token in tokens]
    return [[UNK] for _ in tokens]


def _ids_of_codes(vocabulary: CodesVocabulary, piece: str) -> list[int]:
    """The ids of a piece, which may be followed by the rest of a word."""
    if not piece.endswith(PIECE_MARK):
        return vocabulary.encode_batch([piece]).lists()[0]
    # The character added at the end is in no merge, so it keeps the end-of-word mark away from the other symbols.
    return vocabulary.encode_batch([piece.removesuffix(PIECE_MARK) + "\0"]).lists()[0][:-1]
