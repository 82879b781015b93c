"""Normalisation of raw text: control characters, Unicode form, punctuation, case.

To add a Unicode form, write a function and name it in `UNICODE_FORMS`. sentencepiece's own normalisation is switched
off, so that no other file alters text.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Literal

NOT_TEXT_BUT_LF: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")  # nmt.text.corpus.NOT_TEXT without LF


UNICODE_FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    "nfc": partial(unicodedata.normalize, "NFC"),  # `e` and a combining accent become one character
    "nfkc": partial(unicodedata.normalize, "NFKC"),  # and ligatures, full-width and circled characters plain ones
    "none": str,
}
if TYPE_CHECKING:
    UnicodeForm = str
else:
    UnicodeForm = Literal[tuple(UNICODE_FORMS)]  # the choices of `--normalization`


@dataclass(frozen=True)
class Normalizer:
    """The normalisation of the text of one language.

    language: of the rules for punctuation: "en"
    form: the Unicode form, a name in UNICODE_FORMS
    punctuation: whether Moses' rules for punctuation follow (sacremoses)
    lowercase: whether all text is lower-cased at last
    """

    language: str
    form: UnicodeForm
    punctuation: bool
    lowercase: bool

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """Each text normalised, as one line. Control characters are replaced in all texts at once: much faster."""
        if not texts:
            return []
        joined = "\n".join(map(str.replace, texts, repeat("\n"), repeat(" ")))
        lines = list(map(UNICODE_FORMS[self.form], NOT_TEXT_BUT_LF.sub(" ", joined).split("\n")))
        if self.punctuation:
            lines = list(map(self._moses.normalize, lines))
        return list(map(str.lower, lines)) if self.lowercase else lines

    @cached_property
    def _moses(self) -> Any:
        from sacremoses import MosesPunctNormalizer  # imported when used: it takes a second

        return MosesPunctNormalizer(lang=self.language)
