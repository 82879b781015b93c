"""Reads the pieces of a SentencePiece model from its file, a protocol buffer.

Message and field numbers are those of sentencepiece_model.proto. The package's own `sentencepiece_model_pb2` is not used,
because it requires a recent version of protobuf that conflicts with other packages.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

PIECES: Final = 1  # a field of ModelProto
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
NORMAL_PIECE, UNKNOWN_PIECE, CONTROL_PIECE, USER_DEFINED_PIECE, UNUSED_PIECE = 1, 2, 3, 4, 5  # types of pieces
MAX_VARINT_BYTES: Final = 10


class Piece(NamedTuple):
    """An entry of a SentencePiece model. kind: one of the types above, or 6 for a byte"""

    text: str
    score: float
    kind: int


def read_pieces(model: bytes) -> list[Piece]:
    """The pieces, in the order of their ids. Raises ValueError for anything but a SentencePiece model."""
    pieces = [_piece(content) for field, content in fields_of(model) if field == PIECES and isinstance(content, bytes)]
    if not pieces:
        raise ValueError("it has no pieces")
    return pieces


def _piece(content: bytes) -> Piece:
    fields = dict(fields_of(content))
    text, score, kind = fields.get(1, b""), fields.get(2, b"\0\0\0\0"), fields.get(3, NORMAL_PIECE)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or len(score) != 4 or not isinstance(kind, int):
        raise ValueError("a piece is malformed")
    return Piece(text.decode(), struct.unpack("<f", score)[0], kind)


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message. Raises ValueError for a truncated message."""
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        kind = key & 7
        if kind == VARINT:
            value, place = _read_varint(message, place)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, place = _read_varint(message, place)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"it has a field of unknown type {kind}")
        if place + size > len(message):
            raise ValueError("it is truncated")
        yield key >> 3, message[place : place + size]
        place += size


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(message[place : place + MAX_VARINT_BYTES]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, place + shift + 1
    raise ValueError("it is truncated")
