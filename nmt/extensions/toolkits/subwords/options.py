"""The options of this extension's subwords."""

from typing import ClassVar

from nmt.options import options_class


@options_class
class ForeignPiecesOptions:
    can_learn: ClassVar[bool] = False  # only imported models have such subwords
