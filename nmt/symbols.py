"""The four control symbols and their ids, the same in every vocabulary. Text never produces one."""

from typing import Final

PAD: Final = 0
BOS: Final = 1
EOS: Final = 2
UNK: Final = 3
SYMBOLS: Final = ("<pad>", "<s>", "</s>", "<unk>")
