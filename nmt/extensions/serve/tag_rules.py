"""Tags that a client names: at which a sentence ends, at which none ends, and whose text stays as it is.

The parser of texts judges a tag by its name behind the colon, and by `translate="no"`. So a named tag gets another name while its
text is translated: `<note>` is `<n0.note:p>` if a sentence ends at it, else `<n0.note:g>`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

TAG_NAME: Final = re.compile(r"(</?)([A-Za-z_][\w:.-]*)(?=[\s/>])")
SPLITTING, INLINE_NAME, IGNORED = "p", "g", 'x translate="no"'


@dataclass(frozen=True)
class TagRules:
    """What is done with tags, by their names.

    ignored: their text is not translated
    splitting: a sentence ends at them
    inline: no sentence ends at them
    outline: the parser judges all other tags; else they are inline
    """

    ignored: frozenset[str] = field(default_factory=frozenset)
    splitting: frozenset[str] = field(default_factory=frozenset)
    inline: frozenset[str] = field(default_factory=frozenset)
    outline: bool = True

    def renamed(self, text: str, prefix: str) -> str:
        """The text with other names for its tags. prefix: see `free_prefix`"""

        def new(found: re.Match[str]) -> str:
            start, name = found.groups()
            if (kind := self._kind(name)) is None:
                return found[0]
            return f"{start}{prefix}{name}:{kind.partition(' ')[0] if start == '</' else kind}"

        return TAG_NAME.sub(new, text) if self != TagRules() else text

    def _kind(self, name: str) -> str | None:
        """The name behind the colon that a tag gets; None for a tag that stays as it is."""
        if name in self.ignored:
            return IGNORED
        if name in self.splitting:
            return SPLITTING
        return INLINE_NAME if name in self.inline or not self.outline else None


def original_names(text: str, prefix: str) -> str:
    """A text with the first names of its tags."""
    return re.sub(rf'(?<=[</]){re.escape(prefix)}([\w:.-]*?):(?:x translate="no"|[xpg])(?=[\s/>])', r"\1", text)


def free_prefix(texts: Iterable[str]) -> str:
    """The beginning of a name that no text has."""
    whole = "".join(texts)
    return next(prefix for prefix in (f"n{i}." for i in count()) if prefix not in whole)
