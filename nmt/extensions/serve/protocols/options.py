"""The options of protocols, which become flags of `nmt serve`."""

from nmt.options import opt, options_class


@options_class
class PageOptions:
    page: bool = opt(True, "serve a web page for users at /", group="Input and output", common=True)
