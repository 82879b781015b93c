"""Normalisation: one way of writing what can be written in several, done here and nowhere else.

sentencepiece's own normalisation is switched off (`identity`), so that a text pipeline has one place that alters text.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, Final, Literal

from nmt.text.corpus import clean

UNICODE_FORMS: Final[dict[str, Literal["NFC", "NFKC"]]] = {"nfc": "NFC", "nfkc": "NFKC"}
NOT_TEXT_BUT_LF: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")  # nmt.text.corpus.NOT_TEXT without it
Form = Literal["nfc", "nfkc", "none"]


@dataclass(frozen=True)
class Normalizer:
    """Text -> text of one line: Unicode form, then Moses punctuation, then lower case.

    language: of the punctuation rules ("en")
    """

    language: str
    form: Form
    punctuation: bool
    lowercase: bool

    def __call__(self, text: str) -> str:
        text = clean(text)
        if self.form != "none":
            text = unicodedata.normalize(UNICODE_FORMS[self.form], text)
        if self.punctuation:
            text = self._moses.normalize(text)
        return text.lower() if self.lowercase else text

    def batch(self, texts: Sequence[str]) -> list[str]:
        """Each text normalised, many times faster than one by one: a line feed, which is in none of them, divides them."""
        if not texts:
            return []
        joined = "\n".join(map(str.replace, texts, repeat("\n"), repeat(" ")))
        lines = NOT_TEXT_BUT_LF.sub(" ", joined).split("\n")
        if self.form != "none":  # line by line, for most are in their form already, which is soon seen
            lines = list(map(unicodedata.normalize, repeat(UNICODE_FORMS[self.form]), lines))
        if self.punctuation:
            lines = [self._moses.normalize(line) for line in lines]
        return [line.lower() for line in lines] if self.lowercase else lines

    @cached_property
    def _moses(self) -> Any:
        from sacremoses import MosesPunctNormalizer  # slow to import, so only when asked for

        return MosesPunctNormalizer(lang=self.language)
