"""The text settings of one side of a corpus: language, Unicode form, tokenizer, subwords."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from nmt.text.forms import UnicodeForm

ALWAYS_SAVED: Final = {"truecase"}  # fields that are always part of a saved pipeline, and thus of its hash


@dataclass(frozen=True)
class SideSettings:
    """The text settings of one side.

    language: language code, such as "en"; also selects punctuation rules and the tokenizer's language
    normalization: Unicode form, a key of UNICODE_FORMS
    normalize_punctuation: whether Moses' rules for punctuation are applied (sacremoses)
    lowercase: whether all text is lower-cased
    tokenizer: name of a component of the kind `tokenizer`
    subword: name of a component of the kind `subword`, which determines the class of the vocabulary
    right_to_left: whether a model reads the tokens from last to first
    user_symbols: words that are never altered or split, such as language tags
    context: maximum number of previous sentences to read with a line (nmt.text.context); source only
    reversible: whether the tokenizer is the lossless variant; absent in earlier pipelines
    language_case: whether lower-casing follows the rules of the language; absent in earlier pipelines
    """

    language: str
    normalization: UnicodeForm
    normalize_punctuation: bool
    lowercase: bool
    tokenizer: str
    subword: str
    truecase: bool = False
    right_to_left: bool = False
    user_symbols: tuple[str, ...] = ()
    context: int = 0
    reversible: bool = False
    language_case: bool = False

    def to_json(self) -> dict[str, Any]:
        """The settings to save. Fields with default values are omitted, so that new fields do not change existing hashes."""
        defaults = {field.name: field.default for field in fields(self) if field.name not in ALWAYS_SAVED}
        return {key: value for key, value in asdict(self).items() if key not in defaults or value != defaults[key]}
