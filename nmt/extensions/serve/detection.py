"""Detects a text's language among those of the server's models, using py3langid's byte n-grams (Lui and Baldwin, 2012)."""

import re
import threading
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, Final

from nmt.extensions.serve.codes import nearest_code

MAX_READ_CHARACTERS: Final = 2000  # maximum to examine; more would not improve the detection
NO_LANGUAGE: Final = re.compile(r"<[^<>]*>|&[#\w]{1,32};|https?://\S+")  # tags, entities and web addresses
_loading: Final = threading.Lock()  # makes simultaneous requests load the detector only once


def likely_languages(text: str, codes: Iterable[str]) -> list[tuple[str, float]]:
    """The likely languages of a text, most likely first, with probabilities that sum to 1.

    Languages that the detector does not know are omitted, so the list may be empty. The first call takes almost a second.
    """
    words = NO_LANGUAGE.sub(" ", text).strip() or text
    with _loading:
        identifier = _identifier()
    scores: dict[str, float] = dict(identifier.rank(words[:MAX_READ_CHARACTERS]))
    code_by_label: dict[str, str] = {}
    for code in codes:
        if label := _label(code):
            code_by_label.setdefault(label, code)
    total = sum(scores[label] for label in code_by_label)
    if not total:
        return []
    return sorted(((code, scores[label] / total) for label, code in code_by_label.items()), key=lambda row: -row[1])


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # imported late: its model takes 80 MB of memory

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@lru_cache(1 << 10)
def _label(code: str) -> str | None:
    labels: Sequence[str] = _identifier().labels
    return nearest_code(code, labels)
