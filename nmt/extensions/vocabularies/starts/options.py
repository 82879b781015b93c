"""The options class of this extension's start, which has no options."""

from typing import ClassVar

from nmt import options_class


@options_class
class VocabularyExtensionOptions:
    """No options: the start applies whenever the data has an extended vocabulary (nmt prepare --extend)."""

    fitting_data: ClassVar[str] = "add --extend for new entries"
