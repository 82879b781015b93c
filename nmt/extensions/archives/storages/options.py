"""Options of the storages in this extension. There are none."""

from typing import ClassVar

from nmt import options_class


@options_class
class TableColumnsOptions:
    """No options: the columns are part of the file name."""

    chooses_columns: ClassVar[str] = "choose two columns by number or name: FILE:1,2"
