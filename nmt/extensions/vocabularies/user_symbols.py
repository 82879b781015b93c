"""The user symbols of a side, such as tags, which noise leaves unchanged."""

from nmt.extensions.vocabularies.sentencepiece_file import USER_DEFINED_PIECE, read_pieces
from nmt.symbols import SPACE_MARK
from nmt.text.pipeline import Side
from nmt.text.vocabulary import SentencepieceVocabulary


def user_symbol_ids(side: Side) -> list[int]:
    """The ids of the user symbols, including the context separator and the entries that an extension lists."""
    symbols = {*side.settings.user_symbols, *getattr(side.vocabulary, "user_symbols", ())}
    if isinstance(side.vocabulary, SentencepieceVocabulary):
        pieces = read_pieces(side.vocabulary.to_bytes())
        symbols |= {piece.text.removeprefix(SPACE_MARK) for piece in pieces if piece.kind == USER_DEFINED_PIECE}
    return [token for token in range(side.size) if symbols and side.surface(token).strip(" ") in symbols]
