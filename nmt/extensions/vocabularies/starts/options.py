"""The options of the starts of this extension: none."""

from typing import ClassVar

from nmt import options_class


@options_class
class VocabularyExtensionOptions:
    """Data with an extended vocabulary (nmt prepare --extend) says it all."""

    fitting_data: ClassVar[str] = "add --extend for new entries"
