"""Treats signs and numbers that a vocabulary lacks as placeholders, because a model can neither read nor write them."""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Final

from nmt.extensions.texts.passages import Kept, Passage
from nmt.symbols import UNK
from nmt.text.pipeline import Side

OTHER_SIGNS: Final = "%‰&@#*§¶†‡•/\\"  # signs that Unicode classifies as punctuation


def with_unseen_signs(passage: Passage, side: Side, write: Callable[[str], str]) -> Passage:
    """Add any signs and numbers that the side's vocabulary lacks to the kept items. write: formats text between tags"""

    @cache  # because long texts repeat words and characters
    def lacks(part: str) -> bool:
        return UNK in side.encode(part)

    if not lacks(passage.text):
        return passage
    kept = list(passage.kept)
    for start, end in _unseen(passage.masked(" "), lacks, side.prepare.tags):
        own = passage.text[start:end]
        kind = "word" if any(map(str.isnumeric, own)) else "mark"
        kept.append(Kept(start, end, write(own), kind))  # type: ignore[arg-type]
    return replace(passage, kept=tuple(sorted(kept))).with_neighbours()


def _unseen(text: str, lacks: Callable[[str], bool], tags: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the positions of symbols and numbers that are missing from a vocabulary. Those inside words are skipped."""
    for word in re.finditer(r"\S+", text):
        if word[0] in tags or not lacks(word[0]):
            continue
        for has_letters, places in groupby(
            range(*word.span()), lambda i: unicodedata.category(text[i])[0] not in "NPS"
        ):
            run = list(places)
            num_neighbours = (run[0] > word.start()) + (run[-1] + 1 < word.end())
            signs = [] if has_letters else [i for i in run if _is_sign(text[i])]
            if not signs or num_neighbours > any(not text[i].isnumeric() for i in signs):
                continue
            if lacks(text[signs[0] : signs[-1] + 1]):
                unseen = [i for i in signs if lacks(text[i])] or signs  # the vocabulary may contain each sign alone
                yield unseen[0], unseen[-1] + 1


def _is_sign(character: str) -> bool:
    """Whether a character is a digit or a symbol. Punctuation does not count, because it differs between languages."""
    return unicodedata.category(character)[0] in "NS" or character in OTHER_SIGNS
