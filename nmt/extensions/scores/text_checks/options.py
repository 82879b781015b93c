"""The options of checks."""

from typing import Literal

from nmt import opt, options_class


@options_class
class UnicodeFormOptions:
    normalization: Literal["none", "nfc", "nfkc"] = opt(
        "none", "compare hypotheses and references in this Unicode form; none compares them as they are"
    )
