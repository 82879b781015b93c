"""The options class of this extension's preparation. It adds no flags; it only decides when the preparation runs."""

from nmt import options_class
from nmt.data.options import PrepareOptions


@options_class
class LostTextOptions:
    def is_active(self) -> bool:
        """Whether the text may be tokenized, by --tokenizer or by the text steps of --vocabulary."""
        return isinstance(self, PrepareOptions) and (self.tokenizer != "none" or self.vocabulary is not None)
