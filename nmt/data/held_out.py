"""Keys for finding training pairs that repeat a held-out sentence, so that training never sees held-out text."""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

MIN_BYTES: Final = (1, 24)  # minimum bytes of source and target; a target such as "Yes." translates many sources
MARKS_AND_SPACES: Final = re.compile(
    r"[\s!-/:-@\[-`{-~\x7f-\xbf\u060c\u061b\u061f\u0964\u0965\u2000-\u206f\u3000-\u303f\ufeff]+"
)


def pair_keys(sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.uint64]:
    """(N, 2) keys of sources and targets, which ignore case, punctuation and spaces; 0 stands for no key."""
    keys = np.zeros((len(sources), 2), np.uint64)
    for side, texts in enumerate((sources, targets)):
        for i, text in enumerate(texts):
            bare = MARKS_AND_SPACES.sub("", unicodedata.normalize("NFKC", text)).casefold().encode()
            if len(bare) >= MIN_BYTES[side]:
                keys[i, side] = int.from_bytes(hashlib.blake2b(bare, digest_size=8).digest())
    return keys


def repeats(keys: NDArray[np.uint64], held_out: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """(N,) whether a pair shares its source or target with a held-out pair. keys: (N, 2); held_out: (M, 2)"""
    found = [np.isin(keys[:, side], held_out[:, side]) & (keys[:, side] > 0) for side in (0, 1)]
    return np.asarray(found[0] | found[1])
