"""The options of texts that are more than a line. Without torch, so that `--help` answers at once."""

from typing import ClassVar, Final, Literal

from nmt import opt, options_class

MarkupName = Literal["none", "html", "xml"]
# Options that number words, or show the search of a line: a text in parts has neither.
OF_WHOLE_LINES: Final = ("alignment", "word_scores", "raw_tokens", "min_confidence", "attention", "beam_graph")


@options_class
class TextOptions:
    needs_attention: ClassVar[str] = "--markup"

    split: bool = opt(
        False,
        "translate each sentence of a line on its own; white space between sentences stays, also blank lines",
        excludes=OF_WHOLE_LINES,
    )
    markup: MarkupName = opt(
        "none",
        "put the tags and placeholders of the text back where the attention says; html or xml",
        excludes=("replace_unk", *OF_WHOLE_LINES),
    )
    glossary: str | None = opt(
        None,
        "file of terms with the translations that they must have: TERM TAB TRANSLATION on each line",
        excludes=("beam_graph",),
    )
    repair: bool = opt(
        False,
        "translate again, with other searches, what repeats itself or lacks a part; a warning reports each",
        excludes=OF_WHOLE_LINES,
    )
    check: bool = opt(
        False,
        "check each line for lost placeholders and sentences, as --split and --markup always do",
        excludes=OF_WHOLE_LINES,
    )

    def __post_init__(self) -> None:
        if self.markup == "html" and getattr(self, "format", "text") != "text":
            raise ValueError("--markup and --format cannot be combined (drop one of them, or add --format text)")
