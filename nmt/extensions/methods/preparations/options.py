"""Options of the preparations in this extension. This module does not import torch, so that `--help` is fast."""

import re
from typing import Any, Final

from nmt import opt, options_class

ALIGNMENT_COLUMN: Final = "alignment"


@options_class
class AlignOptions:
    align: bool = opt(
        False,
        "align the tokens of the training pairs, for training with --criterion guided-alignment",
        group="Text",
    )

    def __post_init__(self) -> None:
        preparing: Any = self  # the complete class has all options of `nmt prepare`
        if self.align and not preparing.names_training:
            raise ValueError("--align needs training pairs (add --train, or --source and --target)")
        if self.align and any(re.match(f"{ALIGNMENT_COLUMN}[:=]", column) for column in preparing.column):
            raise ValueError(f"--align and --column {ALIGNMENT_COLUMN} create the same column (drop one of them)")
