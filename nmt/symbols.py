"""The four control symbols with their ids, which are the same in every vocabulary, and the marks within tokens.

<unk> is the only control symbol that encoding a text can produce.
"""

from typing import Final

PAD: Final = 0
BOS: Final = 1
EOS: Final = 2
UNK: Final = 3
SYMBOLS: Final = ("<pad>", "<s>", "</s>", "<unk>")
SEPARATOR: Final = "<sep>"  # a user symbol that follows each sentence of the context
SPACE_MARK: Final = "\u2581"  # stands for a space in sentencepiece, which also reads it as a space in text
PIECE_MARK: Final = "@@"  # in subword-nmt, shows that the word continues in the next piece
