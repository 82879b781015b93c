"""The options of the starts of this extension: none."""

from nmt import options_class


@options_class
class VocabularyExtensionOptions:
    """Data with an extended vocabulary (nmt prepare --extend) says it all."""
