"""Tokens as shown in pictures, with spaces instead of subword markers, and the words that the tokens belong to."""

from collections.abc import Sequence
from typing import Final

from nmt.symbols import BOS, EOS, SYMBOLS, UNK

WORD_START: Final = "\u2581"  # sentencepiece's marker in front of a token that starts a word
WORD_CONTINUES: Final = "@@"  # subword-nmt's marker after a token whose word continues
SYMBOL_NAMES: Final = {
    SYMBOLS[BOS]: "\u27e8start\u27e9",
    SYMBOLS[EOS]: "\u27e8end\u27e9",
    SYMBOLS[UNK]: "\u27e8unknown\u27e9",
}


def readable_token(token: str) -> str:
    """A token with a space instead of sentencepiece's marker, and a name instead of a control symbol."""
    return SYMBOL_NAMES.get(token, token.replace(WORD_START, " "))


def readable_text(tokens: Sequence[str]) -> str:
    """The text of tokens, without the end symbol."""
    words: dict[int, str] = {}
    tokens = tokens[:-1] if tokens and tokens[-1] == SYMBOLS[EOS] else tokens
    for token, number in zip(tokens, word_numbers(tokens), strict=True):
        words[number] = words.get(number, "") + readable_token(token).removesuffix(WORD_CONTINUES).strip()
    return " ".join(words.values())


def word_numbers(tokens: Sequence[str]) -> list[int]:
    """The index of each token's word. Without subword markers, each token is a word."""
    marks_starts = any(token.startswith(WORD_START) for token in tokens)
    numbers = [0] * len(tokens)
    for i in range(1, len(tokens)):
        is_symbol = tokens[i] in SYMBOL_NAMES or tokens[i - 1] in SYMBOL_NAMES
        starts = tokens[i].startswith(WORD_START) if marks_starts else not tokens[i - 1].endswith(WORD_CONTINUES)
        numbers[i] = numbers[i - 1] + (is_symbol or starts)
    return numbers
