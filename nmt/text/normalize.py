"""Normalisation: one way of writing what can be written in several, done here and nowhere else.

sentencepiece's own normalisation is switched off (`identity`), so that a text pipeline has one place that alters text.
"""

import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from nmt.text.corpus import clean

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
            text = unicodedata.normalize("NFC" if self.form == "nfc" else "NFKC", text)
        if self.punctuation:
            text = self._moses.normalize(text)
        return text.lower() if self.lowercase else text

    @cached_property
    def _moses(self) -> Any:
        from sacremoses import MosesPunctNormalizer  # slow to import, so only when asked for

        return MosesPunctNormalizer(lang=self.language)
