"""The options of protocols, which become flags of `nmt serve`."""

import re

from nmt.errors import quoted
from nmt.options import opt, options_class


@options_class
class PageOptions:
    page: bool = opt(True, "serve a web page for users at /", group="Input and output", common=True)


@options_class
class DeepLOptions:
    glossaries: str | None = opt(
        None,
        "folder for clients' glossaries; default: memory",
        group="Input and output",
        common=True,
        metavar="FOLDER",
    )


@options_class
class OpenAIOptions:
    prompt_pattern: tuple[str, ...] = opt(
        (),
        "regular expression whose group is the text in a prompt",
        group="Input and output",
        metavar="REGEX",
    )

    def __post_init__(self) -> None:
        for pattern in self.prompt_pattern:
            try:
                groups = re.compile(pattern, re.DOTALL).groups
            except re.error as error:
                raise ValueError(f"--prompt-pattern {quoted(pattern)}: not a regular expression: {error}") from None
            if not groups:
                raise ValueError(
                    f"--prompt-pattern {quoted(pattern)} has no group (put parentheses around the text, as in 'Text: (.*)')"
                )
