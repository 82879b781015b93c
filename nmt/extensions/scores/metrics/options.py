"""The options of metrics, see `nmt.metrics.options`."""

from typing import ClassVar

from nmt.metrics.options import BleuOptions, ChrfOptions
from nmt.options import opt, options_class


@options_class
class ChrfPlusOptions(ChrfOptions):
    """Those of chrF."""


@options_class
class CometOptions:
    in_training: ClassVar[bool] = True

    comet_model: str | None = opt(
        None,
        "checkpoint of a COMET model, a file; COMET's library unpickles it, so give only files that you trust",
        must_stay=True,
    )


@options_class
class GleuOptions(BleuOptions):
    """Those of BLEU, whose tokens it counts."""


@options_class
class PaperBleuOptions:
    target_lang: str | None = opt(
        None,
        "language of the references, for the Moses tokeniser: de, fr, ...; with --paper, none is the model's, else the "
        "ending of the reference's name: ref.de",
    )
