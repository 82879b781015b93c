"""The merges of subword-nmt (Sennrich et al., 2016), and vocabularies of the resulting pieces."""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Final, Self

import msgspec

from nmt import register
from nmt.errors import expecting
from nmt.extensions.vocabularies.subwords.options import SubwordNmtOptions
from nmt.files import read_bytes
from nmt.subwords.base import Subword, TrainingText
from nmt.symbols import PIECE_MARK, UNK
from nmt.text.vocabulary import ByWord, WordVocabulary

WORD_END: Final = "</w>"  # marks the end of a word in merges


class CodesVocabulary(ByWord):
    """A vocabulary of the pieces into which merges of subword-nmt (Sennrich et al., 2016) split words.

    All pieces but the last of a word end with "@@". A word that looks like a control symbol counts as a normal word.
    user_symbols: words that are never split
    """

    suffix = ".codes"

    def __init__(self, codes: str, pieces: Sequence[str], user_symbols: Sequence[str] = ()) -> None:
        """Raise ValueError for invalid codes or pieces.

        codes: content of a codes file of subword-nmt
        pieces: pieces by id, after the control symbols
        """
        super().__init__()
        self.codes, self._words, self.user_symbols = codes, WordVocabulary(pieces), tuple(user_symbols)
        self.size, self.piece = self._words.size, self._words.piece
        self.merges, self._uncut = Merges(codes), frozenset(user_symbols)

    @classmethod
    def learn(cls, codes: str, words: Mapping[str, int], vocab_size: int, user_symbols: Sequence[str] = ()) -> Self:
        """Take the most frequent pieces of counted words. vocab_size: see WordVocabulary"""
        without_pieces, counts = cls(codes, (), user_symbols), Counter[str]()
        for word, number in words.items():
            for piece in without_pieces.cut(word):
                counts[piece] += number
        return cls(codes, WordVocabulary.learn(counts, vocab_size, 1, user_symbols).entries, user_symbols)

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> Self:
        with expecting("merges and pieces", place):
            file = msgspec.json.decode(content, type=_CodesFile)
            return cls(file.codes, file.pieces, file.user_symbols)

    def to_bytes(self) -> bytes:
        content = [self.codes, self._words.entries]
        return msgspec.json.encode([*content, self.user_symbols] if self.user_symbols else content)

    def __reduce__(self) -> tuple[type["CodesVocabulary"], tuple[str, list[str], tuple[str, ...]]]:
        return CodesVocabulary, (self.codes, self._words.entries, self.user_symbols)

    def _encode_words(self, words: Sequence[str]) -> Sequence[Sequence[int]]:
        return [[self._words.ids.get(piece, UNK) for piece in self.cut(word)] for word in words]

    def cut(self, word: str) -> list[str]:
        """The pieces of a word."""
        return [word] if word in self._uncut else self.merges.cut(word)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(self.surface, ids)).rstrip(" ")

    def surface(self, token: int) -> str:
        """See Vocabulary. Includes the following space if the token ends a word."""
        piece = self._words.piece(token) if token >= UNK else ""
        return piece.removesuffix(PIECE_MARK) if piece.endswith(PIECE_MARK) else f"{piece} " if piece else ""


class _CodesFile(msgspec.Struct, array_like=True):
    """The file format of CodesVocabulary. Files from earlier versions have no user symbols."""

    codes: str
    pieces: list[str]
    user_symbols: list[str] = []


class Merges:
    """The merges in a subword-nmt file: one pair of symbols per line, in the order in which they are merged.

    The end of a word is marked in its last symbol (in `#version: 0.2` and in fastBPE, which adds counts to the lines) or,
    in earlier versions, by a separate symbol.

    ranks: index of each pair in the file
    ends_are_symbols: whether the end of a word is a separate symbol
    """

    def __init__(self, codes: str) -> None:
        """Raises ValueError for a line that is not a pair."""
        lines = codes.removesuffix("\n").split("\n")
        pairs = [tuple(line.strip("\r ").split(" ")) for line in lines if not line.startswith("#version:")]
        has_counts = all(len(pair) == 3 and pair[2].isdecimal() for pair in pairs)
        if has_counts:
            pairs = [pair[:2] for pair in pairs]
        self.ends_are_symbols = not has_counts and lines[0].split() not in (["#version:", "0.2"],)
        if wrong := next((pair for pair in pairs if len(pair) != 2), None):
            number = 1 + [line.strip("\r ") for line in lines].index(" ".join(wrong))
            raise ValueError(f"line {number}: '{' '.join(wrong)}' is not a pair of symbols")
        self._pairs = pairs
        self.ranks = {pair: rank for rank, pair in reversed(list(enumerate(pairs)))}

    def cut(self, word: str) -> list[str]:
        """The pieces of a word, with "@@" after all but the last."""
        if len(word) < 2:
            return [word] if word else []
        symbols = self._merged([*word, WORD_END] if self.ends_are_symbols else [*word[:-1], word[-1] + WORD_END])
        if symbols[-1] == WORD_END:
            symbols.pop()
        symbols[-1] = symbols[-1].removesuffix(WORD_END)
        return [*(symbol + PIECE_MARK for symbol in symbols[:-1]), symbols[-1]]

    def _merged(self, symbols: list[str]) -> list[str]:
        """The symbols after all merges. Each round merges the pair with the lowest rank everywhere, from the left."""
        after, before = list(range(1, len(symbols) + 1)), list(range(-1, len(symbols) - 1))
        # A heap with the rank of each pair and the index of its left symbol; some entries are outdated.
        queue: list[tuple[int, int]] = []

        def note(left: int) -> None:
            if left >= 0 and after[left] < len(symbols):
                rank = self.ranks.get((symbols[left], symbols[after[left]]))
                if rank is not None:
                    heappush(queue, (rank, left))

        for left in range(len(symbols) - 1):
            note(left)
        while queue:
            rank, merged = queue[0][0], []
            while queue and queue[0][0] == rank:
                left = heappop(queue)[1]
                right = after[left]
                if right < len(symbols) and (symbols[left], symbols[right]) == self._pairs[rank]:
                    symbols[left], symbols[right] = symbols[left] + symbols[right], ""
                    after[left] = after[right]
                    if after[right] < len(symbols):
                        before[after[right]] = left
                    merged.append(left)
            for left in merged:
                note(before[left])
                note(left)
        return list(filter(None, symbols))


@register("subword", "subword-nmt", SubwordNmtOptions)
class SubwordNmt(Subword):
    """Splits words by the merges of subword-nmt or fastBPE in --codes. The vocabulary consists of the resulting pieces."""

    vocabulary = CodesVocabulary
    takes_all = True

    def learn(self, text: TrainingText) -> CodesVocabulary:
        """See Subword. Raises ArtefactError for a file without merges."""
        path = Path(self.options.codes[-1 if self.side else 0])
        with expecting("merges of subword-nmt", path):
            codes = read_bytes(path).decode(
                "utf-8-sig"
            )  # "sig", because a BOM would hide the version in the first line
            Merges(codes)
        return CodesVocabulary.learn(codes, text.word_counts(), self.options.vocab_size, self.options.symbols)
