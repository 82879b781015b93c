"""The options of details of translations. Without torch, so that `--help` answers at once."""

from nmt import opt, options_class
from nmt.options import flag_of

OF_LINES = "alignment", "word_scores", "min_confidence", "replace_unk"


@options_class
class DetailOptions:
    word_scores: bool = opt(False, "print nats of each word and of the end (with --raw-tokens of each token)")
    alignment: str | None = opt(
        None,
        "print the word alignment by attention: hard (Pharaoh's i-j), soft (all weights), or pairs above a weight from 0 to "
        "1; with --raw-tokens between tokens",
    )
    min_confidence: float | None = opt(
        None,
        "give an empty line where the confidence, the geometric mean of the tokens' probabilities, is less; --json tells it; "
        "the temperature of a calibrated model applies",
        minimum=0,
        maximum=1,
    )
    replace_unk: bool = opt(
        False, "replace each unknown word by the source word with the most attention", excludes=("raw_tokens",)
    )
    unk_dictionary: str | None = opt(
        None, "file of source words and their translations, one pair a line", needs=("replace_unk",)
    )

    def __post_init__(self) -> None:
        if self.alignment not in (None, "hard", "soft") and not _is_weight(self.alignment):
            raise ValueError(f"--alignment {self.alignment}: must be hard, soft, or a number from 0 to 1")
        given = [flag_of(name) for name in OF_LINES if getattr(self, name) not in (None, False)]
        if given and (format := getattr(self, "format", "text")) != "text":
            raise ValueError(
                f"{', '.join(given)}: only for lines of text, not with --format {format} (drop one of them)"
            )


def _is_weight(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False
