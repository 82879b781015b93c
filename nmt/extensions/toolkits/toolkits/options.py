"""Options classes of toolkits that nmt can only import from, or only export to."""

from typing import ClassVar

from nmt.options import options_class


@options_class
class ReadOnlyOptions:
    """For toolkits that `nmt export` cannot write for."""

    writes: ClassVar[bool] = False


@options_class
class WriteOnlyOptions:
    """For toolkits that `nmt import` cannot read from."""

    reads: ClassVar[bool] = False
