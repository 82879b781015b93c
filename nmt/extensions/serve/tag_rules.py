"""Rules for the tags that a client names: which tags end a sentence, which do not, and which keep their text untranslated.

The text parser classifies a tag by its name after the colon, and keeps placeholders. So tags are disguised for it:
`<note>` becomes `<n0.note:p>` if it ends a sentence and `<n0.note:g>` otherwise. An untranslated element becomes `{n0.1}`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

CLIENT_TAG: Final = re.compile(r"<(/?)([A-Za-z_][\w:.-]*+)((?:\"[^\"]*\"|'[^']*'|[^'\"<>]){0,1000}+)>")
SPLITTING_NAME, INLINE_NAME = "p", "g"


@dataclass(frozen=True)
class TagRules:
    """What happens to tags, by their names.

    ignored: tags whose text is not translated
    splitting: tags that end a sentence
    inline: tags that do not end a sentence
    outline: whether the parser classifies all other tags; if not, they are inline
    """

    ignored: frozenset[str] = field(default_factory=frozenset)
    splitting: frozenset[str] = field(default_factory=frozenset)
    inline: frozenset[str] = field(default_factory=frozenset)
    outline: bool = True


class Disguise:
    """Disguises texts and restores them, even inside longer texts such as translations and warnings."""

    def __init__(self, rules: TagRules, texts: Iterable[str]) -> None:
        used = {number for text in texts for number in re.findall(r"n(\d+)\.", text)}
        self._rules, self._elements = rules, dict[str, str]()
        self._prefix = next(f"n{i}." for i in count() if str(i) not in used)

    def put_on(self, text: str) -> str:
        parts, at = list[str](), 0
        for start, end in self._ignored(text):
            parts += [self._renamed(text[at:start]), placeholder := f"{{{self._prefix}{len(self._elements)}}}"]
            self._elements[placeholder] = text[start:end]
            at = end
        return "".join([*parts, self._renamed(text[at:])])

    def taken_off(self, text: str) -> str:
        prefix = re.escape(self._prefix)
        text = re.sub(rf"(?<=[</]){prefix}([\w:.-]*?):[pg](?=[\s/>])", r"\1", text)
        return re.sub(rf"\{{{prefix}\d+\}}", lambda found: self._elements.get(found[0], found[0]), text)

    def _ignored(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each outermost element that contains untranslated text."""
        name, start, depth = "", 0, 0
        for found in CLIENT_TAG.finditer(text) if self._rules.ignored else ():
            is_closing, is_single = bool(found[1]), found[3].endswith("/")
            if not depth and found[2] in self._rules.ignored and not is_closing and not is_single:
                name, start, depth = found[2], found.start(), 1
            elif depth and found[2] == name and not is_single:
                depth += -1 if is_closing else 1
                if not depth and CLIENT_TAG.sub("", text[start : found.end()]).strip():
                    yield start, found.end()

    def _renamed(self, text: str) -> str:
        def new(found: re.Match[str]) -> str:
            slash, name, attributes = found.groups()
            kind = SPLITTING_NAME if name in self._rules.splitting else INLINE_NAME
            is_named = name in self._rules.splitting or name in self._rules.inline
            return (
                f"<{slash}{self._prefix}{name}:{kind}{attributes}>" if is_named or not self._rules.outline else found[0]
            )

        return CLIENT_TAG.sub(new, text) if self._rules != TagRules() else text
