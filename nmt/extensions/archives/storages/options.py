"""The options of the storages of this extension: none."""

from typing import ClassVar

from nmt import options_class


@options_class
class TableColumnsOptions:
    """The name of a text says it all."""

    chooses_columns: ClassVar[str] = "choose two by number or name: FILE:1,2"
