"""Rewrites a SentencePiece model, a protocol buffer, with other pieces or with its pieces in a different order.

SentencePiece segments by the texts and scores of the pieces, so the order of pieces is arbitrary. Message and field numbers are
those of sentencepiece_model.proto.
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
from nmt.symbols import BOS, EOS, PAD, SPACE_MARK, SYMBOLS, UNK

TRAINER_SPEC: Final = 2  # fields of ModelProto
NORMALIZER_SPEC: Final = 3
ADD_DUMMY_PREFIX: Final = 3  # fields of NormalizerSpec
REMOVE_EXTRA_WHITESPACES: Final = 4
MODEL_TYPE: Final = 3  # a field of TrainerSpec
UNIGRAM_MODEL, BPE_MODEL = 1, 2  # values of MODEL_TYPE; the others are words and characters
ID_FIELDS: Final = {UNK: 40, BOS: 41, EOS: 42, PAD: 43}  # fields of TrainerSpec for ids; those for names are 5 higher
SENTENCEPIECE_START: Final = b"\n"  # first byte of a model: the tag of the field PIECES
LANGUAGE_TAG: Final = re.compile(r">>\S+<<")  # language tags of OPUS-MT's multilingual models
UNUSED_NAME: Final = "<unused"  # prefix of the names of entries that no text uses


def read_model(model: bytes) -> tuple[int, list[Piece]]:
    """The model's type (a value of MODEL_TYPE) and its pieces. Raises ValueError for anything but a SentencePiece model."""
    specs = (content for field, content in fields_of(model) if field == TRAINER_SPEC and isinstance(content, bytes))
    types = [
        value for spec in specs for field, value in fields_of(spec) if field == MODEL_TYPE and isinstance(value, int)
    ]
    return types[-1] if types else UNIGRAM_MODEL, read_pieces(model)


def with_pieces(model: bytes, pieces: Sequence[Piece], ids: Mapping[int, int]) -> bytes:
    """The same model with other pieces. ids: ids of control symbols from nmt.symbols; missing symbols get no id"""
    rest = b"".join(
        _bytes_field(field, content)
        for field, content in fields_of(model)
        if field != PIECES and isinstance(content, bytes)
    )
    # Protocol buffers merge repeated messages, and later fields win.
    symbols = b"".join(
        _varint(number << 3 | VARINT) + _varint(ids.get(token, -1)) + _bytes_field(number + 5, SYMBOLS[token].encode())
        for token, number in ID_FIELDS.items()
    )
    written = b"".join(_bytes_field(PIECES, _encoded(piece)) for piece in pieces)
    return written + rest + _bytes_field(TRAINER_SPEC, symbols)


def with_more_pieces(model: bytes, pieces: Sequence[Piece]) -> bytes:
    """The same model with more pieces at the end. Concatenated messages are merged, so appending the new fields is enough."""
    return model + b"".join(_bytes_field(PIECES, _encoded(piece)) for piece in pieces)


def without_prefix(model: bytes) -> bytes:
    """The same model, but without a space added before each text."""
    fields = b"".join(
        _varint(field << 3 | VARINT) + _varint(0) for field in (ADD_DUMMY_PREFIX, REMOVE_EXTRA_WHITESPACES)
    )
    return model + _bytes_field(NORMALIZER_SPEC, fields)


def control_piece(token: int) -> Piece:
    """The piece for a control symbol."""
    return Piece(SYMBOLS[token], 0.0, UNKNOWN_PIECE if token == UNK else CONTROL_PIECE)


def rearranged(model: bytes, ids: Mapping[str, int], size: int, unk: int, eos: int) -> tuple[bytes, list[int]]:
    """Reorder a model to nmt's ids, for another toolkit's vocabulary that has its own ids for the pieces.

    ids: the other vocabulary's ids by piece
    size: number of its entries, including those without a name
    unk, eos: ids of its control symbols
    returns: the model, and the other vocabulary's id for each of nmt's ids; -1 for PAD and BOS, which it may lack

    Pieces that are not in the vocabulary come last, and are treated as unknown words.
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
        if LANGUAGE_TAG.fullmatch(text):  # tags start a line, and segmenters do not know them
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
    encoded, value = bytearray(), value % (1 << 64)  # negative numbers as two's complement
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _bytes_field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(content)) + content
