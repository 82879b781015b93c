"""Options classes of toolkits whose models nmt only reads, or only writes."""

from typing import ClassVar

from nmt.options import options_class


@options_class
class ReadOnlyOptions:
    """For toolkits whose models `nmt export` cannot write."""

    writes: ClassVar[bool] = False


@options_class
class WriteOnlyOptions:
    """For toolkits whose models `nmt import` cannot read."""

    reads: ClassVar[bool] = False
