"""Options classes of toolkits that nmt can only import from, or only export to."""

from typing import ClassVar

from nmt.options import options_class


@options_class
class ReadOnlyOptions:
    """Options of toolkits whose models `nmt export` cannot write."""

    writes: ClassVar[bool] = False


@options_class
class WriteOnlyOptions:
    """Options of toolkits whose models `nmt import` cannot read."""

    reads: ClassVar[bool] = False
