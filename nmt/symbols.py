"""The four control symbols and their ids, the same in every vocabulary (text never produces one), and the kinds of columns."""

from typing import Final, Literal

PAD: Final = 0
BOS: Final = 1
EOS: Final = 2
UNK: Final = 3
SYMBOLS: Final = ("<pad>", "<s>", "</s>", "<unk>")

ColumnKind = Literal["pair", "target", "links"]  # what each value belongs to: see nmt.batch.Column
