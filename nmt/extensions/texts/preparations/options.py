"""The options of the preparations of this extension, none so far."""

from nmt import options_class
from nmt.data.options import PrepareOptions


@options_class
class LostTextOptions:
    def is_active(self) -> bool:
        """Whether the text may have a tokenizer: that of this command, or of --vocabulary."""
        return isinstance(self, PrepareOptions) and (self.tokenizer != "none" or self.vocabulary is not None)
