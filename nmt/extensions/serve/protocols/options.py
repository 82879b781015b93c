"""The options of protocols, which become flags of `nmt serve`."""

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
