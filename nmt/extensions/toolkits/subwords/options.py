"""The options of the subwords of this extension."""

from typing import ClassVar

from nmt.options import options_class


@options_class
class ForeignPiecesOptions:
    can_learn: ClassVar[bool] = False  # imported models alone have them
