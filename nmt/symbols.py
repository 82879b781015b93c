"""The four control symbols and their ids, which are the same in every vocabulary. Text can produce no symbol but <unk>."""

from typing import Final

PAD: Final = 0
BOS: Final = 1
EOS: Final = 2
UNK: Final = 3
SYMBOLS: Final = ("<pad>", "<s>", "</s>", "<unk>")
