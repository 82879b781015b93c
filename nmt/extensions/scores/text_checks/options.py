"""Options of the text checks."""

from typing import Literal

from nmt import opt, options_class


@options_class
class UnicodeFormOptions:
    normalization: Literal["none", "nfc", "nfkc"] = opt(
        "none", "Unicode form in which to compare hypotheses and references; 'none' changes nothing", group="Metrics"
    )
