"""The language of a text, among those that a server knows: py3langid's byte n-grams (Lui and Baldwin, 2012)."""

import re
import threading
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, Final

from nmt.extensions.serve.codes import nearest_code

MAX_READ_CHARACTERS: Final = 2000  # of a text, which tell its language as well as all
NO_LANGUAGE: Final = re.compile(r"<[^<>]*>|&[#\w]{1,32};|https?://\S+")  # tags, entities and addresses
_loading: Final = threading.Lock()  # many requests at once must not each load the detector


def likely_languages(text: str, codes: Iterable[str]) -> list[tuple[str, float]]:
    """The codes of languages that a text may be in, the likeliest first, with probabilities that sum to 1.

    Languages that the detector lacks are left out, so that there may be none. The first call takes most of a second.
    """
    words = NO_LANGUAGE.sub(" ", text).strip() or text
    with _loading:
        identifier = _identifier()
    scores: dict[str, float] = dict(identifier.rank(words[:MAX_READ_CHARACTERS]))
    of_labels: dict[str, str] = {}
    for code in codes:
        if label := _label(code):
            of_labels.setdefault(label, code)
    total = sum(scores[label] for label in of_labels)
    if not total:
        return []
    return sorted(((code, scores[label] / total) for label, code in of_labels.items()), key=lambda row: -row[1])


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # its model takes 80 MB of memory

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@lru_cache(1 << 10)
def _label(code: str) -> str | None:
    labels: Sequence[str] = _identifier().labels
    return nearest_code(code, labels)
