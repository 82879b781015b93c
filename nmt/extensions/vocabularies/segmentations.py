"""All ways to split a word into vocabulary entries, for training with a different split each time (`--subword-sampling`).

A word is represented by the tokens that `nmt prepare` split it into. Its symbols are its characters. A token without
characters (an unknown word, a byte, a user-defined entry) counts as one symbol and stays unchanged.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.errors import UserError, expecting
from nmt.extensions.vocabularies.sentencepiece_file import NORMAL_PIECE, UNUSED_PIECE, Piece
from nmt.extensions.vocabularies.sentencepiece_model import BPE_MODEL, UNIGRAM_MODEL, UNUSED_NAME, read_model
from nmt.extensions.vocabularies.subwords.subword_nmt import WORD_END, CodesVocabulary
from nmt.symbols import PIECE_MARK, SPACE_MARK, SYMBOLS
from nmt.text.vocabulary import SentencepieceVocabulary, Vocabulary

WHOLE: Final = "\ufdd0"  # represents a symbol without characters; a noncharacter in Unicode, so no text contains it
NO_TOKEN: Final = -1


class WordSegmentations(NamedTuple):
    """The ways to split a word of n symbols, as the bytes of arrays that `join_rows` reads.

    symbols: (n, 2) int32, the token of each single symbol (NO_TOKEN if the vocabulary has none), and the token from `nmt
        prepare` that starts there (NO_TOKEN inside a token)
    steps: (M, 4) int32, begin, middle, end and token of each step, in the order of processing; see the subclasses
    shares: (M,) float64, probabilities of the steps; empty for merges
    """

    symbols: bytes
    steps: bytes
    shares: bytes


class Segmentations(ABC):
    """Lists the ways to split words into a vocabulary's entries.

    begins_word, ends_word: (V,) whether a token is the first, or the last, of a word
    """

    def __init__(self, texts: Sequence[str], begins_word: NDArray[np.bool_], ends_word: NDArray[np.bool_]) -> None:
        """texts: the characters of each token; WHOLE for a token that stays unchanged"""
        self.begins_word, self.ends_word = begins_word, ends_word
        self._texts = texts
        self._longest = max(map(len, texts))

    def of_word(self, tokens: Sequence[int]) -> WordSegmentations:
        """The ways to split the word that consists of these tokens."""
        texts = [self._texts[token] for token in tokens]
        word = "".join(texts)
        begins = np.cumsum([0, *map(len, texts)])[:-1]
        prepared = np.full(len(word), NO_TOKEN, dtype=np.int32)
        prepared[begins] = tokens
        alone = np.array([self._token(word, begin, begin + 1) for begin in range(len(word))], dtype=np.int32)
        whole = np.array([character == WHOLE for character in word])
        alone[whole] = prepared[whole]
        steps, shares = self._steps(word, alone.tolist())
        symbols = np.stack([alone, prepared], axis=1)
        arrays = symbols, np.array(steps, dtype=np.int32), np.array(shares, dtype=np.float64)
        return WordSegmentations(*(array.tobytes() for array in arrays))

    @abstractmethod
    def _token(self, word: str, begin: int, end: int) -> int:
        """The token for a part of a word, or NO_TOKEN."""

    @abstractmethod
    def _steps(self, word: str, alone: Sequence[int]) -> tuple[list[tuple[int, int, int, int]], list[float]]: ...


class MergeSegmentations(Segmentations):
    """Lists splits by byte-pair encoding. A step merges two parts, begin to middle and middle to end, in order of rank."""

    @abstractmethod
    def _merges(self, word: str, begin: int, end: int) -> Sequence[tuple[float, int]]:
        """The rank (lower means earlier) and the middle of each merge that produces this part of a word."""

    def _steps(self, word: str, alone: Sequence[int]) -> tuple[list[tuple[int, int, int, int]], list[float]]:
        found: list[tuple[float, int, int, int, int]] = []
        reached = {(begin, begin + 1) for begin, character in enumerate(word) if character != WHOLE}
        for length in range(2, min(len(word), self._longest) + 1):
            for begin in range(len(word) - length + 1):
                end = begin + length
                for rank, middle in self._merges(word, begin, end):
                    if (begin, middle) in reached and (middle, end) in reached:
                        found.append((rank, begin, middle, end, self._token(word, begin, end)))
                        reached.add((begin, end))
        return [step for _, *step in sorted(found)], []  # type: ignore[misc]


class PieceSegmentations(Segmentations):
    """The base class for SentencePiece models. _pieces: id and score of each piece that text can produce, by its text"""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        normal = ((token, piece) for token, piece in enumerate(pieces) if piece.kind == NORMAL_PIECE)
        self._pieces = {piece.text: (token, piece.score) for token, piece in normal if WHOLE not in piece.text}
        texts = [WHOLE] * len(pieces)
        for text, (token, _) in self._pieces.items():
            texts[token] = text
        begins = np.array([piece.text.startswith(SPACE_MARK) for piece in pieces])
        super().__init__(texts, begins, np.zeros(len(pieces), dtype=bool))

    def _token(self, word: str, begin: int, end: int) -> int:
        return self._pieces.get(word[begin:end], (NO_TOKEN, 0.0))[0]


class SentencepieceMerges(PieceSegmentations, MergeSegmentations):
    """Lists splits by a SentencePiece BPE model. Two symbols merge if they form a piece; the highest score comes first."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        """Raises UserError for pieces that are marked as unused."""
        super().__init__(pieces)
        if any(piece.kind == UNUSED_PIECE and not piece.text.startswith(UNUSED_NAME) for piece in pieces):
            raise UserError("SentencePiece models with unused pieces cannot be sampled from (drop --subword-sampling)")

    def _merges(self, word: str, begin: int, end: int) -> Sequence[tuple[float, int]]:
        piece = self._pieces.get(word[begin:end])
        return [] if piece is None else [(-piece[1], middle) for middle in range(begin + 1, end)]


class CodesMerges(MergeSegmentations):
    """Lists splits by merges of subword-nmt. Two symbols merge if their pair is in the list."""

    def __init__(self, vocabulary: CodesVocabulary) -> None:
        """Raises UserError for merges with a separate symbol for the end of a word."""
        merges = vocabulary.merges
        if merges.ends_are_symbols:
            raise UserError(
                "merges of subword-nmt 0.1 end words with a separate symbol and cannot be sampled from (learn them again, or "
                "drop --subword-sampling)"
            )
        pieces = [vocabulary.piece(token) for token in range(vocabulary.size)]
        goes_on = np.array([piece.endswith(PIECE_MARK) for piece in pieces])
        symbols = frozenset(vocabulary.user_symbols)
        texts = [WHOLE if piece in symbols else piece.removesuffix(PIECE_MARK) or WHOLE for piece in pieces]
        texts[: len(SYMBOLS)] = [WHOLE] * len(SYMBOLS)
        ends = ~goes_on & (np.arange(len(pieces)) >= len(SYMBOLS))
        super().__init__(texts, np.zeros(len(pieces), dtype=bool), ends)
        self._ids = {piece: token for token, piece in enumerate(pieces) if token >= len(SYMBOLS)}
        self._ranks = merges.ranks
        self._results = {left + right for left, right in self._ranks}
        self._longest = max(map(len, self._results), default=0)  # results of merges, some of which have no entry

    def _part(self, word: str, begin: int, end: int) -> str:
        return word[begin:end] + (WORD_END if end == len(word) else "")

    def _token(self, word: str, begin: int, end: int) -> int:
        return self._ids.get(word[begin:end] + (PIECE_MARK if end < len(word) else ""), NO_TOKEN)

    def _merges(self, word: str, begin: int, end: int) -> Sequence[tuple[float, int]]:
        if self._part(word, begin, end) not in self._results:
            return []
        pairs = [(middle, (word[begin:middle], self._part(word, middle, end))) for middle in range(begin + 1, end)]
        return [(self._ranks[pair], middle) for middle, pair in pairs if pair in self._ranks]


class UnigramSegmentations(PieceSegmentations):
    """Lists splits by a unigram model. A step is a piece from begin to end; shares accumulate over pieces with the same end.

    A piece's share is the probability that it is the last piece, over all ways to split the word up to there. The probability
    of a split is the product of its pieces' probabilities to the power of alpha (Kudo, 2018, section 3.2).
    """

    def __init__(self, pieces: Sequence[Piece], alpha: float) -> None:
        super().__init__(pieces)
        self._alpha = alpha

    def _steps(self, word: str, alone: Sequence[int]) -> tuple[list[tuple[int, int, int, int]], list[float]]:
        steps: list[tuple[int, int, int, int]] = []
        shares: list[float] = []
        totals = [0.0]  # for each position, the log of the summed weights of all splits up to it; -inf if none
        for end in range(1, len(word) + 1):
            begins, logs = [], []
            for begin in range(max(0, end - self._longest), end):
                part = word[begin:end]
                token, score = (alone[begin], 0.0) if part == WHOLE else self._pieces.get(part, (NO_TOKEN, None))
                if score is not None and totals[begin] > -math.inf:
                    begins.append((begin, begin, end, token))
                    logs.append(totals[begin] + self._alpha * score)
            highest = max(logs, default=0.0)
            weights = [math.exp(log - highest) for log in logs]
            total = sum(weights)
            totals.append(highest + math.log(total) if total else -math.inf)
            steps += begins
            shares += [share / total for share in accumulate(weights)][:-1] + [1.0] * bool(begins)
        return steps, shares


def segmentations_of(vocabulary: Vocabulary, alpha: float) -> Segmentations:
    """Make the Segmentations for a vocabulary. alpha: exponent of a unigram model's probabilities

    Raises UserError if words can be split in only one way.
    """
    if isinstance(vocabulary, CodesVocabulary):
        return CodesMerges(vocabulary)
    if isinstance(vocabulary, SentencepieceVocabulary):
        with expecting("a SentencePiece model", "its vocabulary"):
            kind, pieces = read_model(vocabulary.to_bytes())
        if kind == BPE_MODEL:
            return SentencepieceMerges(pieces)
        if kind == UNIGRAM_MODEL:
            return UnigramSegmentations(pieces, alpha)
    raise UserError(
        "words and characters can be split in only one way (prepare the data with --subword bpe, unigram or subword-nmt, "
        "or drop --subword-sampling)"
    )
