"""The options of metrics. Each is a flag of `nmt evaluate` and `nmt sweep`, one for all metrics that have it.

Those of a class with `in_training` are flags of `nmt train` too, for the metrics of validations.
"""

from typing import Final

from nmt.options import AUTO, opt, options_class

TARGET_LANG_HELP: Final = "target language, for the tokenizer; default: the model's, or from file names (ref.zh)"


@options_class
class BleuOptions:
    tokenize: str = opt(
        AUTO, "sacreBLEU's tokenizer: 13a, intl, char, ...; auto: by target language, none: for tokenised text"
    )
    target_lang: str | None = opt(None, TARGET_LANG_HELP)
    lowercase: bool = opt(False, "compare without case")


@options_class
class ChrfOptions:
    lowercase: bool = opt(False, "compare without case")


@options_class
class TerOptions:
    case_sensitive: bool = opt(False, "TER compares with case; sacreBLEU's default is without")
    target_lang: str | None = opt(None, TARGET_LANG_HELP)
