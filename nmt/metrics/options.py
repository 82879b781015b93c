"""The options of metrics. Each is a flag of `nmt evaluate` and `nmt sweep`, one for all metrics that have it.

Those of a class with `in_training` are flags of `nmt train` too, for the metrics of validations.
"""

from nmt.options import opt, options_class


@options_class
class BleuOptions:
    tokenize: str = opt("13a", "sacreBLEU's tokenizer (13a, intl, char, ...); none for text that is tokenised already")
    lowercase: bool = opt(False, "compare without case")


@options_class
class ChrfOptions:
    lowercase: bool = opt(False, "compare without case")


@options_class
class TerOptions:
    case_sensitive: bool = opt(False, "TER compares with case; sacreBLEU's default is without")
