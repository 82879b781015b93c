"""The options of texts that are more than a line. Without torch, so that `--help` answers at once."""

from typing import Any, Literal

from nmt import opt, options_class

MarkupName = Literal["none", "html", "xml"]


@options_class
class TextOptions:
    split: bool = opt(
        False, "translate each sentence of a line on its own; white space between them, blank lines too, stays"
    )
    markup: MarkupName = opt(
        "none",
        "tags that the text has, and placeholders: each comes back, where the attention says; html or xml",
        excludes=("replace_unk",),
    )
    glossary: str | None = opt(
        None,
        "file of terms and the translations that they must have: a term, a tab and its translation on each line",
        excludes=("beam_graph",),
    )
    repair: bool = opt(
        False, "translate again, otherwise, what repeats itself or where a part is missing; a warning tells of each"
    )

    def __post_init__(self) -> None:
        if self.markup == "html" and getattr(self, "format", "text") != "text":
            raise ValueError("--markup: are of lines of text (leave it out with --format)")
        given = [flag for flag in ("split", "markup", "repair") if getattr(self, flag) not in (False, "none")]
        check_lines_only(self, given)


def check_lines_only(options: Any, given: list[str]) -> None:
    """Raise ValueError if an option needs whole lines, and another, one of those given, divides them."""
    for flag in given:
        for name in ("alignment", "word_scores", "raw_tokens"):
            if getattr(options, name, None):
                detail = name.replace("_", "-")
                raise ValueError(
                    f"--{flag}, --{detail}: a text in parts has no words to number (leave one of them out)"
                )
        if getattr(options, "min_confidence", None) is not None:
            raise ValueError(f"--{flag}, --min-confidence: a text in parts has no confidence (leave one of them out)")
    if given and getattr(options, "is_drawn", False):
        raise ValueError("--attention, --beam-graph: draw whole lines (leave --split, --markup and --repair out)")
