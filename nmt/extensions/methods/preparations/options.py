"""The options of the preparations of this extension. Without torch, so that `--help` answers at once."""

import re
from typing import Any, Final

from nmt import opt, options_class

ALIGNMENT_COLUMN: Final = "alignment"


@options_class
class AlignOptions:
    align: bool = opt(
        False,
        "learn links between the tokens of the training pairs, as the column 'alignment' for --criterion "
        "guided-alignment",
    )

    def __post_init__(self) -> None:
        preparing: Any = self  # it has all options of `nmt prepare`
        if self.align and not preparing.names_training:
            raise ValueError("--align is about training pairs, and none are named (--train, or --source and --target)")
        if self.align and any(re.match(f"{ALIGNMENT_COLUMN}[:=]", column) for column in preparing.column):
            raise ValueError(f"--align and --column {ALIGNMENT_COLUMN}: both give this column (leave one out)")
