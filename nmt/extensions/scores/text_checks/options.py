"""The options of checks."""

from typing import Literal

from nmt import opt, options_class


@options_class
class UnicodeFormOptions:
    normalization: Literal["none", "nfc", "nfkc"] = opt(
        "none", "Unicode form in which hypotheses and references are compared; none compares them as they are"
    )
