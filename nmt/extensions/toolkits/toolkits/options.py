"""What nmt cannot do with the models of a toolkit."""

from typing import ClassVar

from nmt.options import options_class


@options_class
class ReadOnlyOptions:
    """A toolkit whose models `nmt export` does not write."""

    writes: ClassVar[bool] = False


@options_class
class WriteOnlyOptions:
    """A format that `nmt import` does not read."""

    reads: ClassVar[bool] = False
