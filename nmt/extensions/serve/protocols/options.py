"""The options of protocols, which become flags of `nmt serve`."""

from nmt.options import opt, options_class


@options_class
class PageOptions:
    page: bool = opt(True, "show a web page for people at /", group="Input and output", common=True)
