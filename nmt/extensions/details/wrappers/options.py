"""Options for the details of translations. This module does not import torch, so that `--help` is fast."""

from nmt import opt, options_class
from nmt.options import flag_of

OF_LINES = "alignment", "word_scores", "min_confidence", "replace_unk"


@options_class
class DetailOptions:
    word_scores: bool = opt(
        False,
        "print the log-probability in nats of each word and of the end of the sentence",
        group="Details of the output",
    )
    alignment: str | None = opt(
        None,
        "print word alignments from attention: hard (i-j pairs), soft (all weights), or a number (minimum weight)",
        group="Details of the output",
    )
    min_confidence: float | None = opt(
        None,
        "print an empty line for translations below this confidence (geometric mean of token probabilities)",
        group="Details of the output",
        minimum=0,
        maximum=1,
    )
    replace_unk: bool = opt(
        False,
        "replace each unknown word with the source word that gets the most attention",
        group="Details of the output",
        excludes=("raw_tokens",),
    )
    unk_dictionary: str | None = opt(
        None,
        "file of source words and their translations for --replace-unk, one pair per line",
        group="Details of the output",
        needs=("replace_unk",),
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        if self.alignment not in (None, "hard", "soft") and not _is_weight(self.alignment):
            raise ValueError(f"--alignment {self.alignment}: must be hard, soft, or a number between 0 and 1")
        given = [flag_of(name) for name in OF_LINES if getattr(self, name) not in (None, False)]
        if given and (format := getattr(self, "format", "text")) != "text":
            raise ValueError(
                f"{', '.join(given)} works only on lines of text, not with --format {format} (drop one of them)"
            )


def _is_weight(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False
