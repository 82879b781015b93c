"""The options for texts with several sentences or markup. Imports no torch, so that `--help` is fast."""

from typing import ClassVar, Final, Literal

from nmt import opt, options_class

MarkupName = Literal["none", "html", "xml"]
# These options index the words of a line or show its search. Neither is possible for a text translated in parts.
OF_WHOLE_LINES: Final = ("alignment", "word_scores", "raw_tokens", "min_confidence", "attention", "beam_graph")


@options_class
class TextOptions:
    needs_attention: ClassVar[str] = "--markup"

    split: bool = opt(
        False,
        "translate each sentence of a line separately",
        group="Documents and markup",
        common=True,
        excludes=OF_WHOLE_LINES,
    )
    markup: MarkupName = opt(
        "none",
        "keep tags and placeholders, placed by attention",
        group="Documents and markup",
        common=True,
        excludes=("replace_unk", *OF_WHOLE_LINES),
    )
    glossary: str | None = opt(
        None,
        "file of required terms: TERM TAB TRANSLATION",
        group="Constraints and terms",
        common=True,
        excludes=("beam_graph",),
        metavar="FILE",
    )
    repair: bool = opt(
        False,
        "retry translations that repeat themselves or lose text, and warn about them",
        group="Failures",
        excludes=OF_WHOLE_LINES,
    )
    check: bool = opt(
        False,
        "check each line for lost placeholders and sentences; always on with --split or --markup",
        group="Failures",
        excludes=OF_WHOLE_LINES,
    )

    def __post_init__(self) -> None:
        if self.markup == "html" and getattr(self, "format", "text") != "text":
            raise ValueError("--markup and --format cannot be combined (drop one of them, or use --format text)")
