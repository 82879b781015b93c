"""The options of this extension's preparation. Imports no torch, so that `--help` is fast."""

from typing import Any, ClassVar

from nmt import opt, options_class
from nmt.data.options import MAX_VOCABULARY, PrepareOptions


@options_class
class ExtensionOptions:
    adds_entries: ClassVar[str] = "--extend-with FILE adds entries"

    extend: int = opt(
        0,
        "add up to this many entries, learned from the training text, to --vocabulary",
        group="Subwords and vocabulary",
        minimum=0,
        maximum=MAX_VOCABULARY,
    )
    extend_with: str | None = opt(
        None,
        "file of words to add to --vocabulary, such as tags and names, one per line",
        group="Subwords and vocabulary",
        metavar="FILE",
    )

    def is_active(self) -> bool:
        """Whether the vocabulary may get new entries: from these options, or for the separator of a context."""
        needs_separator = isinstance(self, PrepareOptions) and self.vocabulary is not None and self.context > 0
        return bool(self.extend or self.extend_with) or needs_separator

    def __post_init__(self) -> None:
        preparing: Any = self  # the object has all options of `nmt prepare`
        if (self.extend or self.extend_with) and preparing.vocabulary is None:
            flag = "--extend" if self.extend else "--extend-with"
            raise ValueError(f"{flag} needs a vocabulary to add entries to (add --vocabulary MODEL)")
        if self.extend and not preparing.names_training:
            raise ValueError(f"--extend {self.extend} needs training text to learn entries from (add --train PREFIX)")
