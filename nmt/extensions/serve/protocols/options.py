"""The options of protocols, which are flags of `nmt serve`."""

from nmt.options import opt, options_class


@options_class
class PageOptions:
    page: bool = opt(True, "a page for people at /")
