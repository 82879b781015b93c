"""The options class of this extension's start, which has no options."""

from typing import ClassVar

from nmt import options_class


@options_class
class VocabularyExtensionOptions:
    """No options: the extended vocabulary of the data (nmt prepare --extend) says everything."""

    fitting_data: ClassVar[str] = "add --extend for new entries"
