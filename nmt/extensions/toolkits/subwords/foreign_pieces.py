"""Subwords of imported models whose vocabulary has more pieces than the segmenter."""

from collections.abc import Sequence
from functools import cached_property

from nmt import UserError, register
from nmt.extensions.toolkits.subwords.options import ForeignPiecesOptions
from nmt.extensions.vocabularies.sentencepiece_file import UNUSED_PIECE, read_pieces
from nmt.extensions.vocabularies.sentencepiece_model import UNUSED_NAME
from nmt.subwords.base import Subword, TrainingText
from nmt.symbols import UNK
from nmt.text.vocabulary import SentencepieceVocabulary, Vocabulary


class ForeignPiecesVocabulary(SentencepieceVocabulary):
    """A SentencePiece model in which unknown text has an entry if it is a piece of the other language's model.

    Marian, MarianTokenizer and fairseq look up all pieces, including unknown ones, in a vocabulary for both languages.
    """

    def _encode_words(self, words: Sequence[str]) -> Sequence[Sequence[int]]:
        rows = super()._encode_words(words)
        return [self._looked_up(word) if UNK in row else row for word, row in zip(words, rows, strict=True)]

    def _looked_up(self, word: str) -> list[int]:
        pieces = zip(self._model.encode(word, out_type=str), self._model.encode(word, out_type=int), strict=True)
        return [self._foreign.get(piece, token) if token == UNK else token for piece, token in pieces]

    @cached_property
    def _foreign(self) -> dict[str, int]:
        """The ids of the pieces that the model never produces."""
        return foreign_pieces(self._bytes)

    def __reduce__(self) -> tuple[type[SentencepieceVocabulary], tuple[bytes]]:
        return ForeignPiecesVocabulary, (self._bytes,)


def foreign_pieces(model: bytes) -> dict[str, int]:
    """The ids of the entries that a model never produces, by text."""
    pieces = enumerate(read_pieces(model))
    return {p.text: token for token, p in pieces if p.kind == UNUSED_PIECE and not p.text.startswith(UNUSED_NAME)}


@register("subword", "foreign-pieces", ForeignPiecesOptions)
class ForeignPieces(Subword):
    """Looks up the pieces of an imported SentencePiece model in a vocabulary that both languages share."""

    vocabulary = ForeignPiecesVocabulary

    def learn(self, text: TrainingText) -> Vocabulary:
        raise UserError(
            "--subword foreign-pieces cannot be learnt, because only imported models have it (use --subword unigram)"
        )
