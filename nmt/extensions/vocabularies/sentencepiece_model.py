"""The file of a sentencepiece model, a protocol buffer, written with other pieces or in another order.

sentencepiece segments by the texts and scores of pieces, so their order is free. Message and field numbers are those of
its sentencepiece_model.proto.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Final

from nmt.extensions.vocabularies.sentencepiece_file import (
    BYTES,
    CONTROL_PIECE,
    FIXED32,
    PIECES,
    UNKNOWN_PIECE,
    UNUSED_PIECE,
    USER_DEFINED_PIECE,
    VARINT,
    Piece,
    fields_of,
    read_pieces,
)
from nmt.symbols import BOS, EOS, PAD, SYMBOLS, UNK
from nmt.text.vocabulary import SPACE_MARK

TRAINER_SPEC: Final = 2  # fields of ModelProto
NORMALIZER_SPEC: Final = 3
ADD_DUMMY_PREFIX: Final = 3  # fields of NormalizerSpec
REMOVE_EXTRA_WHITESPACES: Final = 4
MODEL_TYPE: Final = 3  # a field of TrainerSpec
UNIGRAM_MODEL, BPE_MODEL = 1, 2  # its values, besides words and characters
ID_FIELDS: Final = {UNK: 40, BOS: 41, EOS: 42, PAD: 43}  # of TrainerSpec; five later: the name of the symbol
SENTENCEPIECE_START: Final = b"\n"  # the first byte of a model: a field of bytes, number PIECES
LANGUAGE_TAG: Final = re.compile(r">>\S+<<")  # of OPUS-MT's models for several languages
UNUSED_NAME: Final = "<unused"  # how the name of an entry begins that no text has


def read_model(model: bytes) -> tuple[int, list[Piece]]:
    """The type, UNIGRAM_MODEL, BPE_MODEL, or that of words or characters, and the pieces. Raises ValueError as `read_pieces`."""
    specs = (content for field, content in fields_of(model) if field == TRAINER_SPEC and isinstance(content, bytes))
    types = [
        value for spec in specs for field, value in fields_of(spec) if field == MODEL_TYPE and isinstance(value, int)
    ]
    return types[-1] if types else UNIGRAM_MODEL, read_pieces(model)


def with_pieces(model: bytes, pieces: Sequence[Piece], ids: Mapping[int, int]) -> bytes:
    """The same model with other pieces. ids: id of each control symbol of nmt.symbols; those that are not named get none"""
    rest = b"".join(
        _bytes_field(field, content)
        for field, content in fields_of(model)
        if field != PIECES and isinstance(content, bytes)
    )
    # A message that comes twice is merged, and its later fields count.
    symbols = b"".join(
        _varint(number << 3 | VARINT) + _varint(ids.get(token, -1)) + _bytes_field(number + 5, SYMBOLS[token].encode())
        for token, number in ID_FIELDS.items()
    )
    written = b"".join(_bytes_field(PIECES, _encoded(piece)) for piece in pieces)
    return written + rest + _bytes_field(TRAINER_SPEC, symbols)


def with_more_pieces(model: bytes, pieces: Sequence[Piece]) -> bytes:
    """The same model with more pieces after its own: the fields of two messages, one after the other, are merged."""
    return model + b"".join(_bytes_field(PIECES, _encoded(piece)) for piece in pieces)


def without_prefix(model: bytes) -> bytes:
    """The same model, but that a text is cut as it stands, without a space before it."""
    fields = b"".join(
        _varint(field << 3 | VARINT) + _varint(0) for field in (ADD_DUMMY_PREFIX, REMOVE_EXTRA_WHITESPACES)
    )
    return model + _bytes_field(NORMALIZER_SPEC, fields)


def control_piece(token: int) -> Piece:
    """The piece of a control symbol."""
    return Piece(SYMBOLS[token], 0.0, UNKNOWN_PIECE if token == UNK else CONTROL_PIECE)


def rearranged(model: bytes, ids: Mapping[str, int], size: int, unk: int, eos: int) -> tuple[bytes, list[int]]:
    """A model whose ids are ours, for a vocabulary that has its own ids for the pieces.

    ids: of the other vocabulary, by piece; size: its entries, named or not; unk, eos: its control symbols
    returns: the model, and for each of our ids that of the other vocabulary; -1 for PAD and BOS, which it may lack

    Pieces that the vocabulary lacks come last, and count as its unknown word.
    """
    known = {piece.text: piece for piece in read_pieces(model)}
    names = {number: text for text, number in ids.items()}
    own_ids = {token: token for token in range(len(SYMBOLS))}
    pieces = list(map(control_piece, own_ids))
    rows, taken = [-1, -1, eos, unk], set(SYMBOLS)
    for number in range(size):
        if number in (unk, eos):
            continue
        text = names.get(number, "")
        if LANGUAGE_TAG.fullmatch(text):  # the first word of a line, which a segmenter does not know
            text = SPACE_MARK + text
            known[text] = Piece(text, 0.0, USER_DEFINED_PIECE)
        piece = known.get(text, Piece(text, 0.0, UNUSED_PIECE))
        if not text or text in taken or piece.kind in (UNKNOWN_PIECE, CONTROL_PIECE):
            piece = Piece(f"{UNUSED_NAME}-{number}>", 0.0, UNUSED_PIECE)
        pieces.append(piece)
        rows.append(number)
        taken.add(piece.text)
    missing = [
        piece
        for piece in known.values()
        if piece.text not in taken and piece.kind not in (UNKNOWN_PIECE, CONTROL_PIECE)
    ]
    return with_pieces(model, [*pieces, *missing], own_ids), [*rows, *[unk] * len(missing)]


def _encoded(piece: Piece) -> bytes:
    score = _varint(2 << 3 | FIXED32) + struct.pack("<f", piece.score)
    return _bytes_field(1, piece.text.encode()) + score + _varint(3 << 3 | VARINT) + _varint(piece.kind)


def _varint(value: int) -> bytes:
    encoded, value = bytearray(), value % (1 << 64)  # negative numbers by their two's complement
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _bytes_field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(content)) + content
