"""The options of this extension's preparation. It has no flags; they say when it runs."""

from nmt import options_class
from nmt.data.options import PrepareOptions


@options_class
class LostTextOptions:
    def is_active(self) -> bool:
        """Whether the text may have a tokenizer: this command's own, or that of --vocabulary."""
        return isinstance(self, PrepareOptions) and (self.tokenizer != "none" or self.vocabulary is not None)
