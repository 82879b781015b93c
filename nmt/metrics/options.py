"""The options of metrics. Each is one flag of `nmt evaluate` and `nmt sweep`, shared by all metrics that have it.

If an options class sets `in_training`, its options are also flags of `nmt train`, for validation metrics.
"""

from typing import Final

from nmt.options import AUTO, opt, options_class

TARGET_LANG_HELP: Final = (
    "target language, which determines the tokenizer; by default taken from the model or file names (ref.zh)"
)


@options_class
class BleuOptions:
    tokenize: str = opt(
        AUTO, "sacreBLEU tokenizer, such as 13a, intl or char; auto chooses by target language", group="Metrics"
    )
    target_lang: str | None = opt(None, TARGET_LANG_HELP, group="Metrics", metavar="LANG")
    lowercase: bool = opt(False, "ignore case when comparing", group="Metrics")


@options_class
class ChrfOptions:
    lowercase: bool = opt(False, "ignore case when comparing", group="Metrics")


@options_class
class TerOptions:
    case_sensitive: bool = opt(False, "make TER case-sensitive (sacreBLEU ignores case by default)", group="Metrics")
    target_lang: str | None = opt(None, TARGET_LANG_HELP, group="Metrics", metavar="LANG")
