"""Options of the metrics in this extension; see also `nmt.metrics.options`."""

from typing import ClassVar

from nmt.metrics.options import BleuOptions, ChrfOptions
from nmt.options import opt, options_class


@options_class
class ChrfPlusOptions(ChrfOptions):
    """The same options as chrF."""


@options_class
class CometOptions:
    in_training: ClassVar[bool] = True

    comet_model: str | None = opt(
        None,
        "COMET checkpoint file; use only files that you trust, because loading runs code",
        group="Metrics",
        must_stay=True,
        metavar="FILE",
    )


@options_class
class GleuOptions(BleuOptions):
    """The same options as BLEU, because GLEU counts the same tokens."""


@options_class
class PaperBleuOptions:
    target_lang: str | None = opt(
        None,
        "language of the references, for the Moses tokenizer; default: from the model or file names",
        group="Metrics",
        metavar="LANG",
    )
